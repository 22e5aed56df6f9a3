#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A consumer that stands still: the sender waits for it (the library's 2 s), then goes on."""

import json
import signal
import subprocess
from pathlib import Path

import recording
from program import ProgramTest, main

SIZE, FRAME_BYTES = "16x8", 16 * 8 * 4
Y4M_HEADER, Y4M_FRAME = b"YUV4MPEG2 W16 H8 F50:1 C420jpeg\n", b"FRAME\n" + bytes(16 * 8 * 3 // 2)
WIDE = ("--size", "160x120", "--pattern", "check")  # a frame of it is more than a pipe holds
IN_MEMORY = 17  # frames that a recorder has taken when it can write none: 16 wait, one is in its hands
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

    def consumer(self, process):
        """What the channel says of it; nothing before it has joined."""
        consumers = self.ask_json("info", "x")["consumers"]
        return next((one for one in consumers if one["pid"] == process.pid), {})

    def hold_frames(self, count):
        """A consumer that sits on so many frames, which no other one holds, and does nothing."""
        self.wait_for_more(1)
        process = self.start("recv", "x", "--policy", "order", "--hold", count + 1)
        self.wait_for(lambda: self.consumer(process).get("held", 0) >= count, f"it holds {count} frames")
        process.send_signal(signal.SIGSTOP)
        self.wait_for(lambda: self.is_stopped(process), "it stands still")
        return process

    def published(self):
        return self.ask_json("info", "x")["published"]

    def wait_for_more(self, count):
        before = self.published()
        self.wait_for(lambda: self.published() > before + count, "the sender goes on")

    def all_frames(self, count):
        """The same frames, from a recorder that is not held up."""
        recorder = self.start("record", "y", "all.rec", "--policy", "every", "--once")
        self.run_program("send", "y", *WIDE, "--fps", 0, "--count", count, "--wait-consumers", 1)
        self.finish(recorder)
        return {frame.sequence: frame.data for frame in recording.read(self.path("all.rec"))[1]}

    def test_recorder_that_waits_holds_no_frame(self):
        """Nobody reads what it writes. Of 16 slots 14 are held, and one has the newest frame: a frame in the
        recorder's hands would be in the producer's way, until it is evicted for it."""
        recorder = self.start("record", "x", "-", "--once", "--json")
        sender = self.start("send", "x", *WIDE, "--fps", 100, "--slots", 16, "--wait-consumers", 1)
        self.wait_for_line(sender, "channel x")
        self.wait_for(lambda: self.consumer(recorder).get("received") == IN_MEMORY, "its memory is full")
        holders = [self.hold_frames(8), self.hold_frames(6)]
        self.wait_for_more(MORE_THAN_FITS)
        for holder in holders:
            holder.kill()
        self.assertIn(", 0 consumers evicted", self.interrupt(sender)[0])
        data, errors = recorder.communicate(timeout=60)
        result = json.loads(errors.splitlines()[0])
        self.assertEqual(result["evictions"], 0)
        Path(self.path("out.rec")).write_bytes(data)
        frames = recording.read(self.path("out.rec"))[1]
        self.assertGreaterEqual(len(frames), IN_MEMORY)
        right = self.all_frames(frames[-1].sequence)
        for frame in frames:
            self.assertEqual(frame.data, right[frame.sequence], f"frame {frame.sequence}")

    @staticmethod
    def write(process, data):
        process.stdin.write(data)
        process.stdin.flush()

    @staticmethod
    def is_stopped(process):
        stat = Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8")
        return stat.rpartition(")")[2].split()[0] == "T"


main()
