#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Command lines: help, mistakes, and an output that can't be written."""

import re
import subprocess

from program import MANUAL, PROGRAM, ProgramTest, main

COMMANDS = ["demo", "send", "recv", "record", "replay", "list", "info", "watch", "gc", "bench"]


class Options(ProgramTest):
    def test_help_and_version(self):
        overview, errors = self.run_program("help")
        self.assertEqual(errors, "")
        self.assertEqual(self.run_program("--help")[0], overview)
        for command in COMMANDS:
            self.assertIn(f"  {command} ", overview)
            text, errors = self.run_program(command, "--help")
            self.assertTrue(text.startswith(f"usage: cudalink {command}"), text)
            self.assertIn("--json", text)
            self.assertEqual(errors, "")
            self.assertEqual(self.run_program("help", command)[0], text)
        self.assertRegex(self.run_program("version")[0], r"^cudalink \d+\.\d+\.\d+, library \d")
        self.assertNotIn("demo-consumer", overview)

    def test_examples_are_in_help(self):
        for command in COMMANDS:
            self.assertIn("examples:\n  cudalink " + command, self.run_program(command, "--help")[0])

    def test_every_command_is_in_the_manual(self):
        manual = MANUAL.read_text(encoding="utf-8")
        overview = self.run_program("help")[0].split("exit codes")[0]
        for command in re.findall(r"^  (\w+) ", overview, re.M):
            if command not in ("help", "version"):
                self.assertRegex(manual, rf"(?m)^\| \[`{command}`\]")
                self.assertIn(f"cudalink {command}", manual)

    def test_formats(self):
        formats = self.run_program("help", "formats")[0].split()
        self.assertIn("RGBA8", formats)
        self.assertIn("V210", [name.upper() for name in formats])

    def test_nothing_at_all(self):
        _, errors = self.run_program(code=2)
        self.assertTrue(errors.startswith("usage: cudalink"))

    def test_mistakes(self):
        for arguments, text in [
            (["snd", "x"], "did you mean send?"),
            (["frobnicate"], "cudalink help lists them"),
            (["send", "x", "--patern", "bars"], "did you mean --pattern?"),
            (["send", "x", "--pattern", "bar"], "did you mean bars?"),
            (["send", "x", "--format", "RGBA9"], "did you mean RGBA8?"),
            (["send", "x", "--kind", "gpu"], "auto host vmm ipc"),
            (["send", "x", "--size", "12"], "like 1280x720"),
            (["send", "x", "--size", "0x5"], "from 1 to 65535"),
            (["send", "x", "--size", "65536x5"], "from 1 to 65535"),
            (["send", "x", "--fps", "fast"], "like 60, 29.97 or 30000/1001"),
            (["send", "x", "--fps", "1/0"], "like 60, 29.97 or 30000/1001"),
            (["send", "x", "--fps", "-1"], "like 60, 29.97 or 30000/1001"),
            (["send", "x", "--count", "0"], "1 or more"),
            (["send", "x", "--count", "99999999999999999999"], "1 or more"),
            (["send", "x", "--seconds", "1.x"], "like 10 or 0.5"),
            (["send", "x", "--wait-consumers", "65"], "from 0 to 64"),
            (["send", "x", "--loop=1"], "--loop takes no value"),
            (["send", "x", "--loop"], "--loop needs a FILE"),
            (["send", "x", "--count"], "--count needs a value"),
            (["send", "x", "f.y4m", "--pattern", "bars"], "not both"),
            (["send", "x", "f.raw", "--format", "I420"], "both --format and --size"),
            (["send", "x", "-q"], "no option -q"),
            (["send", "-x"], "a NAME like that goes behind --: cudalink send -- -x"),
            (["recv", "--camera"], "goes behind --: cudalink recv -- --camera"),
            (["list", "-q"], "no option -q; see cudalink list --help"),
            (["send"], "send needs NAME"),
            (["send", "x", "a", "b"], 'what is "b"?'),
            (["recv", "a", "b"], 'what is "b"?'),
            (["recv", "x", "--hold", "17"], "from 1 to 16"),
            (["recv", "x", "--policy", "shared"], "--group"),
            (["recv", "x", "--policy", "latest", "--group", "g"], "belong together"),
            (["recv", "x", "--as", "jpeg"], "auto y4m png npy raw"),
            (["demo", "5"], "options only"),
            (["lst"], "did you mean list?"),
            (["record", "x"], "record needs NAME FILE"),
            (["record", "x", "f", "--policy", "evry"], "did you mean every?"),
            (["record", "x", "f", "--policy", "ready_only"], "must be one of order every"),
            (["recv", "x", "--policy", "in_ordr"], "order every shared; did you mean in_order?"),
            (["replay", "f", "x", "--speed", "fast"], "a factor, like 1, 0.5 or 3/2"),
            (["replay", "f", "x", "--spede", "1"], "did you mean --speed?"),
            (["info"], "info needs NAME"),
            (["list", "x"], "options only"),
            (["demo", "--consumers", "0"], "from 1 to 64"),
            (["send", ""], "empty"),
            (["send", "n" * 201], "200"),
        ]:
            with self.subTest(arguments=arguments):
                self.assertIn(text, self.fail_program(*arguments, code=2))

    def test_value_with_equals_sign_and_short_forms(self):
        out = self.run_json("send", "x", "--size=8x8", "--format=gray8", "--count=2", "--fps=0")
        self.assertEqual((out["width"], out["format"], out["frames_sent"]), (8, "GRAY8", 2))

    def test_name_that_looks_like_an_option(self):
        out = self.run_program("send", "--size=8x8", "--count=1", "--json", "--", "--name")[0]
        self.assertIn('"channel": "--name"', out)

    def test_names(self):
        for name in ["with space", "a>>b", 'quo"te', "umläut", "sla/sh", "back\\slash", "n" * 200]:
            with self.subTest(name=name):
                out = self.run_json("send", name, "--size=8x8", "--count=1")
                self.assertEqual(out["channel"], name)

    def test_closed_pipe(self):
        for command in (["help"], ["recv", "--help"], ["help", "formats"]):
            process = self.start(*command)
            process.stdout.close()
            process.stdout = None
            self.assertEqual(self.finish(process), ("", ""))

    def test_full_stdout(self):
        with open("/dev/full", "w") as full:
            line = self.fail_program("help", code=4, stdout=full)
        self.assertIn("stdout", line)
        self.assertIn("No space left", line)

    def test_closed_stdin_and_stdout(self):
        """Descriptors 0 to 2 are not there: nothing of a channel may take their places."""
        script = 'exec "$0" send x --size 8x8 --count 1 0<&- 1>&- 2>&-'
        done = subprocess.run(
            ["sh", "-c", script, PROGRAM], env=self.environment, timeout=60, check=False
        )
        self.assertIn(done.returncode, (0, 4))


main()
