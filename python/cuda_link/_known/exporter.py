# SPDX-License-Identifier: MIT
"""Exporter: publishes memory by its address."""

from __future__ import annotations

import logging
from contextlib import suppress
from operator import index
from time import perf_counter
from typing import Any

from .. import _abi, _dtypes, _streams
from .._arguments import made_of, text, whole
from .._backend import low
from .._errors import BusyError, ClosedError, CudaLinkError, InvalidArgumentError
from .._only_one import refuse_copies
from .nvml import checked_observer, observer_from_env
from .opening import open_ring
from .policies import ExportPolicy
from .values import FrameOutcome, FrameSpec, GpuFrame

log = logging.getLogger("cuda_link")
_PROFILED = 97  # frames per log line: no multiple of any number of slots


def _check(spec: FrameSpec) -> None:
    made_of("Exporter.open", "spec", spec, FrameSpec, "FrameSpec(name, height=1080, width=1920)")
    text("FrameSpec.shm_name", spec.shm_name)
    for name in ("height", "width", "channels"):
        whole(f"FrameSpec.{name}", getattr(spec, name), 1)
    whole("FrameSpec.num_slots", spec.num_slots, 1, 10)
    whole("FrameSpec.device", spec.device, 0)
    whole("FrameSpec.extra_flags", spec.extra_flags)
    _dtypes.parse(spec.dtype)


def _no_frame(frame: Any) -> TypeError:
    """Of what export can't read."""
    if isinstance(frame, GpuFrame):
        return TypeError(f"export: {frame} has whole numbers as ptr and size: an address, and its bytes")
    return TypeError(
        f"export: {type(frame).__name__} is no frame: it takes GpuFrame(ptr=address, size=bytes); arrays are "
        "for open_exporter(...).send(array)"
    )


class Exporter:
    """Publishes frames of one size and type. Made by `Exporter.open`; a context manager."""

    def __init__(self, spec: FrameSpec, policy: ExportPolicy) -> None:
        self.spec = spec
        self.policy = policy
        ring = open_ring(spec, policy)
        self._exporter = ring.exporter
        self._description = ring.description
        self._old_wire = ring.old_wire
        self._reason = ring.reason
        self._size = low.description_bytes(self._description)
        self._source: int | None = None
        self._warned = False
        self._observer: Any = observer_from_env(spec.device)
        self._count = 0
        self._skipped = 0
        self._held_back = 0
        self._seconds = self._told = 0.0
        self._profiles = policy.export_profile
        self._on_host = ring.exporter.statistics().kind == "host"

    @classmethod
    def open(
        cls, spec: FrameSpec, *, policy: ExportPolicy | None = None, cuda: Any = None, barrier: Any = None
    ) -> Exporter:
        """A usable exporter, or an exception. policy None = from the environment; cuda and barrier are not
        used (the log says so).

        Errors: ValueError (dtype, extents, num_slots outside 1..10), OSError (NameInUseError, also a
        FileExistsError: another producer has the name), RuntimeError.
        """
        _check(spec)
        if cuda is not None or barrier is not None:
            log.warning("Exporter.open: cuda= and barrier= are not used: the library talks to the driver")
        policy = ExportPolicy.from_env() if policy is None else policy
        made_of("Exporter.open", "policy", policy, ExportPolicy, "ExportPolicy(), or None: the environment's")
        whole("ExportPolicy.barrier_stale_ns", policy.barrier_stale_ns)
        return cls(spec, policy)

    @property
    def data_size(self) -> int:
        """Bytes of a frame, as GpuFrame.size has to say."""
        size: int = self._size
        return size

    # ---- after what the pixels are complete

    def record_source_sync(self, stream_handle: int) -> None:
        """The next frame that is published without a producer_stream comes after the work that is queued on
        this stream then. For one frame: call it for each, or pass producer_stream."""
        _streams.resolve(stream_handle)
        self._source = stream_handle

    def _unnamed(self) -> _streams.Stream:
        """For a frame without a producer_stream."""
        if self._source is not None:
            return _streams.COMPLETE if self._on_host else _streams.resolve(self._source)
        if self.policy.require_source_sync:
            raise ValueError(
                "no producer stream was named and require_source_sync is on: pass "
                "GpuFrame(producer_stream=...), or call record_source_sync before each export"
            )
        if self._on_host:
            return _streams.COMPLETE
        if not self._warned:
            self._warned = True
            log.warning("no producer stream was named: exporting behind the legacy default stream")
        return _streams.LEGACY

    # ---- frames

    def export(self, frame: GpuFrame) -> FrameOutcome:
        """Publishes a copy of frame.size bytes from frame.ptr: memory of a GPU, managed, pinned, or plain
        memory of the CPU (nothing but that on kind host).

        FAILED, and the reason in the log, for a wrong size and for errors of the system or the GPU;
        SKIPPED_NOT_READY when every slot is held. ValueError: require_source_sync is not met, or
        strict_device is on and the memory is not the channel's GPU's, or frame.ptr
        is no address (TypeError: no number).
        """
        try:
            address, size, named = index(frame.ptr), index(frame.size), frame.producer_stream
        except (AttributeError, TypeError):
            raise _no_frame(frame) from None
        if size != self._size:
            log.error("export: %s", self._wrong_size(size))
            return FrameOutcome.FAILED
        if not 0 <= address < 2**64:
            raise ValueError(f"export: {address:#x} is no address")
        if named is None:
            kind, handle = self._unnamed()
        else:
            kind, handle = _streams.resolve(named)
            if self._on_host:
                kind, handle = _streams.COMPLETE
        began = perf_counter()
        try:
            low.exporter_send(self._exporter._id, self._description, address, None, kind, handle, 0)
        except (OSError, RuntimeError) as error:
            return self._failed(error)
        self._seconds += perf_counter() - began
        self._count += 1
        self._source = None
        if self._profiles and self._count % _PROFILED == 0:
            self._tell_profile()
        return FrameOutcome.PUBLISHED

    def _wrong_size(self, size: int) -> str:
        spec = self.spec
        return (
            f"{size} bytes were given, and a frame of channel {spec.shm_name!r} has {self._size} "
            f"({spec.height} x {spec.width} x {spec.channels} of {spec.dtype}): open one for the other size"
        )

    def _tell_profile(self) -> None:
        average = (self._seconds - self._told) / _PROFILED * 1e6
        self._told = self._seconds
        log.info("[PROFILE] channel %r: %d frames, export %.1f µs", self.spec.shm_name, self._count, average)

    def _failed(self, error: Exception) -> FrameOutcome:
        if isinstance(error, BusyError):
            self._skipped += 1
            before, self._held_back = self._held_back, self._raw().cipd_held_back
            barrier = self._held_back > before and self.policy.wire == "old"
            return FrameOutcome.SKIPPED_BARRIER if barrier else FrameOutcome.SKIPPED_NOT_READY
        if isinstance(error, InvalidArgumentError) and self.policy.strict_device:
            raise error
        log.error("export: %s", error)
        return FrameOutcome.FAILED

    # ---- the rest

    def is_ready(self) -> bool:
        """Is it open?"""
        return not self._exporter.closed

    def attach_nvml_observer(self, observer: Any) -> None:
        """Its snapshot is added to get_stats."""
        self._observer = checked_observer(observer)

    def _raw(self) -> _abi.ExporterStatistics:
        counters = _abi.ExporterStatistics()
        counters.size = _abi.size(counters)
        with suppress(ClosedError):  # by another thread at any moment
            low.exporter_statistics(self._exporter._id, counters)
        return counters

    def _addresses(self, slots: int) -> list[str]:
        """Where the slots are in this process; none when the old wire alone knows, or when it is closed."""
        try:
            return [hex(low.slot_address(self._exporter._id, i)) for i in range(slots)]
        except CudaLinkError:
            return []

    def get_stats(self) -> dict[str, Any]:
        """Counters, by their known keys. New: frames_skipped (SKIPPED outcomes), copies_made, old_wire (the
        segment's name, None when there is none), old_wire_frames (published there), old_wire_reason (why
        there is none, or why the last frame that was passed over was)."""
        spec, counters, is_open = self.spec, self._raw(), not self._exporter.closed
        average = self._seconds / self._count * 1e6 if self._count else 0.0
        stats: dict[str, Any] = {
            "initialized": is_open,
            "closed": not is_open,
            "shm_name": spec.shm_name,
            "resolution": f"{spec.width}x{spec.height}x{spec.channels}",
            "dtype": spec.dtype,
            "num_slots": spec.num_slots,
            "data_size_kb": self._size / 1024,
            "buffer_size_mb": counters.memory_bytes / 2**20,
            "frame_count": self._count,
            "write_idx": self._count,
            "hws_mode": None,
            "avg_memcpy_us": average,
            "avg_total_us": average,
            "dev_ptrs": self._addresses(counters.slots),
            "frames_skipped": self._skipped,
            "copies_made": counters.copies,
            "old_wire": self._old_wire or None,
            "old_wire_frames": counters.cipd_published,
            "old_wire_reason": self._reason or counters.cipd_reason.decode(errors="replace"),
        }
        if self._observer is not None:
            stats["nvml"] = self._observer.snapshot()
        return stats

    def close(self) -> None:
        """Ends the channel. May be called again."""
        self._exporter.close()

    __reduce_ex__ = refuse_copies

    def __enter__(self) -> Exporter:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
