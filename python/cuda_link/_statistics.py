# SPDX-License-Identifier: MIT
"""Counters of both ends, as named tuples with the names of the C structs."""

from __future__ import annotations

from ctypes import Array
from typing import Any, NamedTuple

from . import _abi
from ._backend import low

_KINDS = {0: "auto", 1: "host", 2: "vmm", 3: "ipc"}
_CONNECTIONS = {0: "searching", 1: "joining", 2: "joined", 3: "over"}


class ExporterStatistics(NamedTuple):
    """Counters of an exporter since it was opened."""

    published: int
    """Frames, invalid ones among them."""
    dropped: int
    """Frames for which nothing was free in time."""
    abandoned: int
    bytes: int
    """Of the published frames as they lie in slots: rows are padded."""
    copies: int
    """Copies of frames that the library made."""
    waits: int
    """Frames that had to wait for a slot."""
    evicted: int
    """Consumers whose frames were taken back."""
    cursors_lost: int
    redelivered: int
    deaths: int
    """Consumers that died."""
    wakes: int
    """Publishes that had to wake a sleeper."""
    generations: int
    """Blocks of memory so far."""
    retired_bytes: int
    memory_bytes: int
    consumers: int
    """Connected now."""
    slots: int
    slots_short: int
    kind: str
    """"host", "vmm" or "ipc"."""
    path: str
    """How frames travel."""
    reason: str
    """Why so and not otherwise."""
    shared: int
    """Frames published where they lay, in a memory pool, without a copy."""
    share_copies: int
    """Frames that lay in a memory pool and were copied all the same."""
    share_reason: str
    """Why the last one of these was."""
    gpu_waits: int
    """Calls, while frames may flow, that waited for the whole GPU; on a thread of the library's."""


class ImporterStatistics(NamedTuple):
    """Counters of an importer since it was opened."""

    received: int
    missed: int
    """Frames skipped, or gone before they were taken."""
    bytes: int
    """Of the received frames' planes as they lie in slots: rows are padded."""
    copies: int
    """Copies of frames that the library made."""
    waits: int
    """Acquires that slept."""
    wakes: int
    sessions: int
    """Producers so far."""
    generations: int
    lost: int
    """Frames whose producer died before they were complete."""
    evictions: int
    redelivered: int
    held: int
    """Frames held now."""
    hold: int
    """Frames that may be held."""
    connection: str
    """"searching", "joining", "joined" or "over"."""
    kind: str
    wake_latency: tuple[int, ...]
    """Publish until a waiting acquire returned: element i counts 2**i to 2**(i+1) ns."""
    path: str
    reason: str
    slots: int
    """Of the producer, as told last; 0 = there is none."""


def _value(struct: Any, field: str) -> Any:
    value = getattr(struct, field)
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, Array):
        return tuple(value)
    if field == "kind":
        return _KINDS.get(value, str(value))
    if field == "connection":
        return _CONNECTIONS.get(value, str(value))
    return value


def exporter_statistics(identifier: int) -> ExporterStatistics:
    """Asks the library."""
    struct = _abi.ExporterStatistics()
    struct.size = _abi.size(struct)
    low.exporter_statistics(identifier, struct)
    return ExporterStatistics(*(_value(struct, field) for field in ExporterStatistics._fields))


def importer_statistics(identifier: int) -> ImporterStatistics:
    """Asks the library."""
    struct = _abi.ImporterStatistics()
    struct.size = _abi.size(struct)
    low.importer_statistics(identifier, struct)
    return ImporterStatistics(*(_value(struct, field) for field in ImporterStatistics._fields))
