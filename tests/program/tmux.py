# SPDX-License-Identifier: MIT
"""A terminal for tests: tmux with a server of its own, whose screen can be read."""

import re
import subprocess

from program import ProgramTest


class TmuxTest(ProgramTest):
    def setUp(self):
        super().setUp()
        self.servers = []  # one per shell: the newest is the one that is used

    def tearDown(self):
        for server in self.servers:
            subprocess.run([*server, "kill-server"], stderr=subprocess.DEVNULL, check=False)
        super().tearDown()

    def tmux(self, *arguments):
        return subprocess.run(
            [*self.servers[-1], *map(str, arguments)], env=self.environment, cwd=self.folder, check=True,
            stdout=subprocess.PIPE, timeout=60,
        ).stdout.decode()  # fmt: skip

    def open_shell(self, columns=80, lines=12, shell="env PS1='shell> ' sh"):
        socket = self.path(f"tmux{len(self.servers)}")
        self.servers.append(["tmux", "-u", "-f", "/dev/null", "-S", socket])
        self.tmux("new-session", "-d", "-x", columns, "-y", lines, shell)
        self.tmux("resize-window", "-x", columns, "-y", lines)  # 3.2 (Ubuntu 22.04) takes it here only
        self.wait_for(lambda: "shell>" in self.screen(), "the shell is there")

    def type(self, *keys):
        self.tmux("send-keys", *keys)

    def screen(self, *more):
        return self.tmux("capture-pane", "-p", *more)

    def lines(self):
        return self.screen().rstrip("\n").split("\n")

    def wait_screen(self, pattern):
        """Until a line is like that; a failure shows the screen."""
        try:
            self.wait_for(lambda: re.search(pattern, self.screen(), re.M), f"{pattern!r}")
        except AssertionError as error:
            raise AssertionError(f"{error}; the screen:\n{self.screen()}") from None
