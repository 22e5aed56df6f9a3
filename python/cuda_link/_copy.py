# SPDX-License-Identifier: MIT
"""A copy of a frame, in memory of its own."""

from __future__ import annotations

from typing import Any

from . import _abi, _description, _streams
from ._array import Array, take
from ._backend import low
from ._content import Content
from ._description import Layout, Plane, Timing
from ._dtypes import Dtype
from ._from_dlpack import from_dlpack


class FrameCopy(Content):
    """What was in a frame, in writable memory of its own, of the CPU or of the frame's GPU; it has nothing to
    do with the channel."""

    __slots__ = ("_arrays", "_description", "_layout", "sequence", "timestamp", "timing", "user")

    def __init__(self, arrays: list[Array], frame: Any) -> None:
        """frame: what it is a copy of, which may be a copy."""
        self._arrays = arrays
        self._description: bytes = frame._description
        layout = _description.layout(self._description)
        planes = tuple(_described(a, plane) for a, plane in zip(arrays, layout.planes))
        self._layout = Layout(planes, layout.picture)
        self.sequence: int = frame.sequence
        """The frame's number."""
        self.timestamp: int = frame.timestamp
        """When it was published: ns of CLOCK_MONOTONIC."""
        self.timing: Timing = _description.timing(self._description)
        """When it is meant to be shown."""
        self.user: bytes = frame.user
        """The frame's user data."""

    @property
    def layout(self) -> Layout:
        return self._layout

    def _on_host(self) -> FrameCopy:
        if not any(array._is_on_gpu() for array in self._arrays):
            return self
        return FrameCopy([array._to_host(*_streams.COMPLETE) for array in self._arrays], self)

    def _memory(self, index: int) -> tuple[Any, int]:
        return self._arrays[index]._memory()

    def tensor(self, plane: int | str = 0) -> Array:
        """One plane as an array; everything made of it shares its memory."""
        return self._arrays[self._index(plane)]

    def packed(self) -> bytearray:
        """All planes as bytes in memory of the CPU, one behind the other."""
        here = self._on_host()
        return bytearray().join(memoryview(here._memory(i)[0]) for i in range(len(self._arrays)))

    def __repr__(self) -> str:
        return f"<FrameCopy of frame {self.sequence}: {self._summary()}>"


def _described(array: Array, plane: Plane) -> Plane:
    return plane._replace(strides=array.strides, offset=0, nbytes=array._extent()[1])


def copy_frame(frame: Any) -> FrameCopy:
    """Copies every plane of a held frame. Waits for it."""
    if frame._kind == _abi.KIND_HOST:
        planes = range(frame._plane_count)
        arrays = [take(frame._export(i, True)).copy() for i in planes]
    else:
        arrays = _unpacked(packed_frame(frame), frame._description)
    return FrameCopy(arrays, frame)


def copy_where_it_is(frame: Any, stream: Any) -> FrameCopy:
    """Copies every plane of a held frame in the order of a stream, which its release comes behind."""
    after = _streams.LEGACY if stream is None else _streams.resolve(stream)
    if frame._kind == _abi.KIND_HOST:
        return copy_frame(frame)
    if after == _streams.COMPLETE:
        frame._wait(*after)
    named = 1 if stream is None else stream
    planes = range(frame._plane_count)
    return FrameCopy([from_dlpack(frame.tensor(i), copy=True, stream=named) for i in planes], frame)


def packed_frame(frame: Any) -> bytearray:
    """The frame as packed bytes. Waits for the copy."""
    data = bytearray(low.packed_bytes(_abi.Description.from_buffer_copy(frame._description)))
    frame._to_host(data)
    return data


def _unpacked(data: bytearray, description: bytes) -> list[Array]:
    arrays, offset, whole = [], 0, memoryview(data)
    for plane in _description.layout(description).planes:
        size = _dense_bytes(plane.dtype, plane.shape)
        arrays.append(low.array_of(whole[offset : offset + size], *plane.dtype, plane.shape, Array))
        offset += size
    return arrays


def _dense_bytes(dtype: Dtype, shape: tuple[int, ...]) -> int:
    """As cudalink/format.h packs: elements of less than a byte lie side by side in a row."""
    bits = dtype.bits * dtype.lanes
    rows = 1
    for extent in shape[:-1]:
        rows *= extent
    return rows * (((shape[-1] if shape else 1) * bits + 7) // 8)
