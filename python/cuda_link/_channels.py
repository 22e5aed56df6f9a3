# SPDX-License-Identifier: MIT
"""Which channels there are, who is on them, what they hold."""

from __future__ import annotations

import os
from ctypes import sizeof
from typing import Any, NamedTuple, Union

from . import _abi
from ._arguments import folder
from ._backend import low
from ._importer import POLICIES
from ._wait import nanoseconds

Directory = Union[str, os.PathLike[str], None]

_KINDS = {0: "", 1: "host", 2: "vmm", 3: "ipc"}
_POLICIES = {number: name for name, number in POLICIES.items()}
_TEXTS = ("name", "directory", "program", "path", "reason", "device", "device_name")
_COUNTS = ("received", "missed", "latency", "measured")
_NOT_TOLD = 2**64 - 1  # CUDALINK_NOT_TOLD
_STATUS = {0: "open", -6: "lost", -10: "refused", -12: "version", -3: "timeout"}


class Consumer(NamedTuple):
    """One consumer of a channel, as its producer sees it."""

    pid: int
    """In the producer's pid namespace; 0 = in another one."""
    uid: int
    program: str
    group: str
    policy: str
    hold: int
    """Frames that it may hold."""
    held: int
    """Frames that it holds now."""
    isolated: bool
    held_for: int
    """ns since it holds the frame that it has held longest."""
    position: int
    """Policy "every": the last frame that it has taken."""
    received: int | None
    """Frames that it has taken since it joined. None, as the three that follow: a library that does not
    count, or a producer that does not tell."""
    missed: int | None
    """Frames that it never got."""
    latency: int | None
    """ns from publish to acquire, of `measured` frames together."""
    measured: int | None
    """Frames: those for which it slept, and one in 16 of the others."""
    latencies: tuple[int, ...] | None
    """The measured frames by their latency, four counts per doubling: element 0 counts those below 1024 ns,
    element i those from (4 + (i - 1) % 4) << (8 + (i - 1) // 4) ns on, up to where the next one begins.
    None: not told."""


class Channel(NamedTuple):
    """One channel. Where status is not "open", only name, directory and status are set."""

    name: str
    directory: str
    status: str
    """"open", or why nothing more is known: "lost" (nobody is behind the name), "refused" (another
    user's), "version", "timeout"."""
    pid: int
    uid: int
    program: str
    kind: str
    slots: int
    slot_bytes: int
    generation: int
    published: int
    dropped: int
    newest_timestamp: int
    """`cuda_link.now()` of the newest frame; 0 = none yet."""
    opened: int
    format: str
    """Of the newest frame; "" for tensors."""
    width: int
    height: int
    plane_count: int
    path: str
    reason: str
    device: str
    """UUID of the GPU on which its frames lie, as NVIDIA writes it: "GPU-8932f937-d72b-..."; "" = memory of
    the CPU, or a producer whose library does not tell."""
    device_name: str
    """As the producer's driver calls that GPU, "NVIDIA H200"."""
    consumers: tuple[Consumer, ...]


def _text(field: bytes) -> str:
    return field.decode(errors="replace")


def _consumer(info: Any) -> Consumer:
    values = {field: getattr(info, field) for field in Consumer._fields}
    values.update({count: None for count in _COUNTS if values[count] == _NOT_TOLD})
    latencies = tuple(values["latencies"])
    values.update(
        program=_text(info.program),
        group=_text(info.group),
        policy=_POLICIES.get(info.policy, str(info.policy)),
        isolated=bool(info.isolated),
        latencies=None if latencies[0] == _NOT_TOLD else latencies,
    )
    return Consumer(**values)


def _channel(info: Any) -> Channel:
    values = {field: getattr(info, field) for field in Channel._fields}
    values.update(
        {name: _text(values[name]) for name in _TEXTS},
        status=_STATUS.get(info.status, str(info.status)),
        kind=_KINDS.get(info.kind, str(info.kind)),
        format=(low.format_name(info.format) or "") if info.format else "",
        consumers=tuple(_consumer(info.consumers[i]) for i in range(info.consumer_count)),
    )
    return Channel(**values)


def channels(directory: Directory = None, *, timeout: float = 1.0) -> list[Channel]:
    """The channels of all the usual folders, or of one. Asks all producers at once and waits at most
    `timeout` seconds; takes no part in any channel."""
    raw = low.channels_list(folder(directory), nanoseconds(timeout))
    size = sizeof(_abi.ChannelInfo)
    return [_channel(_abi.ChannelInfo.from_buffer_copy(raw, i)) for i in range(0, len(raw), size)]


def clean(directory: Directory = None) -> int:
    """Removes what dead producers left behind, never a living one's; returns how many names."""
    removed: int = low.channels_clean(folder(directory))
    return removed
