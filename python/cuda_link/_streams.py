# SPDX-License-Identifier: MIT
"""Streams are named, never guessed: what may be passed as `stream=` and `event=`.

-1                     nothing is pending: the CPU has seen the work end
0, 1                   CUDA's legacy default stream (torch's default stream says 0)
2                      CUDA's per-thread default stream
any other number       a stream's handle (CUstream, cudaStream_t)
an object              with `.cuda_stream` (torch), `.ptr` (CuPy) or `__cuda_stream__()`
"""

from __future__ import annotations

from typing import Any, NamedTuple, Union

from . import _abi

StreamLike = Union[int, Any]


class Stream(NamedTuple):
    """A stream as the C library takes it."""

    kind: int
    handle: int


COMPLETE = Stream(_abi.STREAM_COMPLETE, 0)
LEGACY = Stream(_abi.STREAM_LEGACY, 0)
PER_THREAD = Stream(_abi.STREAM_PER_THREAD, 0)


def legacy() -> Stream:
    """What DLPack means where no stream is named."""
    return LEGACY


_SPECIAL = {-1: COMPLETE, 0: LEGACY, 1: LEGACY, 2: PER_THREAD}


def _number(value: Any, attributes: tuple[str, ...], what: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    for attribute in attributes:
        handle = getattr(value, attribute, None)
        if isinstance(handle, int):
            return handle
    named = " or ".join("." + attribute for attribute in attributes)
    raise TypeError(f"{value!r} is not {what}: pass a number, or an object with {named}")


def resolve(stream: StreamLike) -> Stream:
    """The stream that was named. TypeError for what is no stream, ValueError for a number that is none."""
    protocol = getattr(type(stream), "__cuda_stream__", None)
    number = protocol(stream)[1] if protocol else _number(stream, ("cuda_stream", "ptr"), "a stream")
    special = _SPECIAL.get(number)
    if special:
        return special
    if number < 0 or number >= 2**64:
        raise ValueError(f"{number} is no stream: -1 says that nothing is pending, handles are positive")
    return Stream(_abi.STREAM_HANDLE, number)


def resolve_event(event: Any) -> Stream:
    """An event that was recorded already: a handle, or an object with .cuda_event, .ptr or .handle."""
    handle = _number(event, ("cuda_event", "ptr", "handle"), "an event")
    if handle <= 0:
        raise ValueError(f"{handle} is no event; has it been recorded yet?")
    return Stream(_abi.STREAM_EVENT, handle)
