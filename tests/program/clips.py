# SPDX-License-Identifier: MIT
"""Clips and pictures made and judged by ffmpeg."""

import subprocess
from pathlib import Path

import numpy

from program import ProgramTest


class ClipTest(ProgramTest):
    def ffmpeg(self, *arguments):
        done = subprocess.run(
            ["ffmpeg", "-nostdin", "-v", "error", "-y", *map(str, arguments)],
            cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False,
        )  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        return done.stdout

    def noise(self, width, height, frames=1):
        """Arguments that make ffmpeg read noise, in the alpha as well: no two pixels are alike."""
        path = Path(self.path("noise.bin"))
        path.write_bytes(numpy.random.default_rng(3).bytes(width * height * 4 * frames))
        return [
            "-f", "rawvideo", "-pixel_format", "rgba", "-video_size", f"{width}x{height}",
            "-framerate", "30000/1001", "-i", path,
        ]  # fmt: skip

    def make_clip(self, name, pixel_format, width=64, height=48, frames=5, options=()):
        self.ffmpeg(
            *self.noise(width, height, frames), "-pix_fmt", pixel_format, "-strict", "-1", *options,
            "-f", "yuv4mpegpipe", name,
        )  # fmt: skip

    def frame_hashes(self, name):
        """Lines of framemd5 without libav's version: size, rate, the pixel's shape, each frame."""
        text = self.ffmpeg("-i", name, "-f", "framemd5", "-").decode()
        kept = [line for line in text.splitlines() if not line.startswith("#software")]
        self.assertGreater(sum(not line.startswith("#") for line in kept), 0)
        return kept

    def check_clip(self, name, frames=5):
        sent, received = self.transfer(name, "out.y4m")
        self.assertEqual(sent["frames_sent"], frames)
        self.assertEqual((received["frames_received"], received["missed"]), (frames, 0))
        self.assertEqual(self.frame_hashes("out.y4m"), self.frame_hashes(name))
