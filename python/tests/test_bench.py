# SPDX-License-Identifier: MIT
"""bench/python_bench.py runs. Its figures are for quiet machines, and judged by nobody here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import cuda_link
import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench" / "python_bench.py"


def run(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(BENCH), *options], capture_output=True, text=True, timeout=300)


def measured(names: list[str]) -> list[dict[str, Any]]:
    ended = run("--quick", "--json", *(f"--row={name}" for name in names))
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)
    assert told["backend"] == cuda_link.backend.name and told["quick"] is True
    results: list[dict[str, Any]] = told["results"]
    assert [result["name"] for result in results] == names
    for result in results:
        if "left_out" not in result:
            assert 0 <= result["min"] <= result["p50"] <= result["p90"] <= result["p99"]
            judged = None if result["target"] is None else result["p50"] <= result["target"]
            assert result["ok"] is judged
    return results


def test_rows_of_one_process():
    results = measured(["acquire", "dlpack", "in_place", "send_small", "get_frame"])
    assert [result["name"] for result in results if "left_out" in result] == ["get_frame"]


@pytest.mark.slow
def test_all_rows():
    names = run("--list").stdout.split()
    assert len(names) >= 15
    for result in measured(names):
        assert "failed" not in result.get("left_out", "")


def test_verdicts():
    ended = run("--quick", "--row", "acquire")
    assert ended.stdout.splitlines()[-1].split()[0] == "acquire"
    assert " ok " in ended.stdout or " MISSED " in ended.stdout
    assert run("--row", "none").returncode == 2
