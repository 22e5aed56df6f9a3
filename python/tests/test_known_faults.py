# SPDX-License-Identifier: MIT
"""What went wrong in cuda-link 1.x, and does not here. W numbers are those of docs/migration.md, which lists
those of the GPU, too."""

from __future__ import annotations

import dataclasses
import os
import signal
import sys
import threading
import time
import types

import cuda_link
import numpy as np
import pytest
from conftest import start_python, until_held
from cuda_link import (
    DtypeCodec,
    Exporter,
    Format,
    FrameOutcome,
    FrameSpec,
    GpuFrame,
    Importer,
    ImportOutcome,
    ImportPolicy,
    ImportSpec,
    Metadata,
)
from cuda_link._known.waiting import Backoff

NAME = f"test_known_faults_{os.getpid()}"
SPEC = FrameSpec(NAME, height=6, width=8)
LIMIT = 60
NEW = ImportOutcome.NEW_FRAME


def picture(n, shape=(6, 8, 4)):
    return np.full(shape, n, np.uint8)


def send(exporter, n):
    pixels = picture(n, (exporter.spec.height, exporter.spec.width, 4))
    return exporter.export(GpuFrame(pixels.ctypes.data, pixels.nbytes))


def until(importer, outcome=NEW, get=None):
    end = time.monotonic() + LIMIT
    while (result := (get or importer.get_frame_numpy)()).outcome is not outcome:
        assert time.monotonic() < end, result
        importer.wait_for_doorbell(1000)
    return result


def test_w1_w36_an_array_is_not_overwritten():
    with Exporter.open(SPEC) as exporter, Importer.open(ImportSpec(NAME)) as importer:
        kept = []
        for n in range(40):
            assert send(exporter, n) is FrameOutcome.PUBLISHED
            kept.append(until(importer).frame)
        assert [int(array[0, 0, 0]) for array in kept] == list(range(40))
        views = [array[1:3] for array in kept]
        del kept
        send(exporter, 99)
        until(importer)
        assert [int(view[0, 0, 0]) for view in views] == list(range(40))


def test_arrays_are_used_again():
    with Exporter.open(SPEC) as exporter, Importer.open(ImportSpec(NAME)) as importer:
        seen = set()
        for n in range(20):
            send(exporter, n)
            seen.add(until(importer).frame.ctypes.data)
        assert len(seen) == 1


def test_user_data_of_any_length_lets_arrays_be_used_again():
    with cuda_link.open_exporter(NAME, shape=(6, 8, 4), kind="host", user_size=30) as exporter:
        with Importer.open(ImportSpec(NAME)) as importer:
            seen = set()
            for n in range(20):
                exporter.send(picture(n), user=bytes(n))
                seen.add(until(importer).frame.ctypes.data)
            assert len(seen) == 1


def test_arrays_of_two_threads():
    with Exporter.open(SPEC) as exporter, Importer.open(ImportSpec(NAME)) as importer:
        stop = threading.Event()
        wrong = []

        def get():
            while not stop.is_set():
                frame = importer.get_frame_numpy().frame
                if frame is not None and not (frame == frame[0, 0, 0]).all():
                    wrong.append(frame)

        threads = [threading.Thread(target=get) for _ in range(3)]
        for thread in threads:
            thread.start()
        for n in range(300):
            send(exporter, n % 251)
        stop.set()
        for thread in threads:
            thread.join()
        assert not wrong


def test_w6_the_counter_ends():
    layout = cuda_link.SHMLayout(3)
    buffer = layout.build_buffer(write_idx=2**32 - 2)
    assert cuda_link.publish_frame(buffer, layout, 1.0) == 2**32 - 1
    before = bytes(buffer)
    with pytest.raises(ValueError, match="new session"):
        cuda_link.publish_frame(buffer, layout, 2.0)
    assert bytes(buffer) == before


def test_w7_skipped_frames_are_counted():
    with Exporter.open(SPEC) as exporter, Importer.open(ImportSpec(NAME)) as importer:
        send(exporter, 0)
        until(importer)
        for n in range(3):
            send(exporter, n)
        until(importer)
        assert importer.get_stats()["frames_missed"] == 2


def test_w10_the_first_frame_of_a_new_session_is_not_hidden():
    """Its counter is the one that the importer has seen last."""
    with Importer.open(ImportSpec(NAME, timeout_ms=0)) as importer:
        for n in (1, 2, 3):
            with Exporter.open(SPEC) as exporter:
                exporter._exporter.wait_consumers(1, LIMIT)
                send(exporter, n)
                assert (until(importer).frame == n).all()
            until(importer, ImportOutcome.SHUTDOWN)


def test_w11_another_size_after_a_restart():
    with Importer.open(ImportSpec(NAME, timeout_ms=0)) as importer:
        for height in (6, 9, 3):
            with Exporter.open(dataclasses.replace(SPEC, height=height)) as exporter:
                exporter._exporter.wait_consumers(1, LIMIT)
                send(exporter, height)
                frame = until(importer).frame
                assert frame.shape == (height, 8, 4) and (frame == height).all()
                assert importer.get_stats()["shape"] == (height, 8, 4)
            until(importer, ImportOutcome.SHUTDOWN)


def test_w14_overrides_are_compared_with_the_frame():
    with Exporter.open(SPEC) as exporter:
        send(exporter, 1)
        for wrong in ({"shape": (600, 800, 4)}, {"dtype": "float32"}, {"shape": (6, 8, 1)}):
            with Importer.open(ImportSpec(NAME, **wrong)) as importer:
                with pytest.raises(ValueError, match="correct shape and dtype"):
                    until(importer)


def attempts(importer, gets):
    """At which gets the library was asked."""
    asked, results = [], []
    acquire = importer._importer.acquire

    def counting(*arguments, **options):
        asked.append(len(results) + 1)
        return acquire(*arguments, **options)

    importer._importer.acquire = counting
    while len(results) < gets:
        results.append(importer.get_frame_numpy().outcome)
    importer._importer.acquire = acquire
    assert set(results) == {ImportOutcome.RECONNECTING}
    return asked


def test_backing_off():
    policy = ImportPolicy(reconnect_backoff_frames=(1, 2, 4))
    with Importer.open(ImportSpec(NAME, timeout_ms=0), policy=policy) as importer:
        assert attempts(importer, 16) == [1, 2, 4, 8, 12, 16]
        assert attempts(importer, 3) == []
        importer.request_immediate_reconnect()
        assert attempts(importer, 5) == [1, 5]
    with Importer.open(ImportSpec(NAME, timeout_ms=0)) as importer:
        assert attempts(importer, 500) == [1, 2, 4, 8, 16, 32, 64, 128, 248, 368, 488]
    policy = ImportPolicy(reconnect_backoff_frames=())
    with Importer.open(ImportSpec(NAME, timeout_ms=0), policy=policy) as importer:
        assert attempts(importer, 3) == [1, 2, 3]


def test_a_hurry_of_another_thread_between_two_looks():
    """A count below none would be one without end: no get would look for a producer again."""

    class Hurried(Backoff):
        __slots__ = ("looks",)

        @property
        def left(self):
            self.looks += 1
            now = Backoff.left.__get__(self)
            if now:
                self.hurry()
            return now

        @left.setter
        def left(self, value):
            Backoff.left.__set__(self, value)

    with Importer.open(ImportSpec(NAME, timeout_ms=0)) as importer:
        importer._backoff = backoff = Hurried.__new__(Hurried)
        backoff.looks = 0
        backoff.__init__((4,), 0)
        for _ in range(12):
            assert importer.get_frame_numpy().outcome is ImportOutcome.RECONNECTING
            assert Backoff.left.__get__(backoff) >= 0
        assert backoff.looks >= 12


def test_w16_each_outage_begins_anew(caplog):
    caplog.set_level("DEBUG", "cuda_link")
    policy = ImportPolicy(reconnect_max_attempts=2)
    with Importer.open(ImportSpec(NAME, timeout_ms=0), policy=policy) as importer:
        for n in (1, 2):
            caplog.clear()
            assert attempts(importer, 10) == [1, 2, 4, 8]
            assert sum("attempt" in record.message for record in caplog.records) == 2
            with Exporter.open(SPEC) as exporter:
                exporter._exporter.wait_consumers(1, LIMIT)
                while not importer.is_ready():
                    pass
                assert importer._backoff.left == 0  # the next get looks
                send(exporter, n)
                assert importer.get_frame_numpy().outcome is NEW
            until(importer, ImportOutcome.SHUTDOWN)


def test_w17_w24_the_end_of_a_producer_is_told(request):
    """Killed, it is told like one that closed."""
    code = f"""
import sys, cuda_link
exporter = cuda_link.Exporter.open(cuda_link.FrameSpec({NAME!r}, height=6, width=8))
print("open", flush=True)
sys.stdin.read()
"""
    process = start_python(code)
    request.addfinalizer(process.communicate)
    assert process.stdout.readline() == "open\n"
    policy = ImportPolicy(reconnect_enabled=False)
    with Importer.open(ImportSpec(NAME, timeout_ms=LIMIT * 1000), policy=policy) as once:
        with Importer.open(ImportSpec(NAME)) as again:
            process.send_signal(signal.SIGKILL)
            until(once, ImportOutcome.SHUTDOWN)
            until(again, ImportOutcome.SHUTDOWN)
            assert once.get_frame_numpy().outcome is ImportOutcome.SHUTDOWN
            assert again.get_frame_numpy().outcome is ImportOutcome.RECONNECTING


def test_w19_a_failed_open_leaves_the_other_producer_alone():
    with Exporter.open(SPEC) as exporter, Importer.open(ImportSpec(NAME)) as importer:
        with pytest.raises(FileExistsError, match=NAME):  # W25
            Exporter.open(SPEC)
        send(exporter, 4)
        assert (until(importer).frame == 4).all()


def test_w22_arrays_outlive_their_importer():
    with Exporter.open(SPEC) as exporter:
        importer = Importer.open(ImportSpec(NAME))
        send(exporter, 8)
        array = until(importer).frame
        importer.close()
        exporter.close()
        assert (array == 8).all()
        with pytest.raises(ValueError, match="closed"):
            importer.get_frame_numpy()


def test_w27_a_doorbell_that_comes_later_rings():
    with Importer.open(ImportSpec(NAME, timeout_ms=0)) as importer:
        rang = threading.Event()

        def wait():
            while importer.get_frame_numpy().outcome is not NEW:
                importer.wait_for_doorbell(LIMIT * 1000)
            rang.set()

        thread = threading.Thread(target=wait)
        thread.start()
        with Exporter.open(SPEC) as exporter:
            exporter._exporter.wait_consumers(1, LIMIT)
            send(exporter, 1)
            assert rang.wait(LIMIT)
        thread.join()


def test_w33_w34_formats_are_checked():
    with pytest.raises(ValueError, match="64 bits"):
        DtypeCodec.decode(2, 64, 0)
    good = Metadata(8, 6, 4, *DtypeCodec.encode("uint16"), 384)
    found = Format.from_metadata(good)
    assert found.shape == (6, 8, 4) and found.frame_nbytes == 384 and found.numpy_dtype == np.uint16
    overrides = Format.from_overrides((6, 8, 4), "uint16")
    assert overrides != found and not overrides.layout_differs_from(found)
    assert overrides.layout_differs_from(Format.from_overrides((6, 8, 4), "uint8"))
    for wrong in ({"data_size": 383}, {"width": 0, "data_size": 0}, {"bits_per_comp": 64}):
        with pytest.raises(ValueError):
            Format.from_metadata(dataclasses.replace(good, **wrong))
    huge = Metadata(2**31, 2**31, 4, *DtypeCodec.encode("float32"), 0)
    assert huge.expected_size == 2**66
    with pytest.raises(ValueError):
        Format.from_metadata(huge)


def test_f1_no_format_is_guessed():
    layout = cuda_link.SHMLayout(3)
    buffer = layout.build_buffer()
    with pytest.raises(ValueError):
        Format.from_shm(buffer, layout)


def test_get_frame_in_memory_of_the_cpu_is_a_copy_of_the_scripts_own():
    torch = pytest.importorskip("torch")
    with Exporter.open(SPEC) as exporter, Importer.open(ImportSpec(NAME)) as importer:
        for n in (10, 20, 30):
            send(exporter, n)
            tensor = until(importer, get=importer.get_frame).frame
            assert tensor.shape == (6, 8, 4) and tensor.dtype == torch.uint8
            assert (tensor.float().div_(255) * 255 == n).all()
            tensor.div_(5, rounding_mode="floor")
            assert (tensor == n // 5).all()
        stats = importer.get_stats()
        assert stats["copies_made"] == 3 and stats["tensor_device"] == "cpu"
        with pytest.raises(TypeError):
            importer.get_frame(stream="a stream")
    with Exporter.open(dataclasses.replace(SPEC, dtype="float32")) as exporter:
        with Importer.open(ImportSpec(NAME, shape=(12, 4, 4))) as importer:
            pixels = np.full((6, 8, 4), 255, np.float32)
            exporter.export(GpuFrame(pixels.ctypes.data, pixels.nbytes))
            tensor = until(importer, get=lambda: importer.get_frame(stream=0)).frame
            assert (tensor.div_(255) == 1).all() and tensor.shape == (12, 4, 4)


class OfATorchWithCuda:
    cuda_stream = 0x1234


@pytest.mark.parametrize("stream", [0, 1, 2, 0x1234, OfATorchWithCuda(), "torch_gpu_wait"], ids=repr)
def test_a_stream_counts_for_nothing_in_memory_of_the_cpu(monkeypatch, stream):
    """A script that names one works on a machine without a GPU, too, and with a producer that has none."""
    torch = pytest.importorskip("torch")
    policy, words = ImportPolicy(), {"stream": stream}
    if stream == "torch_gpu_wait":
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "current_stream", OfATorchWithCuda)
        policy, words = ImportPolicy(torch_gpu_wait=True), {}
    with Exporter.open(SPEC) as exporter, Importer.open(ImportSpec(NAME), policy=policy) as importer:
        for n in (10, 20, 30):  # the memory is mapped by the first
            send(exporter, n)
            assert (until(importer, get=lambda: importer.get_frame(**words)).frame == n).all()


def test_get_frame_cupy_says_what_to_use_for_memory_of_the_cpu(monkeypatch):
    current = types.SimpleNamespace(ptr=0x1234)
    module = types.SimpleNamespace(cuda=types.SimpleNamespace(get_current_stream=lambda: current))
    monkeypatch.setitem(sys.modules, "cupy", module)
    with Exporter.open(SPEC) as exporter, Importer.open(ImportSpec(NAME)) as importer:
        for n in (10, 20):
            send(exporter, n)
            with pytest.raises(RuntimeError, match="memory of the CPU: use get_frame_numpy"):
                until(importer, get=importer.get_frame_cupy)


def test_get_frame_without_frameworks(monkeypatch):
    with Exporter.open(SPEC), Importer.open(ImportSpec(NAME)) as importer:
        for module in ("torch", "cupy"):
            monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(RuntimeError, match="get_frame_numpy"):
            importer.get_frame()
        with pytest.raises(RuntimeError, match="get_frame_numpy"):
            importer.get_frame_cupy()


def test_several_planes_are_for_the_modern_face(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace())
    with cuda_link.open_exporter(NAME, format="NV12", shape=(4, 4), kind="host") as exporter:
        with Importer.open(ImportSpec(NAME)) as importer:
            for get in (importer.get_frame_numpy, importer.get_frame):
                exporter.send(bytes(24))
                with pytest.raises(ValueError, match="open_importer"):
                    until(importer, get=get)
                assert importer.get_stats()["shape"] is None
                until_held(importer._importer, 0)
            assert importer.frame_count == 0


def test_an_adapter_is_not_used(caplog):
    class Adapter:
        pass

    with Exporter.open(SPEC, cuda=Adapter(), barrier=Adapter()) as exporter:
        with Importer.open(ImportSpec(NAME), cuda=Adapter()) as importer:
            send(exporter, 1)
            until(importer)
    assert len([record for record in caplog.records if "not used" in record.message]) == 2


def recorder():
    """An object with each operation of a CudaPort, which notes its calls."""

    def operation(name):
        return lambda self, *arguments: self.calls.append((name, *arguments))

    names = [name for name in vars(cuda_link.CudaPort) if not name.startswith("_")]
    return type("Port", (), {"calls": [], **{name: operation(name) for name in names}})()


def test_a_connection_of_the_scripts_own():
    port = recorder()
    assert isinstance(port, cuda_link.CudaPort) and not isinstance(object(), cuda_link.CudaPort)
    assert cuda_link.ImporterCudaPort is cuda_link.CudaPort
    connection = cuda_link.IPCConnection(cuda=port, num_slots=2, dev_ptrs=[5, None], ipc_events=[7, 8])
    assert {field.name for field in dataclasses.fields(connection)} == {
        "cuda",
        "shm_handle",
        "ipc_version",
        "num_slots",
        "ipc_handles",
        "dev_ptrs",
        "ipc_events",
        "layout",
        "shutdown_offset",
        "timestamp_offset",
        "doorbell_handle",
    }
    closed = []
    connection.shm_handle = type("Segment", (), {"close": lambda self: closed.append(self)})()
    for _ in range(2):
        connection.close()
    assert port.calls == [("ipc_close_mem_handle", 5), ("destroy_event", 7), ("destroy_event", 8)]
    assert len(closed) == 1 and connection.dev_ptrs == []
