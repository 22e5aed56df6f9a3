# SPDX-License-Identifier: MIT
"""from_dlpack and what it makes, in memory of the CPU."""

from __future__ import annotations

import ctypes
import gc
import sys
import warnings
import weakref

import cuda_link
import numpy as np
import pytest
from capsules import get_name, hand_made, look
from conftest import run_python, until_held
from cuda_link import _abi, _dtypes

PLAIN = [name for name, dtype in _dtypes._DTYPES.items() if dtype.code in (0, 1, 2, 5, 6)]


def numbers(shape=(4, 6), dtype="int16"):
    return np.arange(np.prod(shape)).reshape(shape).astype(dtype)


def test_what_it_is():
    array = cuda_link.from_dlpack(numbers())
    assert (array.shape, array.strides, array.dtype, array.device) == ((4, 6), (12, 2), "int16", "cpu")
    assert (array.ndim, array.size, array.nbytes, len(array)) == (2, 24, 48, 4)
    assert array.writable and array.is_dense
    assert repr(array) == "<Array int16 (4, 6) on cpu>"
    np.testing.assert_array_equal(array.numpy(), numbers())
    np.testing.assert_array_equal(np.asarray(array), numbers())
    np.testing.assert_array_equal(np.asarray(array, dtype="float32"), numbers())


def test_owners_see_each_others_changes():
    source = numbers()
    array = cuda_link.from_dlpack(source)
    views = [array.numpy(), array[...].numpy(), np.asarray(array), np.from_dlpack(array)]
    source[1, 2] = 77
    assert all(view[1, 2] == 77 for view in views)
    array.buffer()[0, 5] = 99
    assert source[0, 5] == 99 and all(view[0, 5] == 99 for view in views)


@pytest.mark.parametrize("copy", [None, False, True])
def test_copy(copy):
    source = numbers()
    array = cuda_link.from_dlpack(source, copy=copy)
    source[0, 0] = 55
    assert (array.numpy()[0, 0] == 55) == (not copy)
    assert array.writable
    array.numpy()[0, 1] = 66
    assert (source[0, 1] == 66) == (not copy)


def test_a_copy_is_dense_and_its_own():
    source = numbers()[::-1, ::2]
    array = cuda_link.from_dlpack(source)
    assert array.strides == (-12, 4) and not array.is_dense
    for copy in (array.copy(), array[...].copy(stream=-1), cuda_link.from_dlpack(array, copy=True)):
        assert copy.is_dense and copy.writable and copy.address != array.address
        np.testing.assert_array_equal(copy.numpy(), source)
    source[0, 0] = 1
    assert copy.numpy()[0, 0] != 1


def test_memory_outlives_its_source():
    source = numbers((1000, 1000))
    gone = weakref.ref(source)
    array = cuda_link.from_dlpack(source)
    part = array[5]
    view = part.numpy()
    del source, array, part
    gc.collect()
    assert gone() is not None
    np.testing.assert_array_equal(view, numbers((1000, 1000))[5])
    del view
    gc.collect()
    assert gone() is None


def test_deleters_are_called_once():
    data = (ctypes.c_ubyte * 64)(*range(64))
    for legacy in (False, True):
        for shape, memory in (((8, 8), data), ((0, 3), None), ((), data)):
            capsule, deleted = hand_made(shape, None, memory, legacy=legacy)
            array = cuda_link.from_dlpack(capsule)
            parts = [array[...] for _ in range(10)] + [array.copy()]
            del capsule, array
            gc.collect()
            assert deleted == []
            del parts
            gc.collect()
            assert len(deleted) == 1
    capsule, _ = hand_made((8,), None, data, deleter=False)
    assert cuda_link.from_dlpack(capsule).numpy().tolist() == list(range(8))


def test_a_capsule_can_be_used_once():
    capsule = numbers().__dlpack__()
    array = cuda_link.from_dlpack(capsule)
    assert get_name(capsule) == b"used_dltensor"
    with pytest.raises(BufferError, match="once"):
        cuda_link.from_dlpack(capsule)
    with pytest.raises(BufferError, match="once"):
        cuda_link.from_dlpack(capsule, copy=True)
    np.testing.assert_array_equal(array.numpy(), numbers())


def test_read_only_stays():
    data = (ctypes.c_ubyte * 64)()
    capsule, _ = hand_made((8, 8), None, data, flags=_abi.DLPACK_READ_ONLY)
    array = cuda_link.from_dlpack(capsule)
    assert not array.writable and "read-only" in repr(array)
    for view in (array, array[1], array[::2]):
        assert not view.writable and not view.numpy().flags.writeable and not np.asarray(view).flags.writeable
    assert array.buffer().readonly
    exported = array.__dlpack__(max_version=(1, 0))
    assert look(exported)[2][2] == _abi.DLPACK_READ_ONLY
    assert array.copy().writable and cuda_link.from_dlpack(array, copy=True).writable


@pytest.mark.parametrize("dtype", PLAIN)
def test_every_type_that_numpy_has(dtype):
    source = numbers(dtype=dtype)
    data = np.ascontiguousarray(source)
    code, bits, lanes = _dtypes.parse(dtype)
    capsule, _ = hand_made((4, 6), None, data.ctypes.data, code=code, bits=bits, lanes=lanes)
    array = cuda_link.from_dlpack(capsule)
    assert array.dtype == dtype
    np.testing.assert_array_equal(array.numpy(), source)
    np.testing.assert_array_equal(np.asarray(array[1:3, ::-1]), source[1:3, ::-1])
    if _dtypes.struct_letter(array._dtype):
        assert array.buffer().tobytes() == data.tobytes()


@pytest.mark.parametrize("name", sorted(set(_dtypes._DTYPES) - set(PLAIN)))
def test_types_that_numpy_lacks_ride_along(name):
    data = (ctypes.c_ubyte * 256)(*range(256))
    code, bits, _ = _dtypes._DTYPES[name]
    capsule, _ = hand_made((4, 8), None, data, code=code, bits=bits)
    array = cuda_link.from_dlpack(capsule)
    assert array.dtype == name and array.nbytes == 4 * 8 * bits // 8
    for other in (array, array.copy()):
        assert look(other.__dlpack__(max_version=(1, 0)))[4:6] == ((code, bits, 1), (4, 8))
    with pytest.raises(BufferError):
        array.buffer()
    with pytest.raises(AttributeError):
        array.__array_interface__  # noqa: B018
    copy = array.copy()
    assert ctypes.string_at(copy.address, array.nbytes) == bytes(data[: array.nbytes])


PARTS = [
    np.s_[1],
    np.s_[-1],
    np.s_[1, 2, 3],
    np.s_[...],
    np.s_[..., 1],
    np.s_[1, ..., -2],
    np.s_[1:3],
    np.s_[::-1],
    np.s_[3:0:-2, :, ::3],
    np.s_[:, 1:1],
    np.s_[10:20],
    np.s_[::2, 1, ::-1],
    (),
    np.int64(2),
]


@pytest.mark.parametrize("part", PARTS, ids=str)
def test_parts_are_numpys(part):
    source = numbers((4, 5, 6))
    array = cuda_link.from_dlpack(source)[part]
    expected = source[part]
    assert array.shape == np.shape(expected)
    np.testing.assert_array_equal(array.numpy(), expected)
    np.testing.assert_array_equal(array.copy().numpy(), expected)
    np.testing.assert_array_equal(np.from_dlpack(array), expected)
    if array.size and array.ndim:
        assert np.shares_memory(array.numpy(), source)


def test_parts_that_are_none():
    array = cuda_link.from_dlpack(numbers((4, 5)))
    for bad in (4, -5, (0, 5), (0, 0, 0), (..., ...), 2**70):
        with pytest.raises(IndexError):
            array[bad]
    for bad in (None, 1.0, "a", [0, 1], np.array([0, 1])):
        with pytest.raises(TypeError):
            array[bad]
    with pytest.raises(TypeError, match="length"):
        len(array[0, 0])
    assert [row.numpy().tolist() for row in array] == numbers((4, 5)).tolist()


def test_odd_shapes():
    for source in (
        np.array(7.5),
        np.zeros((0, 3)),
        np.zeros((1, 1, 5)),
        np.broadcast_to(np.arange(3), (2, 3)),
    ):
        array = cuda_link.from_dlpack(source if source.flags.writeable else source.copy())
        assert array.shape == source.shape
        np.testing.assert_array_equal(array.numpy(), source)
        np.testing.assert_array_equal(np.asarray(array), source)
        np.testing.assert_array_equal(array.copy().numpy(), source)
        assert array.copy().buffer().tobytes() == source.tobytes()
    with pytest.raises(BufferError, match="numpy"):  # with Python 3.12 and later np.asarray asks it first
        cuda_link.from_dlpack(np.zeros((0, 3))).__buffer__(0)
    data = (ctypes.c_ubyte * 64)(*range(64))
    capsule, _ = hand_made((2, 3), (0, 1), data, byte_offset=8)
    assert cuda_link.from_dlpack(capsule).numpy().tolist() == [[8, 9, 10]] * 2
    capsule, _ = hand_made((1, 3), (7000, 1), data)
    strides = look(cuda_link.from_dlpack(capsule).__dlpack__())[6]
    assert strides == (7000, 1)  # as they were: consumers judge layouts by them


def test_what_lies_askew_is_refused_or_right():
    data = (ctypes.c_ubyte * 64)(*range(64))
    capsule, _ = hand_made((2, 3), None, data, byte_offset=1, code=0, bits=32)
    array = cuda_link.from_dlpack(capsule)
    expected = np.frombuffer(bytes(data)[1:25], "<i4").reshape(2, 3)
    np.testing.assert_array_equal(array.numpy(), expected)
    np.testing.assert_array_equal(array.copy().numpy(), expected)
    with pytest.raises(BufferError, match="aligned"):
        array.__dlpack__()
    np.testing.assert_array_equal(np.from_dlpack(array.copy()), expected)


@pytest.mark.parametrize(
    "made",
    [
        {"version": (2, 0)},
        {"device": 7},
        {"device": 4},
        {"code": 3, "bits": 64},
        {"code": 99},
        {"bits": 0},
        {"shape": (-1,)},
        {"shape": (2**62, 8)},
        {"shape": (1,) * 9},
        {"data": None},
        {"strides": (2**62, 1), "shape": (4, 4)},
    ],
    ids=str,
)
def test_tensors_that_are_refused(made):
    data = (ctypes.c_ubyte * 64)()
    options = {"shape": (2,), "strides": None, "data": data, **made}
    capsule, deleted = hand_made(options.pop("shape"), options.pop("strides"), options.pop("data"), **options)
    with pytest.raises((BufferError, ValueError)) as raised:
        cuda_link.from_dlpack(capsule)
    assert len(str(raised.value)) > 20 and deleted == []
    assert get_name(capsule) == b"dltensor_versioned"  # the capsule still owns it


def test_what_has_no_dlpack():
    for bad in (5, b"abc", [1, 2], None, object()):
        with pytest.raises(TypeError, match="__dlpack__"):
            cuda_link.from_dlpack(bad)
    with pytest.raises(TypeError):
        cuda_link.Array()

    class Grad:
        requires_grad = True

    with pytest.raises(BufferError, match="detach"):
        cuda_link.from_dlpack(Grad())


def test_streams_of_the_cpu():
    array = cuda_link.from_dlpack(numbers(), stream=-1)
    array.__dlpack__(stream=None)
    array.__dlpack__(stream=-1)
    for stream in (0, 1, 2, 1234):
        with pytest.raises(BufferError):
            array.__dlpack__(stream=stream)
    with pytest.raises(TypeError):
        array.__dlpack__(stream="1")
    with pytest.raises(BufferError):
        array.__dlpack__(dl_device=(2, 0))
    with pytest.raises(AttributeError):
        array.__cuda_array_interface__  # noqa: B018


def test_exported_copies_say_so():
    array = cuda_link.from_dlpack(numbers())
    shared, own = array.__dlpack__(max_version=(1, 0)), array.__dlpack__(max_version=(1, 0), copy=True)
    assert look(shared)[0] == array.address and not look(shared)[2][2] & _abi.DLPACK_IS_COPIED
    assert look(own)[0] != array.address and look(own)[2][2] & _abi.DLPACK_IS_COPIED
    copy = array.copy()  # whose memory is shared by all that is made of it
    shared = copy.__dlpack__(max_version=(1, 0))
    assert not look(shared)[2][2] & _abi.DLPACK_IS_COPIED


def test_frames_and_slots():
    with cuda_link.open_exporter("array", shape=(4, 6), dtype="int16", kind="host") as exporter:
        with cuda_link.open_importer("array", timeout=10) as importer:
            with exporter.frame() as slot:
                cuda_link.from_dlpack(slot).numpy()[:] = numbers()
            frame = importer.acquire(10)
            array = cuda_link.from_dlpack(frame)
            assert not array.writable and array.address == frame._address
            frame.release()
            del frame
            assert importer.held == 1
            exporter.send(array[::2])
            with importer.acquire(10) as sent:
                np.testing.assert_array_equal(sent.numpy(), numbers()[::2])
            copy = cuda_link.from_dlpack(array, copy=True)
            del array
            gc.collect()
            until_held(importer, 0)
            np.testing.assert_array_equal(copy.numpy(), numbers())


def test_memoryviews():
    array = cuda_link.from_dlpack(numbers())
    with pytest.raises(BufferError, match=r"array\.copy\(\)"):
        array[:, 1].buffer()
    assert array[:, 1].copy().buffer().tolist() == numbers()[:, 1].tolist()
    if sys.version_info >= (3, 12):
        assert memoryview(array).tolist() == numbers().tolist()


def test_no_framework_is_needed():
    code = """
import sys
import warnings
sys.modules["numpy"] = sys.modules["torch"] = None
import cuda_link
with cuda_link.open_exporter("alone", shape=(2, 3), kind="host") as exporter:
    importer = cuda_link.open_importer("alone", timeout=10)
    exporter.send(bytes(range(6)))
    array = cuda_link.from_dlpack(importer.acquire(10), copy=True)
    assert array[2::-1].copy().buffer().tolist() == [2, 1, 0]
"""
    ended = run_python(code)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_torch():
    torch = pytest.importorskip("torch")
    source = torch.arange(24).reshape(4, 6)
    array = cuda_link.from_dlpack(source.T)
    assert array.shape == (6, 4) and array.address == source.data_ptr()
    assert array.torch().data_ptr() == source.data_ptr()
    assert torch.equal(array[1].torch(), source[:, 1])
    assert torch.equal(torch.from_dlpack(array[2:4, 1:]), source.T[2:4, 1:])
    for bad, text in (
        (torch.zeros(2, requires_grad=True), "detach"),
        (torch.zeros(2, dtype=torch.complex64).conj(), "resolve_conj"),
        (torch.zeros(2, 2).to_sparse(), "to_dense"),
    ):
        with pytest.raises(BufferError, match=text):
            cuda_link.from_dlpack(bad)


def test_writable_is_a_property_and_may_be_called():
    owner = np.zeros(3)
    for writable in (True, False):
        array = cuda_link.from_dlpack(owner) if writable else cuda_link.from_dlpack(read_only())
        assert bool(array.writable) is array.writable() is writable
        assert array.writable == writable and repr(array.writable) == f"{array.writable}" == str(writable)


def read_only():
    """A tensor that says so, whatever this NumPy can."""
    with cuda_link.open_exporter("read_only", shape=(4,), kind="host") as exporter:
        with cuda_link.open_importer("read_only", timeout=10) as importer:
            exporter.send(b"abcd")
            frame = importer.acquire(10)
            assert frame.writable() is False and not frame.writable
            return frame


def test_a_masked_tensor_of_torch():
    torch = pytest.importorskip("torch")
    masked = pytest.importorskip("torch.masked")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch: "a prototype"
        tensor = masked.masked_tensor(torch.arange(3.0), torch.tensor([True, False, True]))
        with pytest.raises(BufferError, match=r"would lose its mask.*tensor\.to_tensor\(value\)"):
            cuda_link.from_dlpack(tensor)
