# SPDX-License-Identifier: MIT
"""What gets return: a frame's shape and type as the spec wants them, and arrays of the CPU to copy into."""

from __future__ import annotations

from collections import deque
from sys import getrefcount
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import _dtypes
from .._array import Array
from .._backend import low
from .._description import Layout
from .._dtypes import Dtype
from .._errors import CudaLinkError
from .values import ImportSpec

if TYPE_CHECKING:
    import numpy as np


class Form(NamedTuple):
    """Of the arrays that a script gets."""

    shape: tuple[int, ...]
    dtype: Dtype


def form(spec: ImportSpec, layout: Layout) -> Form:
    """Height x width x channels, unless the spec says otherwise. Overrides must describe the same bytes:
    silence here once meant pictures of noise. Errors: ValueError."""
    if len(layout.planes) > 1:
        names = ", ".join(plane.name or str(i) for i, plane in enumerate(layout.planes))
        raise ValueError(
            f"channel {spec.shm_name!r}: frames of several planes ({names}) are for "
            "cuda_link.open_importer; here a frame is one array"
        )
    plane = layout.planes[0]
    found = Form(plane.shape if len(plane.shape) != 2 else (*plane.shape, 1), plane.dtype)
    wanted = Form(
        found.shape if spec.shape is None else tuple(spec.shape),
        found.dtype if spec.dtype is None else _dtypes.parse(spec.dtype),
    )
    if wanted == found:
        return found
    if _bytes(wanted) != _bytes(found):
        raise ValueError(
            f"ImportSpec says {wanted.dtype.name} {wanted.shape}, {_bytes(wanted)} bytes, and the frame is "
            f"{found.dtype.name} {found.shape}, {_bytes(found)} bytes: correct shape and dtype, or leave "
            "them out"
        )
    return wanted


def _bytes(form: Form) -> int:
    size = form.dtype.size
    for extent in form.shape:
        size *= extent
    return size


_probe = [object()]
_FREE = getrefcount(_probe[0])  # of what nobody but a list refers to
_MOST = 8


class HostArrays:
    """Memory of the CPU, used again once nobody looks at it: a script that lets go of each array before the
    next get gets the same memory, and one that keeps an array keeps its pixels. Each array is a view, which
    keeps what it is a view of: a script may reshape it in place, or make it read-only.

    For frames on a GPU they are pinned, which the GPU writes to five times as fast as to other memory, and
    which takes milliseconds to make. A script that keeps more than a few gets ordinary memory beyond them.
    """

    def __init__(self) -> None:
        self._pool = _Pool(None, 0, deque())

    def get(self, form: Form, device: int = 0) -> np.ndarray[Any, Any]:
        """One that nobody looks at. device: as in frames."""
        pool = self._pool  # once: another thread may replace it
        if device != pool.device or (form is not pool.form and form != pool.form):
            self._pool = pool = _Pool(form, device, deque())
        arrays = pool.arrays
        for _ in range(len(arrays)):
            try:
                place = arrays.popleft()  # no other thread has it meanwhile
            except IndexError:  # others have them all
                break
            view: np.ndarray[Any, Any] | None = place[0].view() if getrefcount(place[0]) == _FREE else None
            arrays.append(place)
            if view is not None:
                return view
        made = _pinned(form, device) if device and len(arrays) < _MOST else _plain(form)
        if len(arrays) < _MOST:
            arrays.append([made])
        return made.view()

    def clear(self) -> None:
        """Lets go of all."""
        self._pool = _Pool(None, 0, deque())


class _Pool(NamedTuple):
    """Arrays of one form, each alone in a list."""

    form: Form | None
    device: int
    arrays: deque[list[Any]]


def _plain(form: Form) -> np.ndarray[Any, Any]:
    import numpy as np

    return np.empty(form.shape, _dtypes.to_numpy(form.dtype))


def _pinned(form: Form, device: int) -> np.ndarray[Any, Any]:
    _dtypes.to_numpy(form.dtype)  # TypeError: NumPy has no such type
    try:
        made: Array = low.array_pinned(device, *form.dtype, form.shape, Array)
    except CudaLinkError:  # there may be a limit to it, or it is another process's GPU
        return _plain(form)
    return made.numpy()
