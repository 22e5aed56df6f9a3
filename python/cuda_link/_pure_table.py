# SPDX-License-Identifier: MIT
"""Exchange tables of other types through ctypes; python/core/table.c says what they are.

A table of our own would be Python functions behind C pointers, which is slower than `__dlpack__` and can't
raise: there is none.
"""

from __future__ import annotations

from ctypes import PYFUNCTYPE, byref, c_int, c_int32, c_void_p, py_object
from typing import Any, TypeVar

from . import _abi
from ._library import library
from ._pure_array import Array
from ._pure_capsule import VERSIONED, delete, is_valid, pointer

_NAME = b"dlpack_exchange_api"
_MAJOR = 1
_ON_GPU = (_abi.DLPACK_CUDA, _abi.DLPACK_CUDA_MANAGED)
_FromObject = PYFUNCTYPE(c_int, py_object, c_void_p)
_CurrentStream = PYFUNCTYPE(c_int, c_int32, c_int32, c_void_p)
_Array = TypeVar("_Array", bound=Array)


def table_offer(kind: type) -> None:
    """Nothing, see above."""


def _find_table(capsule: Any) -> _abi.Exchange | None:
    if not is_valid(id(capsule), _NAME):
        return None
    address = pointer(id(capsule), _NAME)
    while address:
        header = _abi.ExchangeHeader.from_address(address)
        if header.major == _MAJOR:
            return _abi.Exchange.from_address(address)
        address = header.previous
    return None


def _tensor_of(table: _abi.Exchange, thing: Any) -> int | None:
    tensor = c_void_p()
    try:
        failed = not table.from_object or _FromObject(table.from_object)(thing, byref(tensor))
    except Exception:  # it set one; __dlpack__ will say what there is to say
        return None
    return None if failed else tensor.value


def _stream_of(table: _abi.Exchange, tensor: _abi.VersionedTensor) -> int | None:
    device, stream = tensor.tensor.device, c_void_p()
    if device.type not in _ON_GPU:
        return 0
    try:
        if not table.current_stream:
            return None
        failed = _CurrentStream(table.current_stream)(device.type, device.id, byref(stream))
    except Exception:
        return None
    return None if failed else stream.value or 0


def table_take(capsule: Any, thing: Any, kind: type[_Array]) -> tuple[_Array, int] | None:
    table = _find_table(capsule)
    address = _tensor_of(table, thing) if table else None
    if table is None or not address:
        return None
    tensor, array = _abi.VersionedTensor.from_address(address), c_void_p()
    stream = _stream_of(table, tensor) if tensor.major == _MAJOR else None
    if stream is None or library.cudalink_array_take(byref(array), address) < 0:
        delete(address, VERSIONED)
        return None
    return kind._of(array.value or 0), stream
