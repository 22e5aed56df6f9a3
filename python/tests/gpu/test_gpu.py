# SPDX-License-Identifier: MIT
"""Frames in GPU memory: on the fake driver in CI, unchanged on a real GPU."""

from __future__ import annotations

import ctypes
import gc
import os
import re
import sys
import threading
import time
import types
import weakref

import cuda_link
import numpy as np
import pytest
from capsules import look
from conftest import run_python
from cuda_link import _driver, _streams
from cuda_link._backend import low
from cuda_link._known import nvml

pytestmark = [
    pytest.mark.requires_cuda,
    pytest.mark.skipif(
        not os.environ.get("CUDALINK_PYTHON_GPU"), reason="needs a GPU (CUDALINK_PYTHON_GPU=1)"
    ),
]

SHAPE = (24, 32, 4)
LIMIT = 60  # seconds; only a hang comes near


def picture(add=0):
    return ((np.arange(np.prod(SHAPE)) + add) % 251).astype(np.uint8).reshape(SHAPE)


@pytest.fixture
def exporter():
    with cuda_link.open_exporter("gpu", shape=SHAPE, kind="vmm", user_size=8) as opened:
        yield opened


@pytest.fixture
def importer(exporter):
    with cuda_link.open_importer("gpu", timeout=10, hold=4) as opened:
        yield opened


@pytest.fixture(scope="session")
def stream():
    """A stream of the driver, as a handle. It is not destroyed: frames that were exported to it may be
    given back behind it after a test has ended."""
    driver = ctypes.CDLL("libcuda.so.1")
    context, handle = ctypes.c_void_p(), ctypes.c_void_p()
    assert driver.cuInit(0) == 0
    assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert driver.cuCtxPushCurrent_v2(context) == 0
    assert driver.cuStreamCreate(ctypes.byref(handle), 1) == 0
    driver.cuCtxPopCurrent_v2(ctypes.byref(context))
    return handle.value


class Interface:
    """An array with nothing but the CUDA array interface."""

    def __init__(self, interface):
        self.__cuda_array_interface__ = interface


def test_arrays_of_the_cpu_arrive(exporter, importer):
    assert exporter.statistics().kind == "vmm"
    exporter.send(picture(), user=b"12345678")
    frame = importer.acquire(10)
    assert frame.kind == "vmm" and frame.user == b"12345678"
    np.testing.assert_array_equal(frame.numpy(), picture())
    assert frame.packed() == picture().tobytes()
    np.testing.assert_array_equal(frame.copy().numpy(), picture())
    assert importer.statistics().copies == 3


def test_an_importer_goes_on_when_another_one_closes(exporter, importer):
    """Both have the same memory mapped, in one process with the exporter."""
    other = cuda_link.open_importer("gpu", timeout=10, hold=4)
    exporter.send(picture())
    kept = other.acquire(10)
    for n in range(8):  # more than the ring has slots
        exporter.send(picture(n), timeout=10)
        with importer.acquire(10) as frame:
            np.testing.assert_array_equal(frame.numpy(), picture(n))
        other.close()
        np.testing.assert_array_equal(kept.numpy(), picture())
    kept.release()
    exporter.send(picture(9))
    np.testing.assert_array_equal(importer.acquire(10).numpy(), picture(9))


def test_a_dict_and_strided_arrays(exporter, importer):
    sent = {"a": picture()[::-1], "b": np.arange(5.0)}
    exporter.send(sent)
    frame = importer.acquire(10)
    for name, expected in sent.items():
        np.testing.assert_array_equal(frame.numpy(name), expected)


def test_devices_and_capsules(exporter, importer, stream):
    exporter.send(picture())
    frame = importer.acquire(10)
    assert frame.__dlpack_device__() == (2, 0)
    for named in (None, -1, 1, 2, stream):
        frame.__dlpack__(stream=named, max_version=(1, 0))
    with pytest.raises(BufferError, match="ambiguous"):
        frame.__dlpack__(stream=0)
    with pytest.raises(BufferError):
        frame._view()
    frame.release(stream=stream)


def test_frames_answer_as_their_tensors_do(exporter, importer, stream):
    exporter.send(picture())
    frame = importer.acquire(10)
    assert frame.__dlpack_device__() == frame.tensor().__dlpack_device__()
    for named in (None, -1, 1, 2, stream):
        for version in (None, (0, 8), (1, 0), (1, 3)):
            options = {"stream": named, "max_version": version}
            assert look(frame.__dlpack__(**options)) == look(frame.tensor().__dlpack__(**options))
    for named in (0, -2, True, 2**70, "1"):
        with pytest.raises((BufferError, TypeError, ValueError)):
            frame.__dlpack__(stream=named)
    frame.release(stream=stream)


def test_export_to_the_cpu(exporter, importer):
    exporter.send(picture())
    frame = importer.acquire(10)
    with pytest.raises(BufferError, match="copy=False"):
        frame.__dlpack__(dl_device=(1, 0), copy=False)
    with pytest.raises(BufferError, match="stream"):
        frame.__dlpack__(dl_device=(1, 0), stream=1)
    with cuda_link.open_exporter("back", shape=SHAPE, kind="host") as back:
        back.send(frame.__dlpack__(dl_device=(1, 0), max_version=(1, 0)))
        with pytest.raises(BufferError, match="vmm"):
            back.send(frame)


def test_the_cuda_array_interface(exporter, importer):
    exporter.send(picture())
    frame = importer.acquire(10)
    interface = frame.__cuda_array_interface__
    assert interface["version"] == 3 and interface["stream"] is None
    assert interface["shape"] == SHAPE and interface["typestr"] == "|u1"
    assert interface["data"] == (frame._address, not frame.writable)


@pytest.mark.parametrize("pointer", [None, 0])
def test_empty_interfaces(exporter, importer, pointer):
    empty = {"version": 3, "shape": (0, 3), "typestr": "<f4", "data": (pointer, False), "stream": None}
    exporter.send(Interface(empty))
    frame = importer.acquire(10)
    assert frame.shape == (0, 3)
    assert frame.__cuda_array_interface__["data"][0] == 0
    assert cuda_link.from_dlpack(frame).__cuda_array_interface__["data"][0] == 0
    assert look(frame.__dlpack__(max_version=(1, 0)))[0] is None


def test_types_without_a_typestr(exporter, importer):
    with exporter.frame(shape=(4,), dtype="bfloat16", stream=-1):
        pass
    frame = importer.acquire(10)
    for thing in (frame, frame.tensor(), cuda_link.from_dlpack(frame)):
        assert not hasattr(thing, "__cuda_array_interface__") and thing.__dlpack__(stream=-1)


def test_the_current_context_stays_as_it_is(exporter, importer, stream):
    driver = ctypes.CDLL("libcuda.so.1")

    def current():
        context = ctypes.c_void_p()
        assert driver.cuCtxGetCurrent(ctypes.byref(context)) == 0
        return context.value

    before = current()
    exporter.send(picture())
    frame = importer.acquire(10)
    frame.__dlpack__(stream=stream)
    array = cuda_link.from_dlpack(frame)
    array.copy().numpy()
    exporter.send(array, stream=stream)
    frame.copy()
    frame.release(stream=stream)
    assert current() == before


@pytest.mark.parametrize("how", ["frame", "capsule", "interface"])
def test_sending_gpu_memory(exporter, importer, stream, how):
    with cuda_link.open_exporter("relay", shape=SHAPE, kind="vmm") as relay:
        with cuda_link.open_importer("relay", timeout=10) as end:
            for n in range(5):
                exporter.send(picture(n))
                with importer.acquire(10) as frame:
                    if how == "frame":
                        relay.send(frame, stream=stream)
                    elif how == "capsule":
                        relay.send(frame.__dlpack__(stream=-1, max_version=(1, 0)), stream=stream)
                    else:
                        relay.send(Interface(frame.__cuda_array_interface__), stream=stream)
                    frame.release(stream=stream)
                with end.acquire(10) as got:
                    np.testing.assert_array_equal(got.numpy(), picture(n))
            copies = relay.statistics().copies
            assert copies == 5


def test_sending_several_and_strided_arrays(exporter, importer, stream):
    exporter.send(picture())
    frame = importer.acquire(10)
    whole = frame.__cuda_array_interface__
    address, read_only = whole["data"]
    crop = Interface(
        {**whole, "shape": (8, 16, 4), "strides": (128, 4, 1), "data": (address + 260, read_only)}
    )
    turned = Interface({**whole, "shape": (32, 24, 4), "strides": (4, 128, 1)})
    with cuda_link.open_exporter("relay", shape=SHAPE, kind="vmm") as relay:
        with cuda_link.open_importer("relay", timeout=10) as end:
            relay.send({"crop": crop, "turned": turned, "whole": frame}, stream=stream)
            with end.acquire(10) as got:
                np.testing.assert_array_equal(got.numpy("crop"), picture()[2:10, 1:17])
                np.testing.assert_array_equal(got.numpy("turned"), picture().transpose(1, 0, 2))
                np.testing.assert_array_equal(got.numpy("whole"), picture())
            relay.send(crop, stream=stream)
            with end.acquire(10) as got:
                np.testing.assert_array_equal(got.numpy(), picture()[2:10, 1:17])
            with pytest.raises(BufferError, match="one place"):
                relay.send({"a": crop, "b": picture()}, stream=stream)
            other = Interface({**whole, "stream": stream})
            with pytest.raises(BufferError, match="different streams"):
                relay.send({"a": crop, "b": other})


FUNCTIONS = []


class Blocked:
    """Parks a stream until `go`."""

    def __init__(self, stream):
        self.go = threading.Event()
        function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: self.go.wait(LIMIT))
        FUNCTIONS.append(function)  # for ever: the driver's thread comes out of it at some time
        driver = ctypes.CDLL("libcuda.so.1")
        driver.cuLaunchHostFunc.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
        with _driver._Context(0):
            assert driver.cuLaunchHostFunc(stream, ctypes.cast(function, ctypes.c_void_p), None) == 0

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.go.set()


def next_slot(exporter, importer):
    exporter.send(picture())
    with importer.acquire(10) as frame:
        return frame._slot


def test_a_release_comes_behind_the_streams_of_exports(exporter, importer, stream):
    exporter.send(picture())
    frame = importer.acquire(10)
    slot = frame._slot
    with Blocked(stream):
        frame.__dlpack__(stream=stream)
        frame.release()
        assert slot not in [next_slot(exporter, importer) for _ in range(50)]
    end = time.monotonic() + LIMIT
    while next_slot(exporter, importer) != slot:
        assert time.monotonic() < end


class Unnamed:
    """An array of a framework that shows no stream, as JAX's: a frame's tensor, and what it was asked."""

    def __init__(self, frame):
        self.tensor, self.asked = frame.tensor(), []

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()

    def __dlpack__(self, *, stream=None, max_version=None):
        self.asked.append(stream)
        return self.tensor.__dlpack__(stream=stream, max_version=max_version)


def test_an_array_without_a_stream_does_not_wait_for_the_legacy_one(exporter, importer):
    exporter.send(picture(5))
    with importer.acquire(10) as frame, cuda_link.open_exporter("relay", shape=SHAPE, kind="vmm") as relay:
        with cuda_link.open_importer("relay", timeout=10) as end, Blocked(1):
            array = Unnamed(frame)
            relay.send(array)
            relay.send({"a": array, "b": Unnamed(frame)})
            assert array.asked[0] not in (None, -1, 0, 1, 2) and len(set(array.asked)) == 1
            np.testing.assert_array_equal(end.acquire(10).numpy("b"), picture(5))
    del array  # the relay is closed; the frame is given back behind the stream that it was read on
    end_time = time.monotonic() + LIMIT
    while importer.statistics().held:
        assert time.monotonic() < end_time


def test_a_capture_goes_on_while_others_send(exporter, importer, stream):
    exporter.send(picture(5))
    driver, graph = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
    with cuda_link.open_exporter("relay", shape=SHAPE, kind="vmm") as relay, importer.acquire(10) as frame:
        source = Unnamed(frame)
        with _driver._Context(0):
            assert driver.cuStreamBeginCapture_v2(ctypes.c_void_p(stream), 0) == 0  # of all threads
        for _ in range(20):
            relay.send(source, timeout=10)
        with _driver._Context(0):
            assert driver.cuStreamEndCapture(ctypes.c_void_p(stream), ctypes.byref(graph)) == 0
        del source


def test_a_source_stays_until_its_copy_has_run(exporter, importer, stream):
    exporter.send(picture(5))
    frame = importer.acquire(10)
    source = Interface(frame.__cuda_array_interface__)
    kept = weakref.ref(source)
    with cuda_link.open_exporter("relay", shape=SHAPE, kind="vmm") as relay:
        with Blocked(stream):
            relay.send(source, stream=stream)
            del source
            gc.collect()
            relay.send(picture(6))
            assert kept() is not None
        end = time.monotonic() + LIMIT
        while kept() is not None and time.monotonic() < end:
            relay.send(picture(7))
            gc.collect()
        assert kept() is None


def calls_of(name):
    driver = ctypes.CDLL("libcuda.so.1")
    driver.fakecuda_calls.restype = ctypes.c_uint64
    return driver.fakecuda_calls(name.encode())


@pytest.mark.skipif(os.environ.get("CUDALINK_PYTHON_GPU") == "real", reason="counts calls of the fake driver")
def test_a_source_that_waits_costs_no_call(exporter, importer, stream):
    """Each call of the driver costs as much as the rest of a send."""
    names = ("cuEventRecord", "cuEventQuery", "cuCtxPushCurrent", "cuDevicePrimaryCtxRetain")

    def made(send):
        before = [calls_of(name) for name in names]
        send()
        return [calls_of(name) - count for name, count in zip(names, before)]

    exporter.send(picture(5))
    frame = importer.acquire(10)
    address, _ = frame.__cuda_array_interface__["data"]
    source = Interface(frame.__cuda_array_interface__)
    with cuda_link.open_exporter("relay", shape=SHAPE, kind="vmm") as relay, Blocked(stream):
        description, number = relay._description, relay._id
        plain = made(lambda: low.exporter_send(number, description, address, None, 4, stream, 0))
        kept = made(lambda: relay.send(source, stream=stream))
        assert kept == plain
    _driver.synchronize(_streams.resolve(stream), 0)  # the frame's memory goes with this test


def is_gone(kept):
    end = time.monotonic() + LIMIT
    while kept() is not None and time.monotonic() < end:
        time.sleep(0.001)  # gives up the GIL; the loop ends by what it looks at
        gc.collect()
    return kept() is None


@pytest.mark.parametrize("taken", ["interface", "dlpack"])
def test_a_source_stays_beyond_the_close(exporter, importer, stream, taken):
    exporter.send(picture(5))
    frame = importer.acquire(10)
    if taken == "interface":
        source = Interface(frame.__cuda_array_interface__)
    else:
        source = cuda_link.from_dlpack(frame, copy=True)
    relay = cuda_link.open_exporter("relay", shape=SHAPE, kind="vmm")
    kept = weakref.ref(source) if taken == "interface" else None
    with Blocked(stream):
        relay.send(source, stream=stream)
        relay.close()
        del source, relay
        gc.collect()
        assert kept is None or kept() is not None
    assert kept is None or is_gone(kept)


def test_a_source_stays_when_a_close_comes_before_it_is_kept(exporter, importer, stream, monkeypatch):
    relay = cuda_link.open_exporter("relay", shape=SHAPE, kind="vmm")
    keep = low.exporter_keep

    def close_first(number, thing):
        relay.close()
        return keep(number, thing)

    monkeypatch.setattr(low, "exporter_keep", close_first)
    exporter.send(picture(5))
    source = Interface(importer.acquire(10).__cuda_array_interface__)
    kept = weakref.ref(source)
    with Blocked(stream):
        relay.send(source, stream=stream)
        del source
        gc.collect()
        assert relay.closed and kept() is not None
    assert is_gone(kept)


def test_a_source_stays_when_nobody_keeps_it(exporter, importer, monkeypatch):
    monkeypatch.setattr(low, "exporter_keep", lambda *_: False)
    exporter.send(picture(5))
    frame = importer.acquire(10)
    source = Interface(frame.__cuda_array_interface__)
    kept = weakref.ref(source)
    with cuda_link.open_exporter("relay", shape=SHAPE, kind="vmm") as relay:
        relay.send(source, stream=1)
        del source
        for n in range(3):
            relay.send(picture(n))
        gc.collect()
        assert kept() is not None
    _driver.synchronize(_streams.LEGACY, 0)  # the frame's memory goes with this test
    del relay
    gc.collect()
    assert kept() is None


def test_what_a_source_does_at_its_end(exporter, importer, stream):
    """It may send, and raise."""
    ends = []

    class Sender(Interface):
        def __del__(self):
            ends.append(relay.send(picture(8)))
            raise RuntimeError("told, and no more")

    exporter.send(picture(5))
    frame = importer.acquire(10)
    told = []
    hook, sys.unraisablehook = sys.unraisablehook, lambda error: told.append(str(error.exc_value))
    try:
        with cuda_link.open_exporter("relay", shape=SHAPE, kind="vmm") as relay:
            with Blocked(stream):
                relay.send(Sender(frame.__cuda_array_interface__), stream=stream)
            end = time.monotonic() + LIMIT
            while not ends and time.monotonic() < end:
                relay.send(picture(7))
    finally:
        sys.unraisablehook = hook
    assert ends == [True] and told == ["told, and no more"]


PENDING_AT_EXIT = """
import ctypes, sys, threading, cuda_link
import numpy as np
exporter = cuda_link.open_exporter("exit", shape=(24, 32, 4), kind="vmm")
importer = cuda_link.open_importer("exit", timeout=10)
exporter.send(np.zeros((24, 32, 4), np.uint8))
frame = importer.acquire(10)
class Interface:
    __cuda_array_interface__ = frame.__cuda_array_interface__
    def __del__(self):
        pass
relay = cuda_link.open_exporter("relay", shape=(24, 32, 4), kind="vmm")
for n in range(int(sys.argv[1])):
    relay.send(Interface(), stream=1, timeout=10)
    relay.send(cuda_link.from_dlpack(frame, copy=True), stream=1, timeout=10)
if sys.argv[2] == "close":
    relay.close()
"""


@pytest.mark.parametrize("how", ["close", "leave"])
def test_copies_under_way_at_the_end_of_the_process(how):
    for count in range(8):
        ended = run_python(PENDING_AT_EXIT, str(count), how)
        assert (ended.returncode, ended.stderr) == (0, "")


AFTER_A_SUBINTERPRETER = """
import time, weakref, cuda_link
import _xxsubinterpreters as interpreters
import numpy as np
one = interpreters.create()
interpreters.run_string(one, "import cuda_link")
interpreters.destroy(one)
exporter = cuda_link.open_exporter("after", shape=(24, 32, 4), kind="vmm")
importer = cuda_link.open_importer("after", timeout=10)
exporter.send(np.zeros((24, 32, 4), np.uint8))
frame = importer.acquire(10)
class Interface:
    __cuda_array_interface__ = frame.__cuda_array_interface__
source = Interface()
kept = weakref.ref(source)
with cuda_link.open_exporter("relay", shape=(24, 32, 4), kind="vmm") as relay:
    relay.send(source, stream=1, timeout=10)
    del source
end = time.monotonic() + 10
while kept() is not None and time.monotonic() < end:
    time.sleep(0.001)
print("let go" if kept() is None else "kept")
"""


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="later ones give each its own GIL by default")
def test_the_end_of_a_subinterpreter_is_not_that_of_the_process():
    ended = run_python(AFTER_A_SUBINTERPRETER)
    assert (ended.returncode, ended.stdout) == (0, "let go\n"), ended.stderr


def test_a_bare_capsule_needs_a_stream(exporter, importer):
    exporter.send(picture())
    frame = importer.acquire(10)
    with pytest.raises(BufferError, match="stream="):
        exporter.send(frame.__dlpack__(stream=-1))


def test_a_copy_on_the_gpu(exporter, importer, stream):
    exporter.send(picture())
    frame = importer.acquire(10)
    capsule = frame.__dlpack__(stream=stream, max_version=(1, 0), copy=True)
    frame.release()
    exporter.send(capsule, stream=stream)
    np.testing.assert_array_equal(importer.acquire(10).numpy(), picture())


def test_a_lent_slot(exporter, importer):
    with exporter.frame(stream=-1) as slot:
        assert slot.tensor().__dlpack_device__() == (2, 0)
        slot.__dlpack__(stream=-1, max_version=(1, 0))
        with pytest.raises(BufferError, match="GPU memory"):
            slot.numpy()
    assert importer.acquire(10).sequence == 1


def test_the_memory_of_a_slot_outlives_its_exporter(exporter, importer):
    short = cuda_link.open_exporter("short", shape=SHAPE, kind="vmm", user_size=8)
    with exporter.frame(stream=-1):  # what is in GPU memory: a frame, copied into a slot of `short`
        pass
    exporter.send(picture(3))
    frame = importer.acquire(10)
    while frame.sequence < 2:
        frame = importer.acquire(10)
    slot = short.frame(stream=-1, user_size=8).__enter__()
    capsule, user = slot.__dlpack__(stream=-1, max_version=(1, 0)), slot.user
    driver = ctypes.CDLL("libcuda.so.1")
    driver.cuMemcpyDtoD_v2.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    with _driver._Context(0):
        assert driver.cuMemcpyDtoD_v2(slot.address, frame._address, picture().nbytes) == 0
    short.close()
    del short, slot
    gc.collect()
    for n in range(5):  # memory that was let go would be in use again
        with cuda_link.open_exporter("others", shape=SHAPE, kind="vmm") as other:
            other.send(picture(n))
    user[:] = b"12345678"
    frame.release()
    exporter.send(capsule, stream=-1)
    np.testing.assert_array_equal(importer.acquire(10).numpy(), picture(3))


def test_access(exporter):
    for access in ("read", "write"):
        with cuda_link.open_importer("gpu", timeout=10, access=access) as importer:
            exporter.send(picture())
            frame = importer.acquire(10)
            assert frame.writable == (access == "write")


def test_streams_of_the_gpu_wait(exporter, stream):
    with cuda_link.open_importer("gpu", timeout=10, gpu_wait=True, hold=4) as importer:
        for n in range(20):
            exporter.send(picture(n))
            with importer.acquire(10, stream=stream) as frame:
                np.testing.assert_array_equal(frame.numpy(), picture(n))
                frame.release(stream=stream)


def test_a_queue_of_tensors(monkeypatch, stream):
    """Tensors of a framework on the GPU: CuPy's place is taken by a module that knows DLPack only."""

    class ndarray:
        def __init__(self, source):
            capsule = source.__dlpack__(stream=stream, max_version=(1, 0))
            self.taken = cuda_link._backend.low.array_take(capsule, cuda_link.Array)
            self.nbytes = self.taken.nbytes

        def __dlpack_device__(self):
            return (2, 0)

        def __dlpack__(self, *, stream=None, max_version=None):
            return self.taken.__dlpack__(stream=-1, max_version=max_version)  # all on one stream: in order

    ndarray.__module__ = "cupy"
    stand_in = types.ModuleType("cupy")
    stand_in.ndarray = stand_in.from_dlpack = ndarray
    current = types.SimpleNamespace(ptr=stream)
    stand_in.cuda = types.SimpleNamespace(get_current_stream=lambda: current)
    monkeypatch.setitem(sys.modules, "cupy", stand_in)
    queue = cuda_link.Queue(2)
    with cuda_link.open_exporter("gpu", shape=SHAPE, kind="vmm") as exporter:
        with cuda_link.open_importer("gpu", timeout=10) as importer:
            for number in range(6):
                exporter.send(picture(number))
                with importer.acquire(10) as frame:
                    queue.put({"tensor": ndarray(frame.tensor()), "array": picture(number), "n": number})
                exporter.send(picture(100))
                got = queue.get(timeout=LIMIT)
                assert got["n"] == number and type(got["tensor"]) is ndarray
                np.testing.assert_array_equal(got["array"], picture(number))
                exporter.send(got["tensor"], stream=stream)
                with importer.acquire(10) as frame:
                    np.testing.assert_array_equal(frame.numpy(), picture(number))
    kinds = sorted(channel.kind for channel in cuda_link.channels())
    assert kinds == ["host", "vmm"]


def test_channels_name_their_gpu():
    uuid = nvml._uuid(0)
    assert uuid is not None
    with cuda_link.open_exporter("gpu", shape=SHAPE, kind="vmm"):
        (channel,) = cuda_link.channels()
        assert channel.device.replace("-", "")[3:] == uuid.hex()
        assert re.fullmatch(r"(GPU|MIG)(-[0-9a-f]+){5}", channel.device)
        assert channel.device_name
