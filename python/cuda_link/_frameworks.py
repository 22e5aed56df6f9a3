# SPDX-License-Identifier: MIT
"""The frameworks, imported when they are asked for."""

from __future__ import annotations

from typing import Any


def torch_tensor(tensor: Any) -> Any:
    """A torch.Tensor over the same memory."""
    import torch

    return torch.from_dlpack(tensor)


torch_table: Any = None
"""How torch takes and gives tensors in C, once it uses a GPU: by it, frame.torch is one call."""


def torch_by_capsule(frame: Any, device: int) -> Any:
    """As torch.from_dlpack(frame), which makes an object of its current stream first, for as much time as all
    the rest takes. Finds torch's table for those that follow."""
    global torch_table
    import torch

    current = getattr(getattr(torch, "_C", None), "_cuda_getCurrentRawStream", None)
    if current is None or not torch.cuda.is_initialized():
        return torch.from_dlpack(frame)
    tensor = torch.from_dlpack(frame.__dlpack__(stream=current(device) or 1))
    torch_table = vars(getattr(torch, "Tensor", type)).get("__dlpack_c_exchange_api__")
    if torch_table is not None:
        frame._given()
    return tensor


def cupy_array(tensor: Any) -> Any:
    """A cupy.ndarray over the same memory."""
    import cupy

    return cupy.from_dlpack(tensor)


def jax_array(tensor: Any, copy: Any) -> Any:
    """A jax.Array. JAX's own copy=True fails on GPUs; the copy is made here, before it."""
    import jax

    return jax.dlpack.from_dlpack(_Copied(tensor) if copy else tensor)


def as_array(array: Any, dtype: Any, copy: Any) -> Any:
    """What NumPy's __array__ protocol asks of a NumPy array that we have."""
    if dtype is not None and array.dtype != dtype:
        if copy is False:
            raise ValueError(f"{array.dtype} as {dtype} needs a copy")
        return array.astype(dtype)
    return array.copy() if copy else array


class _Copied:
    """A tensor whose every export is a copy."""

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor

    def __dlpack_device__(self) -> Any:
        return self._tensor.__dlpack_device__()

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None, **rest: Any) -> Any:
        return self._tensor.__dlpack__(stream=stream, max_version=max_version, copy=True)
