# SPDX-License-Identifier: MIT
"""asyncio: wait until a descriptor is readable. Several tasks, also of several loops, may wait on one."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Callable

_Key = tuple[asyncio.AbstractEventLoop, int]
_waiting: dict[_Key, list[asyncio.Future[None]]] = {}


async def readable(descriptor: int, end: float | None, is_open: Callable[[], bool]) -> None:
    """Returns when it can be read, was closed by way of `closing`, or at a time of the loop's clock. is_open:
    False before `closing` is called."""
    loop = asyncio.get_running_loop()
    key = (loop, descriptor)
    future: asyncio.Future[None] = loop.create_future()
    waiting = _waiting.setdefault(key, [])
    waiting.append(future)
    timer = None if end is None else loop.call_at(end, _finish, future)
    try:
        if len(waiting) == 1:
            loop.add_reader(descriptor, _wake, waiting)
        if is_open():  # behind the entry: a close that comes now finds it
            await future
    except (OSError, RuntimeError):  # it was closed since the caller asked, and may be another one's already
        if is_open():
            raise
    finally:
        if timer:
            timer.cancel()
        waiting.remove(future)
        if not waiting and _waiting.get(key) is waiting:
            del _waiting[key]
            loop.remove_reader(descriptor)


def _wake(waiting: list[asyncio.Future[None]]) -> None:
    for future in waiting:
        _finish(future)


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _stop(key: _Key) -> None:
    """Whoever waits from now on waits for another descriptor of that number."""
    key[0].remove_reader(key[1])
    _wake(_waiting.pop(key, []))


def closing(descriptor: int) -> None:
    """To be called before a descriptor is closed, on any thread: its waiters look again."""
    for key in list(_waiting):
        if key[1] == descriptor and not key[0].is_closed():
            with suppress(RuntimeError):  # it was closed meanwhile
                key[0].call_soon_threadsafe(_stop, key)
