# SPDX-License-Identifier: MIT
"""Known names that make no sense here, and what takes their place."""

from __future__ import annotations

GONE = {
    "CTypesCUDAAdapter": "the library talks to the driver itself; leave the argument cuda= out",
    "FakeCUDAAdapter": 'tests need no GPU here: open channels with kind="host"',
    "CUDARuntimeAPI": "the library uses no CUDA runtime; for calls of your own take cuda-python",
    "get_cuda_runtime": "the library uses no CUDA runtime; for calls of your own take cuda-python",
    "CUDAIPCImporter": "use Importer.open(ImportSpec(...))",
    "CUDAIPCExporter": "use Exporter.open(FrameSpec(...))",
}


def refuse(name: str) -> None:
    """Raises the ImportError of a name that has gone."""
    if name in GONE:
        raise ImportError(f"cuda_link has no {name}: {GONE[name]}")
