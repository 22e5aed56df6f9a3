# SPDX-License-Identifier: MIT
"""The exchange table and GPU memory: nothing waits on the CPU, and streams wait where they should."""

from __future__ import annotations

import time

import cuda_link
import numpy as np
import pytest
import tables
from capsules import get_pointer
from test_gpu import (  # noqa: F401 (fixtures)
    LIMIT,
    Blocked,
    exporter,
    importer,
    next_slot,
    picture,
    pytestmark,
    stream,
)
from test_gpu_array import driver, is_idle, other_stream  # noqa: F401 (fixtures)

LEGACY = 1


def becomes_idle(driver, stream):  # noqa: F811
    """Earlier tests may have given frames back behind the legacy stream, which all share. It ends before
    a stream that is blocked would be let go."""
    end = time.monotonic() + LIMIT / 2
    while not is_idle(driver, stream):
        if time.monotonic() > end:
            return False
    return True


@pytest.mark.skipif(cuda_link.backend.name != "core", reason="the ctypes back end offers no table")
def test_a_release_comes_behind_our_current_stream(exporter, importer):  # noqa: F811
    exporter.send(picture())
    frame, table = importer.acquire(10), tables.Offered(cuda_link.Frame)
    slot = frame._slot
    with Blocked(LEGACY):
        tensor = table.from_object(frame)
        assert tensor.tensor.device.type == 2 and tensor.tensor.data == frame._address
        frame.release()
        tables.delete(tensor)
        assert slot not in [next_slot(exporter, importer) for _ in range(50)]


@pytest.mark.skipif(cuda_link.backend.name != "core", reason="the ctypes back end offers no table")
def test_our_current_stream_waits(exporter, importer, driver, stream):  # noqa: F811
    exporter.send(picture())
    array = cuda_link.from_dlpack(importer.acquire(10), copy=True)
    np.testing.assert_array_equal(array.numpy(), picture())
    with Blocked(stream):
        array._ready(*cuda_link._streams.resolve(stream))
        assert becomes_idle(driver, LEGACY)
        tensor = tables.Offered(cuda_link.Array).from_object(array)
        assert not is_idle(driver, LEGACY)
    back = tables.Offered(cuda_link.Array).to_object(tensor)
    assert back.device == "cuda:0" and back.address == array.address
    np.testing.assert_array_equal(back.numpy(), picture())


def test_the_stream_that_a_table_names(exporter, importer, driver, stream, other_stream):  # noqa: F811
    exporter.send(picture())
    array, asked = cuda_link.from_dlpack(importer.acquire(10), copy=True), []
    np.testing.assert_array_equal(array.numpy(), picture())  # it is complete

    class Source:
        def __dlpack__(self, **options):
            raise AssertionError("not by table")

        def __dlpack_device__(self):
            return (2, 0)

    kept = []

    def give(_):
        kept.append(array.__dlpack__(stream=-1, max_version=(1, 0)))
        return get_pointer(kept[-1], b"dltensor_versioned")

    def current(*device):
        asked.append(device)
        return stream

    Source.__dlpack_c_exchange_api__ = tables.table(give, current)
    with Blocked(stream):
        taken = cuda_link.from_dlpack(Source())
        assert asked == [(2, 0)] and is_idle(driver, other_stream)
        taken.__dlpack__(stream=other_stream)
        assert not is_idle(driver, other_stream)
    np.testing.assert_array_equal(taken.numpy(), picture())
    exporter.send(Source())
    np.testing.assert_array_equal(importer.acquire(10).numpy(), picture())
    for capsule in kept:  # the tables gave their tensors away: nobody else may delete them
        tables.used(capsule)
