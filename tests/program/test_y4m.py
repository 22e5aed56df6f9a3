#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Y4M in and out is the same in every colour space that ffmpeg writes, at odd widths as well."""

from pathlib import Path

from clips import ClipTest
from program import main

# Every pixel format that ffmpeg's yuv4mpegpipe writes.
FORMATS = [
    "gray", "gray9le", "gray10le", "gray12le", "gray16le", "yuv411p", "yuv420p", "yuvj420p",
    "yuv422p", "yuvj422p", "yuv444p", "yuvj444p", "yuva444p",
    *(f"yuv{kind}p{bits}le" for kind in (420, 422, 444) for bits in (9, 10, 12, 14, 16)),
]  # fmt: skip
WIDTHS = [1, 3, 127, 129, 416, 1366, 1550, 1919]


class Y4m(ClipTest):
    def test_colour_spaces(self):
        for pixel_format in FORMATS:
            with self.subTest(pixel_format=pixel_format):
                self.make_clip("in.y4m", pixel_format)
                self.check_clip("in.y4m")
                self.assertEqual(self.header("out.y4m"), self.header("in.y4m"))

    def header(self, name):
        return Path(self.path(name)).read_bytes().partition(b"\n")[0].decode().split()

    def test_pixel_aspect(self):
        """Also in a recording, and also when it is not known, which is another thing than square."""
        for said, field in (("16/11", "A16:11"), ("1/1", "A1:1"), ("0/1", "A0:0")):
            with self.subTest(aspect=said):
                options = ["-vf", f"setsar={said}", "-field_order", "tt"]
                self.make_clip("in.y4m", "yuv420p", options=options)
                self.check_clip("in.y4m")
                self.assertIn(field, self.header("in.y4m"))
                self.assertEqual(self.header("out.y4m"), self.header("in.y4m"))
                self.record_and_replay()
                again, first = (Path(self.path(name)).read_bytes() for name in ("again.y4m", "in.y4m"))
                self.assertTrue(again == first)

    def record_and_replay(self):
        every = ("--policy", "every", "--once")
        recorder = self.start("record", "x", "take.rec", *every)
        self.run_program("send", "x", "in.y4m", "--fps", 0, "--wait-consumers", 1)
        self.finish(recorder)
        receiver = self.start("recv", "x", "--out", "again.y4m", *every)
        self.run_program("replay", "take.rec", "x", "--speed", 0, "--wait-consumers", 1)
        self.finish(receiver)

    def test_widths(self):
        """Compared without ffmpeg, whose readers round odd sizes up: what follows the header."""
        for width in WIDTHS:
            for pixel_format in ("yuv411p", "yuv420p", "yuv422p", "yuv444p", "gray"):
                with self.subTest(width=width, pixel_format=pixel_format):
                    self.make_clip("in.y4m", pixel_format, width, 5, 2)
                    self.transfer("in.y4m", "out.y4m")
                    bodies = [
                        Path(self.path(name)).read_bytes().partition(b"\n")[2]
                        for name in ("in.y4m", "out.y4m")
                    ]
                    self.assertTrue(bodies[0] and bodies[0] == bodies[1])


main()
