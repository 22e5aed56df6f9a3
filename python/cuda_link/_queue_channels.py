# SPDX-License-Identifier: MIT
"""Where the arrays of a queue's items are: channels with one item each.

A channel keeps its newest frame until the next one is published, for consumers that come later, too. So a
putting process has as many channels as it ever had items queued at the same time, and uses each again once
its item was taken.
"""

from __future__ import annotations

import os
import resource
import threading
import time
from collections import OrderedDict
from typing import Any

from ._errors import BusyError, SystemRefusedError
from ._exporter import ChannelExporter, open_exporter
from ._frame import Frame
from ._importer import ChannelImporter, open_importer

_SLOTS = 3  # the item, the one before it whose last reader may still be there, the next
_PATIENCE = 2.0  # seconds for a slot of a channel that nobody should use
_REMEMBERED = 256  # channels that a getter stays connected to, or a sixteenth of its descriptors

_counting = threading.RLock()  # a collection may end a channel while this thread has it
_cells = 0  # of this process; each takes four descriptors, and three more while somebody is connected


def _after_fork() -> None:
    """The child has none of them, and its parent's lock may be held for ever."""
    global _counting, _cells
    _counting, _cells = threading.RLock(), 0


os.register_at_fork(after_in_child=_after_fork)


def _descriptors() -> int:
    """How many a process may have now (`ulimit -n`)."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**30 if limit == resource.RLIM_INFINITY else limit


def _count_one(cell: Cell) -> None:
    """A channel more. Half of the descriptors are for those who come for the items, and for the program."""
    global _cells
    most = max(_descriptors() // 8, 1)
    with _counting:
        count = _cells
        if count < most:
            _cells, cell.counted = count + 1, _counting
    if count >= most:
        raise SystemRefusedError(
            f"{count} channels of queues are open in this process, as many as its {_descriptors()} "
            "descriptors (ulimit -n) allow: an item with arrays has one until it is taken. Get some, "
            "give Queue a smaller maxsize, so that put waits, or raise the limit"
        )


def _count_one_less() -> None:
    global _cells
    with _counting:
        _cells -= 1


def channel_name(queue: int, member: int, number: int) -> str:
    """Of a putter's channel."""
    return f"queue-{queue:016x}-{member}-{number}"


class Cell:
    """A channel, on its putter's side."""

    exporter: ChannelExporter
    counted: Any = None
    """The lock of the count, which is another one in each process."""

    def __init__(self, number: int, place: str) -> None:
        self.number = number
        self.place = place
        """"host", or "gpu" with the device's number."""

    def put(self, arrays: Any) -> int:
        """Publishes arrays. Returns what a table has to say of it: number + 1."""
        if not self.exporter.send(arrays, timeout=_PATIENCE):
            raise BusyError(f"channel {self.exporter.name!r}: its readers do not let go of earlier items")
        return self.number + 1

    def close(self) -> None:
        """Ends the channel."""
        try:
            self.exporter.close()
        finally:
            self.__del__()

    def __del__(self) -> None:  # the exporter has one of its own
        counted, self.counted = self.counted, None
        if counted is not None and counted is _counting:
            _count_one_less()


class Cells:
    """The channels of one putting process."""

    def __init__(self, queue: int, member: int) -> None:
        self._queue, self._member = queue, member
        self._mutex = threading.Lock()
        self._free: list[Cell] = []
        self._count = 0

    def take(self, place: str, device: int, nbytes: int) -> Cell:
        """One that is free, or a new one for arrays of that size."""
        with self._mutex:
            for i in reversed(range(len(self._free))):
                if self._free[i].place == place:
                    return self._free.pop(i)
            number = self._count
            self._count += 1
        cell = Cell(number, place)
        _count_one(cell)
        cell.exporter = self._open(number, place, device, nbytes)
        return cell

    def _open(self, number: int, place: str, device: int, nbytes: int) -> ChannelExporter:
        return open_exporter(
            channel_name(self._queue, self._member, number),
            shape=(max(nbytes, 1),),
            kind="host" if place == "host" else "auto",
            device=None if place == "host" else device,
            slots=_SLOTS,
            max_slots=_SLOTS,
            hold_limit=None,
        )

    def give_back(self, cell: Cell) -> None:
        """Its item was taken."""
        with self._mutex:
            self._free.append(cell)

    def close(self) -> None:
        """Closes those that are free."""
        with self._mutex:
            free, self._free = self._free, []
        for cell in free:
            cell.close()


class Readers:
    """A getting process's connections to putters' channels."""

    def __init__(self, queue: int) -> None:
        self._queue = queue
        self._mutex = threading.Lock()
        self._known: OrderedDict[str, ChannelImporter] = OrderedDict()

    def frame(self, member: int, place: int, seconds: float) -> Frame:
        """The frame of an item: the newest of its channel, which this connection did not have yet. Errors:
        TimedOutError; PeerLostError, EndedError, ChannelNotFoundError (it went with its putter)."""
        name = channel_name(self._queue, member, place - 1)
        until = time.monotonic() + seconds
        with self._mutex:
            importer = self._known.pop(name, None)
        if importer is None:
            importer = open_importer(name, hold=2, once=True, timeout=seconds)
        try:
            frame = importer.acquire(max(until - time.monotonic(), 0))
        except BaseException:
            importer.close()
            raise
        self._keep(name, importer)
        return frame

    def _keep(self, name: str, importer: ChannelImporter) -> None:
        with self._mutex:
            self._known[name] = importer
            many = len(self._known) > min(_REMEMBERED, max(_descriptors() // 16, 1))
            old = self._known.popitem(last=False)[1] if many else None
        if old is not None:
            old.close()

    def forget(self, member: int, place: int) -> None:
        """Its frame has to be taken once more: a new connection gets the newest one again."""
        name = channel_name(self._queue, member, place - 1)
        with self._mutex:
            importer = self._known.pop(name, None)
        if importer is not None:
            importer.close()

    def close(self) -> None:
        """Leaves all."""
        with self._mutex:
            known, self._known = self._known, OrderedDict()
        for importer in known.values():
            importer.close()
