# SPDX-License-Identifier: MIT
"""mark_written: a stream of somebody else's writes to a frame, a slot, an array; who reads comes behind."""

from __future__ import annotations

import ctypes
import time

import cuda_link
import numpy as np
import pytest
from standin import cu, fill, new_stream
from test_gpu import (  # noqa: F401 (fixtures)
    LIMIT,
    SHAPE,
    Blocked,
    exporter,
    importer,
    next_slot,
    picture,
    pytestmark,
)

BYTES = int(np.prod(SHAPE))


@pytest.fixture(scope="module")
def writer():
    return new_stream()


@pytest.fixture(scope="module")
def reader():
    return new_stream()


@pytest.fixture
def frame(exporter, importer):  # noqa: F811
    exporter.send(picture())
    return importer.acquire(10)


def is_idle(stream):
    try:
        cu("cuStreamQuery", ctypes.c_void_p(stream))
    except AssertionError:
        return False
    return True


def filled(value):
    return np.full(SHAPE, value, np.uint8)


def test_readers_of_a_frame_come_behind(frame, writer, reader):
    frame.__dlpack__(stream=reader)
    assert is_idle(reader)
    with Blocked(writer):
        fill(frame._address, 7, BYTES, writer)
        frame.mark_written(writer)
        frame.__dlpack__(stream=reader, max_version=(1, 0))
        assert not is_idle(reader)
        frame.tensor().mark_written(writer)  # it says the same
    np.testing.assert_array_equal(frame.numpy(), filled(7))
    frame.release(stream=reader)


def test_what_the_cpu_reads_comes_behind(frame, exporter, writer):  # noqa: F811
    """The stream is slow rather than blocked: these wait for it."""
    reads = (
        frame.packed,
        lambda: frame.copy().packed(),
        lambda: cuda_link.from_dlpack(frame.__dlpack__(dl_device=(1, 0))).copy().numpy().tobytes(),
        lambda: copied(frame.__cuda_array_interface__["data"][0]),
        lambda: sent(frame),
    )
    for value, read in enumerate(reads, 20):
        for step in range(200):
            fill(frame._address, step % 2, BYTES, writer)
        fill(frame._address, value, BYTES, writer)
        frame.mark_written(writer)
        assert read() == bytes([value]) * BYTES


def copied(address):
    out = np.empty(SHAPE, np.uint8)
    cu("cuMemcpyDtoH_v2", out.ctypes.data_as(ctypes.c_void_p), ctypes.c_uint64(address), out.nbytes)
    return out.tobytes()


def sent(frame):
    with cuda_link.open_exporter("again", shape=SHAPE, kind="vmm") as again:
        with cuda_link.open_importer("again", timeout=10) as end:
            again.send(frame)
            with end.acquire(10) as got:
                return bytes(got.packed())


@pytest.mark.parametrize("how", ["named", "not named"])
def test_a_release_comes_behind(frame, exporter, importer, writer, reader, how):  # noqa: F811
    slot = frame._slot
    with Blocked(writer):
        frame.mark_written(writer)
        if how == "named":
            frame.release(stream=reader)
        else:
            frame.release()
        assert slot not in [next_slot(exporter, importer) for _ in range(50)]
    end = time.monotonic() + LIMIT
    while next_slot(exporter, importer) != slot:
        assert time.monotonic() < end


def test_minus_one_says_that_nothing_is_pending(frame, writer, reader):
    with Blocked(writer):
        frame.mark_written(-1)
        frame.__dlpack__(stream=reader)
        assert is_idle(reader)


def test_a_release_of_minus_one_waits_for_no_writer(frame, importer, writer):  # noqa: F811
    with Blocked(writer):
        frame.mark_written(writer)
        frame.release(stream=-1)
        assert importer.held == 0


def test_what_can_not_be_marked(exporter, frame, writer):  # noqa: F811
    for wrong in ("x", 1.5, True, None):
        with pytest.raises(TypeError, match="stream"):
            frame.mark_written(wrong)
    with cuda_link.open_importer("gpu", timeout=10, access="read") as reading:
        exporter.send(picture())
        with reading.acquire(10) as other, pytest.raises(ValueError, match="read-only"):
            other.mark_written(writer)
    frame.release()
    with pytest.raises(ValueError, match="released"):
        frame.mark_written(writer)


@pytest.mark.parametrize("also", [(), (1,)], ids=["one stream", "several"])
def test_a_slot_is_published_behind(exporter, importer, writer, reader, also):  # noqa: F811
    with Blocked(writer), exporter.frame(stream=also[0] if also else None) as slot:
        fill(slot.address, 9, BYTES, writer)
        slot.mark_written(writer)
        if also:
            slot.tensor().mark_written(reader)
        slot.mark_written(-1)
        slot.publish()
        with pytest.raises(cuda_link.TimedOutError, match="not complete"):
            importer.acquire(0)
    with importer.acquire(10) as got:
        np.testing.assert_array_equal(got.numpy(), filled(9))
    with exporter.frame() as slot:
        slot.mark_written(writer)
        for wrong in ("x", None):
            with pytest.raises(TypeError, match="stream"):
                slot.mark_written(wrong)
    with pytest.raises(ValueError, match="not lent"):
        slot.mark_written(writer)


@pytest.mark.parametrize("end", ["abandon", "publish_invalid", "exception"])
def test_a_slot_that_is_not_published_is_free_behind(exporter, importer, writer, end):  # noqa: F811
    """What was queued must not land in the frame that is next in this slot."""
    for _ in range(20):
        try:
            with exporter.frame(timeout=10) as slot:
                for _ in range(20):
                    fill(slot.address, 9, BYTES, writer)
                slot.mark_written(writer)
                if end == "exception":
                    raise KeyError
                getattr(slot, end)(*["no signal"] * (end == "publish_invalid"))
        except KeyError:
            pass
        for n in range(4):
            assert exporter.send(picture(n), timeout=10)
            with importer.acquire(10) as got:
                if not got.invalid:
                    np.testing.assert_array_equal(got.numpy(), picture(n))


@pytest.mark.parametrize("also", [False, True], ids=["one stream", "several"])
@pytest.mark.parametrize("end", ["publish", "abandon", "publish_invalid", "exception", "end"])
def test_a_stream_that_captures_blocks_no_slot(exporter, importer, reader, end, also):  # noqa: F811
    """The slot stayed begun for good, and with it the exporter."""
    capturing, graph = new_stream(), ctypes.c_void_p()
    cu("cuStreamBeginCapture_v2", ctypes.c_void_p(capturing), 2)
    wanted = KeyError if end == "exception" else cuda_link.CapturingError
    with pytest.raises(wanted), exporter.frame() as slot:
        if also:
            slot.mark_written(reader)
        slot.mark_written(capturing)
        if end == "exception":
            raise KeyError
        if end != "end":
            getattr(slot, end)(*["no signal"] * (end == "publish_invalid"))
    assert exporter.send(picture(3), timeout=10)
    with importer.acquire(10) as got:
        np.testing.assert_array_equal(got.numpy(), picture(3))
    cu("cuStreamEndCapture", ctypes.c_void_p(capturing), ctypes.byref(graph))


def test_readers_of_an_array_come_behind(frame, writer, reader):
    array = cuda_link.from_dlpack(frame, copy=True)
    array.numpy()  # it is complete
    with Blocked(writer):
        fill(array.address, 5, BYTES, writer)
        array.mark_written(writer)
        array[1:].__dlpack__(stream=reader)
        assert not is_idle(reader)
    np.testing.assert_array_equal(array.numpy(), filled(5))
    array.mark_written(-1)
    with pytest.raises(TypeError, match="stream"):
        array.mark_written("x")
