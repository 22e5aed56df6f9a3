# SPDX-License-Identifier: MIT
"""What gets return: a frame's shape and type as the spec wants them, and arrays of the CPU to copy into."""

from __future__ import annotations

import threading
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
        self._lock = threading.Lock()
        self._kind: tuple[Form, int] | None = None
        self._arrays: list[Any] = []

    def get(self, form: Form, device: int = 0) -> np.ndarray[Any, Any]:
        """One that nobody looks at. device: as in frames."""
        with self._lock:
            return self._get(form, device).view()

    def _get(self, form: Form, device: int) -> np.ndarray[Any, Any]:
        if (form, device) != self._kind:
            self._arrays, self._kind = [], (form, device)
        arrays = self._arrays
        for i in range(len(arrays)):
            if getrefcount(arrays[i]) == _FREE:
                free: np.ndarray[Any, Any] = arrays[i]
                return free
        if len(arrays) == _MOST:
            return _plain(form)
        arrays.append(_pinned(form, device) if device else _plain(form))
        made: np.ndarray[Any, Any] = arrays[-1]
        return made

    def clear(self) -> None:
        """Lets go of all."""
        self._kind, self._arrays = None, []


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
