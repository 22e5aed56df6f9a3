# SPDX-License-Identifier: MIT
"""DLPack in both directions, with NumPy as the other side and with capsules made by hand."""

from __future__ import annotations

import ctypes
import gc
import sys

import cuda_link
import numpy as np
import pytest
from capsules import get_name, hand_made, versioned
from conftest import until_held
from cuda_link import _abi

VERSIONED_NUMPY = tuple(int(n) for n in np.__version__.split(".")[:2]) >= (2, 1)


@pytest.fixture
def exporter():
    with cuda_link.open_exporter("exchange", shape=(6, 8), kind="host") as opened:
        yield opened


@pytest.fixture
def importer(exporter):
    with cuda_link.open_importer("exchange", timeout=10, hold=4) as opened:
        yield opened


def sent(dtype=np.int16):
    return np.arange(48).reshape(6, 8).astype(dtype)


@pytest.fixture
def frame(exporter, importer):
    exporter.send(sent())
    return importer.acquire(10)


def test_numpy_imports_any_number_of_times(frame, importer):
    arrays = [np.from_dlpack(frame) for _ in range(5)]
    for array in arrays:
        np.testing.assert_array_equal(array, sent())
        assert np.shares_memory(array, frame.numpy())
        assert not array.flags.writeable
    frame.release()
    assert importer.held == 1
    del array, arrays
    gc.collect()
    until_held(importer, 0)


def test_the_capsule_that_was_asked_for(frame):
    assert get_name(frame.__dlpack__()) == b"dltensor"
    assert get_name(frame.__dlpack__(max_version=None)) == b"dltensor"
    assert get_name(frame.__dlpack__(max_version=(0, 8))) == b"dltensor"
    for version in ((1, 0), (1, 3), (2, 0)):
        assert get_name(frame.__dlpack__(max_version=version)) == b"dltensor_versioned"
    tensor = versioned(capsule := frame.__dlpack__(max_version=(1, 0)))
    assert tensor.major == 1 and tensor.flags & _abi.DLPACK_READ_ONLY
    assert tensor.tensor.byte_offset == 0 and tensor.tensor.strides
    assert frame.__dlpack_device__() == (1, 0)
    del capsule


def test_capsules_that_nobody_takes_leave_nothing(frame, importer):
    for _ in range(2000):
        frame.__dlpack__()
        frame.__dlpack__(max_version=(1, 0))
    capsule = frame.__dlpack__()
    frame.release()
    assert importer.held == 1
    del capsule
    until_held(importer, 0)


def test_an_exception_survives_a_capsule(frame):
    def fail():
        capsule = frame.__dlpack__()  # noqa: F841 (dies with the stack)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fail()


def test_streams_of_the_cpu(frame):
    frame.__dlpack__(stream=None)
    frame.__dlpack__(stream=-1)
    for stream in (0, 1, 2, 1234):
        with pytest.raises(BufferError):
            frame.__dlpack__(stream=stream)
    for stream in (True, "1", 1.5):
        with pytest.raises(TypeError):
            frame.__dlpack__(stream=stream)


def test_copy(frame):
    tensor = versioned(capsule := frame.__dlpack__(max_version=(1, 0), copy=True))
    assert tensor.flags & _abi.DLPACK_IS_COPIED and not tensor.flags & _abi.DLPACK_READ_ONLY
    assert tensor.tensor.data != frame._address
    frame.__dlpack__(copy=False)
    frame.__dlpack__(dl_device=(1, 0))
    with pytest.raises(BufferError):
        frame.__dlpack__(dl_device=(2, 0))
    del capsule


@pytest.mark.skipif(not VERSIONED_NUMPY, reason="needs NumPy 2.1")
def test_numpy_copies(frame):
    array = np.from_dlpack(frame, copy=True)
    assert array.flags.writeable and not np.shares_memory(array, frame.numpy())
    np.testing.assert_array_equal(array, sent())


def test_a_frame_of_several_planes(exporter, importer):
    exporter.send({"a": sent(), "b": sent(np.float32)})
    frame = importer.acquire(10)
    with pytest.raises(BufferError, match=r"frame\.tensor\('a'\)"):
        frame.__dlpack__()
    np.testing.assert_array_equal(np.from_dlpack(frame.tensor("b")), sent(np.float32))


def test_a_copied_frame_is_shared_by_its_tensors(frame):
    copy = frame.copy()
    array = np.from_dlpack(copy)
    copy.numpy()[0, 0] = 77
    assert array[0, 0] == 77
    del copy
    assert array[0, 0] == 77


def test_a_lent_slot(exporter, importer):
    with exporter.frame(shape=(3, 4), dtype="float32") as slot:
        tensor = versioned(capsule := slot.__dlpack__(max_version=(1, 0)))
        assert not tensor.flags & _abi.DLPACK_READ_ONLY
        assert tensor.tensor.data == slot.address
        ctypes.memset(tensor.tensor.data, 0, 48)
        del capsule
        with pytest.raises(BufferError):
            slot.__dlpack__(copy=True)
    assert (importer.acquire(10).numpy() == 0).all()
    with pytest.raises(ValueError, match="with"):
        slot.__dlpack__()


class Wrapped:
    """What a framework's array looks like: DLPack and nothing else."""

    def __init__(self, array, signature="new"):
        self.array, self.signature, self.asked = array, signature, []

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, **options):
        self.asked.append(sorted(options))
        allowed = {"new": {"stream", "max_version"}, "old": {"stream"}, "oldest": set()}[self.signature]
        if set(options) - allowed:
            raise TypeError("unexpected keyword argument")
        if not VERSIONED_NUMPY:
            options.pop("max_version", None)
        return self.array.__dlpack__(**options)


@pytest.mark.parametrize("signature", ["new", "old", "oldest"])
def test_sending_what_has_dlpack(exporter, importer, signature):
    for array in (
        sent(),
        sent(np.complex64)[::2, ::-1],
        sent(bool if VERSIONED_NUMPY else np.int8).T,
        sent()[:0],
    ):
        wrapped = Wrapped(array, signature)
        exporter.send(wrapped)
        np.testing.assert_array_equal(importer.acquire(10).numpy(), array)
        assert wrapped.asked[0] == ["max_version"]
        assert (len(wrapped.asked) == 1) == (signature == "new")


def test_sending_a_capsule(exporter, importer):
    capsule = sent().__dlpack__()
    exporter.send(capsule)
    np.testing.assert_array_equal(importer.acquire(10).numpy(), sent())
    with pytest.raises(BufferError, match="once"):
        exporter.send(capsule)


def test_sending_a_frame(exporter, importer, frame):
    exporter.send(frame)
    np.testing.assert_array_equal(importer.acquire(10).numpy(), sent())


def test_odd_tensors(exporter, importer):
    data = (ctypes.c_ubyte * 64)(*range(64))
    cases = [
        (hand_made((2, 3), None, data), [[0, 1, 2], [3, 4, 5]]),
        (hand_made((2, 3), (3, 1), data, byte_offset=8), [[8, 9, 10], [11, 12, 13]]),
        (hand_made((1, 3), (7000, 1), data), [[0, 1, 2]]),
        (hand_made((2, 2), (0, 1), data), [[0, 1], [0, 1]]),
        (hand_made((), (), data, byte_offset=5), 5),
        (hand_made((0, 3), None, None), []),
        (hand_made((3,), (2,), data, version=(1, 9)), [0, 2, 4]),
    ]
    for (capsule, deleted), expected in cases:
        exporter.send(capsule)
        frame = importer.acquire(10)
        assert frame.numpy().tolist() == expected
        frame.release()
        del frame
        gc.collect()
        assert len(deleted) == 1


def test_tensors_that_are_refused(exporter):
    data = (ctypes.c_ubyte * 64)()
    for capsule, deleted in (
        hand_made((2,), None, data, version=(2, 0)),
        hand_made((2,), None, data, device=7),
        hand_made((2,), None, data, code=3, bits=64),
        hand_made((-1,), None, data),
        hand_made((2**62, 8), None, data),
        hand_made((2,), None, None),
    ):
        with pytest.raises((ValueError, NotImplementedError, cuda_link.CudaLinkError)):
            exporter.send(capsule)
        assert deleted == []  # the capsule still owns it


def test_bad_input(exporter):
    class Grad:
        requires_grad = True

    class Conj:
        requires_grad = False

        def is_conj(self):
            return True

    class Sparse:
        is_sparse = True

    for bad, error, text in (
        (object(), TypeError, "object can't be sent"),
        (5, TypeError, "int"),
        (None, TypeError, "NoneType"),
        ("text", TypeError, "str"),
        (np.array(["a"]), TypeError, "numbers and bool"),
        (np.array([object()]), TypeError, "can't be sent|numbers and bool"),
        (np.zeros(3, ">f4"), ValueError, "big-endian"),
        (np.zeros(3, "datetime64[s]"), TypeError, "datetime64"),
        (Grad(), BufferError, "detach"),
        (Conj(), BufferError, "resolve_conj"),
        (Sparse(), BufferError, "to_dense"),
        ({}, ValueError, "empty"),
        (np.zeros((1,) * 9), ValueError, "9 dim|8 dim|dimensions"),
    ):
        with pytest.raises(error, match=text):
            exporter.send(bad)
    assert exporter.statistics().published == 0


def test_frameworks_are_imported_when_asked_for():
    assert "torch" not in sys.modules or "jax" not in sys.modules


def test_jax(frame):
    jax = pytest.importorskip("jax")
    array = frame.jax()
    np.testing.assert_array_equal(np.asarray(array), sent())
    np.testing.assert_array_equal(np.asarray(frame.jax(copy=True)), sent())
    assert array.dtype == jax.numpy.int16


def test_torch(frame, exporter, importer):
    torch = pytest.importorskip("torch")
    np.testing.assert_array_equal(frame.torch().numpy(), sent())
    exporter.send(torch.arange(6).reshape(2, 3).T)
    assert importer.acquire(10).numpy().tolist() == [[0, 3], [1, 4], [2, 5]]
    with pytest.raises(BufferError, match="detach"):
        exporter.send(torch.zeros(2, requires_grad=True))
