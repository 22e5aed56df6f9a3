# SPDX-License-Identifier: MIT
"""Arrays that are asked for their memory by DLPack or the CUDA array interface.

An array's own ordering: torch and CuPy queue on a current stream, which is the one to go on with; the
CUDA array interface names a stream; any other producer (JAX) makes a stream of ours wait. That is one of the
library's, since the legacy one, DLPack's default, would wait for the whole process in its turn.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from operator import index
from typing import Any, NamedTuple

from . import _abi, _dtypes, _streams
from ._array import Array, take
from ._backend import low
from ._dtypes import Dtype
from ._oddities import torch_of
from ._streams import Stream

_NUMBERS = {_abi.STREAM_COMPLETE: -1, _abi.STREAM_LEGACY: 1, _abi.STREAM_PER_THREAD: 2}
_ON_GPU = (_abi.DLPACK_CUDA, _abi.DLPACK_CUDA_MANAGED)


class DeviceSource(NamedTuple):
    """One array in GPU memory."""

    dtype: Dtype
    shape: tuple[int, ...]
    address: int
    stream: Stream | None
    """After what it is complete; None: nobody said."""
    strides: tuple[int, ...] | None
    """Bytes, none negative; None: dense."""
    owner: Any
    """Keeps the memory until the copy has run; None: it sees to that itself."""


def _current_stream(array: Any, device: int) -> int | None:
    """The stream that the array's framework queues its work on now, as DLPack wants it."""
    torch = torch_of(array)
    if torch is not None:
        return int(torch.cuda.current_stream(device).cuda_stream) or 1
    cupy = sys.modules.get("cupy")
    if cupy is None or type(array).__module__.partition(".")[0] != "cupy":
        return None
    return int(cupy.cuda.get_current_stream().ptr) or 1


def framework_stream(array: Any) -> Stream | None:
    """The current stream of an array's framework; None where it names none, or the array is not on a GPU."""
    if torch_of(array) is not None and not getattr(array, "is_cuda", False):
        return None
    number = _current_stream(array, getattr(getattr(array, "device", None), "index", None) or 0)
    return None if number is None else _streams.resolve(number)


def _ask(array: Any, options: dict[str, Any]) -> Any:
    """Old signatures take fewer words: without max_version (Warp), then without a stream. No error is kept:
    it would keep, until the garbage collector comes, every local of the functions that called."""
    for words in (("stream", "max_version"), ("stream",), ("max_version",)):
        try:
            return array.__dlpack__(**{word: options[word] for word in words if word in options})
        except TypeError:
            pass
    return array.__dlpack__()


def ask_on(device: int, array: Any, options: dict[str, Any]) -> Any:
    """torch exports only tensors of its current GPU."""
    torch = torch_of(array)
    if torch is None or torch.cuda.current_device() == device:
        return _ask(array, options)
    with torch.cuda.device(device):
        return _ask(array, options)


def of_dlpack(
    array: Any, stream: Stream | None, unnamed: Callable[[], Stream] = _streams.legacy
) -> tuple[Array, Stream | None]:
    """The array of an object with `__dlpack__`, and after what it is complete. unnamed: asked for the stream
    that is made to wait where neither the caller nor a framework names one."""
    remembers = getattr(array, "_remembers_streams", False)  # a frame of ours
    table = (
        None if remembers else vars(type(array)).get("__dlpack_c_exchange_api__")
    )  # of no base: it would lie
    found = None if table is None else low.table_take(table, array, Array)
    if found is not None:
        taken, handle = found
        return taken, (stream or _streams.resolve(handle)) if is_on_gpu(taken) else _streams.COMPLETE
    device_type, device = (int(number) for number in array.__dlpack_device__())
    if device_type not in _ON_GPU:
        return take(_ask(array, {"max_version": (1, 3)})), _streams.COMPLETE
    if stream is not None and remembers:
        number = _NUMBERS.get(stream.kind, stream.handle)
        return take(array.__dlpack__(stream=number, max_version=(1, 3))), stream
    if stream is not None:  # the caller said after what: no handshake
        return take(ask_on(device, array, {"stream": -1, "max_version": (1, 3)})), stream
    asked = _current_stream(array, device)
    if asked is None:
        ours = unnamed()
        asked = _NUMBERS.get(ours.kind, ours.handle)
    taken = take(ask_on(device, array, {"stream": asked, "max_version": (1, 3)}))
    return taken, _streams.resolve(asked)


def of_array(taken: Array, stream: Stream | None, owner: Any) -> DeviceSource:
    """An array in GPU memory as a source."""
    address, _, _, _, code, bits, lanes, shape, strides, dense = taken._look()
    if not dense and min(strides) < 0:
        after = stream or _streams.LEGACY
        copied = taken._copy(*after)
        return of_array(copied, after, copied)
    return DeviceSource(Dtype(code, bits, lanes), shape, address, stream, None if dense else strides, owner)


def is_on_gpu(taken: Array) -> bool:
    """Is an array in GPU memory?"""
    return taken.__dlpack_device__()[0] in _ON_GPU


def of_interface(interface: dict[str, Any], stream: Stream | None, owner: Any) -> DeviceSource:
    """An array with `__cuda_array_interface__`."""
    if interface.get("mask") is not None:
        raise BufferError("a masked array can't be sent; send its data")
    dtype, shape = _dtypes.from_typestr(interface.get("typestr", "")), interface.get("shape")
    given: Any = interface.get("strides")
    data = interface.get("data")
    if (
        not isinstance(shape, tuple)
        or not isinstance(data, tuple)
        or not isinstance(given, (tuple, type(None)))
    ):
        raise TypeError("a __cuda_array_interface__ has shape, data and strides as tuples; no strides: None")
    address = 0 if not data or data[0] is None else index(data[0])
    if not 0 <= address < 2**64 or (given is not None and len(given) != len(shape)):
        raise ValueError(
            f"a __cuda_array_interface__ of {shape} with strides {given} at {address:#x} is none"
        )
    strides = None if given is None or _is_dense(dtype, shape, given) else given
    if strides and min(strides) < 0:
        raise BufferError("a __cuda_array_interface__ with negative strides can't be sent: send a copy")
    if stream is None:
        stream = _own_stream(interface)
    return DeviceSource(dtype, shape, address, stream, strides, owner)


def _own_stream(interface: dict[str, Any]) -> Stream:
    named = interface.get("stream")
    if named is not None and not isinstance(named, bool) and named == 0:
        raise BufferError(
            "this __cuda_array_interface__ names stream 0, which is ambiguous and forbidden: 1 is the legacy "
            "default stream, 2 the per-thread one, None says that nothing is pending; or send(x, stream=1)"
        )
    if named is not None:
        return _streams.resolve(named)
    # Version 3 says None when nothing is pending; before it nothing could be said.
    return _streams.COMPLETE if interface.get("version", 0) >= 3 else _streams.LEGACY


def _is_dense(dtype: Dtype, shape: tuple[int, ...], strides: Any) -> bool:
    if strides is None or 0 in shape:
        return True
    step = dtype.size
    for extent, stride in zip(reversed(shape), reversed(tuple(strides))):
        if extent != 1 and stride != step:
            return False
        step *= extent
    return True
