# SPDX-License-Identifier: MIT
"""docs/migration.md against the package and against what cuda-link 1.x has."""

from __future__ import annotations

import re
from pathlib import Path

import cuda_link
import pytest
from cuda_link._known import gone

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "migration.md").read_text()

# The public names of cuda-link 1.x.
REFERENCE = set(
    """
    Exporter FrameSpec ExportPolicy GpuFrame FrameOutcome CudaPort
    Importer IPCConnection Format ImportSpec ImportPolicy ImportResult ImportOutcome ImporterCudaPort
    CTypesCUDAAdapter FakeCUDAAdapter CUDAIPCImporter CUDARuntimeAPI get_cuda_runtime
    CUPY_AVAILABLE NUMPY_AVAILABLE TORCH_AVAILABLE NVML_AVAILABLE NVMLObserver
    AcquireResult DtypeCodec Metadata SHMLayout SlotState acquire_slot publish_frame
    CudaLinkError CudaIpcError ProtocolError ProducerTimeoutError
    CUDAIPCExporter
    """.split()
)


def section(title):
    return PAGE.split(f"## {title}\n")[1].split("\n## ")[0]


def rows(title):
    lines = [line for line in section(title).splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[1:]]


def test_the_table_lists_what_there_was():
    listed = [name for row in rows("Every name") for name in re.findall(r"`(\w+)`", row[0])]
    assert len(listed) == len(set(listed)) and set(listed) == REFERENCE


def test_the_table_tells_what_there_is():
    for names, state in rows("Every name"):
        for name in re.findall(r"`(\w+)`", names):
            assert (name in gone.GONE) == state.startswith("ImportError: "), name
            assert (name in cuda_link.__all__) == state.startswith("there"), name


def test_nothing_of_the_known_face_is_missing_from_it():
    for name in cuda_link.__all__:
        if getattr(getattr(cuda_link, name), "__module__", "").startswith("cuda_link._known"):
            assert name in REFERENCE, name


@pytest.mark.parametrize("policy", ["ExportPolicy", "ImportPolicy"])
def test_fields_without_effect_are_those_that_say_so(policy):
    source = (ROOT / "python" / "cuda_link" / "_known" / "policies.py").read_text()
    body = source.split(f"class {policy}:")[1].split("@classmethod")[0]
    fields = re.findall(r'^    (\w+): [^\n]*\n    """Without effect', body, re.M)
    state = next(state for names, state in rows("Every name") if names == f"`{policy}`")
    told = re.sub(r"\([^)]*\)", "", state.split("Without effect: ")[1].split(". ")[0])
    assert sorted(re.findall(r"`(\w+)`", told)) == sorted(fields)


def test_the_tests_that_it_names_are_there():
    tests = "".join(path.read_text() for path in (ROOT / "python" / "tests").rglob("test_*.py"))
    named = re.findall(r"`(test_\w+)`", PAGE)
    assert len(named) > 20
    for name in named:
        assert f"def {name}(" in tests, name
