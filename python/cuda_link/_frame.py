# SPDX-License-Identifier: MIT
"""A frame that an importer holds."""

from __future__ import annotations

from typing import Any

from . import _abi, _description, _frameworks, _streams
from ._answer import NO, YES, Answer
from ._backend import low
from ._content import Content
from ._copy import FrameCopy, copy_frame, copy_where_it_is, packed_frame
from ._description import Layout, Timing
from ._tensor import Tensor

_KINDS = {1: "host", 2: "vmm", 3: "ipc"}


class Frame(low.Lease, Content):  # type: ignore[misc,name-defined]
    """A held frame: until it is released, its producer does not write to this memory.

    Released by `release`, by the end of a with-block, by the next step of a for loop, or when the last
    reference to it goes; in each case not before the last array that looks at its memory has gone.
    Safe to use from several threads. In a forked child whatever looks at its memory raises ForkedError.
    """

    __slots__ = ()

    _remembers_streams = True  # what was exported to a stream is released behind it

    # ---- what it is

    sequence: int
    """Number of this frame in its producer's life, from 1, never repeated."""
    timestamp: int
    """When it was published: ns of CLOCK_MONOTONIC (`cuda_link.now()`)."""
    missed: int
    """Frames that this importer did not get since the one before."""
    session: int
    """Counts the producers that the importer was connected to, from 1."""
    generation: int
    """Counts the blocks of memory of this producer."""
    user: bytes
    """The user data that travelled with it, copied."""
    released: bool
    """Was it given back? (Arrays of it may still keep it held.)"""
    _layout: Layout | None

    @property
    def layout(self) -> Layout:
        """Its planes and picture."""
        if self._layout is None:
            self._layout = self._held.layouts.get(self)  # type: ignore[misc]
        return self._layout

    @property
    def kind(self) -> str:
        """Where it is: "host" (memory of the CPU), "vmm" or "ipc" (a GPU)."""
        return _KINDS.get(self._kind, str(self._kind))

    @property
    def writable(self) -> Answer:
        """May this mapping be written to? Never on kind host. `frame.writable()` says the same."""
        return YES if self._writable else NO

    @property
    def pending(self) -> bool:
        """Are its pixels complete only in the order of the stream that acquire named?"""
        return bool(self._flags() & _abi.FRAME_PENDING)

    @property
    def lost(self) -> bool:
        """Did the producer die before the pixels were complete?"""
        return bool(self._flags() & _abi.FRAME_LOST)

    @property
    def redelivered(self) -> bool:
        """Did another member of the group die while it had this frame?"""
        return bool(self._flags() & _abi.FRAME_REDELIVERED)

    @property
    def shared(self) -> bool:
        """Does it lie in its producer's memory pool? Then it stays as it is as long as the producer does
        not write there, which nobody can keep it from; and it is never writable here."""
        return bool(self._flags() & _abi.FRAME_SHARED)

    @property
    def invalid(self) -> str | None:
        """Why its pixels mean nothing, when it was published as invalid; else None."""
        return self._text if self._flags() & _abi.FRAME_INVALID else None

    @property
    def timing(self) -> Timing:
        """When it is meant to be shown."""
        return _description.timing(self._description)

    @property
    def pts(self) -> int:
        """Presentation time in units of `timing.time_base`."""
        return self.timing.pts

    # ---- its pixels

    def _on_host(self) -> Content:
        return self if self._kind == _abi.KIND_HOST else self.copy()

    def _memory(self, index: int) -> tuple[Any, int]:
        return self._view(), self.planes[index].offset

    def packed(self) -> bytearray:
        """The frame as bytes in memory of the CPU: planes one behind the other, rows without gaps.
        Waits for the copy. Errors: PeerLostError, ValueError (released)."""
        return packed_frame(self)

    def copy(self, *, stream: Any = ...) -> FrameCopy:
        """The frame in writable memory of its own.

        Without `stream` in memory of the CPU, and the call waits for the copy. With it where the frame is: on
        a GPU the copy is queued on that stream and complete in its order (None: the legacy default stream,
        -1: the call waits), and the frame may be released at once.

        Errors: ValueError (released), TypeError, StreamError, NoMemoryError, GpuError, PeerLostError.
        """
        return copy_frame(self) if stream is ... else copy_where_it_is(self, stream)

    def tensor(self, plane: int | str = 0) -> Tensor:
        """One plane as an object with `__dlpack__`, for torch.from_dlpack and its like."""
        return Tensor(self, self._index(plane))

    def _importable(self, plane: int | str) -> Any:
        return self if plane == 0 and self._plane_count == 1 else self.tensor(plane)

    def torch(self, plane: int | str = 0) -> Any:
        tensor = self._give(_frameworks.torch_table) if plane == 0 else None
        if tensor is not None:
            return tensor
        if plane == 0 and self._device and self._writable and self._plane_count == 1:
            return _frameworks.torch_by_capsule(self, self._device - 1)
        return super().torch(plane)

    torch.__doc__ = Content.torch.__doc__

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        interface: dict[str, Any] = self._only_tensor().__cuda_array_interface__
        return interface

    # ---- written to

    def mark_written(self, stream: Any) -> None:
        """Says that work queued on `stream` so far writes to this frame, which nobody else can know.

        Whoever reads it later through this object (`__dlpack__`, `__cuda_array_interface__`, `copy`, `numpy`,
        `send`) comes behind that stream, and so does its release; release(stream=-1) alone does not. -1: the
        writes are done. Consumers in other processes, who may hold the same frame, are not ordered.

        Errors: ValueError (released; read-only, as on kind host), TypeError, StreamError, BusyError (9th
        stream), CapturingError, ForkedError.
        """
        self._written(*_streams.resolve(stream))

    # ---- its end

    def release(self, *, stream: Any = None, event: Any = None) -> None:
        """Gives the frame back; its memory stays as it is until the last array or tensor of it goes, too.

        stream: after the work that is queued on it now. event: after this event, recorded already. -1:
        nothing reads it any more. Neither: after the work queued on every stream that it was exported
        to (`__dlpack__`). Never waits. A second time is an error.

        Errors: ValueError (released already), StreamError, CapturingError, PeerLostError (the producer
        died before the pixels were complete; the frame is released all the same), ForkedError.
        """
        if stream is not None and event is not None:
            raise TypeError("release takes a stream or an event, not both")
        if event is not None:
            self._release(*_streams.resolve_event(event))
        elif stream is not None:
            self._release(*_streams.resolve(stream))
        else:
            self._release()

    def __enter__(self) -> Frame:
        return self

    def __exit__(self, *exception: object) -> None:
        if not self.released:
            self.release()

    def __repr__(self) -> str:
        state = " (released)" if self.released else ""
        what = self._summary() if self.planes else f"invalid, {self._text!r}"
        return f"<Frame {self.sequence}: {what} on {self.kind}{state}>"


low.table_offer(Frame)
