# SPDX-License-Identifier: MIT
"""How an item of a queue is taken apart, and put together again.

Arrays and tensors, wherever they are in it, travel as planes of a frame. What is left (a dict, a tuple, a
number, a whole object without arrays) is pickled, with a mark in the place of each array.
"""

from __future__ import annotations

import io
import pickle
import sys
from multiprocessing.reduction import ForkingPickler
from typing import Any, NamedTuple

from . import _abi, _frameworks
from ._copy import FrameCopy
from ._frame import Frame

SMALL = 256  # bytes; a NumPy array up to here is pickled with the rest
MOST = _abi.MAX_PLANES - 1  # the last plane is for a large rest

_HOST, _GPU, _WITHIN = "h", "g", "w"
_ON_HOST = (_abi.DLPACK_CPU, _abi.DLPACK_CUDA_HOST)


class Parts(NamedTuple):
    """An item taken apart."""

    rest: bytes
    host: list[Any]
    """Arrays in memory of the CPU."""
    gpu: list[Any]
    device: int
    """The GPU of the latter, as this process counts."""


def _framework(thing: Any) -> str:
    """Of an array or tensor; "" for anything else. Imports nothing."""
    kind = type(thing)
    name = kind.__module__.partition(".")[0]
    if name == "numpy":
        return name if kind is sys.modules[name].ndarray else ""
    if name == "torch":
        return name if kind is sys.modules[name].Tensor else ""
    if name == "cupy":
        return name if kind is sys.modules[name].ndarray else ""
    if name in ("jax", "jaxlib"):
        return "jax" if isinstance(thing, sys.modules["jax"].Array) else ""
    return ""


def _is_plane(array: Any) -> bool:
    """Is this NumPy array worth a plane, and of a type that planes have?"""
    return (
        array.nbytes > SMALL
        and array.ndim <= _abi.MAX_DIMENSIONS
        and array.dtype.kind in "biufc"
        and array.dtype.isnative
        and array.dtype.char not in "gG"
    )


class _Pickler(ForkingPickler):
    """Leaves arrays out, and remembers them."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, 5)
        self.host: list[Any] = []
        self.gpu: list[Any] = []
        self.device = -1
        self._known: dict[int, tuple[Any, Any]] = {}
        self._within: set[int] = set()

    def persistent_id(self, thing: Any) -> Any:
        """The mark of an array; None for anything else."""
        framework = _framework(thing)
        if not framework or id(thing) in self._within:
            return None
        known = self._known.get(id(thing))
        if known is not None:
            return known[0]
        if framework == "numpy":
            if not _is_plane(thing) or len(self.host) >= MOST:
                return None
            mark: Any = self._add(self.host, thing, _HOST, framework)
        else:
            mark = self._mark(thing, framework)
        self._known[id(thing)] = (mark, thing)
        return mark

    def _mark(self, tensor: Any, framework: str) -> Any:
        kind, device = tensor.__dlpack_device__()
        if int(kind) not in _ON_HOST:
            if self.gpu and (device != self.device or len(self.gpu) >= _abi.MAX_PLANES):
                raise ValueError(
                    f"an item has at most {_abi.MAX_PLANES} tensors in GPU memory, all of one GPU: "
                    "put several items"
                )
            self.device = int(device)
            return self._add(self.gpu, tensor, _GPU, framework)
        array = _torch_array(tensor) if framework == "torch" else tensor
        if len(self.host) < MOST:
            return self._add(self.host, array, _HOST, framework)
        if framework != "torch" or array is tensor:
            raise ValueError(
                f"an item has at most {MOST} {framework} tensors of this type: put several items"
            )
        self._within.add(id(array))
        self._known[id(array)] = (None, array)  # keeps its id taken
        return _WITHIN, array, framework

    @staticmethod
    def _add(where: list[Any], array: Any, place: str, framework: str) -> tuple[str, int, str]:
        where.append(array)
        return place, len(where) - 1, framework


def _torch_array(tensor: Any) -> Any:
    """A torch tensor of the CPU as a NumPy array, where NumPy has its type: old torch has no DLPack for
    bool."""
    if tensor.requires_grad:
        raise BufferError("a tensor that requires grad can't be put; put tensor.detach()")
    try:
        return tensor.numpy()
    except (TypeError, RuntimeError):  # bfloat16; conj, sparse: send says what to do
        return tensor


def apart(item: Any) -> Parts:
    """Takes an item apart. Errors: BufferError, ValueError (tensors that can't be put), and those of
    pickle, with the type of what can't be pickled."""
    file = io.BytesIO()
    pickler = _Pickler(file)
    pickler.dump(item)
    return Parts(file.getvalue(), pickler.host, pickler.gpu, pickler.device)


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, host: FrameCopy | None, gpu: Frame | None) -> None:
        super().__init__(file)
        self._host, self._gpu = host, gpu
        self._made: dict[tuple[str, int], Any] = {}

    def persistent_load(self, mark: Any) -> Any:
        """The array that a mark stands for."""
        place, which, framework = mark
        if place == _WITHIN:
            return sys.modules.get("torch", _torch()).from_numpy(which)
        key = (place, which)
        if key not in self._made:
            make = _of_host if place == _HOST else _of_gpu
            self._made[key] = make(self._host if place == _HOST else self._gpu, which, framework)
        return self._made[key]


def _torch() -> Any:
    import torch

    return torch


def _of_host(copy: Any, plane: int, framework: str) -> Any:
    if framework == "numpy":
        return copy.numpy(plane)
    if framework == "torch":
        try:
            return _torch().from_numpy(copy.numpy(plane))
        except (ImportError, TypeError):
            return _frameworks.torch_tensor(copy.tensor(plane))
    return _foreign(copy.tensor(plane), framework)


def _of_gpu(frame: Any, plane: int, framework: str) -> Any:
    """In memory of its own, made in the order of the framework's current stream."""
    return _foreign(_frameworks._Copied(frame.tensor(plane)), framework)


def _foreign(tensor: Any, framework: str) -> Any:
    if framework == "torch":
        return _frameworks.torch_tensor(tensor)
    if framework == "cupy":
        return _frameworks.cupy_array(tensor)
    return _frameworks.jax_array(tensor, False)


def together(rest: bytes, host: FrameCopy | None, gpu: Frame | None) -> Any:
    """The item. Errors: those of pickle; ImportError (a framework that is not here)."""
    return _Unpickler(io.BytesIO(rest), host, gpu).load()
