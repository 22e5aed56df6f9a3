#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""watch on a terminal: tmux is the terminal, and its screen is read."""

import shlex

from program import PROGRAM, main
from tmux import TmuxTest

SMALL = ("--size", "16x8", "--fps", 50)


class Screen(TmuxTest):
    def open(self, columns, lines=12, command="watch --interval 0.1", environment=""):
        """A shell, and the command in it."""
        self.open_shell(columns, lines)
        self.type(f"{environment} {shlex.quote(PROGRAM)} {command}; echo code $?", "Enter")

    def send(self, name="x", *more):
        sender = self.start("send", name, *SMALL, *more)
        self.wait_for_line(sender, "channel ")
        return sender

    def quit(self, key="q", code=0):
        """The shell's screen is as it was, and the terminal echoes again."""
        self.type(key)
        self.wait_screen(f"^code {code}\nshell>")  # what is typed before its prompt is shown there too
        self.type("echo again", "Enter")
        self.wait_screen("^again$")
        self.assertNotIn("CHANNEL", self.screen())
        self.assertEqual(self.tmux("display-message", "-p", "#{alternate_on} #{cursor_flag}"), "0 1\n")

    def test_40_columns(self):
        senders = [self.send("a long name of a camera in the hall"), self.send("cam")]
        receiver = self.start("recv", "cam", "--policy", "every")
        self.open(40)
        self.wait_screen(r"^2 channels, 1 consumer$")
        self.wait_screen(r"^cam +live +\d+\.\d .*")
        self.wait_screen(rf"^└ cudalink {receiver.pid}( |$)")
        self.wait_screen(r"^a long.*… +live ")
        self.assertTrue(all(len(line) <= 40 for line in self.lines()), self.screen())
        title = next(line for line in self.lines() if line.startswith("CHANNEL"))
        self.assertEqual(title.split()[:3], ["CHANNEL", "STATE", "FPS"])
        self.assertIn("AGE", title)
        self.assertNotIn("REASON", title)
        self.quit()
        for process in (receiver, *senders):
            self.interrupt(process)

    def test_20_columns(self):
        sender = self.send("a long name of a camera")
        self.open(20)
        self.wait_screen(r"^a long.*… +live$")
        self.assertTrue(all(len(line) <= 20 for line in self.lines()), self.screen())
        self.quit()
        self.interrupt(sender)

    def test_200_columns(self):
        sender = self.send("a long name of a camera")
        self.open(200)
        self.wait_screen(r"^CHANNEL +STATE +KIND +FPS .* PICTURE +PATH +PRODUCER +FRAMES +SLOTS$")
        self.wait_screen(rf"^a long name of a camera +live +host .* 16x8 RGBA8 +shared memory +cudalink {sender.pid} ")
        self.quit()
        self.interrupt(sender)

    def test_resize(self):
        sender = self.send()
        self.open(100, command="watch --interval 1000")  # nothing but the resize draws again
        self.wait_screen(r"^CHANNEL .* PRODUCER")
        self.tmux("resize-window", "-x", 30, "-y", 6)
        self.wait_screen(r"^CHANNEL +STATE +AGE$|^CHANNEL +STATE +AGE +DROPS$")
        self.assertEqual(len(self.screen().split("\n")), 7)
        self.tmux("resize-window", "-x", 150, "-y", 12)
        self.wait_screen(r"^CHANNEL .* PRODUCER")
        self.quit()
        self.interrupt(sender)

    def test_keys(self):
        senders = [self.send("cam"), self.send("hall")]
        receiver = self.start("recv", "hall")
        self.open(100)
        self.wait_screen(r"^cam .*\n(?:.*\n)*hall .*\n└")
        self.type("c")
        self.wait_screen(r"^cam .*\nhall .*\n\n")
        self.type("s", "s", "s", "s", "s")
        self.wait_screen(r"sort: consumers ")
        self.wait_screen(r"^hall .*\ncam ")
        self.type("r")
        self.wait_screen(r"^cam .*\nhall ")
        self.type("/", "A", "L", "x")
        self.wait_screen(r"^/ALx_$")
        self.type("BSpace")
        self.wait_screen(r"^/AL_$")
        self.type("Enter")
        self.wait_screen(r"^2 channels, 1 consumer, 1 shown\nCHANNEL .*\nhall ")
        self.type("Escape")
        self.wait_screen(r"^2 channels, 1 consumer\n")
        self.quit()
        for process in (receiver, *senders):
            self.interrupt(process)

    def test_scroll(self):
        senders = [self.send(f"cam{i}") for i in range(5)]
        self.open(60, lines=6)  # room for three rows
        self.wait_screen(r"^CHANNEL .*\ncam0 .*\ncam1 .*\ncam2 ")
        self.type("Down")
        self.wait_screen(r"^CHANNEL .*\ncam1 .*\ncam2 .*\ncam3 ")
        self.type("NPage")
        self.wait_screen(r"^CHANNEL .*\ncam2 .*\ncam3 .*\ncam4 ")
        self.type("PPage")
        self.wait_screen(r"^CHANNEL .*\ncam0 ")
        self.quit()
        for sender in senders:
            self.interrupt(sender)

    def test_interrupt(self):
        self.open(80)
        self.wait_screen("^0 channels, 0 consumers$")
        self.quit("C-c", 130)

    def test_suspend(self):
        self.open(80, command="watch --interval 0.1", environment="set -m;")
        self.wait_screen("^0 channels")
        self.type("C-z")
        self.wait_screen("Stopped|suspended|code 1")
        self.assertNotIn("channels,", self.screen())
        self.type("fg", "Enter")
        self.wait_screen("^0 channels")
        self.type("q")
        self.wait_for(lambda: "0 channels" not in self.screen(), "it has ended")

    def test_without_keys(self):
        """stdin is closed: the table goes on, a signal ends it."""
        self.open(80, command="watch --interval 0.1 < /dev/null")
        self.wait_screen("^0 channels, 0 consumers$")
        self.quit("C-c", 130)

    def test_colour(self):
        self.leaves_nothing = False
        sender = self.send()
        sender.kill()
        sender.wait()
        for environment, has_colour in (("", True), ("NO_COLOR=1", False)):
            self.open(80, environment=environment)
            self.wait_screen(r"^x +dead$")
            self.assertEqual("\x1b[31mx" in self.screen("-e"), has_colour)

    def test_names(self):
        """Wide letters keep the columns apart; controls are shown, not obeyed."""
        senders = [self.send(name) for name in ("日本", "ümläut", "\x1b[2J")]
        self.open(80)
        lines = []

        def all_are_live():  # on one screen: on the next one of them may be silent
            lines[:] = [line for line in self.lines() if " live " in line]
            return len(lines) == 3

        self.wait_for(all_are_live, "three channels")
        self.assertTrue(any(line.startswith("\\x1b[2J ") for line in lines), lines)
        places = {len(line[: line.index("live")].replace("日", "xx").replace("本", "xx")) for line in lines}
        self.assertEqual(len(places), 1, lines)
        self.quit()
        for sender in senders:
            self.interrupt(sender)

    def test_live_line_of_a_background_job(self):
        """It is shown in front only."""
        self.open_shell(80, 12, "env PS1='shell> ' sh -m")
        self.type(f"{shlex.quote(PROGRAM)} send x --size 16x8 --fps 50 &", "Enter")
        # 200 ms are 10 frames
        self.wait_for(lambda: "x" in self.run_program("list")[0], "it is there")
        self.wait_for(lambda: self.ask_json("info", "x")["published"] > 40, "some frames")
        self.assertNotIn(" fps ", self.screen())
        self.type("fg", "Enter")
        self.wait_screen(r"\d frames  \d+\.\d fps ")
        self.type("C-c")
        self.wait_screen("^sent .* frames")

    def test_list_is_cut_too(self):
        sender = self.send("a long name of a camera")
        self.open(30, command="list")
        self.wait_screen("^code 0$")
        self.assertTrue(all(len(line) <= 30 for line in self.lines()[2:]), self.screen())
        self.interrupt(sender)

    def test_dumb_terminal(self):
        self.open(80, command="watch --interval 0.1 --count 1", environment="TERM=dumb")
        self.wait_screen("^CHANNEL\n\ncode 0$")


main()
