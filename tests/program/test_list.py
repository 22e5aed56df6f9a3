#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Looking at channels: list, info, gc; none, dead, foreign, many, with any name."""

import json
import os
import signal
import subprocess
import unittest

from program import CHANNELS, ProgramTest, main

LIVE_KEYS = {
    "name", "directory", "state", "pid", "uid", "program", "kind", "path", "reason", "slots",
    "slot_bytes", "generation", "published", "dropped", "age_us", "open_seconds", "format", "width",
    "height", "planes", "device", "device_name", "consumers",
}  # fmt: skip
CONSUMER_KEYS = {
    "pid", "uid", "program", "group", "policy", "hold", "held", "held_us", "isolated", "behind",
    "received", "missed", "latency_us", "latency_p50_us", "latency_p99_us",
}  # fmt: skip
SMALL = ("--size", "16x8", "--fps", 50)
NAMES = ["with space", "a>>b", "quo\"te'", "umläut", "sla/sh", "back\\slash", "日本", "n" * 200]
EVIL = "tab\there\x1b[31mred\nline\u202ereverse\x7f"
EVIL_SHOWN = "tab\\x09here\\x1b[31mred\\x0aline\\u202ereverse\\x7f"


class List(ProgramTest):
    def look(self):
        """One look: a producer that was not let run for 0.3 s is silent in it."""
        lines = self.run_program("list", "--json")[0].splitlines()
        return [json.loads(line) for line in lines]

    def list(self):
        return [json.loads(line) for line in self.ask("list", "--json").splitlines()]

    def send(self, name="x", *more):
        process = self.start("send", name, *SMALL, *more)
        self.wait_for(lambda: any(c["name"] == name and c.get("published") for c in self.look()), name)
        return process

    def info(self, name="x"):
        return self.ask_json("info", name)

    def test_none(self):
        self.assertEqual(self.run_program("list")[0], "no channels; cudalink send NAME makes one\n")
        self.assertEqual(self.list(), [])
        self.assertIn("no channel 'x'", self.fail_program("info", "x", code=3))
        self.assertEqual(self.run_json("gc"), {"dry_run": False, "removed": 0, "leftovers": []})

    def test_json(self):
        sender = self.send()
        receiver = self.start("recv", "x", "--policy", "every", "--hold", 3)
        self.wait_for(lambda: self.info()["consumers"], "a consumer")
        info = self.info()
        self.assertEqual(set(info), LIVE_KEYS)
        self.assertEqual(set(info["consumers"][0]), CONSUMER_KEYS)
        for command in ("list", "info", "watch"):
            self.check_documented(command, LIVE_KEYS | CONSUMER_KEYS)
        self.assertEqual((info["pid"], info["state"], info["kind"]), (sender.pid, "live", "host"))
        self.assertEqual((info["format"], info["width"], info["height"]), ("RGBA8", 16, 8))
        self.assertEqual((info["device"], info["device_name"]), (None, None))
        consumer = info["consumers"][0]
        self.assertEqual((consumer["pid"], consumer["policy"], consumer["hold"]), (receiver.pid, "every", 3))
        self.assertEqual(set(self.ask_json("list")), LIVE_KEYS)
        for process in (receiver, sender):
            self.interrupt(process)

    def test_text(self):
        sender = self.send()
        receiver = self.start("recv", "x", "--group", "g", "--isolated")
        self.wait_for(lambda: self.info()["consumers"], "a consumer")
        title, line = self.ask("list").splitlines()
        self.assertEqual(title.split()[:3], ["CHANNEL", "STATE", "KIND"])
        self.assertEqual(line.split()[:2], ["x", "live"])
        self.assertIn("16x8 RGBA8", line)
        text = self.ask("info", "x")
        for part in (f"pid {sender.pid}", "16x8 RGBA8", "host memfd", str(receiver.pid), "shared:g isolated"):
            self.assertIn(part, text)
        for process in (receiver, sender):
            self.interrupt(process)

    def test_what_a_consumer_holds(self):
        """One that stands still with a frame in its hand."""
        sender = self.send()
        receiver = self.start("recv", "x", "--out", "-")
        receiver.stdout.read(16 * 8 * 4)
        receiver.send_signal(signal.SIGSTOP)
        before = self.info()["consumers"][0]
        self.assertLessEqual(before["held"], 1)
        if before["held"]:  # it may have been stopped between two frames
            self.wait_for(lambda: self.info()["consumers"][0]["held_us"] > before["held_us"], "it holds on")
        receiver.send_signal(signal.SIGCONT)
        receiver.stdout.close()
        receiver.stdout = None
        self.finish(receiver)
        self.interrupt(sender)

    def test_kind(self):
        sender = self.send()
        # The filter leaves out who does not answer in time.
        self.wait_for(lambda: "\nx " in self.ask("list", "--kind", "host"), "it answers")
        self.assertEqual(self.run_program("list", "--kind", "vmm", "--json")[0], "")
        self.assertIn("no channels of kind vmm among the 1", self.run_program("list", "--kind", "vmm")[0])
        self.interrupt(sender)

    def test_names(self):
        senders = [self.send(name) for name in NAMES]
        self.assertEqual({channel["name"] for channel in self.list()}, set(NAMES))
        text = self.ask("list")
        for name in NAMES:
            self.assertIn(name, text)
            self.assertEqual(self.info(name)["name"], name)
            self.assertIn(name, self.ask("info", name))
        for sender in senders:
            self.interrupt(sender)

    def test_control_characters(self):
        """In a name they reach no terminal; JSON has the name itself."""
        sender = self.start("send", EVIL, *SMALL)
        self.assertIn(EVIL_SHOWN, self.wait_for_line(sender, "channel "))
        for arguments in (["list"], ["info", EVIL], ["watch", "--count", 1, "--interval", 0.05]):
            text = self.ask(*arguments)
            self.assertIn(EVIL_SHOWN, text)
            self.assertTrue(text.replace("\n", "").isprintable(), text)
        self.assertEqual(self.list()[0]["name"], EVIL)
        self.assertIn("1\\x1b[31m2", self.fail_program("recv", "1\x1b[31m2", "--timeout", 0.05, code=3))
        self.assertIn("no channel '\\x1b'", self.fail_program("info", "\x1b", code=3))
        self.interrupt(sender)

    def test_near(self):
        sender = self.send("camera")
        self.assertIn("did you mean 'camera'?", self.fail_program("info", "camra", code=3))
        self.assertNotIn("did you mean", self.fail_program("info", "x" * 200, code=3))
        self.interrupt(sender)

    def test_silent(self):
        """A producer that is stopped does not answer."""
        sender = self.send()
        sender.send_signal(signal.SIGSTOP)
        self.wait_for(lambda: self.look()[0]["state"] == "silent", "it stands still")
        for command in (["info", "x"], ["recv", "x", "--timeout", 2]):
            line = self.fail_program(*command, code=3)
            self.assertIn("'x': its producer does not answer", line)
            self.assertIn("stopped", line)
        sender.send_signal(signal.SIGCONT)
        self.wait_for(lambda: self.list()[0]["state"] == "live", "it goes on")
        self.interrupt(sender)

    def test_many(self):
        process = self.start_channels(200)
        channels = self.list()
        self.assertEqual([c["name"] for c in channels], [f"channel-{i:03}" for i in range(200)])
        self.assertEqual({(c["state"], c["published"]) for c in channels}, {("live", 1)})
        self.assertEqual(len(self.run_program("list")[0].splitlines()), 201)
        process.kill()
        process.wait()
        self.assertEqual({c["state"] for c in self.list()}, {"dead"})
        self.assertEqual(self.run_json("gc")["removed"], 200)

    def start_channels(self, count):
        process = subprocess.Popen(
            [CHANNELS, str(count)], env=self.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.started.append(process)
        self.assertEqual(process.stdout.readline(), b"ready\n")
        return process

    def test_dead(self):
        sender = self.send()
        living = self.send("living")
        sender.kill()
        sender.wait()
        self.assertEqual({c["name"]: c["state"] for c in self.list()}, {"x": "dead", "living": "live"})
        self.assertEqual(set(self.list()[1]), {"name", "directory", "state"})
        self.assertIn("has died", self.fail_program("info", "x", code=3))
        left = f"x, in {self.channels}: its producer has died, nobody listens at its socket\n"
        before = sorted(path.name for path in self.channels.iterdir())
        self.assertEqual(self.run_program("gc", "--dry-run")[0], f"would remove {left}")
        self.assertEqual(sorted(path.name for path in self.channels.iterdir()), before)
        self.assertEqual(self.run_program("gc")[0], f"removed {left}")
        self.assertEqual(self.run_program("gc", "--dry-run")[0], "nothing to remove\n")
        self.assertEqual(self.run_program("gc")[0], "nothing to remove\n")
        self.assertEqual([c["name"] for c in self.list()], ["living"])
        self.interrupt(living)

    def test_gc_json(self):
        sender = self.send(EVIL)
        sender.kill()
        sender.wait()
        (self.channels / "left.lock").touch()
        would = self.run_json("gc", "--dry-run")
        self.assertEqual((would["dry_run"], would["removed"]), (True, 0))
        self.assertEqual({left["name"] for left in would["leftovers"]}, {EVIL, "left"})
        done = self.run_json("gc")
        self.assertEqual(done, {"dry_run": False, "removed": 2, "leftovers": would["leftovers"]})
        reasons = {left["name"]: left["reason"] for left in done["leftovers"]}
        self.assertIn("nobody listens", reasons[EVIL])
        self.assertIn("lock file", reasons["left"])
        self.check_documented("gc", set(done) | set(done["leftovers"][0]))

    def test_gc_dry_run_and_a_living_producer(self):
        """Nothing of it would be removed, and looking does not take its name away."""
        sender = self.send()
        (self.channels / "file.sock").touch()  # not ours
        for _ in range(3):
            self.assertEqual(self.run_json("gc", "--dry-run")["leftovers"], [])
        error = self.fail_program("send", "x", "--count", 1, code=3)
        self.assertRegex(error, r"is owned by process \d+ \(cudalink\); end it, or take another name$")
        (self.channels / "file.sock").unlink()
        self.interrupt(sender)

    def test_gc_names_no_path(self):
        """What is not ours to remove stays."""
        (self.channels / "file.sock").touch()
        self.run_program("gc")
        self.assertTrue((self.channels / "file.sock").exists())
        (self.channels / "file.sock").unlink()

    @unittest.skipIf(os.getuid() != 0, "needs root")
    def test_other_user(self):
        """Another user's channel is there, but says nothing more."""
        sender = self.send()
        for folder in (self.folder, self.channels):
            folder.chmod(0o755)
        channel = json.loads(self.ask("list", "--json", user=65534, group=65534, extra_groups=[]))
        self.assertEqual((channel["name"], channel["state"]), ("x", "refused"))
        self.assertNotIn("pid", channel)
        self.interrupt(sender)

    def test_closed_pipe(self):
        for arguments in (["list"], ["list", "--json"], ["info", "x"], ["gc"]):
            sender = self.send()
            process = self.start(*arguments)
            process.stdout.close()
            process.stdout = None
            self.assertEqual(self.finish(process), ("", ""))
            self.interrupt(sender)

    def test_full_stdout(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            self.assertIn("No space left", self.fail_program("list", code=4, stdout=full))


main()
