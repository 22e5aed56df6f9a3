#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""test_shell.py ROOT PROGRAM: the command lines of the manual run. Blocks of a page that begin with "```sh" run
one line after the other, as a reader would type them; what goes on by itself does so until the page's
end. In "```sh each" every line is by itself, with a channel, consumer or file that it needs, all at once.
"```sh skip: WHY" does not run. Lines with a tool that is not installed are left out."""
import atexit
import concurrent.futures
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

ROOT, PROGRAM = Path(sys.argv.pop(1)).resolve(), Path(sys.argv.pop(1)).resolve()
LIMIT = 120  # seconds; only a hang comes near
BLOCK = re.compile(r"^```sh([^\n]*)\n(.*?)^```", re.M | re.S)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "bench/README.md"]
ENDS = {"send": r"--count|--seconds|\.y4m|\.png", "recv": r"--count|--once|--seconds",
        "record": r"--once|--seconds", "watch": r"--count"}
SMALL = ("--size", "64x48", "--format", "I420")


def blocks(words):
    """(page, lines) of the blocks whose fence says so."""
    for page in PAGES:
        for found, text in BLOCK.findall(page.read_text(encoding="utf-8")):
            if found.strip() == words:
                lines = (line.split(" # ")[0].split("  #")[0].strip() for line in text.splitlines())
                yield page, [line for line in lines if line]


def stages(line):
    """The words of each command of a pipe."""
    return [shlex.split(re.split(r"\s[0-9]?>", stage)[0]) for stage in line.split(" | ")]


def ours(line):
    """(command, its words) of the stage that is cudalink; (None, []) when there is none."""
    for words in stages(line):
        if Path(words[0]).name == "cudalink":
            return words[1], words[2:]
    return None, []


def is_endless(line):
    command, words = ours(line)
    if command in ("send", "replay") and ("--loop" in words or "-" in words):
        return True  # of a pipe the consumer comes in the next line
    return command in ENDS and not re.search(ENDS[command], " ".join(words))


def has_tools(line):
    return all(shutil.which(words[0]) or Path(words[0]).name == "cudalink" for words in stages(line))


def put_away(process):
    """Behind a failure nothing stays."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    process.stdout.close()


class Place:
    """A folder with the files that the manual names, channels of its own, and what was started in it."""

    def __init__(self, files):
        self.folder = Path(tempfile.mkdtemp(prefix="cudalink-shell-"))
        for path in files:
            shutil.copy(path, self.folder)
        (self.folder / "build").mkdir()
        (self.folder / "build/cudalink").symlink_to(PROGRAM)
        self.channels = self.folder / "channels"
        self.channels.mkdir(mode=0o700)
        self.environment = dict(os.environ, CUDALINK_RUNTIME_DIR=str(self.channels), TMPDIR=str(self.folder),
                                XDG_RUNTIME_DIR=str(self.folder),
                                PATH=f"{self.folder / 'build'}:{os.environ['PATH']}")
        self.going = []

    def start(self, line):
        exec_it = "" if "|" in line or "&" in line else "exec "
        process = subprocess.Popen(["sh", "-c", exec_it + line], cwd=self.folder, env=self.environment,
                                   start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT)
        atexit.register(put_away, process)
        return process

    def finish(self, line, process):
        out, _ = process.communicate(timeout=LIMIT)
        # Frames that a busy machine missed are told so by `record`, and are no fault of the line.
        good = process.returncode == 0 or (process.returncode == 1 and b": missed " in out)
        assert good, (line, process.returncode, out)
        return out

    def run(self, line):
        return self.finish(line, self.start(line))

    def look(self):
        out = subprocess.run([PROGRAM, "list", "--json"], env=self.environment, stdout=subprocess.PIPE, check=True)
        return {channel["name"]: channel for channel in map(json.loads, out.stdout.splitlines())}

    def goes_on(self, line, process):
        """Has it come so far that there is something to end?"""
        command, words = ours(line)
        status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
        caught = int(re.search(r"SigCgt:\s*(\w+)", status).group(1), 16)
        if not caught & 1 << (signal.SIGINT - 1) and "|" not in line:
            return False
        if command == "watch":
            return True
        channel = self.look().get(words[1] if command == "replay" else words[0], {})
        consumers = channel.get("consumers", [])
        return bool(channel) if command in ("send", "replay") else any(one["received"] for one in consumers)

    def leave_running(self, line):
        process = self.start(line)
        end = time.monotonic() + LIMIT
        while process.poll() is None and not self.goes_on(line, process):
            assert time.monotonic() < end, f"nothing came of it: {line}"
            time.sleep(0.01)
        self.going.append((line, process))

    def type(self, line):
        if is_endless(line):
            self.leave_running(line)
        else:
            self.run(line)

    def end(self):
        for line, process in reversed(self.going):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGINT)
            out, _ = process.communicate(timeout=LIMIT)
            ended = (0, 128 + signal.SIGINT, -signal.SIGINT)  # the last: a shell with a pipe
            assert process.returncode in ended, (line, process.returncode, out)
        left = [path.name for path in self.channels.iterdir()]
        shutil.rmtree(self.folder)
        assert not left, left


class Shell(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        """clip.y4m, clip.mp4 and take.rec, as somebody who reads on would have them."""
        cls.place = place = Place([])
        lines = ["cudalink recv a --policy every --once --out clip.y4m",
                 "cudalink record a take.rec --policy every --once"]
        started = [(line, place.start(line)) for line in lines]
        place.run(f"cudalink send a {' '.join(SMALL)} --count 5 --fps 50 --wait-consumers 2")
        for line, process in started:
            place.finish(line, process)
        if shutil.which("ffmpeg"):
            place.run("ffmpeg -loglevel error -f lavfi -i testsrc=size=64x48:rate=25 -frames:v 5 clip.mp4")
        cls.files = [path for path in place.folder.iterdir() if path.suffix in (".y4m", ".mp4", ".rec")]

    @classmethod
    def tearDownClass(cls):
        cls.place.end()

    def test_pages(self):
        """Those that are read from the beginning to the end."""
        pages = {}
        for page, lines in blocks(""):
            pages.setdefault(page, []).extend(lines)
        self.assertGreaterEqual(len(pages), 2)
        for page, lines in pages.items():
            place = Place(self.files)
            for line in filter(has_tools, lines):
                with self.subTest(page=page.name, line=line):
                    place.type(line)
            place.end()

    def try_one(self, line):
        """With what it needs around it."""
        command, words = ours(line)
        place = Place(self.files)
        if command in ("recv", "record") and "--once" in words:
            place.leave_running(f"cudalink send {words[0]} - --fps 50 --wait-consumers 1 < clip.y4m")
        elif command in ("recv", "record"):
            place.leave_running(f"cudalink send {words[0]} --size 64x48")
        if "--wait-consumers" in words:
            waiting = place.start(f"cudalink recv {words[1] if command == 'replay' else words[0]}")
            place.going.append(("recv", waiting))
        place.type(line)
        place.end()

    def test_each(self):
        lines = [line for _, found in blocks("each") for line in found if has_tools(line)]
        self.assertGreaterEqual(len(lines), 15)
        with concurrent.futures.ThreadPoolExecutor(len(lines)) as pool:
            for line, done in [(line, pool.submit(self.try_one, line)) for line in lines]:
                with self.subTest(line=line):
                    done.result()

    def test_every_block_says_what_it_is(self):
        for page in PAGES:
            for words, _ in BLOCK.findall(page.read_text(encoding="utf-8")):
                self.assertRegex(words, r"^$|^ each$|^ skip: \w", page.name)


unittest.main(verbosity=2)
