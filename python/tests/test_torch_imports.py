# SPDX-License-Identifier: MIT
"""Importing cuda_link imports no framework, and no order of imports breaks."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import permutations

import pytest
from conftest import TORCH_LIMIT, run_python

pytest.importorskip("torch")

USE = """
import sys
import numpy, torch, cuda_link, cuda_link.torch
with cuda_link.open_exporter(sys.argv[1], shape=(4,), kind="host") as exporter:
    with cuda_link.open_importer(sys.argv[1], timeout=10) as importer:
        exporter.send(torch.arange(4.0))
        frame = importer.acquire(10)
        assert torch.from_dlpack(frame).sum() == 6 and frame.numpy().sum() == 6
        array = cuda_link.torch.from_torch(torch.ones(3))
        assert cuda_link.torch.to_torch(array).sum() == 3
        assert cuda_link.torch.linear(torch.ones(2, 3), torch.ones(1, 3)).tolist() == [[3.0], [3.0]]
"""


def test_importing_cuda_link_imports_no_framework():
    code = (
        "import sys, cuda_link\n"
        "names = {'torch', 'numpy', 'cupy', 'jax', 'warp', 'numba', 'tensorflow', 'cuda_link.torch'}\n"
        "assert not names & set(sys.modules), names & set(sys.modules)\n"
        "with cuda_link.open_exporter('none', shape=(4,), kind='host') as exporter:\n"
        "    with cuda_link.open_importer('none', timeout=10) as importer:\n"
        "        exporter.send(b'abcd'); importer.acquire(10).release()\n"
        "assert not names & set(sys.modules), names & set(sys.modules)\n"
    )
    ended = run_python(code)
    assert (ended.returncode, ended.stderr) == (0, "")


ORDERED = """
import importlib, sys
for name in sys.argv[2:]:
    importlib.import_module(name)
    assert name != "cuda_link.torch" or {"cuda_link", "torch"} <= set(sys.modules)
"""


def different_orders():
    """Of the 24. cuda_link.torch imports cuda_link and torch, which the program checks, so most of them are
    another one in disguise; of those that are the same, the one in which it has most to import itself."""
    found = {}
    orders = permutations(["cuda_link", "torch", "numpy", "cuda_link.torch"])
    for order in sorted(orders, key=lambda order: order.index("cuda_link.torch")):
        steps = [["cuda_link", "torch", name] if name == "cuda_link.torch" else [name] for name in order]
        found.setdefault(tuple(dict.fromkeys(name for step in steps for name in step)), order)
    return list(found.values())


@pytest.mark.slow
def test_every_order():
    def run(number, order):
        return run_python(ORDERED + USE, f"order{number}", *order, timeout=TORCH_LIMIT)

    orders = different_orders()
    assert len(orders) == 8
    with ThreadPoolExecutor(2) as pool:
        for order, ended in zip(orders, pool.map(run, range(len(orders)), orders)):
            assert (ended.returncode, ended.stderr) == (0, ""), order
