# SPDX-License-Identifier: MIT
"""What `Exporter.send` takes, one array of it: where its elements are and how they lie.

Memory of the CPU: the buffer protocol (NumPy, bytes, array.array), `__array_interface__` (PIL),
`__dlpack__`. Memory of a GPU: `__dlpack__`, `__cuda_array_interface__`. DLPack capsules of either.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple, Union

from . import _dtypes, _streams
from ._array import Array, take
from ._device_source import DeviceSource, is_on_gpu, of_array, of_dlpack, of_interface
from ._dtypes import Dtype
from ._exchange import unordered
from ._oddities import bool_as_bytes, refuse_oddities
from ._streams import Stream


class Source(NamedTuple):
    """One array to send."""

    dtype: Dtype
    shape: tuple[int, ...]
    buffer: Any
    """An object with the buffer protocol."""
    is_dense: bool

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return prod(self.shape) * self.dtype.size


AnySource = Union[Source, DeviceSource]


def _of_buffer(whole: memoryview, dtype: Dtype | None = None, shape: tuple[int, ...] | None = None) -> Source:
    return Source(
        dtype or _dtypes.from_buffer(whole.format, whole.itemsize),
        tuple(whole.shape or ()) if shape is None else shape,
        whole,
        whole.c_contiguous,
    )


_TO_BOOL = b"\0" + b"\1" * 255  # Pillow's bool is 255


def _of_array_interface(interface: dict[str, Any]) -> Source:
    if interface.get("mask") is not None:
        raise BufferError("a masked array can't be sent: it would lose its mask; send its data")
    dtype, shape = _dtypes.from_typestr(interface.get("typestr", "")), interface.get("shape")
    data, start = interface.get("data"), interface.get("offset") or 0
    if not isinstance(shape, tuple):
        raise TypeError(f"an array interface has a tuple as its shape, not {shape!r}")
    if interface.get("strides") is not None or not isinstance(data, (bytes, bytearray, memoryview)):
        raise TypeError("this array has no buffer protocol; send numpy.asarray(array)")
    memory = memoryview(data).cast("B")
    end = start + prod(shape) * dtype.size
    if min(shape, default=0) < 0 or not 0 <= start <= end <= memory.nbytes:
        raise ValueError(
            f"this array claims {dtype.name} {shape} from byte {start} on, and has {memory.nbytes} bytes"
        )
    elements = memory[start:end]
    if dtype == _dtypes.parse("bool"):
        elements = memoryview(bytes(elements).translate(_TO_BOOL))
    return _of_buffer(elements, dtype, shape)


def _of_taken(taken: Array, stream: Stream | None, owner: Any) -> AnySource:
    """An array of ours: on a GPU as it is, on the CPU as a buffer."""
    if is_on_gpu(taken):
        return of_array(taken, stream, owner)
    if not taken.is_dense:
        taken = taken.copy()
    memory = memoryview(taken._memory()[0]).toreadonly()
    return _of_buffer(memory, taken._dtype, taken.shape)


def _of_capsule(capsule: Any, stream: Stream | None) -> AnySource:
    taken = take(capsule)
    if stream is None and is_on_gpu(taken):
        raise unordered()
    return _of_taken(taken, stream, taken)


def source(
    array: Any, stream: Stream | None = None, unnamed: Callable[[], Stream] = _streams.legacy
) -> AnySource:
    """Looks at an array. stream: after what it is complete, when the caller said so; unnamed: asked for
    what is made to wait for it when nobody says.

    Errors: TypeError (no array), ValueError (big-endian), BufferError (an array that can't be sent so).
    """
    refuse_oddities(array)
    if type(array).__name__ == "PyCapsule":
        return _of_capsule(array, stream)
    try:
        whole = memoryview(array)
    except (TypeError, BufferError):
        pass
    except ValueError as error:  # NumPy: "cannot include dtype 'E' in a buffer"
        named = getattr(array, "dtype", None)
        if named is None:
            raise
        return _of_named(array, named, error)
    else:
        return _of_buffer(whole)
    if hasattr(array, "__dlpack__") and hasattr(array, "__dlpack_device__"):
        flags = bool_as_bytes(array)
        if flags is not None:
            return source(flags, stream, unnamed)._replace(dtype=_dtypes.parse("bool"))
        taken, after = of_dlpack(array, stream, unnamed)
        remembers = getattr(array, "_remembers_streams", False)
        return _of_taken(taken, after, None if remembers else taken)
    interface = getattr(array, "__cuda_array_interface__", None)
    if isinstance(interface, dict):
        return of_interface(interface, stream, array)
    interface = getattr(array, "__array_interface__", None)
    if isinstance(interface, dict):
        return _of_array_interface(interface)
    way_out = "; numpy.asarray makes an array of it" if hasattr(array, "__array__") else ""
    raise TypeError(
        f"{type(array).__name__} can't be sent: a NumPy array, an object with the buffer protocol, with "
        f"__dlpack__ or with __cuda_array_interface__ can, and a dict of them{way_out}"
    )


def _of_named(array: Any, named: Any, error: Exception) -> Source:
    """An array of a type that the buffer protocol has no letter for (bfloat16 of ml_dtypes)."""
    try:
        dtype = _dtypes.parse(named)
    except ValueError:
        raise TypeError(f"elements of {named} can't be sent; numbers and bool can ({error})") from None
    if dtype.size not in (1, 2):
        raise TypeError(f"elements of {named} can't be sent ({error})")
    return _of_buffer(memoryview(array.view(f"u{dtype.size}")), dtype)
