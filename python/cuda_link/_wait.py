# SPDX-License-Identifier: MIT
"""Time-outs in seconds, and waits that Ctrl-C can end.

A wait inside the C library does not see Python's signals, so long ones are cut into slices.
"""

from __future__ import annotations

from time import monotonic_ns
from typing import Callable, TypeVar

from ._abi import FOREVER
from ._errors import TimedOutError

Result = TypeVar("Result")
SLICE = 200_000_000  # ns; how long Ctrl-C may take
"""Waits that are not longer take one call."""


def nanoseconds(timeout: float | None, name: str = "timeout") -> int:
    """None = no limit; else seconds, 0 or more."""
    if timeout == 0:
        return 0
    if timeout is None:
        return FOREVER
    try:
        is_limit = bool(timeout >= 0)
        if is_limit:
            return int(timeout * 1e9) if timeout < FOREVER / 1e9 else FOREVER
    except TypeError:
        raise TypeError(f"{name}={timeout!r}: it is a number of seconds, or None for no limit") from None
    raise ValueError(f"{name}={timeout}: a time-out is 0 or more seconds, or None for no limit")


def limited(name: str, seconds: float) -> int:
    """As `nanoseconds`, of an argument that has to have an end."""
    if seconds is None:
        raise TypeError(f"{name}=None: it is a number of seconds")
    try:
        limit = nanoseconds(seconds, name)
    except TypeError:
        raise TypeError(f"{name}={seconds!r}: it is a number of seconds") from None
    if limit == FOREVER:
        raise ValueError(f"{name}={seconds}: it has to end some day")
    return limit


def wait(
    call: Callable[[int], Result],
    timeout: int,
    again: type[Exception] | tuple[type[Exception], ...] = TimedOutError,
) -> Result:
    """call(ns) until it does not say `again`, or the time is over."""
    if timeout <= SLICE:
        return call(timeout)
    end = None if timeout == FOREVER else monotonic_ns() + timeout
    while True:
        left = SLICE if end is None else min(SLICE, end - monotonic_ns())
        try:
            return call(max(left, 0))
        except again:
            if left < SLICE:
                raise
