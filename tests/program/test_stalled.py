#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A consumer that stands still: the sender waits for it (the library's 2 s), then goes on."""

import json
import signal
import subprocess
from pathlib import Path

from program import ProgramTest, main

SIZE, FRAME_BYTES = "16x8", 16 * 8 * 4
Y4M_HEADER, Y4M_FRAME = b"YUV4MPEG2 W16 H8 F50:1 C420jpeg\n", b"FRAME\n" + bytes(16 * 8 * 3 // 2)
MORE_THAN_FITS = 20  # frames: the sender can't have so many without the stopped one


class Stalled(ProgramTest):
    def all_have_one(self, name):
        """Has each consumer taken a frame?"""
        info = self.ask_json("info", name)
        return all(consumer["behind"] < info["published"] for consumer in info["consumers"])

    def test_stopped_consumer(self):
        every = ("--policy", "every", "--once")
        stopped = self.start("recv", "x", *every, "--check", "--json")
        other = self.start("recv", "x", *every, "--out", "-")
        sender = self.start(
            "send", "x", "--size", SIZE, "--pattern", "check", "--wait-consumers", 2, "--json"
        )
        other.stdout.read(FRAME_BYTES)
        self.wait_for(lambda: self.all_have_one("x"), "both have taken a frame")
        stopped.send_signal(signal.SIGSTOP)
        self.wait_for(lambda: self.is_stopped(stopped), "it stands still")
        self.assertEqual(len(other.stdout.read(MORE_THAN_FITS * FRAME_BYTES)), MORE_THAN_FITS * FRAME_BYTES)
        stopped.send_signal(signal.SIGCONT)
        other.stdout.read(MORE_THAN_FITS * FRAME_BYTES)
        sent = json.loads(self.interrupt(sender)[0])
        self.assertGreater(sent["cursors_lost"] + sent["evicted"], 0)
        self.finish(other)
        out, errors = self.finish(stopped, 1)
        result = json.loads(out)
        self.assertEqual(result["torn"], 0)
        self.assertGreater(result["missed"], 0)
        self.assertIn("missed", self.one_line(errors))

    def test_stopped_at_the_end(self):
        """What was not taken is no success."""
        stopped = self.start("recv", "x", "--policy", "every", "--hold", 2, "--out", "-")
        sender = self.start("send", "x", "-", "--fps", 0, "--wait-consumers", 1, stdin=subprocess.PIPE)
        self.write(sender, Y4M_HEADER + Y4M_FRAME)
        self.assertIn(b" W16 H8 ", stopped.stdout.readline())
        stopped.stdout.read(len(Y4M_FRAME))
        stopped.send_signal(signal.SIGSTOP)
        self.wait_for(lambda: self.is_stopped(stopped), "it stands still")
        self.write(sender, Y4M_FRAME * 7)
        _, errors = self.finish(sender, 3)
        self.assertIn("not all frames were taken", self.one_line(errors))

    @staticmethod
    def write(process, data):
        process.stdin.write(data)
        process.stdin.flush()

    @staticmethod
    def is_stopped(process):
        stat = Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8")
        return stat.rpartition(")")[2].split()[0] == "T"


main()
