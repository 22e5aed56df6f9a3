# SPDX-License-Identifier: MIT
"""bench/python_bench.py runs. Its figures are for quiet machines, and judged by nobody here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import cuda_link
import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench" / "python_bench.py"


def run(
    *options: str, torch: str | None = None, folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """torch: source of the module that `import torch` finds."""
    env = dict(os.environ)
    if torch is not None and folder is not None:
        (folder / "torch.py").write_text(torch)
        env["PYTHONPATH"] = os.pathsep.join([str(folder), env.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, str(BENCH), *options], capture_output=True, text=True, timeout=300, env=env
    )


def measured(names: list[str]) -> list[dict[str, Any]]:
    ended = run("--quick", "--json", *(f"--row={name}" for name in names))
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)
    assert told["backend"] == cuda_link.backend.name and told["quick"] is True
    results: list[dict[str, Any]] = told["results"]
    assert [result["name"] for result in results] == names
    for result in results:
        assert "failed" not in result, result
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
    measured(names)


def test_rows_of_a_gpu_are_left_out_where_there_is_none(tmp_path):
    without = "class cuda:\n    is_available = staticmethod(lambda: False)\n"
    ended = run("--kind", "vmm", "--json", "--check", torch=without, folder=tmp_path)
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)
    assert told["kind"] == "vmm"
    assert [result["name"] for result in told["results"]] == run("--kind", "vmm", "--list").stdout.split()
    for result in told["results"]:
        assert result["left_out"] == "needs a GPU, and a torch that has CUDA"


def test_a_row_that_fails_says_why_and_the_others_go_on(tmp_path):
    broken = "raise RuntimeError('broken')\n"
    ended = run("--quick", "--json", "--row=torch", "--row=acquire", torch=broken, folder=tmp_path)
    acquire, torch = json.loads(ended.stdout)["results"]
    assert torch["failed"] == "RuntimeError: broken" and acquire["p50"] > 0 and ended.returncode == 0


def test_a_row_that_hangs_does_not_take_the_results_along(tmp_path):
    hangs = "import threading\nthreading.Event().wait()\n"
    ended = run(
        "--quick", "--json", "--row=acquire", "--row=torch", "--limit=5", torch=hangs, folder=tmp_path
    )
    results = json.loads(ended.stdout)["results"]
    assert results[-1]["failed"] == "had not ended when 5 s were over" and ended.returncode == 1


def test_verdicts():
    ended = run("--quick", "--row", "acquire")
    assert ended.stdout.splitlines()[-1].split()[0] == "acquire"
    assert " ok " in ended.stdout or " MISSED " in ended.stdout
    assert run("--row", "none").returncode == 2
