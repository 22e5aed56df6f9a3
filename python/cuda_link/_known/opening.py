# SPDX-License-Identifier: MIT
"""Opens channels as the known face needs them: with the old wire (docs/old-wire.md) beside our own."""

from __future__ import annotations

import ctypes
import logging
import struct
from ctypes import addressof
from time import monotonic
from typing import NamedTuple

from .. import _abi, _description, _wait
from .._backend import low
from .._errors import (
    ChannelNotFoundError,
    CudaLinkError,
    NameInUseError,
    ProtocolError,
    RefusedError,
    TimedOutError,
    error_for,
)
from .._exporter import ChannelExporter
from .._importer import ChannelImporter, opened
from .layout import MAGIC, DtypeCodec, SHMLayout, read_magic, read_num_slots
from .pipeline import Pipeline, PipelinedImporter
from .policies import ExportPolicy, ImportPolicy
from .values import FrameSpec, ImportSpec
from .waiting import seconds

log = logging.getLogger("cuda_link")

WIRES = {"auto": 0, "own": 1, "old": 2}  # as cudalink_wire
_FEWEST_SLOTS = 3
_MOST_HOST_STREAMS = 8
_MOST_SPIN = 1_000_000  # µs
_MOST_OLD_SLOTS = 64
_NOT_FOUND = -8  # CUDALINK_ERROR_NOT_FOUND
_SLICE = 0.1  # s between two looks for a producer on the old wire that has sent nothing yet


def _device(device: int) -> int:
    """0 is what everybody says who has one GPU: ours is then the producer's, or the first."""
    if device < 0:
        raise ValueError(f"device {device}: GPUs are numbered from 0")
    return device + 1 if device else 0


def check_wire(wire: str) -> str:
    """Itself. Errors: ValueError."""
    if wire not in WIRES:
        raise ValueError(f"wire {wire!r}; it is one of {', '.join(WIRES)}")
    return wire


class Ring(NamedTuple):
    """An open exporter, and how it stands with the old wire."""

    exporter: ChannelExporter
    description: _abi.Description
    old_wire: str
    """The segment's name; "" when there is none."""
    reason: str
    """Why there is none."""


def _has_gpu() -> bool:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    count = ctypes.c_int()
    return driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0


def _is_another_programs(name: str) -> bool:
    """Is there a segment of that name which is none of the old wire's?"""
    try:
        with open(f"/dev/shm/{name}", "rb") as file:
            return read_magic(file.read(4)) != MAGIC
    except FileNotFoundError:
        return False
    except (OSError, struct.error):
        return True


def _no_old_wire(spec: FrameSpec) -> str:
    """Why frames can't go by the old wire; "" when they can. What is easily seen, before the channel is
    opened with it in vain."""
    if spec.dtype not in DtypeCodec.supported():
        return f"the old wire has no type {spec.dtype}"
    if spec.channels > 4:
        return f"the old wire carries up to 4 channels, not {spec.channels}"
    if "/" in spec.shm_name:
        return "the old wire's names have no '/'"
    if not _has_gpu():
        return "the old wire needs a GPU"
    if _is_another_programs(spec.shm_name):
        return f"/dev/shm/{spec.shm_name} is another program's"
    return ""


_BGRA, _MONO_ALPHA = 4, 2  # FrameSpec.extra_flags
_STRAIGHT = 1


def describe(spec: FrameSpec) -> _abi.Description:
    """Frames as the spec says; the flags that our own wire has a word for are said there, too."""
    if spec.extra_flags & _BGRA and (spec.channels, spec.dtype) == (4, "uint8"):
        return _description.make((spec.height, spec.width), format="BGRA8")
    if spec.extra_flags & _MONO_ALPHA and (spec.channels, spec.dtype) == (2, "uint8"):
        description = _description.make((spec.height, spec.width), format="RG8")
        description.picture.alpha = _STRAIGHT
        return description
    return _description.make((spec.height, spec.width, spec.channels), spec.dtype)


def _open(spec: FrameSpec, policy: ExportPolicy, description: _abi.Description, wire: str) -> ChannelExporter:
    raw = _abi.ExporterSpec(
        name=_abi.encode(spec.shm_name, "shm_name"),
        description=addressof(description),
        plane_count=description.plane_count,
        slots=max(spec.num_slots, _FEWEST_SLOTS),
        device=_device(spec.device),
        export_sync=policy.export_sync,
        flush_probe=policy.flush_probe,
        strict_device=policy.strict_device,
        cipd_name=None if wire == "own" else _abi.encode(spec.shm_name, "shm_name"),
        cipd_slots=spec.num_slots,
        cipd_only=wire == "old",
        cipd_ignore_barrier=not policy.barrier_enabled,
        cipd_barrier_limit=max(policy.barrier_stale_ns, 0),
    )
    raw.size = _abi.size(raw)
    return ChannelExporter(spec.shm_name, low.exporter_open(raw), description)


def open_ring(spec: FrameSpec, policy: ExportPolicy) -> Ring:
    """Wire "auto": our own, and the old one where this machine and these frames allow it."""
    description, name = describe(spec), spec.shm_name
    wire = check_wire(policy.wire)
    if wire == "old":
        return Ring(_open(spec, policy, description, wire), description, name, "")
    reason = "" if wire == "auto" else "the policy's wire is own"
    reason = reason or _no_old_wire(spec)
    if not reason:
        try:
            return Ring(_open(spec, policy, description, wire), description, name, "")
        except NameInUseError:
            raise
        except CudaLinkError as error:
            reason = str(error)
    ring = Ring(_open(spec, policy, description, "own"), description, "", reason)
    log.info("channel %r is not on the old wire: %s", name, reason)
    return ring


def _is_idle_old_producer(spec: ImportSpec, policy: ImportPolicy) -> bool:
    """Is a producer of the old wire there that has sent nothing yet? The library joins it with its first
    frame; scripts expect an open importer now."""
    try:
        with open(f"/dev/shm/{spec.shm_name}", "rb") as file:
            head = file.read(SHMLayout(_MOST_OLD_SLOTS).total_size)
        slots = read_num_slots(head)
        is_old = policy.wire != "own" and read_magic(head) == MAGIC and 1 <= slots <= _MOST_OLD_SLOTS
        return is_old and head[SHMLayout(slots).shutdown_offset] == 0
    except (OSError, struct.error, IndexError):
        return False


def open_importer(spec: ImportSpec, policy: ImportPolicy, pipeline: Pipeline | None) -> ChannelImporter:
    """Waits up to spec.timeout_ms for the producer. With reconnecting it need not be there. pipeline:
    what ends before the importer is closed."""
    importer = _open_importer(spec, policy, pipeline is not None)
    try:
        _wait_producer(importer, spec, policy)
    except BaseException:
        importer.close()
        raise
    if isinstance(importer, PipelinedImporter):
        importer.pipeline = pipeline
    return importer


def _wait_producer(importer: ChannelImporter, spec: ImportSpec, policy: ImportPolicy) -> None:
    """By one importer: a producer on a busy machine may take longer to answer than a look takes."""
    left = seconds(spec.timeout_ms)
    if not left:
        return
    end = monotonic() + left
    while True:
        left = max(end - monotonic(), 0.0)
        try:
            return importer._wait_producer(_wait.nanoseconds(min(left, _SLICE)))
        except (ChannelNotFoundError, TimedOutError, RefusedError, ProtocolError) as error:
            idle = _is_idle_old_producer(spec, policy)
            is_late = isinstance(error, (ChannelNotFoundError, TimedOutError))
            if is_late and left > _SLICE and not idle:
                continue
            if not policy.reconnect_enabled and not idle:
                if isinstance(error, TimedOutError):  # it does not answer: what scripts catch is this
                    raise error_for(_NOT_FOUND, str(error)) from error
                raise
            log.info("gets will look for a producer: %s", error)
            return


def _open_importer(spec: ImportSpec, policy: ImportPolicy, pipelined: bool) -> ChannelImporter:
    once = not policy.reconnect_enabled
    raw = _abi.ImporterSpec(
        name=_abi.encode(spec.shm_name, "shm_name"),
        hold=policy.hold,
        writable=policy.wire != "old",  # whose frames never are: asking for it there is an error
        gpu_wait=1,  # for gets that name a stream
        once=once,
        device=_device(spec.device),
        spin=min(max(policy.wait_spin_us, 0), _MOST_SPIN) * 1000,
        host_streams=min(max(policy.d2h_num_streams, 1), _MOST_HOST_STREAMS),
        host_pipelined=pipelined,
        wire=WIRES[check_wire(policy.wire)],
    )
    raw.size = _abi.size(raw)
    return opened(spec.shm_name, raw, once, PipelinedImporter if pipelined else ChannelImporter)
