# SPDX-License-Identifier: MIT
"""Specs, frames, outcomes, errors of the known face."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, NamedTuple

from .._errors import GpuError, TimedOutError

CudaIpcError = GpuError
ProducerTimeoutError = TimedOutError


@dataclass(frozen=True)
class FrameSpec:
    """What an Exporter publishes: height x width x channels of one type."""

    shm_name: str
    height: int
    width: int
    channels: int = 4
    dtype: str = "uint8"
    num_slots: int = 3
    device: int = 0
    extra_flags: int = 0
    """Bits of the old wire: 4 = the four uint8 channels are B, G, R, A; 2 = the two are gray and alpha.
    Others are not carried."""


@dataclass(frozen=True)
class GpuFrame:
    """Memory to publish: an address, how many bytes, and after what it is complete."""

    ptr: int
    size: int
    producer_stream: int | None = None


class FrameOutcome(enum.Enum):
    """What became of an export."""

    PUBLISHED = "published"
    SKIPPED_BARRIER = "skipped_barrier"
    """A TouchDesigner sender is starting up; only where nothing but the old wire is published on."""
    SKIPPED_NOT_READY = "skipped_not_ready"
    """Every slot is held; counted."""
    FAILED = "failed"
    """The log says why."""


@dataclass(frozen=True)
class ImportSpec:
    """What an Importer takes. shape and dtype None = as the producer says."""

    shm_name: str
    device: int = 0
    shape: tuple[int, int, int] | None = None
    dtype: str | None = None
    timeout_ms: float = 5000.0
    """How long open waits for the producer, and each get for its pixels."""


class ImportOutcome(enum.Enum):
    """What a get has found."""

    NEW_FRAME = "new_frame"
    NO_FRAME = "no_frame"
    SHUTDOWN = "shutdown"
    """The producer has gone; told once, or for ever without reconnecting."""
    RECONNECTING = "reconnecting"
    """There is no producer yet."""
    TIMEOUT = "timeout"
    """A frame is there, but its pixels were not complete, or its memory was not mapped, in time; the next
    get is offered it again."""


class ImportResult(NamedTuple):
    """What a get returns. frame: None unless the outcome is NEW_FRAME."""

    outcome: ImportOutcome
    frame: Any = None
