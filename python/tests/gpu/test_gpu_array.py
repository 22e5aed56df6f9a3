# SPDX-License-Identifier: MIT
"""from_dlpack of what is in GPU memory: whose stream waits for whom, and where copies are."""

from __future__ import annotations

import ctypes
import gc

import cuda_link
import numpy as np
import pytest
from capsules import hand_made, look
from cuda_link import _abi, _driver
from test_gpu import (  # noqa: F401 (fixtures)
    SHAPE,
    Blocked,
    exporter,
    importer,
    picture,
    pytestmark,
    stream,
)


@pytest.fixture
def frame(exporter, importer):  # noqa: F811
    exporter.send(picture())
    return importer.acquire(10)


@pytest.fixture(scope="session")
def driver():
    """Its context stays: memory and streams of the tests go with the last one who has it."""
    loaded = ctypes.CDLL("libcuda.so.1")
    loaded.cuMemcpyHtoDAsync_v2.argtypes = [
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_void_p,
    ]
    loaded.cuStreamSynchronize.argtypes = [ctypes.c_void_p]
    loaded.cuStreamQuery.argtypes = [ctypes.c_void_p]
    assert loaded.cuInit(0) == 0
    assert loaded.cuDevicePrimaryCtxRetain(ctypes.byref(ctypes.c_void_p()), 0) == 0
    return loaded


@pytest.fixture
def other_stream(driver):
    """Kept, as the first one is."""
    handle = ctypes.c_void_p()
    with _driver._Context(0):
        assert driver.cuStreamCreate(ctypes.byref(handle), 1) == 0
    return handle.value


def is_idle(driver, stream):  # noqa: F811
    with _driver._Context(0):
        return driver.cuStreamQuery(stream) == 0


def test_what_it_is(frame, importer):  # noqa: F811
    array = cuda_link.from_dlpack(frame)
    assert (array.shape, array.dtype, array.device) == (SHAPE, "uint8", "cuda:0")
    assert array.address == frame._address and array.__dlpack_device__() == (2, 0)
    np.testing.assert_array_equal(array.numpy(), picture())
    np.testing.assert_array_equal(np.asarray(array), picture())
    np.testing.assert_array_equal(array[2:9:3, ::-1, 1].numpy(), picture()[2:9:3, ::-1, 1])
    with pytest.raises(BufferError, match="numpy"):
        array.buffer()
    with pytest.raises(AttributeError):
        array.__array_interface__  # noqa: B018
    interface = array.__cuda_array_interface__
    assert interface["data"] == (array.address, not array.writable) and interface["stream"] is None
    frame.release()
    del frame
    assert importer.held >= 1
    assert array[1].numpy().tolist() == picture()[1].tolist()


def test_a_copy_is_its_own(frame, exporter, importer, stream):  # noqa: F811
    array = cuda_link.from_dlpack(frame, copy=True)
    copies = [array, array.copy(), array.copy(stream=-1), array[1:5].copy(stream=stream)]
    assert array.address != frame._address and array.device == "cuda:0" and array.writable
    frame.release(stream=-1)
    for n in range(1, 40):
        exporter.send(picture(n))
        importer.acquire(10).release(stream=-1)
    for copy in copies[:3]:
        np.testing.assert_array_equal(copy.numpy(), picture())
    np.testing.assert_array_equal(copies[3].numpy(), picture()[1:5])
    exporter.send(array)
    np.testing.assert_array_equal(importer.acquire(10).numpy(), picture())


def test_arrays_with_nothing_in_them(exporter, importer, stream):  # noqa: F811
    exporter.send(np.empty((0, 3), np.float32))
    frame = importer.acquire(10)
    array = cuda_link.from_dlpack(frame)
    copies = [
        cuda_link.from_dlpack(frame, copy=True),
        array.copy(),
        array.copy(stream=stream),
        array[:, 1].copy(),
    ]
    for copy in (*copies, frame.copy(stream=stream).tensor()):
        assert (copy.device, copy.size, copy.writable) == ("cuda:0", 0, True)
        copy.mark_written(stream)
        assert copy.numpy().shape == copy.shape and copy.__dlpack__(stream=stream)


def test_copies_of_a_frame(exporter, importer, stream):  # noqa: F811
    """copy() is in memory of the CPU; with a stream it is on the frame's GPU, behind it."""
    exporter.send({"a": picture(), "b": np.arange(5.0)}, pts=3, user=b"u")
    frame = importer.acquire(10)
    assert frame.copy().tensor("a").device == "cpu"
    for named in (None, 1, -1, stream):
        copy = frame.copy(stream=named)
        assert [copy.tensor(name).device for name in "ab"] == ["cuda:0", "cuda:0"] and copy.tensor(
            "b"
        ).writable
        np.testing.assert_array_equal(copy.numpy("a"), picture())
        assert copy.arrays()["b"].tolist() == list(range(5)) and copy.buffer("b").tolist() == list(range(5))
        assert copy.packed() == frame.packed() and copy.shape == SHAPE
        assert (copy.sequence, copy.timing.pts, copy.user) == (1, 3, b"u")
        assert copy.tensor("a").address not in (frame._address, frame._address + frame.planes[0].offset)
    for wrong in ("1", True, 1.5):
        with pytest.raises(TypeError, match="stream"):
            frame.copy(stream=wrong)
    frame.release(stream=-1)
    with pytest.raises(ValueError, match="released"):
        frame.copy(stream=stream)


def test_a_copy_of_a_frame_waits_for_nobody(exporter, importer, driver, stream):  # noqa: F811
    """It is queued behind the stream, and so is the frame's end; the copy is a frame's like for consumers."""
    exporter.send(picture())
    frame = importer.acquire(10)
    with Blocked(stream):
        copy = frame.copy(stream=stream)
        frame.release()
        for n in range(1, 20):  # not into that slot
            exporter.send(picture(n))
            importer.acquire(10).release(stream=-1)
    assert copy.__dlpack_device__() == (2, 0)
    capsule = copy.__dlpack__(stream=stream)
    assert look(capsule)[0] == copy.tensor().address
    np.testing.assert_array_equal(copy.numpy(), picture())
    exporter.send(copy)
    np.testing.assert_array_equal(importer.acquire(10).numpy(), picture())


def test_owners_see_each_others_changes(frame, driver):
    source = cuda_link.from_dlpack(frame, copy=True)
    other = cuda_link.from_dlpack(source)
    assert other.address == source.address
    new = np.full(SHAPE, 9, np.uint8)
    with _driver._Context(0):
        assert driver.cuMemcpyHtoDAsync_v2(source.address, new.ctypes.data, new.nbytes, 1) == 0
        assert driver.cuStreamSynchronize(1) == 0
    np.testing.assert_array_equal(other.numpy(), new)
    np.testing.assert_array_equal(other[3].numpy(), new[3])


def test_a_capsule_needs_a_stream(frame, stream):  # noqa: F811
    with pytest.raises(BufferError, match="stream="):
        cuda_link.from_dlpack(frame.__dlpack__(stream=-1))
    for named in (-1, stream, 1):
        array = cuda_link.from_dlpack(frame.__dlpack__(stream=-1, max_version=(1, 0)), stream=named)
        np.testing.assert_array_equal(array.numpy(), picture())
    frame.release(stream=-1)


class OnStream:
    """An array whose contents come late: what is queued on a stream writes them."""

    def __init__(self, array, stream):  # noqa: F811
        self.array, self.stream, self.asked = array, stream, []

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, *, stream=None, max_version=None):  # noqa: F811
        self.asked.append(stream)
        return self.array.__dlpack__(stream=-1, max_version=max_version)


def test_contents_that_come_late(frame, driver, stream, other_stream):  # noqa: F811
    """from_dlpack, exports and copies return while the stream is still blocked; what reads waits."""
    source = cuda_link.from_dlpack(frame, copy=True)
    np.testing.assert_array_equal(source.numpy(), picture())  # it is complete
    late, new = OnStream(source, stream), picture(100)
    with Blocked(stream):
        with _driver._Context(0):
            assert driver.cuMemcpyHtoDAsync_v2(source.address, new.ctypes.data, new.nbytes, stream) == 0
        array = cuda_link.from_dlpack(late, stream=stream)
        copy = array.copy(stream=stream)
        capsule = array.__dlpack__(stream=stream, max_version=(1, 0))
        assert is_idle(driver, other_stream)
        array[1:].__dlpack__(stream=other_stream)
        assert not is_idle(driver, other_stream)
    assert late.asked == [-1]
    np.testing.assert_array_equal(array.numpy(), new)
    np.testing.assert_array_equal(copy.numpy(), new)
    assert look(capsule)[0] == source.address
    cuda_link.from_dlpack(late)
    assert late.asked == [-1, 1]  # the producer is told who will wait


def test_exports(frame, stream):  # noqa: F811
    array = cuda_link.from_dlpack(frame)
    for named in (None, -1, 1, 2, stream):
        for version in (None, (1, 0)):
            assert look(array.__dlpack__(stream=named, max_version=version))[0] == array.address
    numbers = ((0, "ambiguous"), (-2, "no stream"), (-(2**70), "no stream"), (2**64, "no stream"))
    for source in (array, frame, frame.tensor()):
        for named, message in numbers:
            with pytest.raises(BufferError, match=message):
                source.__dlpack__(stream=named)
        for named in ("1", True, 1.5):
            with pytest.raises(TypeError, match="None or a number"):
                source.__dlpack__(stream=named)
    own = array.__dlpack__(stream=stream, max_version=(1, 0), copy=True)
    assert look(own)[0] != array.address and look(own)[2][2] & _abi.DLPACK_IS_COPIED
    crossed = array.__dlpack__(dl_device=(1, 0), max_version=(1, 0))
    assert look(crossed)[3] == (1, 0)
    np.testing.assert_array_equal(cuda_link.from_dlpack(crossed).numpy(), picture())
    with pytest.raises(BufferError, match="leave stream out"):
        array.__dlpack__(dl_device=(1, 0), stream=1)
    with pytest.raises(BufferError, match="copy=False"):
        array.__dlpack__(dl_device=(1, 0), copy=False)
    frame.release(stream=stream)


def test_pinned_and_managed_memory(driver):
    pinned, managed = ctypes.c_void_p(), ctypes.c_void_p()
    with _driver._Context(0):
        assert driver.cuMemHostAlloc(ctypes.byref(pinned), ctypes.c_size_t(64), 0) == 0
        assert driver.cuMemAllocManaged(ctypes.byref(managed), ctypes.c_size_t(64), 1) == 0
    for memory, device, name in ((pinned, 3, "cuda_host"), (managed, 13, "cuda_managed:0")):
        ctypes.memmove(memory.value, bytes(range(64)), 64)
        capsule, deleted = hand_made((8, 8), None, memory.value, device=device)
        array = cuda_link.from_dlpack(capsule, stream=1)
        assert array.device == name
        assert array.numpy().tolist() == np.arange(64).reshape(8, 8).tolist()
        assert array.buffer()[1, 1] == 9
        array[7].numpy()[:] = 3
        assert array.numpy()[7].tolist() == [3] * 8
        copy = cuda_link.from_dlpack(array, copy=True)
        assert copy.numpy()[7].tolist() == [3] * 8
        assert array.__dlpack_device__() == (device, 0)
        for named in (None, -1, 1, 2, 1234):  # Warp passes one for pinned memory too
            exported = cuda_link.from_dlpack(array.__dlpack__(stream=named, max_version=(1, 0)), stream=-1)
            assert exported.address == memory.value
        assert cuda_link.from_dlpack(array.__dlpack__(copy=True)).address != memory.value
        del array, copy, exported, capsule
        gc.collect()
        assert len(deleted) == 1


def test_memory_that_is_not_cudas():
    data = (ctypes.c_ubyte * 64)()
    capsule, deleted = hand_made((8, 8), None, data, device=2)
    with pytest.raises((BufferError, ValueError), match=r"CUDA|GPU|driver"):
        cuda_link.from_dlpack(capsule, stream=-1)
    assert deleted == []
