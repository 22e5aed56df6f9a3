#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What goes in comes out, bit by bit, judged by ffmpeg and NumPy."""

import subprocess
from pathlib import Path

import numpy

from clips import ClipTest
from program import main

class RoundTrip(ClipTest):
    def test_y4m(self):
        for pixel_format in ("yuv420p", "yuv422p10le", "gray"):
            with self.subTest(pixel_format=pixel_format):
                self.make_clip("in.y4m", pixel_format)
                self.check_clip("in.y4m")

    def test_y4m_through_pipes(self):
        """ffmpeg | send, recv | ffmpeg: no file between them."""
        self.make_clip("in.y4m", "yuv420p", 320, 180, 30)
        decode = subprocess.Popen(
            ["ffmpeg", "-nostdin", "-v", "error", "-i", self.path("in.y4m"), "-f", "yuv4mpegpipe", "-"],
            stdout=subprocess.PIPE,
        )
        receiver = self.start("recv", "cam", "--policy", "every", "--once", "--out", "-")
        hashes = subprocess.Popen(
            ["ffmpeg", "-nostdin", "-v", "error", "-i", "-", "-f", "framemd5", "-"],
            stdin=receiver.stdout, stdout=subprocess.PIPE,
        )  # fmt: skip
        self.run_program(
            "send", "cam", "-", "--wait-consumers", 1, "--fps", 0, stdin=decode.stdout
        )
        text = hashes.communicate(timeout=60)[0].decode()
        receiver.stdout.close()
        receiver.stdout = None
        self.finish(receiver)
        decode.stdout.close()
        self.assertEqual(decode.wait(), 0)
        expected = [line for line in self.frame_hashes("in.y4m") if not line.startswith("#")]
        self.assertEqual([line for line in text.splitlines() if not line.startswith("#")], expected)
        self.assertEqual(len(expected), 30)

    def test_y4m_keeps_rate_range_and_field_order(self):
        header = b"YUV4MPEG2 W2 H2 F24000:1001 It A0:0 C420paldv XCOLORRANGE=FULL\n"
        Path(self.path("in.y4m")).write_bytes(header + b"FRAME\n" + bytes(range(6)))
        self.transfer("in.y4m", "out.y4m")
        out = Path(self.path("out.y4m")).read_bytes()
        self.assertLessEqual(set(header.split()), set(out.splitlines()[0].split()))
        self.assertTrue(out.endswith(b"FRAME\n" + bytes(range(6))))

    def test_png(self):
        for pixel_format in ("rgb24", "rgba", "gray", "gray16be", "rgba64be"):
            for size in ((64, 48), (1, 1), (127, 3)):
                with self.subTest(pixel_format=pixel_format, size=size):
                    self.ffmpeg(*self.noise(*size), "-pix_fmt", pixel_format, "in.png")
                    self.transfer("in.png", "out.png")
                    # Alpha may be added; so both are compared as the wider type.
                    pixels = ("-pix_fmt", "rgba64le", "-f", "rawvideo", "-")
                    self.assertEqual(
                        self.ffmpeg("-i", "out.png", *pixels), self.ffmpeg("-i", "in.png", *pixels)
                    )

    def test_npy(self):
        random = numpy.random.default_rng(1)
        arrays = [
            random.integers(0, 255, (48, 64, 3), numpy.uint8),
            random.standard_normal((2, 3, 4, 5)).astype(numpy.float32),
            random.standard_normal((7,)).astype(numpy.float16),
            random.standard_normal((3, 5)) + 1j,
            random.integers(0, 2, (9,)).astype(bool),
            numpy.asfortranarray(random.integers(-9, 9, (4, 6), numpy.int64)),
            numpy.float64(3.25),
            numpy.zeros((0, 3), numpy.float32),
        ]
        for array in arrays:
            with self.subTest(dtype=array.dtype, shape=array.shape):
                numpy.save(self.path("in.npy"), array)
                self.transfer("in.npy", "out.npy")
                out = numpy.load(self.path("out.npy"))
                self.assertEqual((out.dtype, out.shape), (array.dtype, array.shape))
                self.assertTrue(numpy.array_equal(out, array))

    def test_folder(self):
        Path(self.path("in")).mkdir()
        self.ffmpeg(*self.noise(32, 24, 12), "in/%d.png")
        sent, _ = self.transfer("in", "out/")
        self.assertEqual(sent["frames_sent"], 12)
        names = sorted(path.name for path in Path(self.path("out")).iterdir())
        self.assertEqual(names, [f"frame_{i:08d}.png" for i in range(12)])
        pixels = ("-f", "rawvideo", "-")
        self.assertEqual(  # in natural order: 2 before 10
            self.ffmpeg("-i", "out/frame_%08d.png", *pixels), self.ffmpeg("-i", "in/%d.png", *pixels)
        )

    def test_folder_of_many_sizes(self):
        Path(self.path("in")).mkdir()
        shapes = [(3, 4), (100, 200, 3), (1,), (50, 50), (1000, 10)]
        for i, shape in enumerate(shapes):
            numpy.save(self.path(f"in/{i}.npy"), numpy.full(shape, i, numpy.uint16))
        self.transfer("in", "out/", recv=("--as", "npy"))
        for i, shape in enumerate(shapes):
            out = numpy.load(self.path(f"out/frame_{i:08d}.npy"))
            self.assertTrue(numpy.array_equal(out, numpy.full(shape, i, numpy.uint16)))

    def test_raw(self):
        for form, size, frame_bytes in [
            ("RGBA8", "5x3", 60), ("NV12", "5x3", 27), ("V210", "7x2", 256), ("I420P10", "3x3", 34),
            ("RGBA16F", "1x1", 8), ("UYVY", "3x2", 16), ("RGB_CHW32F", "4x4", 192),
        ]:  # fmt: skip
            with self.subTest(form=form):
                data = numpy.random.default_rng(2).bytes(frame_bytes * 3)
                Path(self.path("in.bin")).write_bytes(data)
                sent, _ = self.transfer(
                    "in.bin", "out.bin", send=("--format", form, "--size", size)
                )
                self.assertEqual(sent["frames_sent"], 3)
                self.assertEqual(Path(self.path("out.bin")).read_bytes(), data)

    def test_ways_of_reading(self):
        """The same bytes, held, isolated, by a group, in order."""
        self.make_clip("in.y4m", "yuv420p", frames=20)
        expected = self.frame_hashes("in.y4m")
        for way in (["--hold", 4], ["--isolated"], ["--policy", "shared", "--group", "g"]):
            with self.subTest(way=way):
                self.transfer("in.y4m", "out.y4m", recv=way)
                self.assertEqual(self.frame_hashes("out.y4m"), expected)


main()
