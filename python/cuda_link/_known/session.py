# SPDX-License-Identifier: MIT
"""One session of a producer on the old wire, read through an IPCConnection and the CUDA operations of the
script that made it. The library's own reader is another (docs/old-wire.md); the rules are the same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter, sleep
from typing import Any

from .._errors import InvalidArgumentError, ProtocolError
from .connection import Format, IPCConnection
from .layout import (
    MAGIC,
    AcquireResult,
    Metadata,
    SHMLayout,
    SlotState,
    acquire_slot,
    read_magic,
    read_num_slots,
    read_version,
)

NAP = 1e-4  # s between two looks at an event or a counter
_COUNTERS = 1 << 32  # write_idx wraps
_FEWEST_SLOTS = 2
TO_HOST, ON_DEVICE = 2, 3  # kinds of copies, as the CUDA runtime numbers them


class Session:
    """What is read of one connection, which it owns and closes."""

    def __init__(
        self, connection: IPCConnection, fmt: Format | None, cuda: Any, device: int, last_write_idx: int
    ) -> None:
        self.connection = connection
        self.cuda = connection.cuda if cuda is None else cuda
        self.device = device
        self.layout = connection.layout or SHMLayout(max(connection.num_slots, 1))
        self.seen = last_write_idx
        """The counter of the last frame that was got."""
        self.missed = 0
        self.torn = 0
        self.closing = False  # another thread wants to close it, and waits for the one in wait
        self._stream: Any = None
        _check(self)
        self._version = connection.ipc_version or read_version(self.buffer)
        self.fmt = _checked_format(self, fmt)

    @property
    def buffer(self) -> Any:
        """The segment's bytes."""
        return self.connection.shm_handle.buf

    def look(self) -> AcquireResult:
        """Is there a frame that was not got yet?"""
        return acquire_slot(self.buffer, self.layout, self._version, self.seen)

    def wait(self, slot: int, timeout: float, spin_us: float) -> bool:
        """The CPU waits for the slot's pixels; False when the time, or the session, is over."""
        events = self.connection.ipc_events
        event = events[slot] if slot < len(events) else None
        if event is None:
            self.cuda.synchronize()
            return True
        began = perf_counter()
        while not self.cuda.query_event(event):
            waited = perf_counter() - began
            if waited >= timeout or self.closing or self.look().state is not SlotState.NEW_FRAME:
                return False
            if waited * 1e6 >= spin_us:
                sleep(NAP)
        return True

    def copy(self, found: AcquireResult, address: int, kind: int, stream: Any = None) -> bool:
        """The frame to `address`, complete. False: it may have been overwritten meanwhile."""
        with self._current_device():
            if stream is None:
                stream = self._own_stream()
            source = self.connection.dev_ptrs[found.slot]
            self.cuda.memcpy_async(address, source, self.fmt.frame_nbytes, kind, stream)
            self.cuda.stream_synchronize(stream)
        if self._is_whole(found):
            self.missed += (found.write_idx - self.seen - 1) % _COUNTERS if self.seen else 0
            self.seen = found.write_idx
            return True
        self.torn += 1
        return False

    def _is_whole(self, found: AcquireResult) -> bool:
        """The producer writes to a slot again once it has published all others."""
        now = acquire_slot(self.buffer, self.layout, self._version, 0)
        published = (now.write_idx - found.write_idx) % _COUNTERS
        return now.state is SlotState.NEW_FRAME and published < self.layout.num_slots - 1

    def _own_stream(self) -> Any:
        if self._stream is None:
            self._stream = self.cuda.create_stream()
        return self._stream

    @contextmanager
    def _current_device(self) -> Iterator[None]:
        context = self.cuda.set_device(self.device)
        try:
            yield
        finally:
            self.cuda.restore_context(context)

    def close(self) -> None:
        """The connection, too. May be called again."""
        stream, self._stream = self._stream, None
        if stream is not None:
            self.cuda.destroy_stream(stream)
        self.connection.close()


def _check(session: Session) -> None:
    connection, slots = session.connection, session.layout.num_slots
    if session.cuda is None:
        raise InvalidArgumentError(
            "from_connection: there is no cuda: pass the CudaPort that has opened the connection, "
            "cuda=port or IPCConnection(cuda=port)"
        )
    if getattr(connection.shm_handle, "buf", None) is None:
        raise InvalidArgumentError(
            "from_connection: conn.shm_handle is the segment, an object with .buf and .close(): "
            "multiprocessing.shared_memory.SharedMemory"
        )
    if len(session.buffer) < session.layout.total_size or read_magic(session.buffer) != MAGIC:
        raise ProtocolError("from_connection: conn.shm_handle is no segment of the old wire")
    if read_num_slots(session.buffer) != slots or connection.num_slots != slots:
        raise ProtocolError(
            f"from_connection: the segment has {read_num_slots(session.buffer)} slots, the connection "
            f"{connection.num_slots}, its layout {slots}"
        )
    if len(connection.dev_ptrs) != slots or not all(connection.dev_ptrs):
        raise InvalidArgumentError(
            f"from_connection: conn.dev_ptrs has the address of each of the {slots} slots, as "
            "cuda.ipc_open_mem_handle gives it"
        )
    if slots < _FEWEST_SLOTS:
        raise InvalidArgumentError(
            "from_connection: the only slot of a ring is written to while it is read: "
            f"{_FEWEST_SLOTS} slots are needed"
        )


def _checked_format(session: Session, fmt: Format | None) -> Format:
    """As the script says, if the segment does not say that it is wrong."""
    metadata = Metadata.read_from(session.buffer, session.layout.metadata_offset)
    if fmt is None:
        return Format.from_metadata(metadata)
    if metadata.data_size and metadata.data_size != fmt.frame_nbytes:
        raise InvalidArgumentError(
            f"from_connection: {fmt.dtype_str} {fmt.shape} is {fmt.frame_nbytes} bytes, and the producer's "
            f"frames are {metadata.data_size}"
        )
    return fmt
