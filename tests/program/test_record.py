#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Recordings: every byte, every description, every time; damaged, cut off, on a full disk."""

import json
import os
import resource
import signal
import struct
import subprocess
from pathlib import Path

import recording
from program import FAKE_DRIVER, PROGRAM, ProgramTest, main
from recording import FLOAT16, FLOAT32, INVALID, LOST, UINT8, Frame, Plane, tensor

RECORD_KEYS = {
    "channel", "file", "frames_recorded", "missed", "missed_at_start", "discarded", "invalid", "bytes", "seconds",
    "fps", "writing", "wait_seconds", "sessions", "evictions", "kind", "path", "reason",
}  # fmt: skip
REPLAY_KEYS = {
    "file", "channel", "frames_sent", "invalid", "rounds", "bytes", "seconds", "late_most_us", "kind",
    "path", "reason", "dropped", "waits", "evicted", "cursors_lost", "consumers",
}  # fmt: skip
EVERY = ("--policy", "every")
FAST = ("--speed", 0, "--wait-consumers", 1)
SMALL = ("--size", "16x8", "--fps", 0, "--pattern", "check", "--wait-consumers", 1)
WIDE = ("--size", "64x8")  # rows that need no padding
WIDE_BYTES = recording.FRAME.size + recording.PLANE.size + 64 * 8 * 4
RGBA8 = struct.unpack("<I", b"RGBA")[0]
PAUSE = "34 "  # its number on x86-64


def noise(size, seed):
    """Bytes that differ everywhere and from frame to frame."""
    return bytes((i * 31 + seed * 17 + (i >> 8)) & 0xFF for i in range(size))


def picture_plane(width, height, pitch):
    size = (height - 1) * pitch + 4 * width
    return Plane(b"rgba", UINT8, (height, width, 4), (pitch, 4, 1), 0, size)


def strange_frames():
    """One of each: what a description can say."""
    packed = picture_plane(6, 4, 24)
    padded = picture_plane(6, 4, 32)
    colour = (9, 16, 9, 1, 1, 2, 1, 3)
    planes = (
        tensor(b"image", FLOAT16, (3, 4, 5)),
        tensor(b"scalar", FLOAT32, (), 256),
        Plane(b"repeated", UINT8, (7, 5), (0, 1), 300, 5),
        Plane(b"empty", UINT8, (0, 3), (3, 1), 305, 0),
        Plane(b"fp4", (17, 4, 1), (5, 3), (2, 0), 310, 10),
        Plane("ümläut".encode(), (5, 128, 1), (2,), (16,), 320, 32),
        Plane(b"vectors", (2, 32, 4), (3,), (16,), 352, 48),
    )
    return [
        Frame((packed,), noise(96, 1), picture=(RGBA8, 6, 4)),
        Frame(
            (packed,), noise(96, 2), b"user data", picture=(RGBA8, 6, 4), colour=colour, pts=-(2**62),
            duration=3, time_base=(1001, 30000), rate=(30000, 1001), clock=b"house", aspect=(16, 11),
        ),  # fmt: skip
        Frame(flags=INVALID, text="no signal, träge".encode(), picture=(RGBA8, 6, 4), pts=7),
        Frame((padded,), noise(padded.bytes, 3), picture=(RGBA8, 6, 4)),
        Frame(planes, noise(400, 4), bytes(range(256)) * 256),
        Frame(flags=INVALID, text=b"x" * 95, user=b"u"),
        Frame((tensor(b"", UINT8, (65536, 5)),), noise(65536 * 5, 5), rate=(25, 1)),
        Frame((packed,), noise(96, 6), picture=(RGBA8, 6, 4), colour=colour),
    ]


def waits_for_ever(pid):
    """A thread of it is in pause(), as a call of the fake driver that never returns."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            if (task / "syscall").read_text(encoding="ascii").startswith(PAUSE):
                return True
        except OSError:  # the thread has ended
            continue
    return False


class Killed(ProgramTest):
    """A producer that is killed leaves files behind."""

    leaves_nothing = False

    def published(self):
        return self.ask_json("info", "x")["published"]

    def test_frames_left_behind_are_missed(self):
        """The last frames are in new memory, which goes with the producer before it is mapped."""
        self.environment["LD_LIBRARY_PATH"] = FAKE_DRIVER
        small = Frame((tensor(b"", UINT8, (100,)),), noise(100, 1))
        large = Frame((tensor(b"", UINT8, (5_000_000,)),), bytes(5_000_000))
        recorder = self.start("record", "x", "out.rec", "--once", "--json")
        options = ("--kind", "ipc", "--slots", 8, *FAST)
        producer = self.start("replay", "-", "x", *options, stdin=subprocess.PIPE)
        producer.stdin.write(recording.pack_head() + small.pack())
        producer.stdin.flush()
        target = Path(self.path("out.rec"))
        self.wait_for(lambda: target.exists() and target.stat().st_size > recording.HEAD.size, "a frame")
        recorder.send_signal(signal.SIGSTOP)
        for _ in range(3):
            producer.stdin.write(large.pack())
        producer.stdin.flush()
        self.wait_for(lambda: self.published() == 4, "all frames")
        producer.kill()
        producer.wait()
        recorder.send_signal(signal.SIGCONT)
        out, errors = self.finish(recorder, 3)
        self.assertIn("the producer died", errors)
        result = json.loads(out)
        self.assertEqual((result["frames_recorded"], result["missed"]), (1, 3))


class Record(ProgramTest):
    def write(self, frames, name="in.rec", step=1000):
        """With times and numbers, `step` ns apart."""
        frames = [
            recording.replace(frame, sequence=i + 1, timestamp=10**12 + i * step)
            for i, frame in enumerate(frames)
        ]
        recording.write(self.path(name), frames)
        return frames

    def copy(self, source, target, *options):
        """A recording through a channel into another one. Returns both summaries."""
        recorder = self.start("record", "x", target, *EVERY, "--once", "--json")
        replayed = self.run_json("replay", source, "x", *FAST, *options)
        return replayed, json.loads(self.finish(recorder)[0])

    def content(self, name):
        return [frame.content() for frame in recording.read(self.path(name))[1]]

    def record(self, *send, name="x", target="out.rec", record=()):
        recorder = self.start("record", name, target, *EVERY, "--once", "--json", *record)
        self.run_json("send", name, *SMALL, *send)
        return json.loads(self.finish(recorder)[0])

    def test_everything_is_kept(self):
        frames = self.write(strange_frames())
        replayed, recorded = self.copy("in.rec", "out.rec")
        self.assertEqual(self.content("out.rec"), [frame.content() for frame in frames])
        self.assertEqual((replayed["frames_sent"], replayed["invalid"]), (len(frames), 2))
        self.assertEqual((recorded["frames_recorded"], recorded["invalid"]), (len(frames), 2))

    def test_version_1(self):
        """Which knows no pixel aspect; what is recorded again is of today's version."""
        frames = [recording.replace(frame, aspect=(0, 0)) for frame in strange_frames()]
        recording.write(self.path("in.rec"), frames, version=1)
        self.copy("in.rec", "out.rec")
        self.assertEqual(self.content("out.rec"), [frame.content() for frame in frames])
        whole = Path(self.path("in.rec")).read_bytes()
        Path(self.path("cut.rec")).write_bytes(whole[:-1])
        process = self.start("replay", "cut.rec", "x", "--speed", 0)
        start = len(whole) - len(frames[-1].pack(1))
        self.assertIn(f"begins at byte {start};", self.finish(process, 4)[1])

    def test_gpu(self):
        """Through the fake driver; only the bytes between elements may be others."""
        frames = self.write(strange_frames())
        self.environment["LD_LIBRARY_PATH"] = FAKE_DRIVER
        replayed, recorded = self.copy("in.rec", "out.rec", "--kind", "vmm")
        self.assertEqual((replayed["kind"], recorded["kind"]), ("vmm", "vmm"))
        kept = [frame.without_gaps() for frame in recording.read(self.path("out.rec"))[1]]
        self.assertEqual(kept, [frame.without_gaps() for frame in frames])

    def test_invalid_comes_first(self):
        frames = self.write([Frame(flags=INVALID, text=b"warming up")] + strange_frames()[:1])
        self.copy("in.rec", "out.rec")
        self.assertEqual(self.content("out.rec"), [frame.content() for frame in frames])

    def test_lost_frame_becomes_invalid(self):
        self.write([*strange_frames()[:1], Frame(flags=LOST)])
        self.copy("in.rec", "out.rec")
        lost = self.content("out.rec")[1]
        self.assertEqual((lost.flags, lost.data), (INVALID, b""))
        self.assertIn(b"died", lost.text)

    def test_every_format(self):
        """Recorded, replayed, and each byte compared with the pattern: frame k is the k-th of its format,
        because the pattern says the frame's number."""
        formats = self.run_program("help", "formats")[0].split()
        total = sum(range(len(formats) + 1))
        recorder = self.start("record", "x", "all.rec", *EVERY, "--count", total)
        for count, form in enumerate(formats, 1):
            self.run_json("send", "x", *SMALL, "--format", form, "--size", "34x6", "--count", count)
        self.finish(recorder)
        frames = recording.read(self.path("all.rec"))[1]
        picked = [frame for frame in frames if frame.sequence == frame.session]
        self.assertEqual(len({frame.picture for frame in picked}), len(formats))
        recording.write(self.path("in.rec"), picked)
        receiver = self.start("recv", "x", *EVERY, "--once", "--check", "--json")
        self.run_json("replay", "in.rec", "x", *FAST)
        result = json.loads(self.finish(receiver)[0])
        self.assertEqual((result["checked"], result["torn"]), (len(formats), 0))
        self.copy("in.rec", "again.rec")
        self.assertEqual(self.content("again.rec"), self.content("in.rec"))

    def test_head_and_numbers(self):
        result = self.record("--count", 5, name="ümläut >> \"quoted\"")
        channel, frames = recording.read(self.path("out.rec"))
        self.assertEqual(channel.decode(), "ümläut >> \"quoted\"")
        self.assertEqual([frame.sequence for frame in frames], [1, 2, 3, 4, 5])
        times = [frame.timestamp for frame in frames]
        self.assertEqual(times, sorted(set(times)))
        self.assertEqual({(frame.missed, frame.session) for frame in frames}, {(0, 1)})
        self.assertEqual(set(result), RECORD_KEYS)
        self.check_documented("record", RECORD_KEYS)
        self.assertEqual(result["bytes"], os.path.getsize(self.path("out.rec")))

    def test_two_producers(self):
        recorder = self.start("record", "x", "out.rec", *EVERY, "--count", 4, "--json")
        for size in ("16x8", "32x8"):
            self.run_json("send", "x", *SMALL, "--size", size, "--count", 2)
        self.assertEqual(json.loads(self.finish(recorder)[0])["sessions"], 2)
        _, frames = recording.read(self.path("out.rec"))
        self.assertEqual([frame.session for frame in frames], [1, 1, 2, 2])
        replayed, _ = self.copy("out.rec", "again.rec", "--count", 3)
        self.assertEqual(replayed["frames_sent"], 3)
        self.assertEqual(self.content("again.rec"), self.content("out.rec")[:3])

    def test_loop(self):
        self.write(strange_frames()[:3])
        replayed, _ = self.copy("in.rec", "out.rec", "--loop", "--count", 8)
        first = self.content("in.rec")
        self.assertEqual(self.content("out.rec"), (first * 3)[:8])
        self.assertEqual((replayed["rounds"], set(replayed)), (2, REPLAY_KEYS))
        self.check_documented("replay", REPLAY_KEYS)

    def test_replay_counts_the_bytes_that_a_consumer_counts(self):
        self.write(strange_frames())
        receiver = self.start("recv", "x", *EVERY, "--once", "--json")
        sent = self.run_json("replay", "in.rec", "x", *FAST)
        received = json.loads(self.finish(receiver)[0])
        self.assertGreater(sent["bytes"], 0)
        self.assertEqual((sent["bytes"], sent["invalid"]), (received["bytes"], received["invalid"]))

    def test_speed_keeps_times_apart(self):
        """Frames 20 ms apart at twice the speed: never closer than the clock says."""
        self.write(strange_frames()[:1] * 6, step=20_000_000)
        recorder = self.start("record", "x", "out.rec", *EVERY, "--once")
        result = self.run_json("replay", "in.rec", "x", "--speed", 2, "--wait-consumers", 1)
        self.finish(recorder)
        times = [frame.timestamp for frame in recording.read(self.path("out.rec"))[1]]
        for i, time in enumerate(times):  # a frame may be late, but none is early
            self.assertGreaterEqual(time - times[0] + result["late_most_us"] * 1000 + 1000, i * 10_000_000)

    def test_pipes(self):
        """record - | replay -"""
        self.write(strange_frames())
        recorder = self.start("record", "x", "-", *EVERY, "--once")
        replayer = self.start("replay", "-", "y", *FAST, stdin=recorder.stdout)
        recorder.stdout.close()
        recorder.stdout = None
        last = self.start("record", "y", "out.rec", *EVERY, "--once")
        self.run_json("replay", "in.rec", "x", *FAST)
        for process in (recorder, replayer, last):
            self.finish(process)
        self.assertEqual(self.content("out.rec"), self.content("in.rec"))

    def test_pipe_can_not_loop(self):
        self.write(strange_frames()[:1])
        with open(self.path("in.rec"), "rb") as file:  # a file as stdin can go back
            process = self.start("replay", "-", "x", "--loop", "--speed", 0, stdin=file)
        self.wait_for_line(process, "channel x")
        self.interrupt(process)
        script = 'cat in.rec | "$0" replay - x --loop --speed 0'
        done = subprocess.run(
            ["sh", "-c", script, PROGRAM], env=self.environment, cwd=self.folder, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60,
        )  # fmt: skip
        self.assertEqual(done.returncode, 4)
        self.assertIn("--loop needs a file", self.one_line(done.stderr.decode()))

    # ---- damage -----------------------------------------------------------------------------

    def test_cut_at_any_byte(self):
        """Whatever is left of a file, all whole frames come out of it."""
        frames = self.write(strange_frames()[:4])
        whole = Path(self.path("in.rec")).read_bytes()
        starts = [frame.offset for frame in recording.read(self.path("in.rec"))[1]] + [len(whole)]
        for size in [1, 7, 8, 200, starts[0] + 1, starts[1] - 1, starts[1] + 230, *starts[2:4], len(whole) - 1]:
            with self.subTest(size=size):
                Path(self.path("cut.rec")).write_bytes(whole[:size])
                count = sum(size >= end for end in starts[1:])
                if size < starts[1]:
                    line = self.fail_program("replay", "cut.rec", "x", code=4)
                    self.assertIn("cut.rec: is ", line)
                    continue
                recorder = self.start("record", "x", "out.rec", *EVERY, "--once")
                process = self.start("replay", "cut.rec", "x", *FAST, "--json")
                out, errors = self.finish(process, 0 if size in starts else 4)
                self.finish(recorder)
                self.assertEqual(json.loads(out)["frames_sent"], count)
                self.assertEqual(self.content("out.rec"), [frame.content() for frame in frames[:count]])
                if size not in starts:
                    self.assertIn(f"begins at byte {starts[count]}", self.one_line(errors))

    def test_cut_pipe(self):
        self.write(strange_frames()[:2])
        script = 'head -c -1 in.rec | "$0" replay - x --speed 0 --json'
        done = subprocess.run(
            ["sh", "-c", script, PROGRAM], env=self.environment, cwd=self.folder, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60,
        )  # fmt: skip
        self.assertEqual((done.returncode, json.loads(done.stdout)["frames_sent"]), (4, 1))
        self.assertIn("stdin: is cut off in frame 1", self.one_line(done.stderr.decode()))

    def test_cut_file_loops(self):
        self.write(strange_frames()[:3])
        os.truncate(self.path("in.rec"), os.path.getsize(self.path("in.rec")) - 1)
        recorder = self.start("record", "x", "out.rec", *EVERY, "--once")
        process = self.start("replay", "in.rec", "x", *FAST, "--loop", "--count", 4)
        self.finish(process, 4)
        self.finish(recorder)
        self.assertEqual(len(self.content("out.rec")), 4)

    def test_damaged(self):
        self.write(strange_frames()[:3])
        whole = Path(self.path("in.rec")).read_bytes()
        second = recording.read(self.path("in.rec"))[1][1].offset
        for at, sent, what in [
            (0, None, "no recording"),
            (9, None, "of version"),
            (20, None, "its head, at byte 0"),
            (second, 1, f"the head of frame 1 (the first is 0) at byte {second}"),
            (second + 100, 1, f"the head of frame 1 (the first is 0) at byte {second}"),
            (second + 300, 1, f"the head of frame 1 (the first is 0) at byte {second}"),
            (second + recording.FRAME.size + recording.PLANE.size + 9 + 5, 1, "the pixels of frame 1 (the first is 0) at byte "),
        ]:
            with self.subTest(at=at):
                damaged = bytearray(whole)
                damaged[at] ^= 0x10
                Path(self.path("bad.rec")).write_bytes(damaged)
                process = self.start("replay", "bad.rec", "x", "--speed", 0, "--json")
                out, errors = self.finish(process, 4)
                self.assertIn(what, self.one_line(errors))
                if sent is not None:
                    self.assertEqual(json.loads(out)["frames_sent"], sent)

    def test_lies_with_good_checksums(self):
        """What a file says is checked, however well it is sealed."""
        good = strange_frames()[0]
        plane = good.planes[0]
        for frame in [
            recording.replace(good, planes=(recording.replace(plane, bytes=97),)),
            recording.replace(good, planes=(recording.replace(plane, offset=2**63),)),
            recording.replace(good, planes=(recording.replace(plane, shape=(4, 6, -4)),)),
            recording.replace(good, planes=(recording.replace(plane, strides=(2**60, 4, 1)),)),
            recording.replace(good, planes=(recording.replace(plane, name=b"n" * 24),)),
            recording.replace(good, planes=(plane,) * 17),
            recording.replace(good, planes=()),
            recording.replace(good, picture=(RGBA8, 600, 400)),
            recording.replace(good, picture=(12345, 6, 4)),
            recording.replace(good, clock=b"c" * 16),
            recording.replace(good, user=b"u" * 65537),
            recording.replace(good, flags=INVALID),
            recording.replace(good, time_base=(5, 0)),
            Frame(flags=INVALID, text=b"t" * 96),
        ]:
            self.write([frame])
            code = self.start("replay", "in.rec", "x", "--speed", 0)
            _, errors = code.communicate(timeout=60)
            self.assertIn(code.returncode, (2, 3, 4), frame)
            self.one_line(errors.decode())

    def test_no_recording(self):
        Path(self.path("empty.rec")).touch()
        Path(self.path("text.rec")).write_text("hello\n" * 100, encoding="utf-8")
        Path(self.path("none.rec")).write_bytes(recording.pack_head())
        for name, text in [
            ("empty.rec", "is empty"), ("text.rec", "is no recording"), ("none.rec", "has no frames"),
            ("missing.rec", "can't be opened"), (".", "."),
        ]:  # fmt: skip
            self.assertIn(text, self.fail_program("replay", name, "x", code=4))

    # ---- the disk ---------------------------------------------------------------------------

    def test_disk_full(self):
        """What does not fit is cut off again; the file is whole."""
        limit = recording.HEAD.size + 10 * WIDE_BYTES + 100
        for target, name in (("out.rec", "out.rec"), ("-", "stdout")):
            recorder = self.start_into(
                target, *EVERY, "--json",
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
            )  # fmt: skip
            sender = self.start("send", "x", *SMALL, *WIDE)
            out, errors = self.finish(recorder, 4)
            line, summary = (errors if target == "-" else errors + out).splitlines()
            self.assertIn(f"{name}: write failed after", self.one_line(line))
            self.assertEqual(len(self.content("out.rec")), 10)
            result = json.loads(summary)
            self.assertEqual(result["frames_recorded"], 10)
            self.assertGreater(result["discarded"], 0)
            self.interrupt(sender)

    def test_what_is_in_front_of_stdout_stays(self):
        """A file that had a beginning, with and without O_APPEND; one with an end is not cut."""
        head = b"mine" * 100
        limit = len(head) + recording.HEAD.size + 2 * WIDE_BYTES + 100
        for mode, rest in (("ab", b""), ("r+b", b""), ("r+b", bytes(limit))):
            with self.subTest(mode=mode, rest=len(rest)):
                Path(self.path("out.rec")).write_bytes(head + rest)
                with open(self.path("out.rec"), mode) as file:
                    file.seek(len(head))
                    recorder = self.start(
                        "record", "x", "-", *EVERY, stdout=file,
                        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
                    )  # fmt: skip
                sender = self.start("send", "x", *SMALL, *WIDE)
                self.finish(recorder, 4)
                self.interrupt(sender)
                data = Path(self.path("out.rec")).read_bytes()
                self.assertEqual(data[: len(head)], head)
                self.assertEqual(len(data), len(head + rest) if rest else limit - 100)

    def test_nothing_recorded_leaves_stdout_alone(self):
        with open(self.path("stdout"), "wb") as file:
            file.write(b"mine")
        with open(self.path("stdout"), "ab") as file:
            self.run_program("record", "nobody", "-", "--seconds", 0.1, stdout=file)
        self.assertEqual(Path(self.path("stdout")).read_bytes(), b"mine")

    def test_full_device(self):
        recorder = self.start("record", "x", "/dev/full", *EVERY)
        sender = self.start("send", "x", *SMALL)
        self.assertIn("No space left", self.one_line(self.finish(recorder, 4)[1]))
        self.interrupt(sender)

    def test_too_slow(self):
        """A pipe that nobody empties yet: the producer goes on, what was missed is counted and said."""
        recorder = self.start("record", "x", "-", "--once", "--json")
        self.run_json("send", "x", "--size", "640x480", "--fps", 0, "--count", 300, "--wait-consumers", 1)
        data, errors = recorder.communicate(timeout=60)
        self.assertEqual(recorder.returncode, 1, errors)
        Path(self.path("out.rec")).write_bytes(data)
        _, frames = recording.read(self.path("out.rec"))
        summary, line = errors.decode().splitlines()
        result = json.loads(summary)
        self.assertGreater(result["missed"], 0)
        self.assertEqual(result["missed"], sum(frame.missed for frame in frames))
        self.assertEqual(result["frames_recorded"], len(frames))
        self.assertIn(f"missed {result['missed']} of ", line)
        self.assertIn("--policy every", line)

    def test_a_pause_of_the_disk_costs_nothing(self):
        """Nobody empties the pipe yet: ten frames wait in memory, and their producer need not."""
        for driver in ("", FAKE_DRIVER):
            self.environment["LD_LIBRARY_PATH"] = driver
            recorder = self.start("record", "x", "-", *EVERY, "--once", "--json")
            sent = self.run_json(
                "send", "x", "--size", "640x480", "--fps", 0, "--count", 10, "--wait-consumers", 1,
                "--pattern", "check", "--kind", "vmm" if driver else "host",
            )  # fmt: skip
            self.assertEqual(sent["frames_sent"], 10)
            data, errors = recorder.communicate(timeout=60)
            self.assertEqual(recorder.returncode, 0, errors)
            Path(self.path("out.rec")).write_bytes(data)
            frames = recording.read(self.path("out.rec"))[1]
            self.assertEqual([frame.sequence for frame in frames], list(range(1, 11)))
            self.assertEqual(len({frame.data for frame in frames}), 10)

    def test_context_is_made_before_joining(self):
        """What it takes would be missed; here it takes for ever."""
        self.environment["LD_LIBRARY_PATH"] = FAKE_DRIVER
        sender = self.start("send", "x", "--size", "64x48", "--kind", "vmm")
        self.wait_for_line(sender, "channel x")
        self.environment["FAKECUDA_FAIL"] = "cuDevicePrimaryCtxRetain:0:-1000"
        recorder = self.start("record", "x", "out.rec")
        self.wait_for(lambda: waits_for_ever(recorder.pid), "it makes the context")
        self.assertEqual(self.ask_json("info", "x")["consumers"], [])
        recorder.kill()
        self.interrupt(sender)

    def test_context_is_made_while_a_producer_is_waited_for(self):
        """Here it takes for ever, which holds up no channel that needs none."""
        self.environment["LD_LIBRARY_PATH"] = FAKE_DRIVER
        self.environment["FAKECUDA_FAIL"] = "cuDevicePrimaryCtxRetain:0:-1000"
        for devices, options in (("1", ()), ("1", ("--kind", "vmm")), ("2", ("--device", 1))):
            with self.subTest(devices=devices, options=options):
                self.environment["FAKECUDA_DEVICES"] = devices
                recorder = self.start("record", "x", "out.rec", *options)
                self.wait_for(lambda: waits_for_ever(recorder.pid), "it makes the context")
                if not options:
                    sender = self.start("send", "x", *SMALL, "--kind", "host")
                    target = Path(self.path("out.rec"))
                    self.wait_for(lambda: target.exists() and target.stat().st_size > 1000, "some frames")
                    self.interrupt(sender)
                recorder.kill()
                recorder.wait()

    def test_context_that_nobody_may_need_is_not_made(self):
        """It is not known which, or that there is none: the first call for one would end the recorder."""
        self.environment["LD_LIBRARY_PATH"] = FAKE_DRIVER
        for devices, call, options in (
            ("2", "cuDevicePrimaryCtxRetain", ()), ("0", "cuDevicePrimaryCtxRetain", ()),
            ("1", "cuInit", ("--kind", "host")),
        ):  # fmt: skip
            with self.subTest(devices=devices, options=options):
                self.environment.update(FAKECUDA_DEVICES=devices, FAKECUDA_FAIL=f"{call}:0:-6")
                self.record("--count", 2, "--kind", "host", record=options)

    def test_interrupt(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            recorder = self.start("record", "x", "out.rec", *EVERY, "--json")
            sender = self.start("send", "x", *SMALL)
            self.wait_for(
                lambda: os.path.exists(self.path("out.rec")) and os.path.getsize(self.path("out.rec")) > 0,
                "a frame is written",
            )
            out, errors = self.interrupt(recorder, number)
            self.assertEqual(errors, "")
            self.assertEqual(len(self.content("out.rec")), json.loads(out)["frames_recorded"])
            self.interrupt(sender)
            os.unlink(self.path("out.rec"))

    def start_into(self, target, *options, **more):
        """A recorder into out.rec, which it opens, or which the shell does."""
        if target != "-":
            return self.start("record", "x", target, *options, **more)
        with open(self.path("out.rec"), "wb") as file:
            return self.start("record", "x", "-", *options, stdout=file, **more)

    def test_interrupt_writes_what_waits(self):
        """Frames that take longer to write than to read, so that some wait when the signal comes."""
        for target in ("out.rec", "-"):
            recorder = self.start_into(target, *EVERY, "--json")
            sender = self.start("send", "x", "--size", "1024x1024", "--fps", 0, "--wait-consumers", 1)
            self.wait_for(lambda: os.path.exists(self.path("out.rec")), "the file is there")
            self.wait_for_line(sender, "channel x")
            self.wait_for(lambda: self.ask_json("info", "x")["published"] > 40, "some frames wait")
            out, errors = self.interrupt(recorder)
            self.interrupt(sender)
            result = json.loads(errors if target == "-" else out)
            frames = recording.read(self.path("out.rec"))[1]
            self.assertEqual(result["discarded"], 0)
            self.assertGreater(len(frames), 30)
            self.assertEqual(len(frames), result["frames_recorded"])

    def test_disk_full_behind_an_interrupt(self):
        """The recorder stands still while the signal comes and the disk gets full: what waits fails."""
        for _ in range(20):
            recorder = self.start("record", "x", "out.rec", *EVERY, "--json")
            sender = self.start("send", "x", "--size", "1024x1024", "--fps", 0, "--wait-consumers", 1)
            self.wait_for_line(sender, "channel x")
            self.wait_for(lambda: self.ask_json("info", "x")["published"] > 40, "some frames wait")
            recorder.send_signal(signal.SIGSTOP)
            recorder.send_signal(signal.SIGINT)
            resource.prlimit(recorder.pid, resource.RLIMIT_FSIZE, (0, 0))
            recorder.send_signal(signal.SIGCONT)
            out, errors = recorder.communicate(timeout=60)
            self.interrupt(sender)
            result = json.loads(out)
            if result["discarded"]:  # else all was written before it stood still
                break
        self.assertEqual(recorder.returncode, 4)
        self.assertIn("out.rec: write failed after", self.one_line(errors.decode()))
        self.assertEqual(len(self.content("out.rec")), result["frames_recorded"])

    def start_full(self, target, *options):
        """A recorder that has ten frames in memory, because nobody reads them."""
        recorder = self.start("record", "x", target, *EVERY, *options)
        sending = ("--size", "640x480", "--fps", 0, "--count", 10, "--wait-consumers", 1)
        self.assertEqual(self.run_json("send", "x", *sending)["frames_sent"], 10)
        return recorder

    def test_interrupt_discards_what_waits_for_a_pipe(self):
        recorder = self.start_full("-", "--json")
        data, errors = self.interrupt(recorder)
        result = json.loads(errors)
        self.assertLess(len(data), 640 * 480 * 4)
        self.assertEqual((result["frames_recorded"], result["discarded"], result["missed"]), (0, 10, 0))
        self.assertEqual(result["fps"], 0)
        line = self.one_line(self.interrupt(self.start_full("-"))[1])
        self.assertIn("10 frames that waited for its reader were discarded", line)

    def test_discarded_in_words(self):
        os.mkfifo(self.path("fifo"))
        reader = os.open(self.path("fifo"), os.O_RDONLY | os.O_NONBLOCK)
        out, errors = self.interrupt(self.start_full("fifo"))
        os.close(reader)
        self.assertEqual(errors, "")
        self.assertIn("recorded 0 frames in ", out)
        self.assertIn("missed 0, discarded 10, invalid 0", out)

    def test_interrupt_before_the_first_frame(self):
        recorder = self.start("record", "x", "out.rec")
        self.wait_for(lambda: os.path.exists(self.path("out.rec")), "the file is there")
        self.interrupt(recorder)
        self.assertFalse(os.path.exists(self.path("out.rec")))

    def test_interrupt_replay(self):
        """While it waits for a far time, with a frame begun."""
        self.write(strange_frames()[:2], step=10**15)
        process = self.start("replay", "in.rec", "x")
        receiver = self.start("recv", "x", "--count", 1)
        self.finish(receiver)
        self.assertIn("sent 1 frame (0 invalid) in ", self.interrupt(process)[0])


main()
