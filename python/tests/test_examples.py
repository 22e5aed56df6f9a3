# SPDX-License-Identifier: MIT
"""The scripts of examples/python run, end by themselves, and show what they say. With CUDALINK_PYTHON_GPU=1
there is a GPU, if only the fake one: then frames of NumPy arrays must be on it."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import LIMIT

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "python"
KIND = "vmm" if os.environ.get("CUDALINK_PYTHON_GPU") else "host"
FEWER = 12

SHOWN = {
    "tour": rf"of kind {KIND}(.|\n)*after 20 more: blue is still 100\n(.|\n)*done$",
    "round_trip": rf"12 pictures went there and back on kind {KIND}, every pixel right",
    "torch_zero_copy": r"12 frames as \S+, no copy made: \d+ copies\n.*blue is 0, address the same: True\n"
    r"frames held: 1 with the tensor, 0 without",
    "opencv": r"(?s)RGBA8: 12 frames, the square is red.* [1-9]\d* edge.*BGRA8: 12 frames, the square is red",
    "many_channels": r"left: 12 frames, sizes \[\(48, 64, 4\)\]\n(.|\n)*depth: 12 frames, sizes "
    r"\[\(48, 64, 4\), \(96, 128, 4\)\]",
    "reconnect": r"^producer 1: \(48, 64, 4\)\nthe producer died\nproducer 2: \(96, 128, 4\)\nthe producer "
    "closed",
    "producer_timing": r"(?s)12 frames of 12288 bytes(?=.*send, .*: p50 .* p99)(?=.*taken.*: p50 .* p99)",
    "low_cpu": r"asleep: 12 frames, (.|\n)*polled: 12 frames, (.|\n)*spinning: 12 frames, ",
    "async_viewer": r"\|[ .:=+*#%@-]+\| \d+\n(.|\n)*\d+ of 12 frames shown; the other task ran \d+ times",
    "two_speeds": r"(?s)(?=.*recorder: 12 frames, none left out: True)(?=.*display: \d+ .* 0 torn)"
    "(?=.*12 sent, 0 dropped)",
    "worker_group": r"12 frames, each worked on once: True\nshares of the workers: .*\none worker was "
    r"killed; its frame went to another one: number \[\d+\]",
    "torch_bridge": r"12 requests of two tensors, answered on kind \w+; every score",
    "diffusion_loop": r"(?s)(?=.*screen: \d+ pictures \(48, 64, 4\))(?=.*model: \d+ pictures on kind)",
    "queue_of_arrays": r"12 pictures went through two queues and 2 workers, all right: True",
}
WITHOUT = {"torch_zero_copy": "torch", "torch_bridge": "torch", "diffusion_loop": "torch", "opencv": "cv2"}


def run(name: str, directory: Path, **variables: str) -> str:
    command = [sys.executable, "-W", "error", str(EXAMPLES / f"{name}.py")]
    command += ["--frames", str(FEWER), "--width", "64", "--height", "48"]
    environment = dict(os.environ, TMPDIR=str(directory), **variables)
    limit = 4 * LIMIT  # two processes may import torch
    ended = subprocess.run(command, capture_output=True, text=True, timeout=limit, env=environment)
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stdout + ended.stderr
    left = [path.name for path in directory.iterdir()]
    assert left == [], "an example left files of channels behind"
    return ended.stdout.strip()


def test_all_are_run():
    there = {path.stem for path in EXAMPLES.glob("*.py")} - {"demo"}
    assert there == set(SHOWN)


@pytest.mark.parametrize("name", SHOWN)
def test_it_runs(name, runtime_directory):
    assert re.search(SHOWN[name], run(name, runtime_directory))


@pytest.mark.parametrize("name", WITHOUT)
def test_without_what_it_is_about(name, runtime_directory, tmp_path):
    """A package of that name that can't be found: they say so in one sentence, and NumPy does it."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "from importlib.machinery import PathFinder\n"
        "class Without(PathFinder):\n"
        "    @classmethod\n"
        "    def find_spec(cls, name, path=None, target=None):\n"
        f"        if name.partition('.')[0] != {WITHOUT[name]!r}:\n"
        "            return super().find_spec(name, path, target)\n"
        "sys.meta_path = [Without if found is PathFinder else found for found in sys.meta_path]\n"
    )
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    shown = run(name, runtime_directory, PYTHONPATH=path)
    first, rest = shown.split("\n", 1)
    assert "is not installed" in first and re.search(SHOWN[name], rest)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_sources_are_short_and_say_what_they_are(path):
    text = path.read_text()
    assert text.count("\n") <= 110, "no example any more"
    assert ast.get_docstring(ast.parse(text))
    readme = (EXAMPLES.parent / "README.md").read_text()
    assert f"python/{path.name}" in readme
