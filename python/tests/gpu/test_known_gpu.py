# SPDX-License-Identifier: MIT
"""The known face in GPU memory, with stand-ins for torch and CuPy; the old wire with a peer of its own."""

from __future__ import annotations

import ctypes
import gc
import itertools
import mmap
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import cuda_link
import numpy as np
import pytest
from cuda_link import (
    Exporter,
    ExportPolicy,
    FrameOutcome,
    FrameSpec,
    GpuFrame,
    Importer,
    ImportOutcome,
    ImportPolicy,
    ImportSpec,
    _driver,
)
from cuda_link._backend import low
from cuda_link._known.layout import read_num_slots, read_version

if not os.environ.get("CUDALINK_PYTHON_GPU"):
    pytest.skip("needs a GPU (CUDALINK_PYTHON_GPU=1)", allow_module_level=True)

from conftest import start_python, until_held
from standin import Module, cu, driver, fill, new_memory, new_stream
from test_gpu import LIMIT, Blocked

pytestmark = pytest.mark.requires_cuda

HEIGHT, WIDTH = 24, 32
SIZE = HEIGHT * WIDTH * 4
NEW, NOTHING, LATE = ImportOutcome.NEW_FRAME, ImportOutcome.NO_FRAME, ImportOutcome.TIMEOUT
PUBLISHED = FrameOutcome.PUBLISHED
_numbers = itertools.count()


@pytest.fixture
def name():
    """Of a channel, and of a segment in a folder that all share."""
    unique = f"cudalink_test>>known_{os.getpid()}_{next(_numbers)}"
    yield unique
    assert not os.path.exists(f"/dev/shm/{unique}")


@pytest.fixture(scope="module")
def stream():
    return new_stream()


@pytest.fixture
def torch(monkeypatch):
    module = Module("torch")
    monkeypatch.setitem(sys.modules, "torch", module)
    return module


@pytest.fixture
def cupy(monkeypatch):
    module = Module("cupy")
    monkeypatch.setitem(sys.modules, "cupy", module)
    return module


def spec(name, **more):
    return FrameSpec(name, height=HEIGHT, width=WIDTH, **more)


def picture(n=0):
    return ((np.arange(SIZE) + n) % 251).astype(np.uint8).reshape(HEIGHT, WIDTH, 4)


def on_gpu(n=0, stream=0):
    return GpuFrame(new_memory(picture(n)), SIZE, stream)


def until(get, outcome=NEW):
    end = time.monotonic() + LIMIT
    while (result := get()).outcome is not outcome:
        assert time.monotonic() < end, result
    return result


@pytest.fixture
def pair(name):
    with Exporter.open(spec(name), policy=ExportPolicy(wire="own")) as exporter:
        with Importer.open(ImportSpec(name, timeout_ms=LIMIT * 1000)) as importer:
            yield exporter, importer


# ---- streams


def test_gpu_pointers_with_streams(pair, stream, caplog):
    exporter, importer = pair
    source = new_memory(picture())
    for n, named in enumerate((0, 1, 2, stream, -1)):
        if named > 2:
            fill(source, n, SIZE, stream)
        assert exporter.export(GpuFrame(source, SIZE, named)) is PUBLISHED
        result = until(importer.get_frame_numpy)
        expected = picture() if named in (0, 1, 2) else np.full((HEIGHT, WIDTH, 4), 3, np.uint8)
        np.testing.assert_array_equal(result.frame, expected)
    assert not caplog.records
    for _ in range(2):
        assert exporter.export(GpuFrame(source, SIZE)) is PUBLISHED
    assert [record.message for record in caplog.records] == [
        "no producer stream was named: exporting behind the legacy default stream"
    ]


def is_pinned(array):
    """As the driver says."""
    kind, driver = ctypes.c_int(), ctypes.CDLL("libcuda.so.1")
    with _driver._Context(0):  # CU_POINTER_ATTRIBUTE_MEMORY_TYPE
        status = driver.cuPointerGetAttribute(ctypes.byref(kind), 2, ctypes.c_uint64(array.ctypes.data))
    return status == 0 and kind.value == 1  # CU_MEMORYTYPE_HOST


def get(pair, number):
    exporter, importer = pair
    source = new_memory(np.full((HEIGHT, WIDTH, 4), number, np.uint8))
    assert exporter.export(GpuFrame(source, SIZE)) is PUBLISHED
    return until(importer.get_frame_numpy).frame


def test_arrays_are_pinned_and_used_again(pair):
    array = get(pair, 1)
    first = array.ctypes.data
    assert is_pinned(array) and array.flags.writeable and array.flags.c_contiguous
    array[:] = 99  # the script's own
    del array
    for n in range(2, 6):
        array = get(pair, n)
        assert array.ctypes.data == first and (array == n).all()
        del array


@pytest.mark.filterwarnings("ignore:Setting the .* on a NumPy array:DeprecationWarning")  # NumPy 2.4, 2.5
@pytest.mark.parametrize("what", ["shape", "dtype", "strides", "flags"])
def test_what_a_script_does_to_its_array_is_its_own(pair, what):
    """The next get of the same memory once had that shape, or failed for good on a read-only array."""
    array = get(pair, 1)
    first = array.ctypes.data
    if what == "flags":
        array.flags.writeable = False
    else:
        value = {"shape": (-1,), "dtype": np.int8, "strides": (4, 4 * HEIGHT, 1)}[what]
        setattr(array, what, value)
    del array
    array = get(pair, 2)
    assert (array.ctypes.data, array.shape, array.dtype) == (first, (HEIGHT, WIDTH, 4), np.uint8)
    assert (array == 2).all() and array.flags.writeable and array.flags.c_contiguous


def test_arrays_that_are_kept_stay_as_they_are(pair):
    kept = [get(pair, n)[1:, ::2] for n in range(20)]  # parts of them
    assert (
        [int(part.base.min()) for part in kept] == [int(part.base.max()) for part in kept] == list(range(20))
    )
    pinned = [is_pinned(part) for part in kept]
    assert pinned == [True] * 8 + [False] * 12  # no script may pin all memory
    kept.clear()
    assert is_pinned(get(pair, 21))


def test_arrays_outlive_their_importer(pair):
    array = get(pair, 5)
    pair[1].close()
    pair[0].close()
    gc.collect()
    assert (array == 5).all() and is_pinned(array)


def test_arrays_where_nothing_can_be_pinned(pair, monkeypatch):
    def refuse(*_):
        raise cuda_link.GpuError("no")

    monkeypatch.setattr(low, "array_pinned", refuse)
    array = get(pair, 6)
    assert not is_pinned(array) and (array == 6).all()


def test_a_copy_comes_after_the_stream_that_was_recorded(pair, stream):
    exporter, importer = pair
    source = new_memory(picture())
    with Blocked(stream):
        fill(source, 77, SIZE, stream)
        exporter.record_source_sync(stream)
        assert exporter.export(GpuFrame(source, SIZE)) is PUBLISHED
    result = until(importer.get_frame_numpy)
    assert (result.frame == 77).all()


def test_a_recorded_stream_is_for_one_frame(name, stream):
    policy = ExportPolicy(require_source_sync=True, wire="own")
    with Exporter.open(spec(name), policy=policy) as exporter:
        frame = GpuFrame(new_memory(picture()), SIZE)
        exporter.record_source_sync(stream)
        assert exporter.export(frame) is PUBLISHED
        with pytest.raises(ValueError, match="record_source_sync"):
            exporter.export(frame)


def test_strict_device(name):
    plain = picture(9)
    frame = GpuFrame(plain.ctypes.data, SIZE, 0)
    with Exporter.open(spec(name), policy=ExportPolicy(strict_device=True, wire="own")) as exporter:
        assert exporter.export(on_gpu()) is PUBLISHED
        for _ in range(2):  # nothing is remembered by address
            with pytest.raises(ValueError):
                exporter.export(frame)
        assert exporter.get_stats()["frame_count"] == 1
    with Exporter.open(spec(name), policy=ExportPolicy(wire="own")) as exporter:
        with Importer.open(ImportSpec(name)) as importer:
            assert exporter.export(frame) is PUBLISHED
            np.testing.assert_array_equal(until(importer.get_frame_numpy).frame, plain)


def test_memory_and_streams_that_are_none(pair, caplog):
    exporter, _ = pair
    assert exporter.export(GpuFrame(0, SIZE, 0)) is FrameOutcome.FAILED
    assert "no data" in caplog.text
    with pytest.raises(ValueError, match="no stream"):
        exporter.export(on_gpu(stream=-5))
    with pytest.raises(TypeError):
        exporter.record_source_sync("legacy")
    assert exporter.export(on_gpu()) is PUBLISHED


# ---- torch and CuPy


def test_get_frame_lends_the_slot(pair, torch):
    exporter, importer = pair
    for n in range(20):
        assert exporter.export(on_gpu(n)) is PUBLISHED
        tensor = until(importer.get_frame).frame
        assert tensor.shape == (HEIGHT, WIDTH, 4)
        np.testing.assert_array_equal(tensor.numpy(), picture(n))
        stats = importer.get_stats()
        assert stats["dev_ptrs"] == [hex(tensor.data_ptr())] and stats["tensor_device"] == "cuda:0"
        np.testing.assert_array_equal(tensor.div_(2).numpy(), picture(n) // 2)
    assert stats["copies_made"] == 0 and stats["frame_count"] == 20 and stats["shape"] == (HEIGHT, WIDTH, 4)
    assert importer.last_latency > 0
    importer.close()
    assert importer.get_stats()["dev_ptrs"] == []


def test_a_tensor_stays_as_it_is(pair, torch):
    exporter, importer = pair
    exporter.export(on_gpu(1))
    kept = until(importer.get_frame).frame
    for _ in range(300):
        assert exporter.export(on_gpu(2)) is PUBLISHED
        until(importer.get_frame)
    np.testing.assert_array_equal(kept.numpy(), picture(1))
    importer.close()
    exporter.close()
    np.testing.assert_array_equal(kept.numpy(), picture(1))


def test_too_many_tensors(name, torch):
    with Exporter.open(spec(name), policy=ExportPolicy(wire="own")) as exporter:
        with Importer.open(ImportSpec(name, timeout_ms=20), policy=ImportPolicy(hold=2)) as importer:
            kept = []
            for n in range(2):
                exporter.export(on_gpu(n))
                kept.append(until(importer.get_frame).frame)
            exporter.export(on_gpu(2))
            with pytest.raises(cuda_link.TooManyFramesError, match="ImportPolicy"):
                until(importer.get_frame)
            del kept[0]
            np.testing.assert_array_equal(until(importer.get_frame).frame.numpy(), picture(2))


def test_a_ring_that_allows_one_frame(name, torch):
    with cuda_link.open_exporter(name, shape=(HEIGHT, WIDTH, 4), kind="vmm", max_slots=3) as exporter:
        with Importer.open(ImportSpec(name, timeout_ms=200)) as importer:
            for n in range(5):
                exporter.send(picture(n))
                tensor = until(importer.get_frame).frame
                np.testing.assert_array_equal(tensor.numpy(), picture(n))
                if n < 4:
                    del tensor
            exporter.send(picture())
            with pytest.raises(cuda_link.TooManyFramesError, match="1 frame is held, and 1 may be"):
                until(importer.get_frame)
            assert tensor.shape == (HEIGHT, WIDTH, 4)


def test_frames_that_the_producer_takes_back(name, torch):
    shape, spec = (HEIGHT, WIDTH, 4), ImportSpec(name, timeout_ms=50)
    with cuda_link.open_exporter(name, shape=shape, kind="vmm", max_slots=5, hold_limit=0.05) as exporter:
        with Importer.open(spec) as one, Importer.open(spec) as other:
            kept = []
            end = time.monotonic() + LIMIT
            for importer in itertools.cycle((one, other)):  # three frames of each do not fit
                assert time.monotonic() < end
                exporter.send(picture(), timeout=LIMIT)
                try:
                    result = importer.get_frame()
                except cuda_link.TooManyFramesError:
                    continue
                kept.append(result.frame)
                if result.outcome is ImportOutcome.RECONNECTING:
                    evicted = importer
                    break
            del kept, result
            while (result := evicted.get_frame_numpy()).outcome is not NEW:
                assert time.monotonic() < end
                exporter.send(picture(4))
            assert result.frame.shape == shape


def test_several_planes_are_for_the_modern_face(name, torch, cupy):
    with cuda_link.open_exporter(name, format="NV12", shape=(4, 4)) as exporter:
        with Importer.open(ImportSpec(name)) as importer:
            for get in (importer.get_frame, importer.get_frame_cupy, importer.get_frame_numpy):
                with exporter.frame(timeout=LIMIT) as slot:
                    slot.publish()
                with pytest.raises(ValueError, match="open_importer"):
                    until(get)
                assert importer.get_stats()["frame_count"] == 0
                until_held(importer._importer, 0)


def test_get_frame_cupy(pair, cupy):
    exporter, importer = pair
    exporter.export(on_gpu(3))
    array = until(importer.get_frame_cupy).frame
    np.testing.assert_array_equal(array.numpy(), picture(3))


@pytest.mark.parametrize("which", ["torch", "cupy"])
def test_a_channel_that_may_not_be_written_gives_copies(name, request, which):
    module = request.getfixturevalue(which)
    with cuda_link.open_exporter(name, shape=(HEIGHT, WIDTH, 4), kind="vmm", read_only=True) as exporter:
        with Importer.open(ImportSpec(name)) as importer:
            get = importer.get_frame if which == "torch" else importer.get_frame_cupy
            for n in range(10):
                exporter.send(picture(n))
                tensor = until(get).frame
                np.testing.assert_array_equal(tensor.div_(2).numpy(), picture(n) // 2)
            assert importer.get_stats()["copies_made"] == 10
    assert module.cuda.is_available()


def test_overrides_make_other_tensors(name, torch):
    with Exporter.open(spec(name), policy=ExportPolicy(wire="own")) as exporter:
        exporter.export(on_gpu(5))
        with Importer.open(ImportSpec(name, shape=(HEIGHT, WIDTH, 2), dtype="int16")) as importer:
            tensor = until(importer.get_frame).frame
            expected = picture(5).reshape(-1).view(np.int16).reshape(HEIGHT, WIDTH, 2)
            np.testing.assert_array_equal(tensor.numpy(), expected)
        with Importer.open(ImportSpec(name, shape=(HEIGHT, WIDTH, 3))) as importer:
            with pytest.raises(ValueError, match="correct shape and dtype"):
                until(importer.get_frame)


def test_one_channel_is_a_third_dimension(name, torch):
    with cuda_link.open_exporter(name, shape=(6, 8), kind="vmm") as exporter:
        with Importer.open(ImportSpec(name)) as importer:
            exporter.send(np.ones((6, 8), np.uint8))
            assert until(importer.get_frame).frame.shape == (6, 8, 1)
            exporter.send(np.ones((6, 8), np.uint8))
            assert until(importer.get_frame_numpy).frame.shape == (6, 8, 1)


# ---- pixels that are late


@pytest.mark.parametrize("how", ["numpy", "torch"])
def test_late_pixels_are_a_timeout_and_offered_again(name, torch, stream, how):
    with Exporter.open(spec(name), policy=ExportPolicy(wire="own")) as exporter:
        with Importer.open(ImportSpec(name, timeout_ms=20), policy=ImportPolicy(wait_spin_us=0)) as importer:
            get = importer.get_frame if how == "torch" else importer.get_frame_numpy
            source = new_memory(picture(4))
            until_joined(importer)
            assert get().outcome is NOTHING
            with Blocked(stream):
                exporter.export(GpuFrame(source, SIZE, stream))
                until(get, LATE)
                assert get().outcome is LATE
                assert importer.frame_count == 0
            result = until(get)
            pixels = result.frame.numpy() if how == "torch" else result.frame
            np.testing.assert_array_equal(pixels, picture(4))
            assert importer.frame_count == 1 and get().outcome is NOTHING
            stats = importer.get_stats()
            assert stats["wait_sleep_hits"] >= 2
            assert stats["wait_sleep_hits"] * stats["avg_sleep_us"] >= 40_000


@pytest.mark.parametrize("how", ["stream", "policy", "cupy"])
def test_a_stream_waits_and_the_cpu_does_not(name, torch, cupy, stream, how):
    policy = ImportPolicy(torch_gpu_wait=how == "policy")
    with Exporter.open(spec(name), policy=ExportPolicy(wire="own")) as exporter:
        with Importer.open(ImportSpec(name, timeout_ms=0), policy=policy) as importer:
            source = new_memory(picture(0))
            assert importer.get_stats()["gpu_wait_active"] is (how == "policy")
            until_joined(importer)
            with Blocked(stream):
                fill(source, 66, SIZE, stream)
                exporter.export(GpuFrame(source, SIZE, stream))
                if how == "cupy":
                    tensor = until(importer.get_frame_cupy).frame
                elif how == "policy":
                    tensor = until(importer.get_frame).frame
                else:
                    tensor = until(lambda: importer.get_frame(stream=torch.stream)).frame
            assert (tensor.numpy() == 66).all()


def until_joined(importer):
    while not importer.is_ready():
        importer.wait_for_doorbell(1000)


STUCK = """
import sys
sys.path[:0] = sys.argv[2:]
from cuda_link import *
from conftest import start_python
from standin import new_memory, new_stream
from test_gpu import Blocked
import numpy
policy = ExportPolicy(wire="own")
with Exporter.open(FrameSpec(sys.argv[1], height=24, width=32), policy=policy) as exporter:
    stream, source = new_stream(), new_memory(numpy.zeros(24 * 32 * 4, numpy.uint8))
    print("open", flush=True)
    sys.stdin.readline()
    with Blocked(stream):
        print(exporter.export(GpuFrame(source, 24 * 32 * 4, stream)).name, flush=True)
        sys.stdin.read()
"""


def test_w37_a_stream_does_not_wait_for_a_dead_producer(name, torch, request):
    folder = Path(__file__).parent
    producer = start_python(STUCK, name, str(folder), str(folder.parent))
    request.addfinalizer(producer.communicate)
    request.addfinalizer(producer.kill)
    assert producer.stdout.readline() == "open\n"
    with Importer.open(ImportSpec(name, timeout_ms=LIMIT * 1000)) as importer:
        until_joined(importer)
        producer.stdin.write("go\n")
        producer.stdin.flush()
        assert producer.stdout.readline() == "PUBLISHED\n"
        tensor = until(lambda: importer.get_frame(stream=torch.stream)).frame
        producer.kill()
        torch.cuda.current_stream().synchronize()
        until(importer.get_frame, ImportOutcome.SHUTDOWN)
        assert tensor.shape == (HEIGHT, WIDTH, 4)


def test_waiting_is_left_to_the_gpu_once_gets_sleep_often(name, torch, stream):
    policy = ImportPolicy(
        torch_gpu_wait_adaptive=True,
        gpu_wait_adaptive_window=4,
        gpu_wait_adaptive_sleep_pct=50,
        wait_spin_us=0,
    )
    with Exporter.open(spec(name), policy=ExportPolicy(wire="own")) as exporter:
        with Importer.open(ImportSpec(name, timeout_ms=1), policy=policy) as importer:
            source = new_memory(picture(0))
            until_joined(importer)
            with Blocked(stream):
                exporter.export(GpuFrame(source, SIZE, stream))
                until(importer.get_frame, LATE)
                assert not importer.get_stats()["gpu_wait_active"]
                until(importer.get_frame, LATE)
                stats = importer.get_stats()
                assert stats["gpu_wait_active"] and stats["gpu_wait_latched_frame"] == 0
                assert until(importer.get_frame).outcome is NEW


def test_streams(pair, torch):
    exporter, importer = pair
    exporter.export(on_gpu())
    for bad in ("stream", 1.5, object()):
        with pytest.raises(TypeError):
            importer.get_frame(stream=bad)
    until(lambda: importer.get_frame(stream=0))


# ---- the old wire


class Peer:
    """A program of cuda-link 1.x."""

    def __init__(self, *words):
        script = Path(__file__).with_name("old_peer.py")
        self.process = subprocess.Popen(
            [sys.executable, str(script), *map(str, words)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.hear()

    def hear(self):
        return self.process.stdout.readline().strip()

    def ask(self, line):
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        return self.hear()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.process.stdin.close()
        self.process.stdout.read()
        assert self.process.wait(LIMIT) == 0
        self.process.stdout.close()


def test_old_readers_get_what_new_ones_get(name):
    with Exporter.open(spec(name)) as exporter:
        stats = exporter.get_stats()
        assert stats["old_wire"] == name and stats["old_wire_reason"] == ""
        with Peer("receive", name) as peer, Importer.open(ImportSpec(name)) as importer:
            assert peer.ask("take") == "nothing"
            for n in (1, 5, 7, 8, 9):
                source = new_memory(np.full(SIZE, n, np.uint8))
                assert exporter.export(GpuFrame(source, SIZE, 0)) is PUBLISHED
                assert peer.ask("take") == f"{WIDTH}x{HEIGHT} {n} {n} flags 0"
                assert (until(importer.get_frame_numpy).frame == n).all()
            stats = exporter.get_stats()
            assert stats["old_wire_frames"] == 5 and stats["copies_made"] == 10
            exporter.close()
            assert peer.ask("take") == "shutdown"
            until(importer.get_frame_numpy, ImportOutcome.SHUTDOWN)


@pytest.mark.parametrize("wire", ["own", "old"])
def test_the_wire_can_be_chosen(name, monkeypatch, wire):
    monkeypatch.setenv("CUDALINK_WIRE", wire)
    with Exporter.open(spec(name, num_slots=2)) as exporter:
        assert os.path.exists(f"/dev/shm/{name}") == (wire == "old")
        assert [channel.name for channel in cuda_link.channels()] == ([name] if wire == "own" else [])
        assert exporter.export(on_gpu(1)) is PUBLISHED
        if wire == "own":
            assert "own" in exporter.get_stats()["old_wire_reason"]
            assert len(exporter.get_stats()["dev_ptrs"]) >= 3
        else:
            assert exporter.get_stats()["dev_ptrs"] == []
            assert os.stat(f"/dev/shm/{name}").st_size == 305
            with Peer("receive", name) as peer:
                assert peer.ask("take") == f"{WIDTH}x{HEIGHT} 1 {(SIZE) % 251} flags 0"


def test_an_importer_of_the_old_wire_alone(name):
    with Exporter.open(spec(name), policy=ExportPolicy(wire="old")) as exporter:
        assert exporter.export(on_gpu(1)) is PUBLISHED
        with Importer.open(ImportSpec(name), policy=ImportPolicy(wire="old")) as importer:
            assert np.array_equal(until(importer.get_frame_numpy).frame, picture(1))
            assert importer.get_stats()["num_slots"] == exporter.get_stats()["num_slots"]


def test_flags_of_the_old_wire(name):
    with Exporter.open(spec(name, extra_flags=4)) as exporter:
        assert exporter.export(on_gpu(0)) is PUBLISHED
        with Peer("receive", name) as peer:
            assert peer.ask("take").endswith("flags 4")
        with cuda_link.open_importer(name, timeout=LIMIT) as importer:
            assert importer.acquire(LIMIT).picture.format == "BGRA8"
    with Exporter.open(spec(name, channels=2, extra_flags=2)) as exporter:
        assert exporter.export(GpuFrame(new_memory(picture()), SIZE // 2, 0)) is PUBLISHED
        with Peer("receive", name) as peer:
            assert peer.ask("take").endswith("flags 2")


def test_what_the_old_wire_has_no_word_for_goes_by_ours(name):
    for more in ({"dtype": "float64"}, {"channels": 5}):
        with Exporter.open(spec(name, **more)) as exporter:
            stats = exporter.get_stats()
            assert stats["old_wire"] is None and "old wire" in stats["old_wire_reason"]
    with Exporter.open(spec(f"{name}/x")) as exporter:
        assert "'/'" in exporter.get_stats()["old_wire_reason"]


def test_a_file_of_another_program_is_left_alone(name):
    path = Path("/dev/shm", name)
    path.write_bytes(b"mine" * 200)
    try:
        with Exporter.open(spec(name)) as exporter:
            stats = exporter.get_stats()
            assert stats["old_wire"] is None and stats["old_wire_reason"]
        assert path.read_bytes() == b"mine" * 200
    finally:
        path.unlink()


def test_two_producers(name):
    with Exporter.open(spec(name)):
        with pytest.raises(FileExistsError):
            Exporter.open(spec(name))


def test_frames_held_back_by_the_barrier_are_told(name):
    with Exporter.open(spec(name), policy=ExportPolicy(wire="old")) as exporter:
        counters = exporter._raw()
        counters.cipd_held_back = 3
        exporter._raw = lambda: counters
        busy = cuda_link.BusyError("held back")
        assert exporter._failed(busy) is FrameOutcome.SKIPPED_BARRIER
        assert exporter._failed(busy) is FrameOutcome.SKIPPED_NOT_READY


def test_an_idle_old_producer_is_a_producer(name):
    policy = ImportPolicy(reconnect_enabled=False)
    with Peer("send", name, HEIGHT, WIDTH, 3) as peer:
        with Importer.open(ImportSpec(name, timeout_ms=1e9), policy=policy) as importer:
            assert importer.get_frame_numpy().outcome is NOTHING
            peer.ask(8)
            assert (until(importer.get_frame_numpy).frame == 8).all()
            peer.ask("stop")
            for _ in range(3):
                until(importer.get_frame_numpy, ImportOutcome.SHUTDOWN)


@pytest.mark.parametrize("how", ["numpy", "torch", "cupy"])
def test_an_old_producer(name, torch, cupy, how):
    with Peer("send", name, HEIGHT, WIDTH, 3) as peer:
        with Importer.open(ImportSpec(name)) as importer:
            get = {
                "numpy": importer.get_frame_numpy,
                "torch": importer.get_frame,
                "cupy": importer.get_frame_cupy,
            }[how]
            kept = []
            for n in range(1, 9):
                assert peer.ask(n) == "sent"
                kept.append(until(get).frame)
            assert importer.is_ready() and importer.frame_count == 8
            assert [int(np.asarray(k if how == "numpy" else k.numpy()).max()) for k in kept] == list(
                range(1, 9)
            )
            assert kept[0].shape == (HEIGHT, WIDTH, 4)
            stats = importer.get_stats()
            assert stats["copies_made"] == 8 and stats["frames_torn"] == 0
            peer.ask("stop")
            until(get, ImportOutcome.SHUTDOWN)


def test_a_frame_that_an_old_producer_overwrites_is_not_given(name, torch):
    with Peer("send", name, HEIGHT, WIDTH, 3) as peer, Importer.open(ImportSpec(name)) as importer:
        peer.ask(1)
        with Blocked(torch.stream) as blocked:
            cloned = threading.Event()

            def overtake():
                assert cloned.wait(LIMIT)
                for n in (2, 3, 4, 5):
                    peer.ask(n)
                blocked.go.set()

            threading.Thread(target=overtake).start()
            torch.on_clone = cloned.set
            while not cloned.is_set():
                assert importer.get_frame().outcome is not NEW
        assert importer.get_stats()["frames_torn"] == 1
        assert (until(importer.get_frame).frame.numpy() == 5).all()
        assert importer.frame_count == 1
        peer.ask("stop")


class DriverPort:
    """A script's own CUDA operations, of those that an adopted connection needs."""

    set_device = restore_context = staticmethod(lambda _: None)

    def create_stream(self, flags=1):
        return new_stream()

    def destroy_stream(self, stream):
        cu("cuStreamDestroy_v2", ctypes.c_void_p(stream))

    def memcpy_async(self, to, source, size, kind, stream):
        target, call = {2: (ctypes.c_void_p, "DtoH"), 3: (ctypes.c_uint64, "DtoD")}[kind]
        words = target(to), ctypes.c_uint64(source), ctypes.c_size_t(size), ctypes.c_void_p(stream)
        cu(f"cuMemcpy{call}Async_v2", *words)

    def stream_synchronize(self, stream):
        cu("cuStreamSynchronize", ctypes.c_void_p(stream))

    def query_event(self, event):
        with _driver._Context(0):
            return driver.cuEventQuery(ctypes.c_void_p(event)) == 0

    def destroy_event(self, event):
        cu("cuEventDestroy_v2", ctypes.c_void_p(event))

    def ipc_open_mem_handle(self, handle):
        pointer = ctypes.c_uint64()
        cu("cuIpcOpenMemHandle_v2", ctypes.byref(pointer), Raw.from_buffer_copy(handle), 1)
        return pointer.value

    def ipc_close_mem_handle(self, pointer):
        cu("cuIpcCloseMemHandle", ctypes.c_uint64(pointer))

    def ipc_open_event_handle(self, handle):
        event = ctypes.c_void_p()
        cu("cuIpcOpenEventHandle", ctypes.byref(event), Raw.from_buffer_copy(handle))
        return event.value


class Raw(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_ubyte * 64)]


class Segment:
    def __init__(self, name):
        with open(f"/dev/shm/{name}", "r+b") as file:
            self.buf = mmap.mmap(file.fileno(), 0)

    def close(self):
        self.buf.close()


def connect(name):
    """As a script does it that opens connections itself."""
    port, segment = DriverPort(), Segment(name)
    layout = cuda_link.SHMLayout(read_num_slots(segment.buf))
    at = [(layout.mem_handle_offset(i), layout.event_handle_offset(i)) for i in range(layout.num_slots)]
    return cuda_link.IPCConnection(
        cuda=port,
        shm_handle=segment,
        ipc_version=read_version(segment.buf),
        num_slots=layout.num_slots,
        dev_ptrs=[port.ipc_open_mem_handle(segment.buf[memory : memory + 64]) for memory, _ in at],
        ipc_events=[port.ipc_open_event_handle(segment.buf[event : event + 64]) for _, event in at],
        layout=layout,
    )


def test_a_connection_that_is_handed_over(name):
    with Peer("send", name, HEIGHT, WIDTH, 3) as peer:
        connection = connect(name)
        fmt = cuda_link.Format.from_shm(connection.shm_handle.buf, connection.layout)
        with Importer.from_connection(ImportSpec(name), ImportPolicy(), connection, fmt) as importer:
            for n in (1, 2, 3, 4, 5):
                peer.ask(n)
                assert (until(importer.get_frame_numpy).frame == n).all()
            peer.ask("stop")
            assert importer.get_frame_numpy().outcome is ImportOutcome.SHUTDOWN
            with Exporter.open(spec(name)) as exporter:
                exporter._exporter.wait_consumers(1, LIMIT)
                exporter.export(on_gpu(6))
                np.testing.assert_array_equal(until(importer.get_frame_numpy).frame, picture(6))


def test_a_new_producer_takes_over_from_an_old_one(name):
    with Importer.open(ImportSpec(name, timeout_ms=0)) as importer:
        with Peer("send", name, HEIGHT, WIDTH, 2) as peer:
            peer.ask(7)
            while (result := importer.get_frame_numpy()).outcome is not NEW:
                importer.wait_for_doorbell(1000)
            assert (result.frame == 7).all() and importer.is_ready()
            peer.ask("stop")
        with Exporter.open(spec(name)) as exporter:
            exporter._exporter.wait_consumers(1, LIMIT)
            exporter.export(on_gpu(5))
            while not np.array_equal(until(importer.get_frame_numpy).frame, picture(5)):
                pass


def test_a_round_trip_in_one_process(name, torch):
    with Exporter.open(spec(name)) as exporter, Importer.open(ImportSpec(name)) as importer:
        exporter.export(on_gpu(2))
        np.testing.assert_array_equal(until(importer.get_frame).frame.numpy(), picture(2))
        cu("cuCtxSynchronize")
