# SPDX-License-Identifier: MIT
"""What all tests share: a folder for channels of their own, names, random order with a printed seed."""

from __future__ import annotations

import multiprocessing
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

SEED = int(os.environ.get("CUDALINK_TEST_SEED") or random.SystemRandom().randrange(1_000_000))
LIMIT = 60  # seconds; only a hang comes near
TORCH_LIMIT = 600  # of a program that imports torch, or compiles with it, on a busy machine


ORDER = f"order: CUDALINK_TEST_SEED={SEED} repeats it"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """At the end, because -q leaves out the header."""
    package = sys.modules.get("cuda_link")
    terminalreporter.write_line(f"{ORDER}; {package.backend if package else 'cuda_link was not imported'}")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """On a lent GPU at once: a hang further on takes the summary along."""
    if report.failed and os.environ.get("CUDALINK_PYTHON_GPU") == "real":
        print(f"\n{report.nodeid}\n{report.longreprtext}", file=sys.stderr, flush=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    random.Random(SEED).shuffle(items)


@pytest.fixture(autouse=True)
def runtime_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Channels of this test only; nothing of them is left at its end. TMPDIR too, since lists look in all
    the usual folders, where other programs of this machine may have channels."""
    directory = tmp_path_factory.mktemp("run")
    directory.chmod(0o700)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDALINK_RUNTIME_DIR", str(directory))
        patch.setenv("TMPDIR", str(tmp_path_factory.mktemp("tmp")))
        patch.delenv("XDG_RUNTIME_DIR", raising=False)
        yield directory


@pytest.fixture
def start():
    """Starts processes; none is left at the end."""
    spawn = multiprocessing.get_context("spawn")
    started = []

    def begin(target, *arguments):
        process = spawn.Process(target=target, args=arguments, daemon=True)
        process.start()
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.join()


def until_held(importer, count: int) -> None:
    """Waits until so many frames are held: one that goes while the library is busy is given back by another
    thread."""
    end = time.monotonic() + LIMIT
    while importer.held != count:
        assert time.monotonic() < end, importer.held
        time.sleep(0)


def patient(code: str) -> str:
    """Of a document: its readers wait for five seconds; what comes on a busy machine comes later."""
    return re.sub(r"(\btimeout=|acquire\()5\b", rf"\g<1>{LIMIT}", code)


def run_python(
    code: str, *arguments: str, timeout: float = LIMIT, **options: object
) -> subprocess.CompletedProcess[str]:
    """A program in a Python of its own, with the same back end; its warnings are errors."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        **options,  # type: ignore[call-overload]
    )


# Each runs in a process that was forked before anything was opened, with the modules imported already: that
# costs a tenth of a Python of its own, and its end is the same one, of a whole interpreter.
FORKS = """
import importlib, os, signal, sys, tempfile
code = compile(sys.stdin.read(), "forked", "exec")
for name in sys.argv[2].split():
    importlib.import_module(name)
for number in range(int(sys.argv[1])):
    with tempfile.TemporaryFile() as said:
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            os.dup2(said.fileno(), 2)
            sys.argv[1:] = [str(number), *sys.argv[3 + number % len(sys.argv[3:]) :][:1]]
            break
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        said.seek(0)
        print(status, ascii(said.read().decode()), flush=True)
else:
    sys.exit(0)
del importlib, os, signal, tempfile, name, said, number, child
exec(code)
"""


def run_forks(code: str, count: int, imports: str, *ways: str) -> list[str]:
    """Runs a program so many times, with its number and one of `ways` after the other as its arguments.
    Returns how each ended: `0 ''`, its status and what it wrote to stderr."""
    ended = run_python(FORKS, str(count), imports, *ways, input=code, timeout=10 * LIMIT)
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout.splitlines()


def start_python(code: str, *arguments: str) -> subprocess.Popen[str]:
    """The same, left running with pipes."""
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", code, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
