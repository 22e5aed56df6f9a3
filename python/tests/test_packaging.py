# SPDX-License-Identifier: MIT
"""pyproject.toml's extras and command, what the documents say of them, and what the command does where this
package has no program."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

tomllib = pytest.importorskip("tomllib", reason="needs Python 3.11")
ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def table_of_extras() -> dict[str, set[str]]:
    text = (ROOT / "docs" / "python.md").read_text().partition("| extra | brings |\n")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", text, re.M)
    return {name: set(re.findall(r"`([\w-]+)`", said)) for name, said in rows}


def test_the_manual_has_the_extras_that_there_are():
    table = table_of_extras()
    assert list(table) == list(EXTRAS)
    for name in set(EXTRAS) - {"dev"}:
        assert table[name] == set(EXTRAS[name]), name


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_extras_that_documents_name(path):
    named = re.findall(r"""["'](?:\.|cuda-link)\[([\w,]+)\]["']""", path.read_text())
    assert {extra for extras in named for extra in extras.split(",")} <= set(EXTRAS)


def test_the_first_documents_say_how_to_install():
    for name in ("README.md", "docs/python.md"):
        text = (ROOT / name).read_text()
        assert 'pip install ".[numpy]"' in text and "`cudalink`" in text, name
    assert list(PROJECT["scripts"]) == ["cudalink"]


def test_an_environment_has_one_cupy():
    """The packages for CUDA 12 and 13 hold the same module."""
    for name, needed in EXTRAS.items():
        assert len([one for one in needed if one.startswith("cupy")]) == (name in ("cupy", "cupy13")), name
    assert not [one for one in EXTRAS["all"] if one.startswith("cupy")]


COMMAND = """
import sys, cuda_link.__main__ as command
command.in_package = lambda name: None
sys.argv = ["cudalink", "--version"]
command.main()
"""


def run_command(*folders: Path) -> subprocess.CompletedProcess[str]:
    """The command, of a package without the program."""
    variables = dict(os.environ, PATH=os.pathsep.join(map(str, folders)))
    command = [sys.executable, "-c", COMMAND]
    return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=60)


def put(folder: Path, content: bytes) -> None:
    folder.mkdir()
    (folder / "cudalink").write_bytes(content)
    (folder / "cudalink").chmod(0o755)


def test_without_a_program_it_says_what_to_do(tmp_path):
    """And does not run itself: pip's command is a script of that name on the PATH."""
    put(tmp_path / "pip", b"#!/bin/sh\necho itself\n")
    ended = run_command(tmp_path / "pip")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "libpng-dev" in ended.stderr and "make install" in ended.stderr


def test_it_becomes_the_program_of_the_path(tmp_path):
    put(tmp_path / "pip", b"#!/bin/sh\necho itself\n")
    put(tmp_path / "bin", Path(sys.executable).read_bytes())
    ended = run_command(tmp_path / "pip", tmp_path / "bin")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("Python ")  # its --version
