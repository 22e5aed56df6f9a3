# SPDX-License-Identifier: MIT
"""The names that users of cuda-link 1.x have in their scripts."""

from __future__ import annotations

import collections
import dataclasses
import importlib
import os
import signal
import struct
import time

import cuda_link
import numpy as np
import pytest
from conftest import start_python
from cuda_link import (
    Exporter,
    ExportPolicy,
    FrameOutcome,
    FrameSpec,
    GpuFrame,
    Importer,
    ImportOutcome,
    ImportPolicy,
    ImportResult,
    ImportSpec,
    _dtypes,
)
from cuda_link._known import arrays as _arrays
from cuda_link._known import gone, opening

NAME = f"test_known_{os.getpid()}"  # unique: on a GPU it is also a segment's, in a folder that all share
SPEC = FrameSpec(NAME, height=6, width=8, channels=4)


_alive = collections.deque(maxlen=8)  # arrays whose address was taken: export reads there


def gpu_frame(array):
    _alive.append(array)
    return GpuFrame(array.ctypes.data, array.nbytes)


def picture(n=0, dtype=np.uint8):
    return np.full((6, 8, 4), n, dtype)


def test_values_and_their_defaults():
    assert (SPEC.dtype, SPEC.num_slots, SPEC.device, SPEC.extra_flags) == ("uint8", 3, 0, 0)
    assert dataclasses.asdict(ImportSpec("x")) == {
        "shm_name": "x",
        "device": 0,
        "shape": None,
        "dtype": None,
        "timeout_ms": 5000.0,
    }
    assert dataclasses.asdict(FrameSpec("x", 1, 2)) == {
        "shm_name": "x",
        "height": 1,
        "width": 2,
        "channels": 4,
        "dtype": "uint8",
        "num_slots": 3,
        "device": 0,
        "extra_flags": 0,
    }
    assert dataclasses.asdict(GpuFrame(1, 2)) == {"ptr": 1, "size": 2, "producer_stream": None}
    assert dataclasses.asdict(ExportPolicy()) == {
        "export_sync": False,
        "use_graphs": True,
        "flush_probe": True,
        "strict_device": False,
        "require_source_sync": False,
        "barrier_enabled": True,
        "barrier_stale_ns": 5_000_000_000,
        "high_priority_stream": True,
        "export_profile": False,
        "doorbell": False,
        "wire": "auto",  # ours
    }
    assert dataclasses.asdict(ImportPolicy()) == {
        "wait_spin_us": 200,
        "d2h_num_streams": 1,
        "d2h_stream_high_priority": False,
        "allow_pageable_fallback": False,
        "d2h_pipelined": False,
        "torch_gpu_wait": False,
        "torch_gpu_wait_adaptive": False,
        "gpu_wait_adaptive_window": 120,
        "gpu_wait_adaptive_sleep_pct": 5,
        "doorbell": False,
        "wait_backend": "auto",
        "debug": False,
        "reconnect_enabled": True,
        "reconnect_max_attempts": 20,
        "reconnect_backoff_frames": (1, 2, 4, 8, 16, 32, 64, 120),
        "wire": "auto",  # ours
        "hold": 3,  # ours
    }
    with pytest.raises(dataclasses.FrozenInstanceError):
        SPEC.height = 5
    result = ImportResult(ImportOutcome.NO_FRAME)
    assert result == ImportResult(outcome=ImportOutcome.NO_FRAME, frame=None) and result.frame is None
    with pytest.raises(AttributeError):
        result.frame = picture()
    assert {outcome.name for outcome in ImportOutcome} == {
        "NEW_FRAME",
        "NO_FRAME",
        "SHUTDOWN",
        "RECONNECTING",
        "TIMEOUT",
    }
    assert {outcome.name for outcome in FrameOutcome} == {
        "PUBLISHED",
        "SKIPPED_BARRIER",
        "SKIPPED_NOT_READY",
        "FAILED",
    }
    states = {"NO_FRAME", "NEW_FRAME", "SHUTDOWN", "VERSION_CHANGED"}
    assert {state.name for state in cuda_link.SlotState} == states
    assert cuda_link.AcquireResult(cuda_link.SlotState.NO_FRAME)[1:] == (-1, 0.0, 0, 0)


# What cuda-link 1.x has in get_stats, and what is there since.
EXPORT_KEYS = set(
    """
    initialized closed shm_name resolution dtype num_slots data_size_kb buffer_size_mb frame_count write_idx
    hws_mode avg_memcpy_us avg_total_us dev_ptrs
    """.split()
)
IMPORT_KEYS = set(
    """
    initialized shm_name shape dtype device num_slots frame_count torch_available numpy_available dev_ptrs
    tensor_device wait_backend wait_spin_hits wait_sleep_hits avg_spin_us avg_sleep_us gpu_wait_active
    gpu_wait_latched_frame
    """.split()
)
NEW_EXPORT_KEYS = {"frames_skipped", "copies_made", "old_wire", "old_wire_frames", "old_wire_reason"}
NEW_IMPORT_KEYS = {"copies_made", "frames_missed", "frames_torn"}


def test_the_keys_of_statistics():
    """Open or closed, before the first frame and after it."""
    with Exporter.open(SPEC) as exporter, Importer.open(ImportSpec(NAME)) as importer:
        for _ in range(2):
            assert set(exporter.get_stats()) == EXPORT_KEYS | NEW_EXPORT_KEYS
            assert set(importer.get_stats()) == IMPORT_KEYS | NEW_IMPORT_KEYS
            exporter.export(gpu_frame(picture()))
            until(importer, ImportOutcome.NEW_FRAME)
    assert set(exporter.get_stats()) == EXPORT_KEYS | NEW_EXPORT_KEYS
    assert set(importer.get_stats()) == IMPORT_KEYS | NEW_IMPORT_KEYS


def test_a_script_asks_how_many_bytes_a_frame_has():
    with Exporter.open(FrameSpec(NAME, height=6, width=8, channels=3, dtype="uint16")) as exporter:
        assert exporter.data_size == 6 * 8 * 3 * 2


def test_the_environment(monkeypatch, caplog):
    monkeypatch.setenv("CUDALINK_IMPORT_RECONNECT", "0")
    monkeypatch.setenv("CUDALINK_WAIT_SPIN_US", "many")
    monkeypatch.setenv("CUDALINK_EXPORT_SYNC", "true")
    monkeypatch.setenv("CUDALINK_REQUIRE_SOURCE_SYNC", "1")
    monkeypatch.setenv("CUDALINK_WIRE", "new")
    assert not ImportPolicy.from_env().reconnect_enabled and ImportPolicy.from_env().wait_spin_us == 200
    assert not ExportPolicy.from_env().export_sync and ExportPolicy.from_env().require_source_sync
    assert ExportPolicy.from_env().wire == "auto"
    assert "CUDALINK_WIRE='new'" in caplog.text and "CUDALINK_WAIT_SPIN_US='many'" in caplog.text


# field, variable, a text, its value
EXPORT_VARIABLES = (
    ("export_sync", "EXPORT_SYNC", "1", True),
    ("use_graphs", "USE_GRAPHS", "0", False),
    ("flush_probe", "EXPORT_FLUSH_PROBE", "0", False),
    ("strict_device", "STRICT_DEVICE", "1", True),
    ("require_source_sync", "REQUIRE_SOURCE_SYNC", "1", True),
    ("barrier_enabled", "ACTIVATION_BARRIER", "0", False),
    ("barrier_stale_ns", "BARRIER_STALE_NS", "7", 7),
    ("high_priority_stream", "LIB_STREAM_PRIO", "normal", False),
    ("export_profile", "EXPORT_PROFILE", "1", True),
    ("doorbell", "DOORBELL", "1", True),
    ("wire", "WIRE", "own", "own"),
)
IMPORT_VARIABLES = (
    ("wait_spin_us", "WAIT_SPIN_US", "5", 5),
    ("d2h_num_streams", "D2H_STREAMS", "2", 2),
    ("d2h_stream_high_priority", "D2H_STREAM_PRIO", "high", True),
    ("allow_pageable_fallback", "ALLOW_PAGEABLE_FALLBACK", "1", True),
    ("d2h_pipelined", "D2H_PIPELINED", "1", True),
    ("torch_gpu_wait", "TORCH_GPU_WAIT", "1", True),
    ("torch_gpu_wait_adaptive", "TORCH_GPU_WAIT_ADAPTIVE", "1", True),
    ("gpu_wait_adaptive_window", "GPU_WAIT_ADAPTIVE_WINDOW", "9", 9),
    ("gpu_wait_adaptive_sleep_pct", "GPU_WAIT_ADAPTIVE_SLEEP_PCT", "8", 8),
    ("doorbell", "DOORBELL", "1", True),
    ("wait_backend", "WAIT_BACKEND", "python", "python"),
    ("reconnect_enabled", "IMPORT_RECONNECT", "0", False),
    ("reconnect_max_attempts", "IMPORT_RECONNECT_MAX_ATTEMPTS", "3", 3),
    ("wire", "WIRE", "old", "old"),
)


@pytest.mark.parametrize(
    "policy, variables", [(ExportPolicy, EXPORT_VARIABLES), (ImportPolicy, IMPORT_VARIABLES)]
)
def test_each_field_has_its_variable(monkeypatch, policy, variables):
    for _, variable, *_ in variables:
        monkeypatch.delenv(f"CUDALINK_{variable}", raising=False)
    assert policy.from_env() == policy()
    for field, variable, text, value in variables:
        with monkeypatch.context() as patch:
            patch.setenv(f"CUDALINK_{variable}", text)
            assert policy.from_env() == dataclasses.replace(policy(), **{field: value})
    fields = {field.name for field in dataclasses.fields(policy)}
    without = {"reconnect_backoff_frames", "debug", "hold"}
    assert fields - without == {field for field, *_ in variables}


def test_the_other_constructors():
    assert ExportPolicy.low_latency() == ExportPolicy(flush_probe=False)
    off = ExportPolicy.for_testing()
    assert not (off.use_graphs or off.flush_probe or off.barrier_enabled or off.high_priority_stream)
    assert off.barrier_stale_ns == 0
    assert ImportPolicy.low_latency() == ImportPolicy(
        wait_spin_us=2000, d2h_num_streams=2, d2h_stream_high_priority=True
    )
    assert ImportPolicy.for_testing() == ImportPolicy(
        wait_spin_us=0, allow_pageable_fallback=True, reconnect_enabled=False, wait_backend="python"
    )


def test_a_round_trip():
    with Exporter.open(SPEC) as exporter, Importer.open(ImportSpec(NAME)) as importer:
        assert exporter.is_ready() and importer.is_ready()
        assert importer.get_frame_numpy().outcome is ImportOutcome.NO_FRAME
        for n in range(5):
            assert exporter.export(gpu_frame(picture(n))) is FrameOutcome.PUBLISHED
            result = until(importer, ImportOutcome.NEW_FRAME)
            np.testing.assert_array_equal(result.frame, picture(n))
            result.frame[:] = 99  # the caller's own
        assert importer.frame_count == 5 and importer.last_latency > 0
        stats = importer.get_stats()
        assert stats["frame_count"] == 5 and stats["shape"] == (6, 8, 4) and stats["dtype"] == "uint8"
        stats = exporter.get_stats()
        assert stats["resolution"] == "8x6x4" and stats["frame_count"] == 5 and not stats["closed"]
    assert exporter.get_stats()["closed"] and not importer.is_ready()
    exporter.close()
    importer.close()


def test_what_was_exported_is_got_at_once():
    """Also by one that has looked before: memory made for it is mapped a moment after the publish."""
    for number in range(30):
        spec = FrameSpec(f"{NAME}_{number}", height=6, width=8, channels=4)
        with Exporter.open(spec) as exporter, Importer.open(ImportSpec(spec.shm_name)) as importer:
            assert importer.get_frame_numpy().outcome is ImportOutcome.NO_FRAME
            assert exporter.export(gpu_frame(picture(number))) is FrameOutcome.PUBLISHED
            result = importer.get_frame_numpy()
            assert result.outcome is ImportOutcome.NEW_FRAME and result.frame[0, 0, 0] == number


def test_a_close_between_two_looks_is_no_error(monkeypatch):
    """By another thread."""
    with Exporter.open(SPEC) as exporter, Importer.open(ImportSpec(NAME)) as importer:
        assert importer.is_ready() and importer.get_stats()["num_slots"]
        for end, channel in ((importer, importer._importer), (exporter, exporter._exporter)):
            identifier = channel._id
            channel.close()
            monkeypatch.setattr(channel, "_id", identifier)  # as one sees it who looked before
            assert end.get_stats()["frame_count"] == 0
        assert not importer.is_ready()
        exporter._exporter._id = importer._importer._id = 0


def test_wrong_sizes_and_specs(caplog):
    with Exporter.open(SPEC) as exporter:
        small = np.zeros(5, np.uint8)
        assert exporter.export(gpu_frame(small)) is FrameOutcome.FAILED
        assert "192" in caplog.text
    for bad in ({"num_slots": 0}, {"num_slots": 11}, {"dtype": "float99"}, {"height": 0}):
        with pytest.raises(ValueError):
            Exporter.open(dataclasses.replace(SPEC, **bad))


def test_source_sync_can_be_required():
    with Exporter.open(SPEC, policy=ExportPolicy(require_source_sync=True)) as exporter:
        with pytest.raises(ValueError, match="record_source_sync"):
            exporter.export(gpu_frame(picture()))
        exporter.record_source_sync(0)
        assert exporter.export(gpu_frame(picture())) is FrameOutcome.PUBLISHED


def test_a_profile(caplog):
    caplog.set_level("INFO", "cuda_link")
    with Exporter.open(SPEC, policy=ExportPolicy(export_profile=True)) as exporter:
        for _ in range(97 * 2 + 5):
            assert exporter.export(gpu_frame(picture())) is FrameOutcome.PUBLISHED
    lines = [record.message for record in caplog.records if "[PROFILE]" in record.message]
    assert len(lines) == 2 and "194 frames" in lines[1] and "µs" in lines[1]


def test_no_free_slot_is_counted():
    with Exporter.open(SPEC) as exporter:
        with cuda_link.open_importer(NAME, policy="every", timeout=10) as slow:
            exporter._exporter.wait_consumers(1, 10)
            outcomes = [exporter.export(gpu_frame(picture())) for _ in range(20)]
            assert FrameOutcome.SKIPPED_NOT_READY in outcomes
            stats = exporter.get_stats()
            assert stats["frame_count"] == stats["write_idx"] == outcomes.count(FrameOutcome.PUBLISHED)
            assert stats["frames_skipped"] == outcomes.count(FrameOutcome.SKIPPED_NOT_READY)
            del slow


def test_no_producer():
    with pytest.raises(FileNotFoundError):
        Importer.open(ImportSpec("nobody", timeout_ms=10), policy=ImportPolicy(reconnect_enabled=False))
    with Importer.open(ImportSpec("nobody", timeout_ms=10)) as importer:
        assert importer.get_frame_numpy().outcome is ImportOutcome.RECONNECTING
        assert not importer.is_ready() and not importer.wait_for_doorbell(0)


STOPPED = """
import sys, cuda_link
with cuda_link.open_exporter(sys.argv[1], shape=(6, 8, 4), kind="host"):
    print("open", flush=True)
    sys.stdin.read()
"""


def test_a_producer_that_does_not_answer():
    with start_python(STOPPED, NAME) as producer:
        assert producer.stdout.readline() == "open\n"
        os.kill(producer.pid, signal.SIGSTOP)
        os.waitpid(producer.pid, os.WUNTRACED)  # until then its other threads may go on
        try:
            with pytest.raises(FileNotFoundError, match="does not answer"):
                Importer.open(ImportSpec(NAME, timeout_ms=1000), policy=ImportPolicy(reconnect_enabled=False))
            with pytest.raises(TimeoutError, match="does not answer"):
                cuda_link.open_importer(NAME, timeout=1)
            with Importer.open(ImportSpec(NAME, timeout_ms=10)) as importer:
                assert importer.get_frame_numpy().outcome is ImportOutcome.RECONNECTING
        finally:
            producer.kill()


def test_open_waits_for_a_producer_that_takes_longer_to_answer_than_a_look(monkeypatch):
    """On a busy machine; each look once began anew."""
    monkeypatch.setattr(opening, "_SLICE", 1e-9)
    for _ in range(5):
        with Exporter.open(SPEC), Importer.open(ImportSpec(NAME, timeout_ms=60_000)) as importer:
            assert importer.is_ready()


def until(importer, outcome):
    end = time.monotonic() + 60  # seconds; only a hang comes near
    while (result := importer.get_frame_numpy()).outcome is not outcome:
        assert time.monotonic() < end, result
        importer.wait_for_doorbell(1000)
    return result


def test_shutdown_and_reconnect():
    importer = Importer.open(ImportSpec(NAME, timeout_ms=0))
    for n in (1, 2):
        with Exporter.open(SPEC) as exporter:
            exporter._exporter.wait_consumers(1, 60)
            exporter.export(gpu_frame(picture(n)))
            np.testing.assert_array_equal(until(importer, ImportOutcome.NEW_FRAME).frame, picture(n))
        assert until(importer, ImportOutcome.SHUTDOWN).frame is None
        assert importer.get_frame_numpy().outcome is ImportOutcome.RECONNECTING
    importer.close()


def test_without_reconnecting_shutdown_is_the_end():
    with Exporter.open(SPEC) as exporter:
        importer = Importer.open(ImportSpec(NAME), policy=ImportPolicy(reconnect_enabled=False))
        exporter._exporter.wait_consumers(1, 60)
    assert until(importer, ImportOutcome.SHUTDOWN).frame is None
    for _ in range(3):
        assert importer.get_frame_numpy().outcome is ImportOutcome.SHUTDOWN
    assert not importer.is_ready()
    importer.close()


def test_overrides():
    with Exporter.open(SPEC) as exporter:
        exporter.export(gpu_frame(picture(3)))
        with Importer.open(ImportSpec(NAME, shape=(12, 8, 1), dtype="int16")) as importer:
            assert until(importer, ImportOutcome.NEW_FRAME).frame.shape == (12, 8, 1)
        with Importer.open(ImportSpec(NAME, shape=(6, 8, 3))) as importer:
            with pytest.raises(ValueError, match=r"144 bytes.*192"):
                until(importer, ImportOutcome.NEW_FRAME)


def test_names_that_have_gone():
    replacements = {
        "CTypesCUDAAdapter": "leave the argument cuda= out",
        "FakeCUDAAdapter": 'kind="host"',
        "CUDARuntimeAPI": "cuda-python",
        "get_cuda_runtime": "cuda-python",
        "CUDAIPCImporter": "Importer.open",
        "CUDAIPCExporter": "Exporter.open",
    }
    assert set(gone.GONE) == set(replacements)
    for name, replacement in replacements.items():
        with pytest.raises(ImportError, match=f"no {name}: .*{replacement}"):
            getattr(importlib.import_module("cuda_link"), name)
        with pytest.raises(ImportError, match=name):
            exec(f"from cuda_link import {name}")
    with pytest.raises(AttributeError):
        _ = cuda_link.nothing_like_this


def test_errors():
    assert issubclass(cuda_link.CudaIpcError, cuda_link.CudaLinkError)
    assert issubclass(cuda_link.CudaLinkError, RuntimeError)
    assert issubclass(cuda_link.ProtocolError, ValueError)
    assert issubclass(cuda_link.ProducerTimeoutError, TimeoutError)


def test_the_layout():
    for slots, size in ((2, 305), (3, 433), (4, 561), (10, 1329)):
        assert cuda_link.SHMLayout(slots).total_size == size
    layout = cuda_link.SHMLayout(3)
    assert (layout.shutdown_offset, layout.metadata_offset, layout.timestamp_offset) == (404, 405, 425)
    assert (layout.mem_handle_offset(1), layout.event_handle_offset(2)) == (148, 340)
    buffer = layout.build_buffer(version=7)
    assert struct.unpack_from("<IQII", buffer) == (0x43495044, 7, 3, 0)
    state = cuda_link.SlotState
    assert cuda_link.acquire_slot(buffer, layout, 7, 0).state is state.NO_FRAME
    assert cuda_link.publish_frame(buffer, layout, 1.5) == 1
    found = cuda_link.acquire_slot(buffer, layout, 7, 0)
    assert found == (state.NEW_FRAME, 0, 1.5, 7, 1)
    assert cuda_link.acquire_slot(buffer, layout, 6, 0).state is state.VERSION_CHANGED
    buffer[404] = 1
    assert cuda_link.acquire_slot(buffer, layout, 7, 0).state is state.SHUTDOWN
    metadata = cuda_link.Metadata(8, 6, 4, *cuda_link.DtypeCodec.encode("uint16"), 384)
    metadata.pack_into(buffer, layout.metadata_offset)
    assert cuda_link.Metadata.read_from(buffer, 405) == metadata and metadata.expected_size == 384


def test_the_codec():
    codec = cuda_link.DtypeCodec
    for name in codec.supported():
        assert codec.decode(*codec.encode(name)) == name
    assert codec.typestr("bfloat16") == "<u2" and codec.typestr("uint8") == "|u1"
    assert codec.decode(2, 16, 1 | 4) == "bfloat16" and codec.cupy_name("bfloat16") is None
    with pytest.raises(ValueError, match="64 bits"):
        codec.decode(2, 64, 0)


def test_how_many_slots_there_are_and_where():
    def lent(exporter):
        with exporter._exporter.frame() as slot:
            slot.abandon()
            return hex(slot.address)

    policy = ImportPolicy(reconnect_backoff_frames=())
    with Importer.open(ImportSpec(NAME, timeout_ms=0), policy=policy) as importer:
        assert importer.get_stats()["num_slots"] == 0
        with Exporter.open(SPEC) as exporter:
            until(importer, ImportOutcome.NO_FRAME)
            exporter.export(gpu_frame(picture()))  # the ring has grown for the consumer
            address, places = lent(exporter), exporter.get_stats()["dev_ptrs"]
            assert address in places and len(set(places)) == len(places) >= SPEC.num_slots
            end = time.monotonic() + 60
            while importer.get_stats()["num_slots"] != len(places):  # it hears of a larger ring
                assert time.monotonic() < end
            assert exporter.get_stats()["hws_mode"] is None
        assert exporter.get_stats()["dev_ptrs"] == []
        until(importer, ImportOutcome.RECONNECTING)
        assert importer.get_stats()["num_slots"] == 0


def test_arrays_that_other_threads_have_are_not_waited_for():
    """A thread that has taken the only array out, to look at it, leaves a pool that was counted before."""

    class Busy(collections.deque):
        def __len__(self):
            return 1

    arrays, form = _arrays.HostArrays(), _arrays.Form((2, 3), _dtypes.parse("uint8"))
    arrays.get(form)
    arrays._pool = arrays._pool._replace(arrays=Busy())
    assert arrays.get(form).shape == (2, 3)
