# SPDX-License-Identifier: MIT
"""asyncio: wait until a descriptor is readable. Several tasks, also of several loops, may wait on one."""

from __future__ import annotations

import asyncio

_Key = tuple[asyncio.AbstractEventLoop, int]
_waiting: dict[_Key, list[asyncio.Future[None]]] = {}


async def readable(descriptor: int, end: float | None = None) -> None:
    """Returns when it can be read, was closed by way of `closing`, or at a time of the loop's clock."""
    loop = asyncio.get_running_loop()
    key = (loop, descriptor)
    future: asyncio.Future[None] = loop.create_future()
    waiting = _waiting.setdefault(key, [])
    waiting.append(future)
    if len(waiting) == 1:
        loop.add_reader(descriptor, _wake, key)
    timer = None if end is None else loop.call_at(end, _finish, future)
    try:
        await future
    finally:
        if timer:
            timer.cancel()
        waiting.remove(future)
        if not waiting:
            _waiting.pop(key, None)
            loop.remove_reader(descriptor)


def _wake(key: _Key) -> None:
    for future in _waiting.get(key, ()):
        _finish(future)


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _stop(key: _Key) -> None:
    key[0].remove_reader(key[1])
    _wake(key)


def closing(descriptor: int) -> None:
    """To be called before a descriptor is closed, on any thread: its waiters look again."""
    for key in list(_waiting):
        if key[1] == descriptor and not key[0].is_closed():
            key[0].call_soon_threadsafe(_stop, key)
