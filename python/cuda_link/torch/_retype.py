# SPDX-License-Identifier: MIT
"""Tensors of bool for old torch (1.13), whose DLPack has no bool: they cross as bytes."""

from __future__ import annotations

import ctypes
from ctypes import c_char_p, c_void_p, py_object
from typing import Any

import torch

from .. import _abi
from .._dtypes import Dtype, parse

BOOL = parse("bool")
BYTES = parse("uint8")

# Of our own: functions of ctypes.pythonapi have one signature per process, whoever set it last.
_python = ctypes.PyDLL(None)
_name = _python.PyCapsule_GetName
_name.argtypes, _name.restype = [py_object], c_char_p
_pointer = _python.PyCapsule_GetPointer
_pointer.argtypes, _pointer.restype = [py_object, c_char_p], c_void_p


def _can_export_bool() -> bool:
    try:
        torch.zeros(1, dtype=torch.bool).__dlpack__()
    except (BufferError, RuntimeError):
        return False
    return True


KNOWS_BOOL = _can_export_bool()


def _tensor_of(capsule: Any) -> Any:
    name = _name(capsule)
    kind = _abi.VersionedTensor if name == b"dltensor_versioned" else _abi.LegacyTensor
    return kind.from_address(_pointer(capsule, name)).tensor


def dtype_of(capsule: Any) -> Dtype:
    """The type in a capsule that nobody has consumed."""
    dtype = _tensor_of(capsule).dtype
    return Dtype(dtype.code, dtype.bits, dtype.lanes)


def retyped(capsule: Any, dtype: Dtype) -> Any:
    """The capsule, with its elements said to be of another type of the same size."""
    named = _tensor_of(capsule).dtype
    named.code, named.bits, named.lanes = dtype
    return capsule
