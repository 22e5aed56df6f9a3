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
                self.assertEqual(self.fields("out.y4m") - {"A0:0"}, self.fields("in.y4m") - {"A0:0"})

    def fields(self, name):
        return set(Path(self.path(name)).read_bytes().partition(b"\n")[0].decode().split())

    def test_pixel_aspect_is_not_carried(self):
        """A frame's description has no field for it (docs/recording.md): out comes A0:0, which means not
        known and never square, and every other field as it was."""
        options = ["-aspect", "16:9", "-field_order", "tt", "-chroma_sample_location", "topleft"]
        self.make_clip("in.y4m", "yuv420p", options=options)
        self.check_clip("in.y4m")
        sent, received = self.fields("in.y4m"), self.fields("out.y4m")
        self.assertEqual(sent - received, {"A4:3"})
        self.assertEqual(received - sent, {"A0:0"})
        self.assertIn("It", received)

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
