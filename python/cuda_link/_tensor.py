# SPDX-License-Identifier: MIT
"""One plane of a frame or of a lent slot, for frameworks: `__dlpack__` and the CUDA array interface.

    torch.from_dlpack(frame)        jax.dlpack.from_dlpack(frame.tensor("y"))

Objects, not capsules: they can be imported any number of times, by any number of frameworks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _streams
from ._array import Array, take
from ._description import Plane
from ._exchange import (
    CPU,
    TYPESTRS,
    Device,
    Version,
    check_copy,
    check_host_stream,
    consumer_stream,
    device_of,
    is_versioned,
    must_cross,
)
from ._only_one import refuse_copies

if TYPE_CHECKING:
    from ._frame import Frame
    from ._slot import LentSlot


class Tensor:
    """A plane of a frame. Each tensor that a framework makes of it keeps the frame held."""

    __slots__ = ("_frame", "_index")
    __reduce_ex__ = refuse_copies
    _remembers_streams = True  # what was exported to a stream is released behind it

    def __init__(self, frame: Frame, index: int) -> None:
        self._frame = frame
        self._index = index

    @property
    def plane(self) -> Plane:
        """Name, dtype, shape, strides."""
        return self._frame.planes[self._index]

    def __dlpack_device__(self) -> Device:
        return device_of(self._frame._device)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: Version | None = None,
        dl_device: Device | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A new capsule, as DLPack's Python protocol says.

        `stream` waits for the pixels, the CPU does not, and the frame's release will wait for what is
        queued there then. copy=True gives memory of its own, on the same device. dl_device=(1, 0) copies
        to the CPU and waits. A legacy capsule (no max_version) can't say that it is read-only.

        Errors: BufferError (not exportable so), TypeError (stream), ValueError (released).
        """
        device = self.__dlpack_device__()
        if must_cross(dl_device, device, copy):
            return self._host_array(stream)._export(is_versioned(max_version), True)
        waiting = consumer_stream(stream, device)
        frame = self._frame
        if waiting is not None:
            frame._wait(*waiting)
        if copy:
            after = _streams.COMPLETE if waiting is None else waiting
            if waiting is None and device != CPU:
                frame._wait(*_streams.COMPLETE)
            return (
                take(frame._export(self._index, True))._copy(*after)._export(is_versioned(max_version), True)
            )
        return frame._export(self._index, is_versioned(max_version))

    def _host_array(self, stream: Any) -> Array:
        """A copy of this plane in memory of the CPU."""
        check_host_stream(stream)
        return self._frame.copy().tensor(self._index)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Version 3. The call waits until the pixels are complete, since torch would not; the frame has to
        be kept (this object keeps it) as long as the array is used."""
        if self.__dlpack_device__() == CPU:
            raise AttributeError("this memory is the CPU's; it has no __cuda_array_interface__")
        plane, frame = self.plane, self._frame
        typestr = TYPESTRS.get(plane.dtype.name)
        if typestr is None:
            raise AttributeError(f"__cuda_array_interface__ has no {plane.dtype.name}; use __dlpack__")
        frame._wait(*_streams.COMPLETE)
        empty = 0 in plane.shape
        return {
            "version": 3,
            "shape": plane.shape,
            "typestr": typestr,
            "data": (0 if empty else frame._address + plane.offset, not frame._writable),
            "strides": None if plane.is_dense else plane.strides,
            "stream": None,
        }

    def mark_written(self, stream: Any) -> None:
        """As `Frame.mark_written`, of the whole frame."""
        self._frame.mark_written(stream)

    def __repr__(self) -> str:
        return f"<Tensor {self.plane.name or self._index} of {self._frame!r}>"


class SlotTensor:
    """A plane of a lent slot, to be written until the slot's with-block ends. Tensors made of it keep the
    memory mapped for as long as they live."""

    __slots__ = ("_index", "_lent")
    __reduce_ex__ = refuse_copies

    def __init__(self, lent: LentSlot, index: int) -> None:
        self._lent = lent
        self._index = index

    def __dlpack_device__(self) -> Device:
        return device_of(self._lent._device)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: Version | None = None,
        dl_device: Device | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A new capsule of writable memory; a lent slot is free, so no stream has to wait for it."""
        self._lent._check()
        device = self.__dlpack_device__()
        consumer_stream(stream, device)
        check_copy(copy)
        if copy or must_cross(dl_device, device, False):
            raise BufferError("a lent slot is there to be written in place: a copy makes no sense")
        return self._lent._export(self._lent._description, self._index, is_versioned(max_version))

    def mark_written(self, stream: Any) -> None:
        """As `LentSlot.mark_written`, of the whole slot."""
        self._lent.mark_written(stream)
