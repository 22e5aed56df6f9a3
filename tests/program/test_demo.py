#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The demo: one sends, three check; nothing stays behind."""

import json
import os
import pty
import signal

from program import FAKE_DRIVER, PROGRAM, ProgramTest, main

KEYS = {
    "ok", "frames_sent", "frames_received", "torn", "lost", "skipped", "consumers", "channel", "kind",
    "path", "reason", "pattern", "format", "width", "height", "ready_seconds", "seconds", "fps", "latency_p50_us",
    "latency_p99_us", "per_consumer",
}  # fmt: skip


def children_of(pid):
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat", encoding="utf-8") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            found.append(int(entry))
    return found


def exists(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Demo(ProgramTest):
    def test_json(self):
        result = self.run_json("demo", "--seconds", 1, "--size", "320x240")
        self.assertEqual(set(result), KEYS)
        self.check_documented("demo", KEYS)
        self.assertIs(result["ok"], True)
        self.assertGreater(result["frames_sent"], 0)
        self.assertGreaterEqual(result["frames_received"], result["frames_sent"])
        self.assertEqual((result["torn"], result["lost"], result["consumers"]), (0, 0, 3))
        self.assertEqual(
            [one["policy"] for one in result["per_consumer"]], ["every", "latest", "order"]
        )
        self.assertEqual(result["per_consumer"][0]["frames_received"], result["frames_sent"])
        self.assertEqual((result["width"], result["height"]), (320, 240))
        self.assertTrue(result["kind"] and result["path"] and result["reason"])
        self.check_sums(result)

    def check_sums(self, result):
        """Where each frame is, by the consumers' own counts."""
        for one in result["per_consumer"]:
            self.assertEqual(
                one["frames_received"] + one["skipped"], result["frames_sent"], result["per_consumer"]
            )
            self.assertEqual(one["lost"], 0)

    def test_text(self):
        out, errors = self.run_program("demo", "--seconds", 0.3, "--size", "160x120", "--kind", "host")
        lines = out.splitlines()
        self.assertEqual(errors, "")  # no live line where there is no terminal
        self.assertNotIn("\033", out)
        self.assertTrue(lines[0].endswith(": 160x120 RGBA8, kind host, shared memory"), lines[0])
        self.assertRegex(lines[1], r"^ready after \d+\.\d s")
        self.assertTrue(lines[-1].startswith("ok: every byte of "), out)
        self.assertEqual(sum(line.startswith("consumer ") for line in lines), 3)

    def test_as_fast_as_possible_with_many(self):
        result = self.run_json(
            "demo", "--seconds", 0.5, "--size", "64x64", "--fps", 0, "--pattern", "check",
            "--consumers", 9, "--format", "NV12",
        )  # fmt: skip
        self.assertIs(result["ok"], True)
        self.assertEqual(result["consumers"], 9)
        self.check_sums(result)

    def test_small_and_odd_pictures(self):
        for size in ("1x1", "3x1", "127x3", "1919x2"):
            with self.subTest(size=size):
                result = self.run_json(
                    "demo", "--seconds", 0.2, "--size", size, "--pattern", "check"
                )
                self.assertIs(result["ok"], True)

    def test_too_small_for_the_counter(self):
        self.assertIn("check", self.fail_program("demo", "--size", "4x4", code=2))

    def start_endless(self, *arguments, **options):
        """A demo that sends already, and its consumers: every, latest, order."""
        process = self.start("demo", "--seconds", 600, "--size", "64x64", *arguments, **options)
        self.run_program("recv", f"demo-{process.pid}", "--count", 3)
        children = sorted(children_of(process.pid))
        self.assertEqual(len(children), 3)
        return process, children

    def test_interrupt(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with self.subTest(number=number):
                process, children = self.start_endless()
                self.interrupt(process, number)
                self.assertFalse(any(map(exists, children)))

    def test_interrupt_of_all(self):
        """Ctrl-C goes to all processes of the group at once, and so does the SIGTERM of timeout(1); the
        demo still ends in order."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with self.subTest(number=number):
                process, children = self.start_endless(start_new_session=True)
                os.killpg(process.pid, number)
                out, errors = self.finish(process, 128 + number)
                self.assertIn("torn 0", out)
                self.assertEqual(errors, "")
                self.assertFalse(any(map(exists, children)))

    def test_a_consumer_is_killed(self):
        process, children = self.start_endless("--json")
        os.kill(children[0], signal.SIGKILL)
        result = json.loads(self.finish(process, 1)[0])
        self.assertIs(result["ok"], False)
        self.assertEqual([one["exit_code"] for one in result["per_consumer"]], [137, 0, 0])
        self.assertGreater(result["lost"], 0)

    def test_nothing_counts_before_all_have_a_frame(self):
        """On the fake driver; its consumers never come to the end of their start."""
        self.environment["LD_LIBRARY_PATH"] = FAKE_DRIVER
        self.environment["FAKECUDA_FAIL"] = "cuMemImportFromShareableHandle:0:-1000"
        process = self.start("demo", "--seconds", 600, "--size", "64x64", "--kind", "vmm", "--json")
        name = f"demo-{process.pid}"
        self.wait_for(lambda: len(self.consumers_of(name)) == 3, "three consumers have joined")
        self.wait_for(lambda: self.ask_json("info", name)["published"] >= 1, "a frame is sent")
        result = json.loads(self.interrupt(process)[0])
        self.assertEqual((result["frames_sent"], result["frames_received"]), (0, 0))

    def consumers_of(self, name):
        listed = self.start("info", name, "--json")
        out, _ = listed.communicate(timeout=60)
        return json.loads(out)["consumers"] if listed.returncode == 0 else []

    def test_interrupt_at_once(self):
        """Before the consumers have joined: it ends in order all the same."""
        process = self.start("demo", "--seconds", 600, "--size", "64x64")
        self.wait_for_line(process, "channel demo-")
        self.interrupt(process)


class KilledDemo(ProgramTest):
    leaves_nothing = False  # a killed process can't remove its files; the next producer does

    def test_consumers_end_with_the_demo(self):
        process = self.start("demo", "--seconds", 600, "--size", "64x64")
        self.wait_for_line(process, "channel demo-")
        self.wait_for(lambda: len(children_of(process.pid)) == 3, "three consumers run")
        children = children_of(process.pid)
        process.kill()
        self.wait_for(lambda: not any(map(exists, children)), "the consumers end")


class Terminal(ProgramTest):
    def run_on_terminal(self, **variables):
        """Everything that the demo writes to a terminal."""
        pid, terminal = pty.fork()
        if pid == 0:
            os.environ.update(self.environment)
            os.environ.update(variables)
            arguments = ["demo", "--seconds", "1", "--size", "64x64"]
            os.execv(PROGRAM, [PROGRAM, *arguments])
        text = b""
        while True:
            try:
                piece = os.read(terminal, 65536)
            except OSError:  # EIO: the last process has closed it
                break
            if not piece:
                break
            text += piece
        os.close(terminal)
        self.assertEqual(os.waitpid(pid, 0)[1], 0, text)
        return text.decode()

    def test_live_line_and_colour(self):
        text = self.run_on_terminal()
        self.assertIn(" fps ", text)
        self.assertIn("latency", text)
        self.assertIn("\033[32mok", text)

    def test_no_colour(self):
        self.assertNotIn("\033[3", self.run_on_terminal(NO_COLOR="1"))

    def test_dumb_terminal(self):
        text = self.run_on_terminal(TERM="dumb")
        self.assertNotIn("\033", text)
        self.assertIn("ok: ", text)


main()
