# SPDX-License-Identifier: MIT
"""The rules of this suite hold: random order that can be repeated, warnings are errors, strict xfail."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from conftest import LIMIT, ORDER

HERE = Path(__file__).resolve().parent
SETTINGS = ["-c", str(HERE.parents[1] / "pyproject.toml"), "-p", "no:cacheprovider", "-q"]


def run_pytest(*arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-B", "-m", "pytest", *SETTINGS, *map(str, arguments)]
    environment = dict(os.environ, **variables)
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, env=environment)


def order(seed: int) -> list[str]:
    ended = run_pytest("--collect-only", HERE / "test_frames.py", CUDALINK_TEST_SEED=str(seed))
    assert ended.returncode == 0 and f"CUDALINK_TEST_SEED={seed} repeats it" in ended.stdout
    return [line for line in ended.stdout.splitlines() if "::" in line]


def test_random_order_can_be_repeated():
    first = order(1)
    assert len(first) > 10 and order(1) == first
    assert order(2) != first and sorted(order(2)) == sorted(first)


def test_the_seed_of_this_run_is_known():
    seed = os.environ.get("CUDALINK_TEST_SEED")
    assert not seed or f"={seed} " in ORDER


BAD = """
import warnings
import pytest
def test_warning():
    warnings.warn("old")
@pytest.mark.xfail
def test_that_passes():
    pass
def test_that_forgets_a_file():
    open(__file__)
"""


def test_bad_tests_fail(tmp_path):
    (tmp_path / "test_bad.py").write_text(BAD)
    shown = run_pytest(tmp_path / "test_bad.py").stdout
    assert "3 failed" in shown, shown
    (tmp_path / "test_bad.py").write_text("import pytest\n@pytest.mark.unheard\ndef test_it(): pass\n")
    assert run_pytest(tmp_path / "test_bad.py").returncode != 0
