# SPDX-License-Identifier: MIT
"""bench/python_bench.py --kind vmm runs: on the fake driver, with a stand-in for torch (benched/torch.py)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from test_gpu import pytestmark as needs_gpu

BENCH = Path(__file__).resolve().parents[3] / "bench" / "python_bench.py"
HERE = Path(__file__).resolve().parent

pytestmark = [
    *(needs_gpu if isinstance(needs_gpu, list) else [needs_gpu]),
    pytest.mark.skipif(os.environ.get("CUDALINK_PYTHON_GPU") == "real", reason="is for the fake driver"),
]


def test_every_row_is_measured_or_fails_alone():
    """The package stands in for the original, too."""
    here = os.environ.get("PYTHONPATH", "")
    folders = [str(HERE / "benched"), str(HERE), here]
    ended = subprocess.run(
        [sys.executable, str(BENCH), "--kind", "vmm", "--quick", "--json"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(folders), "CUDALINK_ORIGINAL": here},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)
    results = {result["name"]: result for result in told["results"]}
    assert told["kind"] == "vmm" and len(results) >= 12
    for name, result in results.items():
        if name.endswith("_torch"):  # the stand-in has no queue
            assert "torch_gpu_queue.py" in result["failed"]
        else:
            assert "failed" not in result and "left_out" not in result, result
            assert 0 <= result["min"] <= result["p50"] <= result["p99"]
    for name, factor in (("pixel", 0.6), ("kernel", 1.05)):
        assert results[name]["target"] == factor * results[name]["floor"]
