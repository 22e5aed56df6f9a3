# SPDX-License-Identifier: MIT
"""A slot of an exporter's ring, lent to be filled."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from . import _abi, _arguments, _description, _streams, _wait
from ._array import take
from ._backend import low
from ._content import Content
from ._description import Layout
from ._errors import CudaLinkError
from ._tensor import SlotTensor

if TYPE_CHECKING:
    from ._exporter import ChannelExporter


class LentSlot(low.Slot, Content):  # type: ignore[misc,name-defined]
    """The next frame, to be written in place. Made by `Exporter.frame`, used in a with-block.

    The end of the block publishes it; an exception in the block, or `abandon`, gives it back
    unpublished. After that others read this memory: do not write to arrays of it. (They stay valid: it is
    mapped as long as one of them lives, also beyond the end of the exporter.)
    """

    __slots__ = ("_description", "_layout", "_limit", "_owner", "_written", "stream")

    sequence: int
    """The number that the frame will have."""
    address: int
    """Where it is: an address of the CPU on kind host, of the GPU else."""

    def __init__(
        self, owner: ChannelExporter, description: _abi.Description, stream: Any, limit: int
    ) -> None:
        self._owner = owner
        self._description = description
        self._limit = limit
        self._layout: Layout | None = None
        self._written: tuple[_streams.Stream, ...] = ()
        self.stream = stream
        """After what its pixels are complete; None = when the block ends."""

    @property
    def layout(self) -> Layout:
        if self._layout is None:
            self._layout = _description.layout(bytes(self._description))
        return self._layout

    def _memory(self, index: int) -> tuple[Any, int]:
        self._check()
        if self._device:
            raise BufferError("this slot is in GPU memory: write it with torch.from_dlpack(slot) or its like")
        size = low.description_bytes(self._description)
        return self._view(self.address, size), self.planes[index].offset

    def _keep(self) -> Any:
        """What keeps the memory mapped, whatever other threads do with the exporter."""
        return self._view(self.address, self._bytes)

    def tensor(self, plane: int | str = 0) -> SlotTensor:
        """One plane as an object with `__dlpack__`, to be written in place."""
        return SlotTensor(self, self._index(plane))

    @property
    def user(self) -> memoryview:
        """The frame's user data, to be written; as long as was said with user_size."""
        self._check()
        return memoryview(self._view(self._user, self._description.user_size))

    def _check(self) -> None:
        if not self._open:
            raise ValueError("this slot is not lent now: use it inside of `with exporter.frame() as slot:`")

    def __enter__(self) -> LentSlot:
        if self.sequence:
            raise ValueError("a lent slot can be used in one with-block; call exporter.frame() again")
        if self._limit <= _wait.SLICE:
            self._begin(self._owner._id, self._description, self._limit)
        else:
            self._owner._retry(lambda ns: self._begin(self._owner._id, self._description, ns), self._limit)
        return self

    def publish(self, *, stream: Any = None) -> None:
        """Publishes now, after the work queued on `stream` so far; the end of the block does it too."""
        self._check()
        kind, handle = self._behind(self.stream if stream is None else stream)
        self._publish(kind, handle)

    def mark_written(self, stream: Any) -> None:
        """Says that work queued on `stream` writes to this slot: it is published, or given back, behind what
        is queued there then, beside the stream that publish or `exporter.frame` names. Call it for each
        stream. -1: the writes are done.

        Errors: ValueError (not lent), BufferError (kind host has no streams), TypeError.
        """
        self._check()
        named = _streams.resolve(stream)
        if named == _streams.COMPLETE or named in self._written:
            return
        if not self._device:
            raise BufferError("mark_written: this slot is in memory of the CPU, which has no streams: say -1")
        self._written += (named,)

    def _behind(self, stream: Any = None) -> _streams.Stream:
        """One that comes behind this stream and all that write. Of several it is one of the library's own,
        which waits for them."""
        named = _streams.COMPLETE if stream is None else _streams.resolve(stream)
        if not self._written:
            return named
        streams = {named, *self._written} - {_streams.COMPLETE}
        if len(streams) < 2:
            return next(iter(streams), _streams.COMPLETE)
        behind = _streams.Stream(*low.exporter_stream(self._exporter))
        self._order(streams, behind)
        return behind

    def _order(self, streams: Iterable[_streams.Stream], behind: _streams.Stream) -> None:
        for stream in streams:
            array = take(self._export(self._description, 0, True))
            array._ready(*stream)
            array._wait(*behind)

    def publish_invalid(self, text: str) -> None:
        """Publishes it as invalid: consumers get it in its place, with this text (95 bytes)."""
        self._check()
        self._order(self._written, _streams.COMPLETE)  # the next frame in this slot must not be written to
        _arguments.text("text", text)
        self._publish_invalid(text)

    def abandon(self) -> None:
        """Gives it back unpublished."""
        self._check()
        self._abandon(*self._behind())

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        if not self._open:
            return
        if kind is None:
            try:
                self.publish()
                return
            except BaseException:
                self._give_up()
                raise
        self._give_up()

    def _give_up(self) -> None:
        """abandon, while an exception is on its way, which that of a closed exporter must not hide; also when
        it was entered by hand, and forgotten: no other frame could be begun."""
        self._open = False  # type: ignore[misc]
        with suppress(CudaLinkError):
            self._abandon(*self._behind())
            return
        # One of the streams can't be waited for, as one that captures a graph: behind the others. A slot that
        # nobody gave back would be the last one of this exporter.
        behind = _streams.COMPLETE
        with suppress(CudaLinkError):
            behind = _streams.Stream(*low.exporter_stream(self._exporter))
        for stream in self._written:
            with suppress(CudaLinkError):
                self._order((stream,), behind)
        with suppress(CudaLinkError):
            self._abandon(*behind)

    def __repr__(self) -> str:
        return f"<LentSlot for frame {self.sequence}: {self._summary()}>"
