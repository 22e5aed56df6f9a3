# SPDX-License-Identifier: MIT
"""DLPack capsules, looked into and made by hand."""

from __future__ import annotations

import ctypes
from typing import Any

from cuda_link import _abi

# Of our own: functions of ctypes.pythonapi have one signature per process, whoever set it last.
_python = ctypes.PyDLL(None)
get_name = _python.PyCapsule_GetName
get_name.restype, get_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
get_pointer = _python.PyCapsule_GetPointer
get_pointer.restype, get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
new = _python.PyCapsule_New
new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


def versioned(capsule: Any) -> _abi.VersionedTensor:
    """The tensor in a capsule, which has to be kept meanwhile."""
    return _abi.VersionedTensor.from_address(get_pointer(capsule, b"dltensor_versioned"))


def look(capsule: Any) -> tuple[Any, ...]:
    """Address, name, flags and all that a tensor says."""
    name = get_name(capsule)
    if name == b"dltensor_versioned":
        whole = versioned(capsule)
        tensor, flags = whole.tensor, (whole.major, whole.minor, whole.flags)
    else:
        tensor, flags = _abi.LegacyTensor.from_address(get_pointer(capsule, name)).tensor, ()
    numbers = ctypes.c_int64 * tensor.dimensions
    shape = tuple(numbers.from_address(tensor.shape)) if tensor.dimensions else ()
    strides = tuple(numbers.from_address(tensor.strides)) if tensor.dimensions else ()
    dtype = (tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes)
    device = (tensor.device.type, tensor.device.id)
    return tensor.data, name, flags, device, dtype, shape, strides, tensor.byte_offset


HAND_MADE: list[object] = []  # for ever: a capsule may outlive its test


def hand_made(
    shape: Any,
    strides: Any,
    data: Any,
    *,
    byte_offset: int = 0,
    code: int = 1,
    bits: int = 8,
    lanes: int = 1,
    device: int = 1,
    version: tuple[int, int] = (1, 0),
    flags: int = 0,
    legacy: bool = False,
    deleter: bool = True,
) -> tuple[Any, list[int]]:
    """A capsule, and the list that its deleter appends to."""
    n, deleted = len(shape), []  # type: ignore[var-annotated]
    whole: Any = _abi.LegacyTensor() if legacy else _abi.VersionedTensor(major=version[0], minor=version[1])
    keep = [(ctypes.c_int64 * n)(*shape), None if strides is None else (ctypes.c_int64 * n)(*strides), data]
    tensor = whole.tensor
    tensor.data = None if data is None else data if isinstance(data, int) else ctypes.addressof(data)
    tensor.device.type = device
    tensor.dimensions = n
    tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes = code, bits, lanes
    tensor.shape = ctypes.addressof(keep[0])
    tensor.strides = None if keep[1] is None else ctypes.addressof(keep[1])
    tensor.byte_offset = byte_offset
    if not legacy:
        whole.flags = flags

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    def delete(address: int) -> None:
        deleted.append(address)

    if deleter:
        whole.deleter = ctypes.cast(delete, ctypes.c_void_p)
    name = b"dltensor" if legacy else b"dltensor_versioned"
    HAND_MADE.append((whole, keep, delete, name))
    return new(ctypes.addressof(whole), name, None), deleted
