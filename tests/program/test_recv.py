#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The receiving side: any start order, replaced producers, full disks, closed pipes, signals."""

import fcntl
import json
import os
import pty
import resource
import select
import signal
import struct
import subprocess
import termios
from pathlib import Path

from program import ProgramTest, main

KEYS = {
    "channel", "frames_received", "missed", "invalid", "checked", "torn", "bytes", "seconds", "fps",
    "wait_seconds", "sessions", "evictions", "kind", "path", "reason", "format", "width", "height",
    "latency_p50_us", "latency_p99_us",
}  # fmt: skip
EVERY = ("--policy", "every")
SMALL = ("--size", "16x8", "--fps", 0)
SMALL_BYTES = 16 * 8 * 4


class Recv(ProgramTest):
    def send(self, *arguments, name="x"):
        """Sends a little, once a consumer is there."""
        return self.run_json("send", name, *SMALL, "--wait-consumers", 1, *arguments)

    def size_of(self, name):
        return os.path.getsize(self.path(name))

    def test_json(self):
        receiver = self.start("recv", "x", "--once", *EVERY, "--check", "--json")
        self.send("--pattern", "check", "--count", 5)
        result = json.loads(self.finish(receiver)[0])
        self.assertEqual(set(result), KEYS)
        self.check_documented("recv", KEYS)
        self.assertEqual((result["frames_received"], result["checked"]), (5, 5))
        self.assertEqual((result["torn"], result["missed"], result["sessions"]), (0, 0, 1))
        self.assertEqual((result["kind"], result["format"]), ("host", "RGBA8"))

    def test_text(self):
        receiver = self.start("recv", "x", "--once", *EVERY, "--check")
        self.send("--pattern", "check", "--count", 5)
        out, errors = self.finish(receiver)
        self.assertIn("received 5 frames", out)
        self.assertIn("checked 5 frames, torn 0", out)
        self.assertIn("\nkind host, shared memory\n", out)
        self.assertEqual(errors, "")  # no live line where there is no terminal

    def test_one(self):
        """Is counted as one."""
        receiver = self.start("recv", "x", "--once", *EVERY, "--check")
        out, _ = self.run_program(
            "send", "x", "--pattern", "check", "--count", 1, "--size", "16x8", "--wait-consumers", 1
        )
        self.assertRegex(out, r"sent 1 frame in .*; \d waits?, 0 consumers evicted")
        out, _ = self.finish(receiver)
        self.assertIn("received 1 frame in ", out)
        self.assertIn("checked 1 frame, torn 0", out)

    def test_check_can_fail(self):
        receiver = self.start("recv", "x", "--once", *EVERY, "--check", "--json")
        self.send("--pattern", "noise", "--count", 5)
        out, errors = self.finish(receiver, 1)
        self.assertEqual(json.loads(out)["torn"], 5)
        self.assertIn("5 frames are not what send --pattern check sends", self.one_line(errors))

    def test_producer_replaced(self):
        """Goes on by itself, whether the producer ended or was killed."""
        receiver = self.start("recv", "x", *EVERY, "--check", "--count", 9, "--json")
        self.send("--pattern", "check", "--count", 3)
        self.send("--pattern", "check", "--count", 3, "--format", "NV12")
        self.send("--pattern", "check", "--count", 3, "--slots", 8)
        result = json.loads(self.finish(receiver)[0])
        self.assertEqual((result["frames_received"], result["sessions"]), (9, 3))
        self.assertEqual((result["torn"], result["missed"]), (0, 0))

    def test_other_size_begins_another_file(self):
        receiver = self.start("recv", "x", *EVERY, "--count", 6, "--out", "out.y4m")
        for size in ("16x8", "32x8", "16x8"):
            self.send("--format", "I420", "--size", size, "--count", 2)
        self.finish(receiver)
        for name, header in [("out", b" W16 "), ("out-2", b" W32 "), ("out-3", b" W16 ")]:
            data = Path(self.path(name + ".y4m")).read_bytes()
            self.assertIn(header, data.splitlines()[0])
            self.assertEqual(data.count(b"FRAME\n"), 2)

    def test_other_size_on_stdout(self):
        receiver = self.start("recv", "x", *EVERY, "--out", "-")
        for size in ("16x8", "32x8"):
            self.send("--size", size, "--count", 1)
        out, errors = receiver.communicate(timeout=60)
        self.assertEqual(receiver.returncode, 4)
        self.assertIn("32 x 8", self.one_line(errors.decode()))
        self.assertEqual(len(out), SMALL_BYTES)

    def test_two_that_want_every_frame(self):
        receivers = [
            self.start("recv", "x", *EVERY, "--once", "--check", "--json") for _ in range(2)
        ]
        self.send("--wait-consumers", 2, "--pattern", "check", "--count", 200)
        for receiver in receivers:
            self.assertEqual(json.loads(self.finish(receiver)[0])["frames_received"], 200)

    def test_group(self):
        receivers = [
            self.start("recv", "x", "--group", "g", "--once", "--check", "--json") for _ in range(2)
        ]
        self.send("--wait-consumers", 2, "--pattern", "check", "--count", 100)
        results = [json.loads(self.finish(receiver)[0]) for receiver in receivers]
        self.assertEqual(sum(result["frames_received"] for result in results), 100)

    def test_killed(self):
        """kill -9 of one consumer: the sender and the other one go on."""
        killed = self.start("recv", "x", *EVERY, "--out", "-")
        other = self.start("recv", "x", *EVERY, "--once", "--check", "--json")
        sender = self.start(
            "send", "x", *SMALL, "--pattern", "check", "--wait-consumers", 2, "--count", 300, "--json"
        )
        killed.stdout.read(10 * SMALL_BYTES)
        killed.kill()
        self.assertEqual(json.loads(self.finish(sender)[0])["frames_sent"], 300)
        result = json.loads(self.finish(other)[0])
        self.assertEqual((result["frames_received"], result["torn"]), (300, 0))

    def test_no_such_channel(self):
        line = self.fail_program("recv", "nobody", "--timeout", 0.2, code=3)
        self.assertIn("'nobody'", line)
        self.assertIn("cudalink send", line)
        self.assertIn(str(self.channels), line)  # where it looked

    def test_policies_by_other_names(self):
        """As C and Python call them."""
        for name, shown in [("in_order", "order"), ("READY_ONLY", "ready"), ("latest", "latest")]:
            receiver = self.start("recv", "x", "--policy", name, "--once")
            sender = self.start("send", "x", "--size", "16x8", "--fps", 50)
            self.wait_for_line(sender, "channel x")
            self.wait_for(lambda: self.ask_json("info", "x")["consumers"], "it is there")
            (consumer,) = self.ask_json("info", "x")["consumers"]
            self.assertEqual(consumer["policy"], shown)
            self.interrupt(sender)
            self.finish(receiver)

    def test_near(self):
        sender = self.start("send", "camera", "--size", "8x8")
        self.wait_for_line(sender, "channel camera")
        line = self.fail_program("recv", "camra", "--timeout", 0.2, code=3)
        self.assertIn("no channel 'camra'; did you mean 'camera'?", line)
        self.interrupt(sender)

    def test_both_ends_count_the_same_bytes(self):
        """Rows are padded in slots, more so of planes: the pixels count."""
        receiver = self.start("recv", "x", *EVERY, "--once", "--json")
        sent = self.run_json(
            "send", "x", "--format", "I420", "--size", "640x480", "--count", 3, "--fps", 0,
            "--wait-consumers", 1,
        )  # fmt: skip
        received = json.loads(self.finish(receiver)[0])
        self.assertEqual((sent["bytes"], received["bytes"]), (3 * 640 * 480 * 3 // 2,) * 2)

    def test_no_frame(self):
        sender = self.start("send", "x", "--size", "8x8", "--wait-consumers", 2)
        self.wait_for_line(sender, "channel x")
        line = self.fail_program("recv", "x", "--timeout", 2, code=3)  # it has to join in that
        self.assertIn("sends nothing", line)
        self.interrupt(sender)

    def test_producer_goes(self):
        receiver = self.start("recv", "x", *EVERY, "--timeout", 5)  # the sender has to start in that
        self.send("--count", 3)
        out, errors = self.finish(receiver, 3)
        self.assertIn("received 3 frames", out)
        self.assertIn("its producer has gone", self.one_line(errors))

    def test_seconds_without_a_producer(self):
        result = self.run_json("recv", "x", "--seconds", 0.1)
        self.assertEqual((result["frames_received"], result["kind"]), (0, None))
        self.assertGreaterEqual(result["seconds"], 0.1)
        self.assertEqual(result["wait_seconds"], result["seconds"])

    def test_seconds_are_those_of_the_run(self):
        """Not from the first frame to the last, which is less than was asked for."""
        sender = self.start("send", "x", *SMALL[:2], "--fps", 100)
        self.wait_for_line(sender, "channel x")
        result = self.run_json("recv", "x", "--seconds", 0.5)
        self.assertGreaterEqual(result["seconds"], 0.5)
        self.assertLess(result["wait_seconds"], result["seconds"])
        self.interrupt(sender)

    def test_it_says_how_long_it_waited(self):
        sender = self.start("send", "x", *SMALL, "--count", 2, "--wait-consumers", 2)
        receiver = self.start("recv", "x", *EVERY, "--once")
        self.wait_for_line(sender, "channel x")
        self.wait_for(lambda: self.ask_json("info", "x")["consumers"], "it is there")
        self.assertFalse(select.select([receiver.stdout], [], [], 0.2)[0])  # so long at least
        self.finish(self.start("recv", "x", *EVERY, "--once"))
        self.finish(sender)
        said = r"received 2 frames in \d+\.\d s \(\d+\.\d s until the first\), "
        self.assertRegex(self.finish(receiver)[0], said)

    def test_kind(self):
        receiver = self.start("recv", "x", "--kind", "vmm", "--once")
        self.send("--count", 1)
        self.assertIn("is of kind host", self.one_line(self.finish(receiver, 3)[1]))

    def test_single_picture(self):
        receiver = self.start("recv", "x", *EVERY, "--once", "--out", "out.png")
        self.send("--count", 1)
        self.finish(receiver)
        before = Path(self.path("out.png")).read_bytes()
        line = self.fail_program("recv", "x", "--count", 2, "--out", "out.png", code=2)
        self.assertIn("out.png holds one frame, not 2; --out out/ makes a file for each", line)
        self.assertEqual(Path(self.path("out.png")).read_bytes(), before)
        self.fail_program("recv", "x", "--count", 2, "--out", "x", "--as", "npy", code=2)
        receiver = self.start("recv", "x", *EVERY, "--once", "--count", 2, "--out", "out/")
        self.send("--count", 2)
        self.finish(receiver)
        self.assertEqual(len(list(Path(self.path("out")).iterdir())), 2)

    def test_names_that_promise_another_format(self):
        for name in ("a.jpg", "b.MP4"):
            line = self.fail_program("recv", "x", "--count", 1, "--out", name, code=2)
            self.assertIn(f"no writer for {name[1:].lower()}", line)
            self.assertFalse(os.path.exists(self.path(name)))
        receiver = self.start("recv", "x", *EVERY, "--count", 1, "--out", "a.jpg", "--as", "raw")
        self.send("--count", 1)
        self.finish(receiver)
        self.assertEqual(os.path.getsize(self.path("a.jpg")), SMALL_BYTES)

    def test_pictures_into_a_pipe(self):
        """A pipe takes any number, whatever it is called."""
        os.mkfifo(self.path("pipe.png"))
        receiver = self.start("recv", "x", *EVERY, "--once", "--out", "pipe.png")
        with open(self.path("pipe.png"), "rb") as pipe:
            self.send("--count", 2)
            self.assertEqual(pipe.read().count(b"IHDR"), 2)
        self.finish(receiver)

    def test_format_that_does_not_fit(self):
        receiver = self.start("recv", "x", *EVERY, "--once", "--out", "out.y4m")
        self.send("--count", 1)
        self.assertIn("out.y4m: can't hold", self.one_line(self.finish(receiver, 4)[1]))
        self.assertFalse(os.path.exists(self.path("out.y4m")))

    def test_stdout_is_y4m_where_it_fits(self):
        for form, start in (("I420", b"YUV4MPEG2 "), ("RGBA8", b"")):
            with self.subTest(form=form):
                receiver = self.start("recv", "x", *EVERY, "--once", "--out", "-")
                self.send("--count", 2, "--format", form)
                out, errors = receiver.communicate(timeout=60)
                self.assertEqual((receiver.returncode, errors), (0, b""))
                self.assertTrue(out.startswith(start))
                self.assertEqual(len(out) == 2 * SMALL_BYTES, form == "RGBA8")

    def test_json_beside_stdout(self):
        receiver = self.start("recv", "x", *EVERY, "--once", "--out", "-", "--json")
        self.send("--count", 2)
        _, errors = receiver.communicate(timeout=60)
        self.assertEqual(json.loads(errors)["frames_received"], 2)

    def test_closed_pipe(self):
        """`recv --out - | head -c 1000`"""
        receiver = self.start("recv", "x", "--out", "-")
        sender = self.start("send", "x", "--size", "640x480")
        self.assertEqual(len(receiver.stdout.read(1000)), 1000)
        receiver.stdout.close()
        receiver.stdout = None
        self.assertEqual(self.finish(receiver), ("", ""))
        self.interrupt(sender)

    def test_no_such_folder(self):
        self.assertIn("no/out.y4m", self.fail_program("recv", "x", "--out", "no/out.y4m", code=4))

    def check_disk_full(self, receiver, whole_bytes, name="out.raw"):
        """One line that names the file, and nothing but whole frames."""
        line = self.one_line(self.finish(receiver, 4)[1])
        self.assertIn(f"{name}: write failed", line)
        self.assertEqual(self.size_of("out.raw"), whole_bytes)

    def test_file_size_limit(self):
        limit = 10 * SMALL_BYTES + 100
        receiver = self.start(
            "recv", "x", *EVERY, "--out", "out.raw",
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
        )  # fmt: skip
        sender = self.start("send", "x", *SMALL, "--wait-consumers", 1)
        self.check_disk_full(receiver, 10 * SMALL_BYTES)
        self.interrupt(sender)

    def test_file_size_limit_of_stdout(self):
        """Where the shell leads it into a file; also the first frame is whole, or not there."""
        for whole in (3, 0):
            limit = whole * SMALL_BYTES + 100
            with open(self.path("out.raw"), "wb") as file:
                receiver = self.start(
                    "recv", "x", *EVERY, "--out", "-", "--as", "raw", stdout=file,
                    preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
                )  # fmt: skip
            sender = self.start("send", "x", *SMALL, "--wait-consumers", 1)
            self.check_disk_full(receiver, whole * SMALL_BYTES, "stdout")
            self.interrupt(sender)

    def test_disk_full(self):
        """A file system of 64 KiB, in a mount namespace of its own."""
        inside = ["unshare", "--map-root-user", "--mount"]
        mount = [*inside, "mount", "-t", "tmpfs", "none", self.folder]
        if subprocess.run(mount, stderr=subprocess.DEVNULL).returncode != 0:
            self.skipTest("needs user namespaces")
        script = (
            'mkdir disk && mount -t tmpfs -o size=64k none disk && cd disk && '
            '"$0" recv x --policy every --out out.raw; echo $?; stat -c %s out.raw'
        )
        receiver = subprocess.Popen(
            [*inside, "sh", "-c", script, os.environ["CUDALINK_PROGRAM"]],
            env=self.environment, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        self.started.append(receiver)
        sender = self.start("send", "x", *SMALL)
        out, errors = receiver.communicate(timeout=60)
        code, size = out.decode().splitlines()[-2:]
        self.assertEqual(code, "4", out)
        self.assertIn("out.raw: write failed", self.one_line(errors.decode()))
        self.assertEqual(int(size) % SMALL_BYTES, 0)
        self.interrupt(sender)

    def test_half_a_frame_in_a_folder(self):
        """Three planes are three files; the last of the second frame can't be made, so that frame is not there."""
        os.makedirs(self.path("out/frame_00000001_02.npy"))
        receiver = self.start("recv", "x", *EVERY, "--once", "--out", "out/")
        self.send("--format", "I420", "--count", 2)
        self.assertIn("frame_00000001_02.npy", self.one_line(self.finish(receiver, 4)[1]))
        names = [f"frame_00000000_0{plane}.npy" for plane in range(3)]
        self.assertEqual(sorted(os.listdir(self.path("out"))), [*names, "frame_00000001_02.npy"])

    def test_full_device(self):
        receiver = self.start("recv", "x", *EVERY, "--once", "--out", "/dev/full")
        self.send("--count", 1)
        line = self.one_line(self.finish(receiver, 4)[1])
        self.assertIn("/dev/full", line)
        self.assertIn("No space left", line)

    def test_interrupt_while_nobody_sends(self):
        receiver = self.start("recv", "x", "--out", "out.y4m")
        self.wait_for(lambda: os.path.exists(self.path("out.y4m")), "the file is there")
        _, errors = self.interrupt(receiver)
        self.assertEqual(errors, "")
        self.assertFalse(os.path.exists(self.path("out.y4m")))  # no frame, no file

    def test_a_folder_without_frames(self):
        """The one that recv made goes again; one that was there, or has something in it, stays."""
        made, there = Path(self.path("made")), Path(self.path("there"))
        there.mkdir()
        for name in ("made/", "there/", "there"):
            with self.subTest(name=name):
                self.fail_program("recv", "nobody", "--timeout", 0.1, "--out", name, code=3)
                self.run_program("recv", "nobody", "--seconds", 0.1, "--out", name)
                self.assertFalse(made.exists())
                self.assertTrue(there.is_dir())
        receiver = self.start("recv", "x", "--out", "made/", "--as", "y4m", *EVERY, "--once")
        self.send("--count", 1)
        self.finish(receiver, 4)  # a folder takes no Y4M, so no frame was written
        self.assertFalse(made.exists())
        for has_more in (False, True):
            receiver = self.start("recv", "x", "--out", "made/")
            self.wait_for(made.is_dir, "the folder is there")
            if has_more:
                (made / "mine").touch()
            self.interrupt(receiver)
            self.assertEqual(made.exists(), has_more)

    def test_what_was_in_the_file_stays_until_a_frame_comes(self):
        """A channel that never comes, a format that does not fit: the old file is worth more than none."""
        names = ("out.png", "out.y4m", "out.raw")
        for name in names:
            with self.subTest(name=name):
                Path(self.path(name)).write_bytes(b"precious")
                self.fail_program("recv", "nobody", "--timeout", 0.1, "--out", name, code=3)
                self.run_program("recv", "nobody", "--seconds", 0.1, "--out", name)
                self.assertEqual(Path(self.path(name)).read_bytes(), b"precious")
        receiver = self.start("recv", "x", *EVERY, "--once", "--out", "out.y4m")
        self.send("--count", 1)
        self.finish(receiver, 4)
        self.assertEqual(Path(self.path("out.y4m")).read_bytes(), b"precious")

    def test_what_was_in_the_file_goes_with_the_first_frame(self):
        Path(self.path("out.raw")).write_bytes(b"old" * SMALL_BYTES)
        receiver = self.start("recv", "x", *EVERY, "--once", "--out", "out.raw")
        self.send("--count", 2)
        self.finish(receiver)
        self.assertEqual(os.path.getsize(self.path("out.raw")), 2 * SMALL_BYTES)

    def test_interrupt_while_writing(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(number=number):
                receiver = self.start("recv", "x", *EVERY, "--out", "out.raw", "--json")
                sender = self.start("send", "x", *SMALL, "--wait-consumers", 1)
                self.wait_for_line(sender, "channel x")
                self.wait_for(
                    lambda: os.path.exists(self.path("out.raw")) and self.size_of("out.raw") > 0,
                    "a frame is written",
                )
                out, errors = self.interrupt(receiver, number)
                self.assertEqual(errors, "")
                self.assertEqual(self.size_of("out.raw") % SMALL_BYTES, 0)
                self.assertEqual(json.loads(out)["missed"], 0)
                self.interrupt(sender)
                os.unlink(self.path("out.raw"))

    def test_interrupt_while_the_pipe_is_full(self):
        """Nobody reads stdout; a signal still ends it."""
        receiver = self.start("recv", "x", "--out", "-")
        sender = self.start("send", "x", "--size", "640x480", "--wait-consumers", 1)
        self.wait_for_line(sender, "channel x")
        self.wait_for(lambda: self.is_blocked(receiver.pid), "the pipe is full")
        receiver.send_signal(signal.SIGINT)
        receiver.wait(timeout=60)
        self.assertEqual(receiver.returncode, 128 + signal.SIGINT)
        self.interrupt(sender)

    @staticmethod
    def is_blocked(pid):
        with open(f"/proc/{pid}/wchan", encoding="utf-8") as file:
            return "pipe" in file.read()


class Terminal(ProgramTest):
    def test_stdout_is_a_terminal(self):
        ours, theirs = pty.openpty()
        line = self.fail_program("recv", "x", "--out", "-", code=2, stdout=theirs)
        self.assertIn("would fill the terminal", line)
        os.close(theirs)
        os.close(ours)

    def test_live_line(self):
        """On a terminal: what goes on, and what is waited for; it is gone at the end."""
        ours, theirs = pty.openpty()
        receiver = self.start("recv", "x", stderr=theirs)
        os.close(theirs)
        text = self.read_until(ours, b"", b"waiting for a frame of channel x")
        sender = self.start("send", "x", "--size", "16x8")
        text = self.read_until(ours, text, b" fps ")
        self.interrupt(sender)
        text = self.read_until(ours, text, b"the producer has ended; waiting for the next")
        self.interrupt(receiver)
        text += self.read_rest(ours)
        self.assertTrue(text.endswith(b"\r\x1b[K") or text.endswith(b"\n"), text)

    def test_what_is_not_compared_is_not_in_the_live_line(self):
        for options, parts in (((), ()), (("--check",), (b"torn 0",))):
            ours, theirs = pty.openpty()
            fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 0, 150, 0, 0))
            receiver = self.start("recv", "x", *options, stderr=theirs)
            os.close(theirs)
            sender = self.start("send", "x", "--pattern", "check", "--size", "16x8")
            text = self.read_until(ours, b"", b" 16x8 RGBA8")
            line = text[text.rindex(b"\r") :]
            self.assertRegex(line.decode(), r"latency [\d.]+ (µs|ms|s) \(p50\) [\d.]+ (µs|ms|s) \(p99\)")
            self.assertEqual([part for part in (b"torn 0",) if part in line], list(parts))
            self.interrupt(sender)
            self.interrupt(receiver)
            os.close(ours)

    def test_width_of_a_terminal(self):
        """A size that is not known is what COLUMNS says, else 80."""
        for columns, known, width in (("150", 0, 150), (None, 0, 80), ("150", 30, 30), ("150", 120, 120)):
            self.environment.pop("COLUMNS", None)
            self.environment.update({"COLUMNS": columns} if columns else {})
            ours, theirs = pty.openpty()
            fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 0, known, 0, 0))
            receiver = self.start("recv", "n" * 200, stderr=theirs)
            os.close(theirs)
            line = self.read_until(ours, b"", b"\x1b[K").split(b"\x1b")[0].lstrip(b"\r")
            self.assertEqual(len(line), width - 1, line)
            self.interrupt(receiver)
            os.close(ours)

    def read_until(self, terminal, text, wanted):
        while wanted not in text:
            text += os.read(terminal, 4096)
        return text

    @staticmethod
    def read_rest(terminal):
        text = b""
        try:
            while piece := os.read(terminal, 4096):
                text += piece
        except OSError:  # EIO: nobody has it open any more
            pass
        os.close(terminal)
        return text


class KilledProducer(ProgramTest):
    leaves_nothing = False  # a killed process can't remove its files; the next producer does

    def test_once(self):
        sender = self.start("send", "x", *SMALL, "--wait-consumers", 1)
        receiver = self.start("recv", "x", "--once", "--out", "-")
        receiver.stdout.read(SMALL_BYTES)
        sender.kill()
        _, errors = self.finish(receiver, 3)
        self.assertIn("died", self.one_line(errors))

    def test_replaced(self):
        sender = self.start("send", "x", *SMALL, "--wait-consumers", 1, "--pattern", "check")
        receiver = self.start("recv", "x", "--check", "--policy", "order", "--json", "--count", 3000)
        self.wait_for_line(sender, "channel x")
        sender.kill()
        sender.wait()  # the name is free once it is gone
        sender = self.start("send", "x", *SMALL, "--pattern", "check")
        result = json.loads(self.finish(receiver)[0])
        self.assertEqual((result["frames_received"], result["torn"]), (3000, 0))
        self.interrupt(sender)


main()
