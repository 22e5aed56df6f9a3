# SPDX-License-Identifier: MIT
"""What the rows of python_bench.py share, on every kind: timing, what may be missing, and scripts that are run."""
import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

PEERS = Path(__file__).resolve().parent / "peers"
PICTURE = (1080, 1920, 4)
clock = time.perf_counter_ns


class LeftOut(Exception):
    """This row can't be measured here."""


class Nothing:
    """The least that a method, or a with-block, costs."""

    def method(self, timeout=None, *, stream=None):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        pass


def clock_cost():
    samples = []
    for _ in range(2000):
        start = clock()
        samples.append(clock() - start)
    return sorted(samples)[len(samples) // 2]


def timed(call, rounds, before=lambda: None, after=lambda result: None):
    """Microseconds of each call; `before`, `after`, and the end of what it returned are not timed."""
    cost, samples = clock_cost(), []
    for _ in range(rounds):
        before()
        start = clock()
        result = call()
        end = clock()
        after(result)
        del result
        samples.append(max(end - start - cost, 0) / 1e3)
    return samples


def need(module):
    if importlib.util.find_spec(module) is None:
        raise LeftOut(f"needs {module}")
    return __import__(module)


def within(least):
    return lambda floor: least


def said(errors):
    """The last exception's line. Two processes write to it, and one may be ended in the middle of a traceback."""
    lines = [line for line in errors.splitlines() if line and not line.startswith((" ", "Traceback"))]
    return lines[-1] if lines else "it said nothing"


def peer(script, what, rounds, limit=300, folder=""):
    """The numbers that a script of bench/peers prints. What it has started ends with it. folder: where it looks
    for modules first."""
    path = os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH")]))
    process = subprocess.Popen(
        [sys.executable, str(PEERS / script), what, str(rounds)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    hung = False
    try:
        out, errors = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        hung = True
        os.killpg(process.pid, signal.SIGKILL)
        out, errors = process.communicate()
    if hung or process.returncode:
        why = f"did not end within {limit} s" if hung else "failed"
        raise RuntimeError(f"{script} {what} {why}: {said(errors)}")
    return [float(line) for line in out.split()]
