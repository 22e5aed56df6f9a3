#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Completion: what the program offers, and that a real bash and a real zsh take it."""

import subprocess
from pathlib import Path

from program import PROGRAM, main
from tmux import TmuxTest

FOLDER = Path(__file__).resolve().parents[2] / "tools" / "completion"
SMALL = ("--size", "16x8", "--fps", 50)
COMMANDS = {
    "demo", "send", "recv", "record", "replay", "list", "info", "watch", "gc", "mps", "bench", "help", "version",
}  # fmt: skip


class Complete(TmuxTest):
    def setUp(self):
        super().setUp()
        (self.folder / "bin").mkdir()
        (self.folder / "bin" / "cudalink").symlink_to(PROGRAM)
        self.environment["PATH"] = f"{self.folder}/bin:{self.environment['PATH']}"
        self.environment["LANG"] = "C.UTF-8"

    def offer(self, *words):
        out, errors = self.run_program("complete", *words)
        self.assertEqual(errors, "")
        return out.splitlines()

    def send(self, *names):
        senders = [self.start("send", name, *SMALL) for name in names]
        for sender in senders:
            self.wait_for_line(sender, "channel ")
        return senders

    def test_commands(self):
        offered = set(self.offer(""))
        self.assertLessEqual(COMMANDS, offered)
        self.assertNotIn("complete", offered)
        self.assertEqual(set(self.offer("help", "")), offered)
        self.assertEqual(self.offer("nonsense", ""), [])
        self.assertEqual(self.offer("version", ""), [])
        self.assertEqual(self.offer(), [])

    def test_options_are_those_of_help(self):
        for command in sorted(COMMANDS - {"help", "version"}):
            text = self.run_program(command, "--help")[0]
            shown = {line.split()[0] for line in text.splitlines() if line.startswith("  --")}
            self.assertEqual(set(self.offer(command, "-")), shown)

    def test_values(self):
        self.assertEqual(self.offer("send", "x", "--kind", ""), ["auto", "host", "vmm", "ipc"])
        self.assertIn("NV12", self.offer("send", "--format", "N"))
        self.assertEqual(self.offer("mps", "s"), ["start", "stop", "status"])
        self.assertEqual(self.offer("mps", "start", "s"), [])
        self.assertEqual(self.offer("send", "--count", ""), [])  # a number: nothing to offer

    def test_channels(self):
        senders = self.send("cam", "with space", "ctrl\x1b")
        names = ["cam", "with space"]
        for words in [["info", ""], ["recv", "--once", ""], ["recv", "--count", "5", "c"], ["replay", "file", ""]]:
            self.assertEqual(self.offer(*words), names, words)
        for words in [["replay", ""], ["send", "cam", ""], ["watch", ""]]:  # a file, or nothing
            self.assertEqual(self.offer(*words), [], words)
        for sender in senders:
            self.interrupt(sender)

    def test_bash(self):
        senders = self.send("with space", "cam")
        self.open_shell(shell="env PS1='shell> ' bash --norc")
        self.type(f"source {FOLDER}/cudalink.bash", "Enter")
        (self.folder / "a-file").touch()
        for typed, wanted in [
            ("cudalink rep", "cudalink replay "), ("cudalink send x --pat", "cudalink send x --pattern "),
            ("cudalink info w", r"cudalink info with\ space "), ("cudalink recv ca", "cudalink recv cam "),
            ("cudalink replay a-", "cudalink replay a-file "),
        ]:  # fmt: skip
            self.check(typed, wanted)
        for sender in senders:
            self.interrupt(sender)

    def test_zsh(self):
        self.assertEqual(subprocess.run(["zsh", "-n", FOLDER / "_cudalink"], check=False).returncode, 0)
        senders = self.send("with space", "cam")
        self.open_shell(shell="env PS1='shell> ' zsh -f")
        (self.folder / "a-file").touch()
        self.type(f"fpath=({FOLDER} $fpath); autoload -U compinit; compinit -u -D; echo loaded", "Enter")
        self.wait_screen("^loaded")
        for typed, wanted in [
            ("cudalink rep", "cudalink replay "), ("cudalink send x --pat", "cudalink send x --pattern "),
            ("cudalink info w", r"cudalink info with\ space "), ("cudalink recv ca", "cudalink recv cam "),
            ("cudalink replay a-", "cudalink replay a-file "),
        ]:  # fmt: skip
            self.check(typed, wanted)
        for sender in senders:
            self.interrupt(sender)

    def check(self, typed, wanted):
        """Types it and a tab; the X behind it shows that a space was added."""
        self.type("C-l", "C-u", typed, "Tab")
        self.wait_screen(f"^shell> {wanted}$".replace("\\ ", r"\\ ").replace(" $", "$"))
        self.type("X")
        self.wait_screen(f"^shell> {wanted}X$".replace("\\ ", r"\\ "))


main()
