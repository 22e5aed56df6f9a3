# SPDX-License-Identifier: MIT
"""A tensor's memory as an object without torch, and back."""

from __future__ import annotations

from typing import Any

import torch

from .._array import Array
from .._from_dlpack import from_dlpack
from .._oddities import bool_as_bytes, refuse_oddities
from ._retype import BOOL, BYTES, KNOWS_BOOL, dtype_of, retyped


def from_torch(tensor: torch.Tensor, *, copy: bool | None = None) -> Array:
    """The memory of a tensor as an array object: same address, shape, strides, type, device.

    copy: None and False share the memory; True copies it first. On a GPU it is complete after what is queued
    on torch's current stream now.

    Errors: TypeError (no tensor), BufferError with what to use instead (requires grad, sparse, conj or
    neg bit, quantized, meta device).
    """
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"from_torch takes a torch.Tensor, not {type(tensor).__name__}; see to_torch")
    refuse_oddities(tensor)
    if KNOWS_BOOL or tensor.dtype is not torch.bool:
        return from_dlpack(tensor, copy=copy)
    stream = torch.cuda.current_stream(tensor.device) if tensor.is_cuda else None
    return from_dlpack(retyped(bool_as_bytes(tensor).__dlpack__(), BOOL), copy=copy, stream=stream)


def to_torch(array: Any, *, copy: bool | None = None) -> torch.Tensor:
    """A tensor over the memory of an array: what `from_torch` gave, a frame, one plane of it
    (`frame.tensor("y")`), a lent slot, anything with `__dlpack__`.

    copy: None and False share the memory; True gives memory of its own. torch can't mark memory as
    read-only: what writes to a shared frame of kind host is ended by the kernel. On a GPU torch's current
    stream waits for the pixels.

    Errors: TypeError (no such object), BufferError (a type, or an address, that torch can't take).
    """
    if not hasattr(array, "__dlpack__"):
        raise TypeError(
            f"{type(array).__name__} has no __dlpack__; to_torch takes a frame, or an array that has"
        )
    tensor = torch.from_dlpack(array) if KNOWS_BOOL else _from_bytes(array)
    return tensor.clone() if copy else tensor


class _AsBytes:
    """An array whose elements of bool are said to be bytes."""

    def __init__(self, array: Any) -> None:
        self._array = array
        self.was_bool = False

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()

    def __dlpack__(self, **options: Any) -> Any:
        capsule = self._array.__dlpack__(**options)
        self.was_bool = dtype_of(capsule) == BOOL
        return retyped(capsule, BYTES) if self.was_bool else capsule


def _from_bytes(array: Any) -> torch.Tensor:
    seen = _AsBytes(array)
    tensor = torch.from_dlpack(seen)
    return tensor.view(torch.bool) if seen.was_bool else tensor
