# SPDX-License-Identifier: MIT
"""What gets return: a frame's shape and type as the spec wants them, and arrays of the CPU to copy into."""

from __future__ import annotations

import threading
from sys import getrefcount
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import _dtypes
from .._description import Layout
from .._dtypes import Dtype
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
_MOST = 3


class HostArrays:
    """Arrays of the CPU, used again once nobody looks at them: a script that lets go of each array before
    the next get sees the same one, and one that keeps an array keeps its pixels."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._form: Form | None = None
        self._arrays: list[Any] = []

    def get(self, form: Form) -> np.ndarray[Any, Any]:
        """One that nobody looks at."""
        with self._lock:
            return self._get(form)

    def _get(self, form: Form) -> np.ndarray[Any, Any]:
        if form != self._form:
            self._arrays, self._form = [], form
        arrays = self._arrays
        for i in range(len(arrays)):
            if getrefcount(arrays[i]) == _FREE:
                free: np.ndarray[Any, Any] = arrays[i]
                return free
        import numpy as np

        if len(arrays) == _MOST:
            del arrays[0]
        arrays.append(np.empty(form.shape, _dtypes.to_numpy(form.dtype)))
        made: np.ndarray[Any, Any] = arrays[-1]
        return made

    def clear(self) -> None:
        """Lets go of all."""
        self._form, self._arrays = None, []
