# SPDX-License-Identifier: MIT
"""The Python of the documents runs. A block that begins with "```python skip: WHY" does not; one that begins
with "```python needs: MODULE [gpu]" does where they are there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import cuda_link
import pytest
from conftest import LIMIT, patient, run_python
from cuda_link import _description

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = ROOT / "docs"
FRAMEWORKS = ("numpy", "cupy", "jax", "warp", "numba", "opencv", "pil")  # torch.md: test_torch_docs.py
NAMES = ("README", "docs/python", "docs/exchange", "docs/formats", "docs/migration")
NAMES += tuple(f"docs/{name}" for name in FRAMEWORKS)


def blocks(name):
    found = re.findall(r"^```python([^\n]*)\n(.*?)^```", (ROOT / f"{name}.md").read_text(), re.M | re.S)
    return [
        pytest.param(words.strip(), code, id=f"{Path(name).name}-{i}")
        for i, (words, code) in enumerate(found)
    ]


OTHERS = ("numba", "warp")
RUN = [block for name in NAMES for block in blocks(name) if not block.values[0].startswith("skip: ")]


def has_gpu(framework):
    if framework == "torch":
        return pytest.importorskip("torch").cuda.is_available()
    try:
        cuda_link.open_exporter("probe", shape=(4,), kind="vmm").close()
    except (cuda_link.UnsupportedError, cuda_link.GpuError):
        return False
    return True


def test_there_are_blocks():
    assert len(RUN) >= 15 and all(blocks(name) for name in NAMES)
    assert all(re.fullmatch(r"|needs: \w+( gpu)?", block.values[0]) for block in RUN)


def test_no_block_runs_with_little_time():
    waits = [
        float(limit)
        for block in RUN
        for limit in re.findall(r"(?:\btimeout=|acquire\()([\d.]+)", patient(block.values[1]))
    ]
    assert len(waits) > 20 and set(waits) <= {0, LIMIT}


SECTIONS = ["Get it", "Give it", "Streams", "Life of the memory", "What is copied", "What is refused"]


def headings(name):
    return re.findall(r"^## (.*)$", (DOCUMENTS / f"{name}.md").read_text(), re.M)


def test_a_page_per_framework():
    """Each with the same sections and a script of its own; frameworks.md leads to all of them."""
    table = (DOCUMENTS / "frameworks.md").read_text()
    assert sorted(re.findall(r"^\| \[[^]]+\]\((\w+)\.md\) \|", table, re.M)) == sorted((*FRAMEWORKS, "torch"))
    for name in FRAMEWORKS:
        assert headings(name) == SECTIONS, name
        (block,) = blocks(f"docs/{name}")
        assert re.match(r"needs: \w+", block.values[0]), name
    assert re.findall(r"^\| ([A-Z][a-z ]+) \|", table, re.M) == SECTIONS


@pytest.mark.parametrize("words, code", RUN)
def test_block(words, code):
    needs = words.split()[1:]
    if needs and not find_spec(needs[0]):
        pytest.skip(f"{needs[0]} is not installed")
    if "gpu" in needs and not has_gpu(needs[0]):
        pytest.skip("needs a GPU")
    if any(word in OTHERS for word in needs):  # what they do inside is not ours to mend
        code = "import warnings\nwarnings.simplefilter('default')\n" + code
    ended = run_python(patient(code))
    assert ended.returncode == 0, ended.stderr
    assert "gpu" in needs or ended.stderr == ""


def test_every_public_thing_has_a_docstring():
    for name in cuda_link.__all__:
        thing = getattr(cuda_link, name)
        assert thing.__doc__, name
        if isinstance(thing, type) and thing.__module__.startswith("cuda_link"):
            for attribute, value in vars(thing).items():
                if not attribute.startswith("_") and callable(value):
                    assert value.__doc__, f"{name}.{attribute}"


def test_the_program():
    command = [sys.executable, "-m", "cuda_link", "--version"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    without = dict(os.environ, PATH="")
    if ended.returncode == 1 and "libpng" in ended.stderr:
        pytest.skip("built without the program")
    assert ended.returncode == 0 and cuda_link.__version__ in ended.stdout
    assert subprocess.run(command, env=without, capture_output=True, timeout=60).returncode == 0


def test_the_tests_that_reports_name_are_there():
    """docs/exchange.md: "test_file/name", and "gpu/name" for those in gpu/."""
    tests, text = Path(__file__).parent, (DOCUMENTS / "exchange.md").read_text()
    known = {path.stem: path.read_text() for path in tests.glob("test_*.py")}
    known["gpu"] = "".join(path.read_text() for path in (tests / "gpu").glob("test_*.py"))
    named = re.findall(r"\b(test_[a-z_]+|gpu)/(\w+)", text)
    assert len(named) >= 40
    assert [f"{file}/{name}" for file, name in named if f"def test_{name}(" not in known[file]] == []


def test_planes_are_named_as_they_are_called():
    """The manual and the docstrings say frame.tensor("y"); formats have no other names."""
    described = [_description.make((4, 8), format=name) for name in cuda_link.formats()]
    named = {plane.name for one in described for plane in _description.layout(bytes(one)).planes}
    texts = [*DOCUMENTS.glob("*.md"), *Path(cuda_link.__file__).parent.rglob("*.py")]
    said = [
        (path.name, name) for path in texts for name in re.findall(r'tensor\("(\w+)"\)', path.read_text())
    ]
    assert len(said) >= 4 and [one for one in said if one[1] not in named] == []
