# SPDX-License-Identifier: MIT
"""Array of the ctypes back end; python/core/array.c says what its methods do."""

from __future__ import annotations

from ctypes import byref, c_int64, c_uint64, c_void_p
from typing import Any, TypeVar

from . import _abi
from ._buffer import borrowed
from ._library import array_drop, library
from ._pure_capsule import Dropper, capsule_of
from ._pure_capsule import take as _take
from ._pure_lease import check

_Self = TypeVar("_Self", bound="Array")


class Array:
    """Somebody's tensor, kept."""

    __slots__ = ("_array",)
    _array: int

    def __init__(self, *arguments: object) -> None:
        raise TypeError("arrays are made by cuda_link.from_dlpack")

    @classmethod
    def _of(cls: type[_Self], array: int) -> _Self:
        made = cls.__new__(cls)
        made._array = array
        return made

    def __del__(self, drop: Any = array_drop) -> None:
        drop(getattr(self, "_array", None))

    def _c_view(self) -> _abi.View:
        return _abi.View.from_address(library.cudalink_array_view(self._array))

    def _look(self) -> tuple[Any, ...]:
        view = self._c_view()
        dense = bool(library.cudalink_view_is_dense(byref(view)))
        n = view.dimensions
        return (
            view.data or 0,
            view.device.type,
            view.device.id,
            view.flags,
            view.dtype.code,
            view.dtype.bits,
            view.dtype.lanes,
            tuple(view.shape[:n]),
            tuple(view.strides[:n]),
            dense,
        )

    def _extent(self) -> tuple[int, int]:
        low, size = c_void_p(), c_uint64()
        check(library.cudalink_view_extent(byref(self._c_view()), byref(low), byref(size)))
        return low.value or 0, size.value

    def _copy_by(self: _Self, call: Any, kind: int, handle: int) -> _Self:
        copy = c_void_p()
        check(call(byref(copy), self._array, _abi.Stream(kind, 0, handle)))
        return self._of(copy.value or 0)

    def _copy(self: _Self, kind: int, handle: int) -> _Self:
        return self._copy_by(library.cudalink_array_copy, kind, handle)

    def _to_host(self: _Self, kind: int, handle: int) -> _Self:
        return self._copy_by(library.cudalink_array_to_host, kind, handle)

    def _part(self: _Self, cuts: tuple[tuple[int, ...], ...]) -> _Self:
        view = _abi.View.from_buffer_copy(self._c_view())
        for cut in cuts:
            function = library.cudalink_view_index if len(cut) == 2 else library.cudalink_view_slice
            check(function(byref(view), *cut))
        part = c_void_p()
        check(library.cudalink_array_part(byref(part), self._array, byref(view)))
        return self._of(part.value or 0)

    def _ready(self, kind: int, handle: int) -> None:
        check(library.cudalink_array_ready(self._array, _abi.Stream(kind, 0, handle)))

    def _wait(self, kind: int, handle: int) -> None:
        check(library.cudalink_array_wait(self._array, _abi.Stream(kind, 0, handle)))

    def _export(self, versioned: bool, copied: bool) -> Any:
        view = _abi.View.from_buffer_copy(self._c_view())
        view.flags &= ~_abi.DLPACK_IS_COPIED
        if copied:
            view.flags |= _abi.DLPACK_IS_COPIED
        owner = Dropper(library.cudalink_array_retain(self._array), library.cudalink_array_drop)
        return capsule_of(view, owner, versioned)


def array_take(capsule: Any, kind: type[_Self]) -> _Self:
    return kind._of(_take(capsule))


def array_of(data: Any, code: int, bits: int, lanes: int, shape: tuple[int, ...], kind: type[_Self]) -> _Self:
    """An array in memory of its own, with the elements of a dense buffer."""
    view = _abi.View(device=_abi.Device(_abi.DLPACK_CPU, 0), dtype=_abi.Dtype(code, bits, lanes))
    view.dimensions = len(shape)
    step = bits * lanes // 8
    for i in reversed(range(len(shape))):
        view.shape[i], view.strides[i] = shape[i], step
        step *= shape[i]
    with borrowed(data) as address:
        view.data = address
        return array_take(capsule_of(view, None, True), kind)._copy(_abi.STREAM_COMPLETE, 0)


def array_pinned(
    device: int, code: int, bits: int, lanes: int, shape: tuple[int, ...], kind: type[_Self]
) -> _Self:
    """A dense array in pinned memory. device: as in frames."""
    array = c_void_p()
    extents = (c_int64 * max(1, len(shape)))(*shape)
    dtype = _abi.Dtype(code, bits, lanes)
    check(library.cudalink_array_pinned(byref(array), device, dtype, len(shape), extents))
    return kind._of(array.value or 0)
