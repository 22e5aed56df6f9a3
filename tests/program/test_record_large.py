#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Recordings of more than 4 GiB: every position and count is 64 bits wide. Holes keep the disk free."""

import json

import recording
from program import ProgramTest, main
from recording import UINT8, Frame, tensor

FRAME_BYTES = 64 * 2**20
FRAMES = 66  # 4.1 GiB


class Large(ProgramTest):
    def test_read(self):
        """The last frame, behind all holes, is damaged; its offset is told."""
        zeros = Frame((tensor(b"", UINT8, (FRAME_BYTES,)),), bytes(FRAME_BYTES), timestamp=1)
        head = zeros.pack()[: -FRAME_BYTES]
        with open(self.path("large.rec"), "wb") as file:
            file.write(recording.pack_head())
            for _ in range(FRAMES):
                file.write(head)
                file.seek(FRAME_BYTES, 1)
            last = file.tell()
            file.write(b"nonsense" * 100)
        self.assertGreater(last, 2**32)
        process = self.start("replay", "large.rec", "x", "--speed", 0, "--slots", 3, "--json")
        out, errors = self.finish(process, 4)
        self.assertEqual(json.loads(out)["frames_sent"], FRAMES)
        self.assertIn(f"at byte {last}", self.one_line(errors))

    def test_write(self):
        recorder = self.start("record", "x", "/dev/null", "--policy", "every", "--once", "--json")
        self.run_json(
            "send", "x", "--size", "4096x4096", "--fps", 0, "--slots", 3, "--count", FRAMES,
            "--pattern", "bars", "--wait-consumers", 1,
        )  # fmt: skip
        result = json.loads(self.finish(recorder)[0])
        self.assertEqual(result["frames_recorded"], FRAMES)
        frame = recording.FRAME.size + recording.PLANE.size + FRAME_BYTES
        self.assertEqual(result["bytes"], recording.HEAD.size + FRAMES * frame)


main()
