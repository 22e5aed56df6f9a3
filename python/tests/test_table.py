# SPDX-License-Identifier: MIT
"""The C exchange table: ours, called as C code does, and those of others, made by hand."""

from __future__ import annotations

import ctypes
import gc

import cuda_link
import numpy as np
import pytest
import tables
from capsules import HAND_MADE, get_pointer, hand_made
from conftest import until_held
from cuda_link import _abi

OFFERED = pytest.mark.skipif(cuda_link.backend.name != "core", reason="the ctypes back end offers no table")


@pytest.fixture
def pair():
    with cuda_link.open_exporter("table", shape=(4, 6), kind="host") as exporter:
        with cuda_link.open_importer("table", timeout=10, hold=2) as importer:
            yield exporter, importer


def numbers():
    return np.arange(24, dtype=np.int16).reshape(4, 6)


# ---- ours


@OFFERED
def test_a_frame_by_table(pair):
    exporter, importer = pair
    exporter.send(numbers())
    frame, table = importer.acquire(10), tables.Offered(cuda_link.Frame)
    tensors = [table.from_object(frame) for _ in range(3)]
    for tensor in tensors:
        assert (tensor.major, tensor.tensor.data) == (1, frame._address)
        assert tensor.flags == _abi.DLPACK_READ_ONLY and tensor.tensor.dimensions == 2
    frame.release()
    with pytest.raises(ValueError, match="released"):
        table.from_object(frame)
    del frame
    for left in (3, 2, 1):
        assert importer.held == 1
        tables.delete(tensors[left - 1])
    until_held(importer, 0)


def without_memory(number, call, *arguments):
    """What the call returns when that allocation of Python's fails."""
    try:
        import _testcapi
    except ImportError:
        pytest.skip("needs CPython's _testcapi")
    _testcapi.set_nomemory(number, number + 1)
    try:
        return call(*arguments)
    except (MemoryError, ctypes.ArgumentError):
        return -1
    finally:
        _testcapi.remove_mem_hooks()


@OFFERED
def test_a_tensor_that_is_not_taken_is_left_alone():
    """For lack of memory, at each place: who offered it may delete it then."""
    offered = tables.Offered(cuda_link.Array)
    take, out, failed = tables.TO_OBJECT(offered.table.to_object), ctypes.c_void_p(), 0
    _, deleted = hand_made((4,), None, (ctypes.c_uint8 * 4)())
    tensor = HAND_MADE[-1][0]
    while without_memory(failed + 1, take, ctypes.addressof(tensor), ctypes.byref(out)) != 0:
        assert not deleted
        failed += 1
    assert failed and not deleted
    ctypes.pythonapi.Py_DecRef(out)
    assert deleted


@OFFERED
def test_a_frame_of_several_planes_by_table(pair):
    exporter, importer = pair
    exporter.send({"a": numbers(), "b": numbers()})
    with importer.acquire(10) as frame, pytest.raises(BufferError, match="tensor"):
        tables.Offered(cuda_link.Frame).from_object(frame)


@OFFERED
def test_an_array_by_table_and_back():
    table, source = tables.Offered(cuda_link.Array), numbers()
    array = cuda_link.from_dlpack(source)
    address = array.address
    tensor = table.from_object(array[::2, ::-1])
    del array
    back = table.to_object(tensor)
    assert type(back) is cuda_link.Array and back.address == address + 10
    np.testing.assert_array_equal(back.numpy(), source[::2, ::-1])
    source[0, 5] = 99
    assert back.numpy()[0, 0] == 99
    data = (ctypes.c_ubyte * 8)()
    capsule, deleted = hand_made((8,), None, data)
    made = _abi.VersionedTensor.from_address(get_pointer(capsule, b"dltensor_versioned"))
    array = table.to_object(made)
    assert array.address == ctypes.addressof(data) and deleted == []
    del array
    gc.collect()
    assert len(deleted) == 1
    made.major = 2
    with pytest.raises(BufferError, match="version"):
        table.to_object(made)
    assert len(deleted) == 1


@OFFERED
def test_an_array_that_lies_askew_by_table():
    data = (ctypes.c_ubyte * 64)()
    capsule, _ = hand_made((2, 3), None, data, byte_offset=1, code=0, bits=32)
    with pytest.raises(BufferError, match="aligned"):
        tables.Offered(cuda_link.Array).from_object(cuda_link.from_dlpack(capsule))


@OFFERED
def test_our_current_streams():
    table = tables.Offered(cuda_link.Frame)
    assert table.stream(_abi.DLPACK_CPU) == 0 and table.stream(_abi.DLPACK_CUDA_HOST) == 0
    assert table.stream(_abi.DLPACK_CUDA) == 1 and table.stream(_abi.DLPACK_CUDA_MANAGED, 1) == 1


@OFFERED
def test_tensors_are_allocated():
    table = tables.Offered(cuda_link.Array)
    prototype = _abi.Tensor(dimensions=2, device=_abi.Device(1, 0), dtype=_abi.Dtype(2, 32, 1))
    shape = (ctypes.c_int64 * 2)(3, 6)
    prototype.shape = ctypes.addressof(shape)
    tensor = table.allocate(prototype)
    assert tensor.tensor.data % 64 == 0 and tensor.flags == 0
    array = table.to_object(tensor)
    assert (array.shape, array.dtype, array.writable) == ((3, 6), "float32", True)
    array.numpy()[:] = 1
    prototype.dtype = _abi.Dtype(17, 4, 1)
    assert table.to_object(table.allocate(prototype)).dtype == "float4_e2m1fn"
    shape[0] = 0
    assert table.to_object(table.allocate(prototype)).shape == (0, 6)
    shape[0] = -1
    assert table.allocate(prototype)[0] == "BufferError"
    shape[0] = 2**62
    assert table.allocate(prototype)[0] == "BufferError"
    prototype.device.type = 2
    assert "CPU" in table.allocate(prototype)[1]


@pytest.mark.skipif(cuda_link.backend.name == "core", reason="the C extension has one")
def test_the_ctypes_back_end_offers_none():
    assert not hasattr(cuda_link.Frame, "__dlpack_c_exchange_api__")
    assert not hasattr(cuda_link.Array, "__dlpack_c_exchange_api__")


# ---- others'


class Source:
    """A type with a table and with __dlpack__; says which was asked."""

    def __init__(self, **options):
        self.asked = []
        self.data = (ctypes.c_ubyte * 24)(*range(24))
        self.capsule, self.deleted = hand_made((4, 6), None, self.data, **options)

    def tensor(self):
        self.asked.append("table")
        return get_pointer(self.capsule, b"dltensor_versioned")

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, **options):
        self.asked.append("__dlpack__")
        return self.capsule


def source(capsule):
    return type("WithTable", (Source,), {"__dlpack_c_exchange_api__": capsule})


def test_a_table_is_used(pair):
    exporter, importer = pair
    kind = source(tables.table(lambda thing: thing.tensor(), lambda *_: None))
    for take in (cuda_link.from_dlpack, exporter.send):
        thing = kind()
        got = take(thing)
        assert thing.asked == ["table"]
        if got is True:
            got = importer.acquire(10)
        assert got.numpy().tolist() == np.arange(24).reshape(4, 6).tolist()
        del got
        gc.collect()
        assert len(thing.deleted) == 1


@pytest.mark.parametrize(
    "capsule",
    [
        lambda: tables.table(lambda thing: thing.tensor(), lambda *_: None, version=(2, 0)),
        lambda: tables.table(lambda thing: None, lambda *_: None),
        lambda: hand_made((1,), None, (ctypes.c_ubyte * 1)())[0],
        lambda: 1234,
        lambda: None,
    ],
    ids=["newer", "fails", "another capsule", "a number", "none"],
)
def test_without_a_table_that_works(capsule):
    thing = source(capsule())()
    assert cuda_link.from_dlpack(thing).shape == (4, 6)
    assert thing.asked[-1] == "__dlpack__" and "table" not in thing.asked


def test_an_older_table_behind_a_newer_one():
    old = tables.table(lambda thing: thing.tensor(), lambda *_: None)
    newer = tables.table(
        lambda thing: None, lambda *_: None, version=(2, 1), previous=get_pointer(old, tables.NAME)
    )
    thing = source(newer)()
    assert cuda_link.from_dlpack(thing).shape == (4, 6) and thing.asked == ["table"]


def test_a_tensor_that_the_table_gives_and_we_refuse():
    kind = source(tables.table(lambda thing: thing.tensor(), lambda *_: None))
    thing = kind(version=(2, 0))
    with pytest.raises(BufferError, match="version"):
        cuda_link.from_dlpack(thing)  # by __dlpack__, which says why
    assert thing.asked == ["table", "__dlpack__"] and len(thing.deleted) == 1
    capsule, deleted = hand_made((-1,), None, (ctypes.c_ubyte * 1)())
    thing = kind()
    thing.capsule = capsule
    with pytest.raises(ValueError, match="-1"):
        cuda_link.from_dlpack(thing)
    assert thing.asked == ["table", "__dlpack__"] and len(deleted) == 1


def test_a_subclass_has_no_table():
    class Derived(source(tables.table(lambda thing: thing.tensor(), lambda *_: None))):
        pass

    thing = Derived()
    assert cuda_link.from_dlpack(thing).shape == (4, 6) and thing.asked == ["__dlpack__"]
