#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The sending side: pipes, damaged files, names in use, signals."""

import json
import os
import signal
import subprocess
from pathlib import Path

from program import ProgramTest, main

KEYS = {
    "channel", "frames_sent", "bytes", "seconds", "fps", "kind", "path", "reason", "format", "width",
    "height", "dropped", "waits", "evicted", "cursors_lost",
    "consumers",
}  # fmt: skip
HEADER = b"YUV4MPEG2 W4 H2 F25:1 Ip A1:1 Cmono\n"
FRAME_BYTES = 8


def frame(number):
    return b"FRAME\n" + bytes([number]) * FRAME_BYTES


class Send(ProgramTest):
    def write(self, name, data):
        Path(self.path(name)).write_bytes(data)
        return name

    def test_json(self):
        result = self.run_json("send", "x", "--size", "64x8", "--count", 3, "--fps", 0)
        self.assertEqual(set(result), KEYS)
        self.check_documented("send", KEYS)
        self.assertEqual((result["channel"], result["frames_sent"]), ("x", 3))
        self.assertEqual((result["format"], result["width"], result["height"]), ("RGBA8", 64, 8))
        self.assertEqual((result["kind"], result["bytes"]), ("host", 3 * 64 * 8 * 4))

    def test_slots(self):
        """As many as the help says, also more than what the library takes without being asked."""
        for count in (3, 17, 64):
            with self.subTest(count=count):
                sender = self.start("send", "x", "--size", "8x8", "--slots", count)
                self.wait_for_line(sender, "channel x")
                self.assertEqual(self.run_json("info", "x")["slots"], count)
                self.interrupt(sender)
        self.assertIn("from 3 to 64", self.fail_program("send", "x", "--slots", 65, code=2))

    def test_text(self):
        out, errors = self.run_program("send", "x", "--size", "16x8", "--count", 3, "--fps", 0)
        self.assertIn("channel x: kind host, shared memory\n", out)
        self.assertIn("sent 3 frames", out)
        self.assertIn("nobody was there; --wait-consumers 1 waits for a consumer\n", out)
        self.assertEqual(errors, "")

    def test_somebody_was_there(self):
        receiver = self.start("recv", "x")
        out, _ = self.run_program("send", "x", "--size", "16x8", "--count", 3, "--wait-consumers", 1)
        self.assertNotIn("nobody", out)
        self.interrupt(receiver)

    def test_patterns(self):
        for pattern in ("bars", "ramp", "zoneplate", "counter", "noise", "check"):
            with self.subTest(pattern=pattern):
                receiver = self.start("recv", "x", "--count", 1, "--once", "--out", "out.png")
                self.run_program(
                    "send", "x", "--pattern", pattern, "--size", "64x32", "--count", 1,
                    "--wait-consumers", 1,
                )  # fmt: skip
                self.finish(receiver)
                Path(self.path("out.png")).unlink()

    def test_slow_writer(self):
        """Each frame goes on as soon as it is whole, and not before."""
        receiver = self.start(
            "recv", "x", "--policy", "every", "--once", "--out", "-", "--as", "raw"
        )
        sender = self.start("send", "x", "-", "--wait-consumers", 1, stdin=subprocess.PIPE)
        sender.stdin.write(HEADER)
        for number in range(4):
            data = frame(number)
            for piece in (data[:3], data[3:9], data[9:]):
                sender.stdin.write(piece)
                sender.stdin.flush()
            self.assertEqual(receiver.stdout.read(FRAME_BYTES), bytes([number]) * FRAME_BYTES)
        sender.stdin.close()
        sender.stdin = None
        self.finish(sender)
        self.assertEqual(self.finish(receiver), ("", ""))

    def test_cut_off(self):
        """Whole frames arrive, then the error says what is missing."""
        data = HEADER + b"".join(map(frame, range(3)))
        for left_out in (1, FRAME_BYTES - 1, FRAME_BYTES, FRAME_BYTES + 3):
            with self.subTest(left_out=left_out):
                self.write("in.y4m", data[:-left_out])
                receiver = self.start(
                    "recv", "x", "--policy", "every", "--once", "--out", "out.raw", "--json"
                )
                sender = self.start("send", "x", "in.y4m", "--wait-consumers", 1, "--json")
                out, errors = self.finish(sender, 4)
                self.assertIn("in.y4m: is cut off in frame 2", self.one_line(errors))
                self.assertEqual(json.loads(out)["frames_sent"], 2)
                self.assertEqual(json.loads(self.finish(receiver)[0])["frames_received"], 2)
                whole = Path(self.path("out.raw")).read_bytes()
                self.assertEqual(whole, bytes(FRAME_BYTES) + b"\1" * FRAME_BYTES)

    def test_damaged_files(self):
        for name, data, text in [
            ("a.y4m", b"", "is empty"),
            ("b.y4m", b"YUV4MPEG2 W0 H0 F25:1 Cmono\nFRAME\n", "width"),
            ("c.y4m", b"YUV4MPEG2 W4 H0 F25:1 Cmono\nFRAME\n", "height"),
            ("d.y4m", b"YUV4MPEG2 W4 H4 F25:1 Cmono", "cut off"),
            ("e.y4m", b"YUV4MPEG2 W99999 H4 F25:1 Cmono\nFRAME\n", "99999"),
            ("f.y4m", HEADER, "no frames"),
            ("g.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "g.png"),
            ("h.npy", b"\x93NUMPY\1\0\x76\0{'descr'", "h.npy"),
            ("i.txt", b"hello, this is text", "--format and --size"),
            ("j.mp4", b"\0\0\0\x20ftypisom", "ffmpeg -i FILE -f yuv4mpegpipe - | cudalink send NAME -"),
            ("k.rec", b"CUDALREC" + bytes(256), "is a recording; cudalink replay sends it"),
        ]:
            with self.subTest(name=name):
                self.write(name, data)
                self.assertIn(text, self.fail_program("send", "x", name, code=4))

    def test_the_name_was_forgotten(self):
        self.write("a.png", b"whatever")
        line = self.fail_program("send", "a.png", code=2)
        self.assertIn("a.png is a file, and no NAME is there: cudalink send NAME a.png", line)
        self.write("cam", b"a plain name may be a file's too")
        for arguments in (["a.png", "--pattern", "bars"], ["cam"], ["b.png"]):
            self.run_program("send", *arguments, "--size", "16x8", "--count", 1)

    def test_no_such_file(self):
        self.assertIn("nowhere.png", self.fail_program("send", "x", "nowhere.png", code=4))
        Path(self.path("folder")).mkdir()
        self.assertIn("folder", self.fail_program("send", "x", "folder", code=4))

    def test_name_in_use(self):
        first = self.start("send", "x", "--size", "8x8")
        self.wait_for_line(first, "channel x")
        line = self.fail_program("send", "x", "--size", "8x8", code=3)
        self.assertIn("'x'", line)
        self.assertIn("cudalink", line)  # by which program
        self.assertIn(str(first.pid), line)
        self.interrupt(first)
        self.run_program("send", "x", "--size", "8x8", "--count", 1)

    def test_loop(self):
        self.write("in.y4m", HEADER + b"".join(map(frame, range(3))))
        sent, _ = self.transfer("in.y4m", "out.raw", send=("--loop", "--count", 8))
        self.assertEqual(sent["frames_sent"], 8)
        data = Path(self.path("out.raw")).read_bytes()
        self.assertEqual(data[::FRAME_BYTES], bytes([0, 1, 2, 0, 1, 2, 0, 1]))

    def test_loop_of_a_pipe(self):
        sender = self.start("send", "x", "-", "--loop", "--fps", 0, stdin=subprocess.PIPE)
        _, errors = sender.communicate(HEADER + frame(1), timeout=60)
        self.assertEqual(sender.returncode, 4)
        self.assertIn("stdin", self.one_line(errors.decode()))

    def test_seconds(self):
        result = self.run_json("send", "x", "--size", "8x8", "--seconds", 0.2, "--fps", 50)
        self.assertLessEqual(result["frames_sent"], 11)
        self.assertGreaterEqual(result["frames_sent"], 1)

    def test_interrupt(self):
        for arguments in (
            ["--size", "8x8"],
            ["--size", "8x8", "--wait-consumers", 1],
            ["--size", "8x8", "--fps", "0.01"],
            ["--size", "8x8", "--fps", 0],
        ):
            for number in (signal.SIGINT, signal.SIGTERM):
                with self.subTest(arguments=arguments, number=number):
                    process = self.start("send", "x", *arguments)
                    self.wait_for_line(process, "channel x")
                    _, errors = self.interrupt(process, number)
                    self.assertEqual(errors, "")

    def test_interrupt_while_stdin_is_silent(self):
        for start in (b"", HEADER, HEADER + frame(1), HEADER + frame(1)[:9]):
            with self.subTest(start=start):
                source, sink = os.pipe()
                os.write(sink, start)
                process = self.start("send", "x", "-", stdin=source)
                self.wait_for(lambda: self.is_in_poll(process.pid), "it waits for stdin")
                _, errors = self.interrupt(process)
                self.assertEqual(errors, "")
                os.close(source)
                os.close(sink)

    @staticmethod
    def is_in_poll(pid):
        """The main thread sleeps, after the handlers were set."""
        with open(f"/proc/{pid}/status", encoding="utf-8") as file:
            status = dict(line.split(":", 1) for line in file)
        catches = int(status["SigCgt"], 16) & (1 << (signal.SIGINT - 1))
        return catches and status["State"].strip().startswith("S")

    def test_foreign_file_in_the_way(self):
        """Something that is no channel has the place of one."""
        process = self.start("send", "x", "--size", "8x8")
        self.wait_for_line(process, "channel x")
        names = [path.name for path in self.channels.iterdir()]
        self.interrupt(process)
        for name in names:
            with self.subTest(name=name):
                (self.channels / name).mkdir()
                line = self.fail_program("send", "x", "--size", "8x8", "--count", 1, code=3)
                self.assertIn(name, line)
                (self.channels / name).rmdir()


main()
