# SPDX-License-Identifier: MIT
"""Importer.from_connection: a connection that a script has opened itself, by CUDA operations of its own. Here
they are those of a GPU made of the CPU's memory; gpu/test_known_gpu.py has the driver's."""

from __future__ import annotations

import ctypes
import itertools
import os
import struct
import sys
import threading
import types

import cuda_link
import numpy as np
import pytest
from conftest import LIMIT
from cuda_link import (
    DtypeCodec,
    Exporter,
    Format,
    FrameSpec,
    GpuFrame,
    Importer,
    ImportOutcome,
    ImportPolicy,
    ImportSpec,
    IPCConnection,
    Metadata,
    SHMLayout,
    publish_frame,
)
from cuda_link._known import layout as wire

NEW, NOTHING = ImportOutcome.NEW_FRAME, ImportOutcome.NO_FRAME
HEIGHT, WIDTH = 4, 6
NAME = f"test_known_connection_{os.getpid()}"
SPEC = ImportSpec(NAME, timeout_ms=20)
ONCE = ImportPolicy(reconnect_enabled=False)


class Port:
    """CUDA operations over memory of the CPU. on_copy runs within each copy, on_query in the next query."""

    def __init__(self):
        self.pending, self.calls, self.on_copy = set(), [], lambda: None
        self.on_query = None
        self._streams = itertools.count(100)

    def set_device(self, device):
        self.calls.append(("device", device))
        return "before"

    def restore_context(self, context):
        assert context == "before"

    def create_stream(self, flags=1):
        return next(self._streams)

    def destroy_stream(self, stream):
        self.calls.append(("no stream", stream))

    def memcpy_async(self, to, source, size, kind, stream):
        assert stream is not None
        ctypes.memmove(to, source, size)
        self.calls.append(("copy", kind, stream))
        self.on_copy()

    def stream_synchronize(self, stream):
        self.calls.append(("synchronized", stream))

    def synchronize(self):
        self.calls.append(("all synchronized",))

    def query_event(self, event):
        now, self.on_query = self.on_query, None
        if now:
            now()
        return event not in self.pending

    def ipc_close_mem_handle(self, pointer):
        self.calls.append(("unmapped", pointer))

    def destroy_event(self, event):
        self.calls.append(("no event", event))


class Segment:
    """What SharedMemory is to a script."""

    def __init__(self, buffer):
        self.buf, self.closed = buffer, 0

    def close(self):
        self.closed += 1


class Producer:
    """A session of the old wire, and a connection to it."""

    def __init__(self, slots=3, dtype="uint8", version=7, metadata=True):
        self.layout = SHMLayout(slots)
        self.buffer = self.layout.build_buffer(version=version)
        kind, bits, flags = DtypeCodec.encode(dtype)
        size = HEIGHT * WIDTH * 4 * bits // 8
        if metadata:
            Metadata(WIDTH, HEIGHT, 4, kind, bits, flags, size).pack_into(
                self.buffer, self.layout.metadata_offset
            )
        self.memory = [(ctypes.c_ubyte * size)() for _ in range(slots)]
        self.port = Port()
        self.connection = IPCConnection(
            cuda=self.port,
            shm_handle=Segment(self.buffer),
            ipc_version=version,
            num_slots=slots,
            dev_ptrs=[ctypes.addressof(memory) for memory in self.memory],
            ipc_events=[f"event {i}" for i in range(slots)],
            layout=self.layout,
        )

    def send(self, n):
        slot = wire.read_write_idx(self.buffer) % self.layout.num_slots
        ctypes.memset(self.memory[slot], n, len(self.memory[slot]))
        return publish_frame(self.buffer, self.layout, 1.5)

    def adopt(self, policy=ONCE, fmt=None, spec=SPEC, **options):
        return Importer.from_connection(spec, policy, self.connection, fmt, **options)


def test_it_is_adopted_read_and_closed():
    producer = Producer()
    port, pointers = producer.port, list(producer.connection.dev_ptrs)
    fmt = Format.from_shm(producer.buffer, producer.layout)
    with Importer.from_connection(
        SPEC, ONCE, producer.connection, fmt, cuda=port, torch=None, cupy=None, numpy=np, last_write_idx=0
    ) as importer:
        assert isinstance(importer, Importer) and importer.is_ready()
        assert importer.get_frame_numpy().outcome is NOTHING
        kept = []
        for n in range(1, 8):
            producer.send(n)
            result = importer.get_frame_numpy()
            assert result.outcome is NEW and result.frame.shape == (HEIGHT, WIDTH, 4)
            kept.append(result.frame)
            assert importer.get_frame_numpy().outcome is NOTHING
        assert [int(array.max()) for array in kept] == [int(array.min()) for array in kept] == [*range(1, 8)]
        stats = importer.get_stats()
        assert stats["initialized"] and stats["frame_count"] == importer.frame_count == 7
        assert stats["shape"] == (HEIGHT, WIDTH, 4) and stats["dtype"] == "uint8" and stats["num_slots"] == 3
        assert stats["dev_ptrs"] == [hex(pointer) for pointer in pointers]
        assert stats["wait_backend"] == importer.wait_backend_name == "python"
        assert importer.last_latency > 0
        for get in (importer.get_frame, importer.get_frame_cupy):
            with pytest.raises(RuntimeError, match="needs"):
                get()
    segment = producer.port.calls
    assert [call for call in segment if call[0] == "unmapped"] == [("unmapped", p) for p in pointers]
    assert [call[1] for call in segment if call[0] == "no event"] == ["event 0", "event 1", "event 2"]
    assert len([call for call in segment if call[0] == "no stream"]) == 1
    importer.close()
    for call in (importer.get_frame_numpy, lambda: importer.wait_for_doorbell(0)):
        with pytest.raises(cuda_link.ClosedError, match="connection"):
            call()
    assert not importer.is_ready() and importer.get_stats()["initialized"] is False


@pytest.mark.parametrize("stamp", [-3.0, 1.7e18, 1e300, float("inf"), float("-inf"), float("nan"), 9e9])
def test_times_that_are_none(stamp):
    """Whatever a producer says of them, its frames are good."""
    producer = Producer()
    importer = producer.adopt()
    for n in range(1, 4):
        producer.send(n)
        struct.pack_into("<d", producer.buffer, producer.layout.timestamp_offset, stamp)
        result = importer.get_frame_numpy()
        assert result.outcome is NEW and (result.frame == n).all() and importer.frame_count == n
        assert isinstance(importer.last_latency, float)


def test_it_begins_behind_what_was_seen():
    producer = Producer()
    seen = [producer.send(n) for n in (1, 2)]
    importer = producer.adopt(last_write_idx=seen[-1])
    assert importer.get_frame_numpy().outcome is NOTHING
    for n in (3, 4, 5):
        producer.send(n)
    assert (importer.get_frame_numpy().frame == 5).all()
    assert importer.get_stats()["frames_missed"] == 2


@pytest.mark.parametrize("laps", [0, 1])
def test_a_frame_that_is_overwritten_meanwhile_is_not_given(laps):
    producer = Producer(slots=3)
    importer = producer.adopt()
    producer.send(1)
    later = iter([2, 3][: 1 + laps])
    producer.port.on_copy = lambda: [producer.send(n) for n in later]
    result = importer.get_frame_numpy()
    assert result.outcome is (NOTHING if laps else NEW)  # one more is still in another slot
    assert importer.get_stats()["frames_torn"] == laps
    assert (importer.get_frame_numpy().frame == 2 + laps).all()


def test_another_session_during_the_copy():
    producer = Producer()
    importer = producer.adopt()
    producer.send(1)
    producer.port.on_copy = lambda: wire.bump_version(producer.buffer)
    assert importer.get_frame_numpy().outcome is NOTHING


@pytest.mark.parametrize("ends", ["session", "importer"])
def test_a_wait_for_late_pixels_ends_with_the_session(ends):
    producer = Producer()
    importer = producer.adopt(spec=ImportSpec(NAME, timeout_ms=10_000 * LIMIT))
    producer.send(1)
    producer.port.pending.add("event 0")
    closing = threading.Thread(target=importer.close)

    def end():
        if ends == "session":
            wire.set_shutdown(producer.buffer, producer.layout)
        else:
            closing.start()

    producer.port.on_query = end
    assert importer.get_frame_numpy().outcome is ImportOutcome.TIMEOUT
    if ends == "importer":
        closing.join(LIMIT)
        assert not closing.is_alive()


def test_late_pixels_of_a_connection_are_offered_again():
    producer = Producer()
    importer = producer.adopt()
    producer.send(1)
    producer.port.pending.add("event 0")
    for _ in range(2):
        assert importer.get_frame_numpy().outcome is ImportOutcome.TIMEOUT
    producer.port.pending.clear()
    assert (importer.get_frame_numpy().frame == 1).all()


def test_a_slot_without_an_event_waits_for_the_device():
    producer = Producer()
    producer.connection.ipc_events = []
    importer = producer.adopt()
    producer.send(1)
    assert importer.get_frame_numpy().outcome is NEW and ("all synchronized",) in producer.port.calls


def test_without_reconnecting_its_end_is_the_end():
    producer = Producer()
    importer = producer.adopt()
    wire.set_shutdown(producer.buffer, producer.layout)
    for _ in range(2):
        assert importer.wait_for_doorbell(0)
        assert importer.get_frame_numpy().outcome is ImportOutcome.SHUTDOWN and not importer.is_ready()
    producer.send(1)  # the handles are closed: nothing of it may be read
    assert importer.get_frame_numpy().outcome is ImportOutcome.SHUTDOWN
    assert len([call for call in producer.port.calls if call[0] == "unmapped"]) == 3


@pytest.mark.parametrize("end", ["shutdown", "version"])
@pytest.mark.parametrize("version", [7, 0])
def test_it_goes_on_with_the_next_producer_of_that_name(end, version):
    producer = Producer()
    producer.connection.ipc_version = version  # 0: as it was at the beginning
    importer = producer.adopt(policy=ImportPolicy())
    producer.send(1)
    assert importer.get_frame_numpy().outcome is NEW
    if end == "shutdown":
        wire.set_shutdown(producer.buffer, producer.layout)
    else:
        wire.bump_version(producer.buffer)
    told = importer.get_frame_numpy().outcome
    assert told is (ImportOutcome.SHUTDOWN if end == "shutdown" else ImportOutcome.RECONNECTING)
    assert producer.connection.shm_handle is None and importer.wait_backend_name == "native"
    with Exporter.open(FrameSpec(NAME, HEIGHT, WIDTH)) as exporter:
        pixels = np.full((HEIGHT, WIDTH, 4), 9, np.uint8)
        while (result := importer.get_frame_numpy()).outcome is not NEW:
            exporter.export(GpuFrame(pixels.ctypes.data, pixels.nbytes))
            importer.wait_for_doorbell(1000)
        assert (result.frame == 9).all() and importer.frame_count == 2
        importer.close()


def test_the_counter_wakes():
    producer = Producer()
    importer = producer.adopt()
    assert not importer.wait_for_doorbell(1)
    looked = threading.Event()
    look = importer._session.look

    def looking():
        looked.set()
        return look()

    importer._session.look = looking
    thread = threading.Thread(target=lambda: looked.wait(LIMIT) and producer.send(1))
    thread.start()
    assert importer.wait_for_doorbell(LIMIT * 1000)
    thread.join()


def test_torch_makes_its_tensors():
    torch = pytest.importorskip("torch")
    producer = Producer(dtype="float16")
    importer = producer.adopt()
    producer.send(0x3C)
    tensor = importer.get_frame().frame
    assert tensor.dtype == torch.float16 and tuple(tensor.shape) == (HEIGHT, WIDTH, 4)
    assert np.array_equal(tensor.numpy().view(np.uint16), np.full((HEIGHT, WIDTH, 4), 0x3C3C))
    tensor.div_(255)
    with pytest.raises(TypeError):
        importer.get_frame(stream="a stream")


def test_frameworks_that_were_named():
    """On their current stream, which they order the array's memory by."""
    producer = Producer()
    arrays = []

    def empty(shape, dtype, device=None):
        arrays.append((np.empty(shape, dtype), device))
        address = arrays[-1][0].ctypes.data
        array = types.SimpleNamespace(data_ptr=lambda: address, data=types.SimpleNamespace(ptr=address))
        return array

    current = types.SimpleNamespace(cuda_stream=31, ptr=32)
    gpu = types.SimpleNamespace(
        is_available=lambda: True, current_stream=lambda device: current, get_current_stream=lambda: current
    )
    framework = types.SimpleNamespace(empty=empty, cuda=gpu, uint8="uint8")
    importer = producer.adopt(torch=framework, cupy=framework)
    for n, get, stream, device in (
        (1, importer.get_frame, 31, "cuda:0"),
        (2, importer.get_frame_cupy, 32, None),
    ):
        producer.send(n)
        assert get(stream=5).outcome is NEW
        assert (arrays[-1][0] == n).all() and arrays[-1][1] == device
        assert producer.port.calls[-2:] == [("copy", 3, stream), ("synchronized", stream)]


def test_overrides_and_formats_of_a_connection():
    importer = Producer().adopt(fmt=Format.from_overrides((HEIGHT, WIDTH, 1), "float32"))
    assert importer.get_stats()["shape"] == (HEIGHT, WIDTH, 1)
    with pytest.raises(ValueError, match="192 bytes"):
        Producer().adopt(fmt=Format.from_overrides((HEIGHT, WIDTH, 4), "float16"))
    silent = Producer(metadata=False)  # the script knows
    assert silent.adopt(fmt=Format.from_overrides((HEIGHT, WIDTH, 4), "uint8")).is_ready()
    with pytest.raises(ValueError):
        silent.adopt()


def broken(**changes):
    producer = Producer()
    for name, value in changes.items():
        setattr(producer.connection, name, value)
    return producer


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({"cuda": None}, ValueError, "cuda=port"),
        ({"shm_handle": None}, ValueError, "SharedMemory"),
        ({"shm_handle": Segment(bytearray(433))}, cuda_link.ProtocolError, "no segment"),
        ({"shm_handle": Segment(bytearray(20))}, cuda_link.ProtocolError, "no segment"),
        ({"num_slots": 2}, cuda_link.ProtocolError, "slots"),
        ({"layout": None, "num_slots": 0}, cuda_link.ProtocolError, "slots"),
        ({"dev_ptrs": [1, None, 3]}, ValueError, "ipc_open_mem_handle"),
    ],
)
def test_a_connection_that_is_none(changes, error, says):
    with pytest.raises(error, match=says):
        broken(**changes).adopt()


def test_arguments_of_from_connection():
    producer = Producer()
    assert broken(layout=None).adopt().is_ready()
    with pytest.raises(TypeError, match="IPCConnection"):
        Importer.from_connection(SPEC, ONCE, None, None)
    with pytest.raises(TypeError, match="Format"):
        producer.adopt(fmt="uint8")
    with pytest.raises(TypeError, match="jax"):
        producer.adopt(jax=None)
    with pytest.raises(TypeError, match="ImportSpec"):
        Importer.from_connection(NAME, ONCE, producer.connection)
    with pytest.raises(ValueError, match="2 slots"):
        Producer(slots=1).adopt()
    assert "torch" in sys.modules or Producer().adopt(policy=None).is_ready()  # nothing is imported for it
