# SPDX-License-Identifier: MIT
"""The Python of docs/torch.md runs. "```python needs operators": with torch 2.10; "needs: torch gpu": where
torch has one (scripts/gpu-run); "skip: WHY": not here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from conftest import TORCH_LIMIT, patient, run_python

torch = pytest.importorskip("torch")
ct = pytest.importorskip("cuda_link.torch")
HAS_GPU = torch.cuda.is_available()

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "torch.md"
BLOCKS = re.findall(r"^```python([^\n]*)\n(.*?)^```", DOCUMENT.read_text(), re.M | re.S)
RUN = [(words.strip(), code) for words, code in BLOCKS if not words.startswith(" skip:")]


def test_there_are_blocks():
    assert len(RUN) >= 7 and {words for words, _ in RUN} == {"", "needs operators", "needs: torch gpu"}


@pytest.mark.parametrize("words, code", RUN, ids=range(len(RUN)))
def test_block(words, code):
    if "gpu" in words and not HAS_GPU:
        pytest.skip("needs a GPU")
    if "operators" in words and not ct.OPERATORS:
        pytest.skip("operators need torch 2.10")
    quiet = "import warnings\nwarnings.simplefilter('ignore')\n" if words else ""  # the compiler warns
    ended = run_python(quiet + patient(code), timeout=TORCH_LIMIT)
    assert ended.returncode == 0, ended.stderr
    assert words or ended.stderr == ""


def test_every_public_thing_has_a_docstring():
    for name in ct.__all__:
        thing = getattr(ct, name)
        assert name == "OPERATORS" or thing.__doc__, name
        assert name in DOCUMENT.read_text()
