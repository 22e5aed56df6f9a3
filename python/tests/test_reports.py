# SPDX-License-Identifier: MIT
"""What went wrong for users of other libraries that exchange arrays; docs/exchange.md says which report is
which test."""

from __future__ import annotations

import ctypes
import gc
import threading
from math import prod

import cuda_link
import numpy as np
import pytest
from capsules import HAND_MADE, get_name, hand_made, look, versioned
from conftest import LIMIT, run_forks, run_python, until_held
from cuda_link import _abi, _dtypes

RAW_DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)  # called without the GIL


@pytest.fixture
def pair():
    with cuda_link.open_exporter("reports", shape=(4, 6), kind="host") as exporter:
        with cuda_link.open_importer("reports", timeout=10, hold=4) as importer:
            yield exporter, importer


@pytest.fixture
def frame(pair):
    exporter, importer = pair
    exporter.send(numbers())
    return importer.acquire(10)


def numbers(shape=(4, 6), dtype="int16"):
    return np.arange(prod(shape)).reshape(shape).astype(dtype)


@pytest.mark.parametrize("version", [None, (1, 0), (1, 1), (1, 2), (1, 3), (1, 99)])
def test_missing_strides(pair, version):
    exporter, importer = pair
    data = (ctypes.c_ubyte * 24)(*range(24))
    options = {"legacy": True} if version is None else {"version": version}
    for take in (cuda_link.from_dlpack, exporter.send):
        capsule, deleted = hand_made((2, 3, 4), None, data, **options)
        got = take(capsule)
        got = importer.acquire(10) if got is True else got
        assert got.numpy().tolist() == np.arange(24).reshape(2, 3, 4).tolist()
        exported = got.__dlpack__(max_version=(1, 0))
        assert look(exported)[6] == (12, 4, 1)
        del got, exported
        gc.collect()
    assert len(deleted) == 1


def test_offsets_are_folded_in(pair):
    exporter, importer = pair
    exporter.send({"first": numbers((100,)), "second": numbers()})
    tensor = importer.acquire(10).tensor("second")
    exported = look(tensor.__dlpack__(max_version=(1, 0)))
    assert exported[0] != tensor._frame._address and exported[-1] == 0  # no consumer has to add one
    part = cuda_link.from_dlpack(numbers())[2, 3:]
    assert look(part.__dlpack__())[-1] == 0
    assert np.from_dlpack(part).tolist() == numbers()[2, 3:].tolist()


def test_strides_of_one_element_are_left_alone():
    data = (ctypes.c_ubyte * 64)(*range(64))
    for strides in ((7000, 8, 1), (0, 8, 1), (-3, 8, 1)):
        capsule, _ = hand_made((1, 8, 8), strides, data)
        array = cuda_link.from_dlpack(capsule)
        assert array.is_dense
        assert look(array.__dlpack__(max_version=(1, 0)))[6] == strides
        assert array.copy().strides == (64, 8, 1)


def test_deleters_of_empty_tensors():
    calls = []
    for n in range(1000):
        capsule, deleted = hand_made((0, n), None, None)
        array = cuda_link.from_dlpack(capsule)
        assert look(array.__dlpack__(max_version=(1, 0)))[0] is None
        calls.append(deleted)
    del array, capsule
    gc.collect()
    cuda_link.from_dlpack(numbers()).__dlpack__()  # the ctypes back end sweeps when it makes one
    assert [len(deleted) for deleted in calls] == [1] * 1000


@pytest.mark.parametrize("name", sorted(_dtypes._DTYPES))
def test_every_type_travels(pair, name):
    exporter, importer = pair
    code, bits, lanes = _dtypes._DTYPES[name]
    data = (ctypes.c_ubyte * (64 * 64 * 16))(*(i % 251 for i in range(64 * 64 * 16)))
    size = 64 * 64 * bits // 8  # not one byte and more for each of four bits
    capsule, _ = hand_made((64, 64), None, data, code=code, bits=bits)
    exporter.send(capsule)
    with importer.acquire(10) as frame:
        assert frame.dtype == name and frame.shape == (64, 64)
        assert frame.packed() == bytes(data[:size])
        exported = look(frame.__dlpack__(max_version=(1, 3)))
        assert exported[4] == (code, bits, lanes) and exported[5] == (64, 64)


def test_two_capsules_of_one_frame(frame):
    first, second = (frame.__dlpack__(max_version=(1, 0)) for _ in range(2))
    assert ctypes.addressof(versioned(first)) != ctypes.addressof(versioned(second))
    assert versioned(first).tensor.shape != versioned(second).tensor.shape


def test_a_capsule_that_somebody_has_stays(frame, pair):
    """The ctypes back end looks for those that nobody has; a list, a name, a call may be the only holder."""
    _, importer = pair
    holder = [frame.__dlpack__(max_version=(1, 0))]
    named = frame.__dlpack__()

    def passed(capsule, more):
        for _ in range(10):
            more()
        return np.from_dlpack(Handed(capsule))

    class Handed:
        def __init__(self, capsule):
            self.capsule = capsule

        def __dlpack__(self, **_):
            return self.capsule

        def __dlpack_device__(self):
            return (1, 0)

    arrays = [passed(frame.__dlpack__(), frame.__dlpack__)]
    frame.release()
    assert importer.held == 1
    arrays += [cuda_link.from_dlpack(holder[0]).numpy(), np.from_dlpack(Handed(named))]
    del frame, holder, named
    for array in arrays:
        np.testing.assert_array_equal(array, numbers())


def test_exports_that_fail_leave_nothing(pair):
    data = (ctypes.c_ubyte * 64)()
    capsule, deleted = hand_made((2, 3), None, data, byte_offset=1, code=0, bits=32)
    array = cuda_link.from_dlpack(capsule)
    for _ in range(10000):
        with pytest.raises(BufferError):
            array.__dlpack__(max_version=(1, 0))
    del array, capsule
    gc.collect()
    assert len(deleted) == 1


def test_deleters_on_other_threads_without_the_gil(frame, pair):
    _, importer = pair
    delete = [frame.__dlpack__(max_version=(1, 0)) for _ in range(2000)]
    tensors = [ctypes.addressof(versioned(capsule)) for capsule in delete]
    deleter = RAW_DELETER(versioned(delete[0]).deleter)
    name = b"used_dltensor_versioned"
    for capsule in delete:
        ctypes.pythonapi.PyCapsule_SetName(ctypes.py_object(capsule), name)

    def run(part):
        for tensor in part:
            deleter(tensor)

    threads = [threading.Thread(target=run, args=(tensors[i::8],)) for i in range(8)]
    for thread in threads:
        thread.start()
    frame.release()
    for thread in threads:
        thread.join()
    until_held(importer, 0)
    del delete


def calls_back(call):
    """A capsule whose deleter calls us."""
    data = (ctypes.c_ubyte * 24)()
    capsule, _ = hand_made((4, 6), None, data)
    function = RAW_DELETER(lambda _: call())
    HAND_MADE.append((function, data))
    versioned(capsule).deleter = ctypes.cast(function, ctypes.c_void_p)
    return capsule


def test_a_deleter_that_calls_us(pair):
    exporter, importer = pair
    seen = []

    def call():
        exporter.send(numbers())
        with importer.acquire(10) as frame:
            seen.append(frame.sequence)
            frame.__dlpack__()
        cuda_link.from_dlpack(numbers()).copy()

    array = cuda_link.from_dlpack(calls_back(call))
    part = array[1:]
    del array
    assert seen == []
    del part
    assert len(seen) == 1
    exporter.send(calls_back(call))
    assert len(seen) == 2
    until_held(importer, 0)


SIGNATURES = {
    "nothing": lambda array: lambda: array.__dlpack__(),
    "stream": lambda array: lambda stream=None: array.__dlpack__(),
    "version": lambda array: lambda *, stream=None, max_version=None: array.__dlpack__(),
    "all": lambda array: (
        lambda *, stream=None, max_version=None, dl_device=None, copy=None: array.__dlpack__()
    ),
    "any": lambda array: lambda **words: array.__dlpack__(),
    "positional": lambda array: lambda stream=None, max_version=None: array.__dlpack__(),
}


@pytest.mark.parametrize("signature", SIGNATURES)
def test_historical_signatures(pair, signature):
    exporter, importer = pair

    class Old:
        def __dlpack_device__(self):
            return (1, 0)

    thing = Old()
    thing.__dlpack__ = SIGNATURES[signature](numbers())
    np.testing.assert_array_equal(cuda_link.from_dlpack(thing).numpy(), numbers())
    exporter.send(thing)
    np.testing.assert_array_equal(importer.acquire(10).numpy(), numbers())


@pytest.mark.parametrize(
    "words", [{}, {"stream": None}, {"stream": -1, "max_version": (1, 0), "copy": False}]
)
def test_what_consumers_ask(frame, words):
    """Old cuTe and nvvfx; JAX and Warp; mpi4py."""
    wanted = b"dltensor_versioned" if "max_version" in words else b"dltensor"
    for thing in (frame, frame.tensor(), cuda_link.from_dlpack(numbers())):
        assert get_name(thing.__dlpack__(**words)) == wanted


def test_read_only_in_legacy_capsules_is_shared(frame):
    """JAX asks for legacy capsules, and its arrays are never written to."""
    capsule = frame.__dlpack__(stream=None)
    assert look(capsule)[0] == frame._address
    read_only = numbers()
    read_only.flags.writeable = False
    exporter = cuda_link.open_exporter("read-only", shape=(4, 6), kind="host")
    assert exporter.send(read_only)
    exporter.close()


def test_the_adapter_around_our_capsule(frame):
    """As NVIDIA's VFX guide has it for JAX: an object that hands out one capsule."""

    class Adapter:
        def __init__(self, capsule, device):
            self.capsule, self.device = capsule, device

        def __dlpack__(self, **_):
            return self.capsule

        def __dlpack_device__(self):
            return self.device

    adapter = Adapter(frame.__dlpack__(), frame.__dlpack_device__())
    np.testing.assert_array_equal(np.from_dlpack(adapter), numbers())
    with pytest.raises((BufferError, ValueError, RuntimeError)):
        np.from_dlpack(adapter)


@pytest.mark.parametrize("versioned", [True, False])
def test_one_of_many_threads_takes_a_capsule(frame, versioned):
    """Two takers would each call the deleter."""
    threads, rounds = 4, 50
    start = threading.Barrier(threads)
    capsules = [frame.__dlpack__(max_version=(1, 0) if versioned else None) for _ in range(rounds)]
    taken, refused = [], []

    def take():
        for capsule in capsules:
            start.wait(LIMIT)
            try:
                taken.append(cuda_link.from_dlpack(capsule))
            except BufferError as error:
                refused.append(error)

    takers = [threading.Thread(target=take) for _ in range(threads)]
    for taker in takers:
        taker.start()
    for taker in takers:
        taker.join()
    assert (len(taken), len(refused)) == (rounds, rounds * (threads - 1))
    taken.clear()
    capsules.clear()


def test_many_threads_share_a_frame(frame, pair):
    _, importer = pair
    expected, failures = numbers(), []

    def use():
        try:
            for _ in range(200):
                array = cuda_link.from_dlpack(frame)
                assert np.array_equal(np.from_dlpack(array[1:]), expected[1:])
                assert np.array_equal(frame.numpy(), expected)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    frame.release()
    gc.collect()
    until_held(importer, 0)


EXIT = """
import sys, threading
import cuda_link, numpy as np
exporter = cuda_link.open_exporter("exit", shape=(4, 6), kind="host")
importer = cuda_link.open_importer("exit", timeout=10, hold=4)
exporter.send(np.ones((4, 6), np.uint8))
frame = importer.acquire(10)
slot = exporter.frame()
slot.__enter__()
sys.kept = [frame.numpy(), np.from_dlpack(frame), frame.__dlpack__(), frame.tensor()]
sys.kept += [cuda_link.from_dlpack(frame), frame.copy(), cuda_link.from_dlpack(np.ones(3))]
sys.kept += [slot.numpy(), slot.__dlpack__(), slot]
stop = threading.Event()
def wait():
    try:
        importer.acquire()
    except cuda_link.CudaLinkError:
        pass
threading.Thread(target=wait, daemon=True).start()
sys.exit(7)
"""


def test_exit_with_everything_alive():
    ended = run_python(EXIT)
    assert (ended.returncode, ended.stderr) == (7, "")


@pytest.mark.slow
def test_exit_with_everything_alive_200_times():
    assert run_forks(EXIT, 200, "cuda_link numpy", "once") == ["7 ''"] * 200


def test_indices_that_would_wrap():
    data = (ctypes.c_ubyte * 64)()
    for shape, strides in (
        ((2**31, 2**31, 4), None),
        ((2**62,), (4,)),
        ((2,), (2**62,)),
        ((2, 2), (2**63 - 1, 1)),
        ((3,), (-(2**62),)),
    ):
        capsule, deleted = hand_made(shape, strides, data, code=0, bits=64)
        with pytest.raises(ValueError):
            cuda_link.from_dlpack(capsule)
        assert deleted == []


def test_read_only_is_carried_through(frame):
    array = cuda_link.from_dlpack(frame)
    again = cuda_link.from_dlpack(array)
    assert not array.writable and not again.writable
    assert look(again.__dlpack__(max_version=(1, 0)))[2][2] & _abi.DLPACK_READ_ONLY
