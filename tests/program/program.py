# SPDX-License-Identifier: MIT
"""What the tests of the program share: starting it, waiting for it, and the rule that it leaves
nothing behind. Each test has a folder of its own, for its files and for its channels."""

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

PROGRAM = os.environ["CUDALINK_PROGRAM"]
FAKE_DRIVER = os.environ.get("CUDALINK_FAKE_DRIVER")  # the folder of tests/fakecuda's libcuda.so.1
CHANNELS = os.environ.get("CUDALINK_CHANNELS")  # channels.c
MANUAL = Path(__file__).resolve().parents[2] / "docs" / "program.md"
LIMIT = 60  # seconds; only a hang comes near


def fresh_environment(folder):
    environment = dict(os.environ, CUDALINK_RUNTIME_DIR=str(folder), TERM="xterm")
    environment["TMPDIR"] = str(folder.parent)  # consumers look in the usual folders, too
    environment.pop("XDG_RUNTIME_DIR", None)
    environment.pop("NO_COLOR", None)
    environment.pop("LD_LIBRARY_PATH", None)  # Meson's has the fake driver; a test says when it wants it
    return environment


class ProgramTest(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="cudalink-program-"))
        self.channels = self.folder / "channels"
        self.channels.mkdir(mode=0o700)
        self.environment = fresh_environment(self.channels)
        self.started = []

    def tearDown(self):
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream:
                    stream.close()
        left = [path.name for path in self.channels.iterdir()] if self.leaves_nothing else []
        shutil.rmtree(self.folder)
        self.assertEqual(left, [], "the program left files of channels behind")

    leaves_nothing = True  # a test that kills a producer says False

    def path(self, name):
        return str(self.folder / name)

    def start(self, *arguments, **options):
        """Starts the program with pipes, unless told otherwise."""
        options = dict(
            {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}, **options
        )
        process = subprocess.Popen(
            [PROGRAM, *map(str, arguments)], env=self.environment, cwd=self.folder, **options
        )
        self.started.append(process)
        return process

    def finish(self, process, code=0):
        """Waits for it; the exit code must be `code`. Returns what it said, as text."""
        out, errors = process.communicate(timeout=LIMIT)
        out, errors = (text.decode("utf-8", "replace") if text else "" for text in (out, errors))
        self.assertEqual(process.returncode, code, f"{process.args}\n{out}\n{errors}")
        return out, errors

    def run_program(self, *arguments, code=0, **options):
        return self.finish(self.start(*arguments, **options), code)

    def run_json(self, *arguments, code=0, **options):
        return json.loads(self.run_program(*arguments, "--json", code=code, **options)[0])

    def ask(self, *arguments, **options):
        """What a command says of channels whose producers live. It gives each one 0.3 s to answer, which
        is little where others have the processors: then it is asked again."""
        end = time.monotonic() + LIMIT
        while True:
            process = self.start(*arguments, **options)
            out, errors = process.communicate(timeout=LIMIT)
            has_answers = b"silent" not in out and b"does not answer" not in errors
            if has_answers or time.monotonic() > end:
                break
        self.assertEqual(process.returncode, 0, f"{process.args}\n{out}\n{errors}")
        return out.decode()

    def ask_json(self, *arguments):
        return json.loads(self.ask(*arguments, "--json"))

    def words_of_help(self, command):
        return set(re.split(r"[\s.,;:()]+", self.run_program(command, "--help")[0]))

    def check_documented(self, command, keys):
        """The keys of its JSON are in its help and in the manual."""
        self.assertLessEqual(keys, self.words_of_help(command))
        self.assertLessEqual(keys, set(re.findall(r"`(\w+)`", MANUAL.read_text(encoding="utf-8"))))

    def fail_program(self, *arguments, code, **options):
        """A failing command says one line, on stderr, in the usual form. Returns the line."""
        _, errors = self.run_program(*arguments, code=code, **options)
        return self.one_line(errors)

    def one_line(self, errors):
        lines = errors.splitlines()
        self.assertEqual(len(lines), 1, errors)
        self.assertTrue(lines[0].startswith("cudalink: "), errors)
        return lines[0]

    def interrupt(self, process, number=signal.SIGINT):
        process.send_signal(number)
        return self.finish(process, 128 + number)

    def wait_for(self, condition, what):
        """Until a state is reached, however long the machine needs for it."""
        end = time.monotonic() + LIMIT
        while not condition():
            self.assertLess(time.monotonic(), end, f"never happened: {what}")
            time.sleep(0.005)

    def wait_for_line(self, process, text):
        """Reads stdout up to the line that has `text`."""
        while True:
            line = process.stdout.readline()
            self.assertTrue(line, f"ended without saying {text!r}")
            if text in line.decode():
                return line.decode()

    def transfer(self, source, target, send=(), recv=()):
        """One file through a channel, every frame. Returns both summaries."""
        receiver = self.start(
            "recv", "x", "--policy", "every", "--once", "--json", "--out", target, *recv
        )
        sent = self.run_json("send", "x", source, "--wait-consumers", 1, "--fps", 0, *send)
        return sent, json.loads(self.finish(receiver)[0])


def main():
    unittest.main(verbosity=2)
