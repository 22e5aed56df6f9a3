# SPDX-License-Identifier: MIT
"""Arrays with habits: flags that forbid a plain look at their memory, old signatures, nothing in them."""

from __future__ import annotations

import gc
import weakref

import cuda_link
import numpy as np
import pytest


@pytest.fixture
def exporter():
    with cuda_link.open_exporter("odd", shape=(6, 8), kind="host") as opened:
        yield opened


@pytest.fixture
def importer(exporter):
    with cuda_link.open_importer("odd", timeout=10, hold=4) as opened:
        yield opened


@pytest.mark.parametrize(
    "flag, way_out",
    [
        ("requires_grad", r"tensor\.detach\(\)"),
        ("is_sparse", r"tensor\.to_dense\(\)"),
        ("is_quantized", r"tensor\.dequantize\(\)"),
        ("is_meta", "real device"),
        ("is_conj", r"tensor\.resolve_conj\(\)"),
        ("is_neg", r"tensor\.resolve_neg\(\)"),
    ],
)
def test_flags(exporter, flag, way_out):
    value = (lambda self: True) if flag in ("is_conj", "is_neg") else True
    odd = type("Odd", (), {flag: value})()
    with pytest.raises(BufferError, match=way_out):
        exporter.send(odd)
    assert exporter.statistics().published == 0


class Old:
    """An array whose `__dlpack__` takes no words, as that of torch 1.13 takes no max_version."""

    def __init__(self, array):
        self.array = array

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self):
        return self.array.__dlpack__()


def test_sending_keeps_no_local_of_its_caller(exporter):
    class Local:
        pass

    def send():
        local = Local()
        exporter.send(Old(np.arange(4)))
        return weakref.ref(local)

    gc.disable()  # what only a collection ends is kept too long: frames, and the memory of arrays
    try:
        assert send()() is None
    finally:
        gc.enable()


def test_an_empty_tensor_keeps_no_frame(exporter, importer):
    """torch 1.13 never deletes an empty tensor that it imported."""
    for _ in range(20):
        exporter.send(np.zeros((0, 4), np.float32))
        frame = importer.acquire(10)
        capsules = [frame.__dlpack__(), frame.__dlpack__(max_version=(1, 0))]
        frame.release()
        assert importer.held == 0
        del capsules
