# SPDX-License-Identifier: MIT
"""Array: somebody's tensor, or a copy of one, as an object that needs no framework."""

from __future__ import annotations

from math import prod
from operator import index
from typing import TYPE_CHECKING, Any, TypeVar

from . import _abi, _dtypes, _frameworks, _streams
from ._answer import NO, YES, Answer
from ._backend import low
from ._dtypes import Dtype
from ._exchange import (
    TYPESTRS,
    Device,
    Version,
    check_host_stream,
    consumer_stream,
    is_versioned,
    must_cross,
)
from ._only_one import refuse_copies

if TYPE_CHECKING:
    import numpy as np

_Self = TypeVar("_Self", bound="Array")
_ON_CPU = (_abi.DLPACK_CPU, _abi.DLPACK_CUDA_HOST, _abi.DLPACK_CUDA_MANAGED)
_DEVICES = {
    _abi.DLPACK_CPU: "cpu",
    _abi.DLPACK_CUDA: "cuda",
    _abi.DLPACK_CUDA_HOST: "cuda_host",
    _abi.DLPACK_CUDA_MANAGED: "cuda_managed",
}


class Array(low.Array):  # type: ignore[misc,name-defined]
    """Elements of one type in memory of the CPU or of a GPU. Made by `from_dlpack`, `copy` and slicing.

    It keeps the memory, whoever owns that: what one of its owners writes the others see. Indexing with
    numbers, slices and `...` gives arrays over the same memory.
    """

    __slots__ = ()
    __reduce_ex__ = refuse_copies

    # ---- what it is

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements per dimension."""
        shape: tuple[int, ...] = self._look()[7]
        return shape

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes per step of each dimension; 0 and negative ones are possible."""
        strides: tuple[int, ...] = self._look()[8]
        return strides

    @property
    def _dtype(self) -> Dtype:
        return Dtype(*self._look()[4:7])

    @property
    def dtype(self) -> str:
        """Type of the elements, by name ("uint8")."""
        return self._dtype.name

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements, without what lies between them."""
        bits = self._dtype.bits * self._dtype.lanes
        return (self.size * bits + 7) // 8

    @property
    def device(self) -> str:
        """Where it is: "cpu", "cuda:0", "cuda_host" (pinned memory of the CPU), "cuda_managed:0"."""
        kind, number = self.__dlpack_device__()
        name = _DEVICES.get(kind, str(kind))
        return name if kind in (_abi.DLPACK_CPU, _abi.DLPACK_CUDA_HOST) else f"{name}:{number}"

    @property
    def address(self) -> int:
        """Of the first element; 0 when there is none."""
        return int(self._look()[0])

    @property
    def writable(self) -> Answer:
        """May it be written to? (A legacy capsule can't say that it may not.) `array.writable()` says the
        same."""
        return NO if self._look()[3] & _abi.DLPACK_READ_ONLY else YES

    @property
    def is_dense(self) -> bool:
        """Row-major without gaps?"""
        return bool(self._look()[9])

    # ---- other arrays

    def __getitem__(self: _Self, key: Any) -> _Self:
        cuts = _cuts(key if isinstance(key, tuple) else (key,), self.shape)
        part: _Self = self._part(tuple(reversed(cuts)))  # from behind: an index takes a dimension away
        return part

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("an array of no dimension has no length")
        return self.shape[0]

    def copy(self: _Self, *, stream: Any = None) -> _Self:
        """A dense, writable copy on the same device.

        stream: on a GPU the copy is queued there, and is complete in its order; None = the legacy default
        stream, -1 = the call waits. Errors: StreamError, NoMemoryError, GpuError.
        """
        after = _streams.LEGACY if stream is None else _streams.resolve(stream)
        if not self._is_on_gpu():
            after = _streams.COMPLETE
        made: _Self = self._copy(*after)
        return made

    def mark_written(self, stream: Any) -> None:
        """Says that work queued on `stream` so far writes to it: what is read through this array, or a part
        of it, comes behind that; whoever else looks at the memory has to see to it. -1: the writes are done.

        Errors: ValueError (read-only), BufferError (in memory of the CPU there are no streams), TypeError,
        StreamError, CapturingError.
        """
        named = _streams.resolve(stream)
        if not self.writable:
            raise ValueError(
                "mark_written: this array is read-only, so nothing has written to it; use a copy"
            )
        if named == _streams.COMPLETE:
            return
        if not self._is_on_gpu():
            raise BufferError(f"mark_written: this array is on {self.device}, which has no streams: say -1")
        self._ready(*named)

    def _is_on_gpu(self) -> bool:
        return self.__dlpack_device__()[0] not in _ON_CPU

    # ---- out

    def numpy(self) -> np.ndarray[Any, Any]:
        """It as a NumPy array over the same memory; from a GPU a copy, for which the call waits.

        Errors: TypeError (NumPy has no such type), ImportError.
        """
        import numpy

        if self._is_on_gpu():
            copied: Array = self._to_host(*_streams.COMPLETE)
            return copied.numpy()
        dtype, shape = _dtypes.to_numpy(self._dtype), self.shape
        if 0 in shape:
            return numpy.empty(shape, dtype)
        memory, offset = self._memory()
        return numpy.ndarray(shape, dtype, memory, offset, self.strides)

    def _memory(self) -> tuple[Any, int]:
        """The bytes that it touches, and where among them its first element is."""
        start, size = self._extent()
        return low.view(start, size, not self.writable, self), self.address - start

    def buffer(self) -> memoryview:
        """It as a memoryview with shape and format over the same memory, where there is no NumPy.

        Errors: BufferError (on a GPU, not dense, or a type that `struct` does not know).
        """
        if self._is_on_gpu():
            raise BufferError(f"this array is on {self.device}; array.numpy() copies it to the CPU")
        letter = _dtypes.struct_letter(self._dtype)
        if letter is None or not self.is_dense:
            raise BufferError(
                f"a memoryview can't show {self.dtype} {self.shape} with strides {self.strides}: array.copy()"
            )
        whole: Any = memoryview(self._memory()[0])
        if 0 not in self.shape:
            whole = whole.cast(letter, self.shape) if self.shape else whole.cast(letter)
        shown: memoryview = whole
        return shown

    def __buffer__(self, flags: int) -> memoryview:
        if 0 in self.shape:  # cast makes no such memoryview, and NumPy believes the shape that one says
            raise BufferError(f"a memoryview can't show the shape {self.shape}: array.numpy()")
        return self.buffer()

    @property
    def __array_interface__(self) -> dict[str, Any]:
        if not self.address:  # NumPy takes no NULL here, also of an empty array; it asks __array__ then
            raise AttributeError("an empty array has no __array_interface__")
        return self._interface(_ON_CPU, "__array_interface__")

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Version 3. The call waits until the contents are complete, since torch would not."""
        interface = self._interface((_abi.DLPACK_CUDA, _abi.DLPACK_CUDA_MANAGED), "__cuda_array_interface__")
        if self._is_on_gpu() and self.address:
            self._wait(*_streams.COMPLETE)
        return {**interface, "stream": None}

    def _interface(self, kinds: tuple[int, ...], name: str) -> dict[str, Any]:
        typestr = TYPESTRS.get(self.dtype)
        if self.__dlpack_device__()[0] not in kinds or typestr is None:
            raise AttributeError(f"{self.dtype} on {self.device} has no {name}; use __dlpack__")
        return {
            "version": 3,
            "shape": self.shape,
            "typestr": typestr,
            "data": (self.address, not self.writable),
            "strides": None if self.is_dense else self.strides,
        }

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, Any]:
        converted: np.ndarray[Any, Any] = _frameworks.as_array(self.numpy(), dtype, copy)
        return converted

    def torch(self) -> Any:
        """A torch.Tensor over the same memory; torch can't mark it read-only."""
        return _frameworks.torch_tensor(self)

    def cupy(self) -> Any:
        """A cupy.ndarray over the same GPU memory."""
        return _frameworks.cupy_array(self)

    def jax(self, *, copy: bool = False) -> Any:
        """A jax.Array over the same memory, or over a copy."""
        return _frameworks.jax_array(self, copy)

    def __dlpack_device__(self) -> Device:
        looked = self._look()
        return looked[1], looked[2]

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: Version | None = None,
        dl_device: Device | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A new capsule, as DLPack's Python protocol says.

        `stream` waits until the contents are complete, the CPU does not. copy=True gives memory of its own,
        on the same device. dl_device=(1, 0) copies from a GPU to the CPU and waits.

        Errors: BufferError (not exportable so), TypeError (stream).
        """
        device, versioned = self.__dlpack_device__(), is_versioned(max_version)
        if must_cross(dl_device, device, copy):
            check_host_stream(stream)
            return self._to_host(*_streams.COMPLETE)._export(versioned, True)
        waiting = consumer_stream(stream, device)
        if not self._is_on_gpu() or not self.address:
            waiting = None  # nothing is pending
        if waiting is not None:
            self._wait(*waiting)
        if copy:
            return self._copy(*(waiting or _streams.COMPLETE))._export(versioned, True)
        return self._export(versioned, False)

    def __repr__(self) -> str:
        return f"<Array {self.dtype} {self.shape} on {self.device}{'' if self.writable else ', read-only'}>"


low.table_offer(Array)


def _cuts(keys: tuple[Any, ...], shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """(dimension, index) or (dimension, start, count, step), for the dimensions that are cut."""
    dots = [place for place, key in enumerate(keys) if key is Ellipsis]
    if len(dots) > 1:
        raise IndexError("there may be one ... in an index")
    missing = len(shape) - (len(keys) - len(dots))
    if missing < 0:
        raise IndexError(f"{len(keys) - len(dots)} indices, but the array has {len(shape)} dimensions")
    if dots:
        keys = keys[: dots[0]] + (slice(None),) * missing + keys[dots[0] + 1 :]
    found = (_cut(dimension, key, shape[dimension]) for dimension, key in enumerate(keys))
    return [cut for cut in found if cut]


def _cut(dimension: int, key: Any, extent: int) -> tuple[int, ...]:
    if isinstance(key, slice):
        start, stop, step = key.indices(extent)
        count = len(range(start, stop, step))
        step = step if count > 1 else 1
        return () if (count, step) == (extent, 1) else (dimension, start, count, step)
    try:
        number = index(key)
    except TypeError:
        raise TypeError(f"an array is indexed by numbers, slices and ..., not by {key!r}") from None
    if not -extent <= number < extent:
        raise IndexError(f"index {number} of dimension {dimension}, which has {extent} elements")
    return dimension, number % extent


def take(capsule: Any) -> Array:
    """The tensor of a capsule, which is used up. BufferError for one that was used before."""
    taken: Array = low.array_take(capsule, Array)
    return taken
