# SPDX-License-Identifier: MIT
"""get_frame_numpy one frame late (ImportPolicy.d2h_pipelined): a get begins the copy of the frame that is
there, and returns the frame before, whose copy ran while the script did something else."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from typing import Any, NamedTuple

from .._backend import low
from .._errors import (
    BusyError,
    ClosedError,
    CudaLinkError,
    InvalidArgumentError,
    OverwrittenError,
    PeerLostError,
    UnsupportedError,
)
from .._frame import Frame
from .._importer import ChannelImporter
from .values import ImportOutcome, ImportResult

_TELL_LATER = (ImportOutcome.SHUTDOWN, ImportOutcome.RECONNECTING)


class Copy(NamedTuple):
    """A frame in memory of the CPU, or on its way there."""

    array: Any
    frame: Frame | None
    """It was given back already. None: it is of a connection of the script's."""
    stamp: int
    session: int
    number: int = 0
    """Of a copy under way; 0: it is done."""


class Pipeline:
    """The copy that the next get returns. Nothing is under way any more once it has ended, so that memory
    which is used again, or freed, is not written to."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._copy: Copy | None = None
        self._ended = False
        self.told: ImportResult | None = None
        """What the next get says: a frame came before it."""

    def told_now(self) -> ImportResult | None:
        """What was left to say, once."""
        told, self.told = self.told, None
        return told

    def swap(self, frame: Frame, array: Any) -> Copy | None:
        """The copy before, done; that of this frame is under way then, and the frame given back behind it.
        None: there is none, or it is of a session that has ended."""
        with self._lock:
            if self._ended:
                raise ClosedError("this importer was closed by another thread")
            begun = _begin(frame, array)  # first: the GPU is not idle meanwhile
            return self._replace(begun) if begun is not None else None

    def swap_done(self, copy: Copy) -> Copy | None:
        """The same of a copy that is done."""
        with self._lock:
            return self._replace(copy)

    def last(self, result: ImportResult) -> Copy | None:
        """The copy that comes before the end of its session is told, which the next get does."""
        if result.outcome not in _TELL_LATER:
            return None
        with self._lock:
            last = self._replace(None)
        if last is not None:
            self.told = result
        return last

    def end(self) -> None:
        """Waits for what is under way."""
        if self._process != os.getpid():  # whoever had the lock is not here
            return
        with self._lock, suppress(CudaLinkError):
            self._ended = True
            self.told = None
            self._replace(None)

    def _replace(self, copy: Copy | None) -> Copy | None:
        before, self._copy = self._copy, copy
        if before is None:
            return None
        if before.number:
            low.importer_finish(before.number)
        return before if copy is None or copy.session == before.session else None


def _begin(frame: Frame, array: Any) -> Copy | None:
    """None: its pixels are worth nothing. It is given back in any case."""
    number = 0
    try:
        try:
            number = frame._to_host_begin(array)
        except (BusyError, InvalidArgumentError, UnsupportedError):
            # Not pinned; or the old wire, where each frame is proven behind its copy.
            frame._to_host(array)
            frame._release()
    except (OverwrittenError, PeerLostError):
        return None
    return Copy(array, frame, frame.timestamp, frame.session, number)


class PipelinedImporter(ChannelImporter):
    """Ends its pipeline before it is closed, by whatever way."""

    pipeline: Pipeline | None = None  # until it is open: an attempt ends no pipeline

    def _close(self, identifier: int) -> None:
        if self.pipeline is not None:
            self.pipeline.end()
        super()._close(identifier)
