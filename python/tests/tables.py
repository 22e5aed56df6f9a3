# SPDX-License-Identifier: MIT
"""DLPack's exchange tables: called as C code does, and made by hand."""

from __future__ import annotations

import ctypes
from typing import Any

from capsules import HAND_MADE, get_pointer, new
from cuda_link import _abi

NAME = b"dlpack_exchange_api"
FROM_OBJECT = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(ctypes.c_void_p))
TO_OBJECT = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p))
STREAM = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))
SET_ERROR = ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p)
ALLOCATE = ctypes.PYFUNCTYPE(
    ctypes.c_int,
    ctypes.POINTER(_abi.Tensor),
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.c_void_p,
    SET_ERROR,
)
DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_c = ctypes.CDLL(None)
_c.strdup.restype = ctypes.c_void_p
_USED = ctypes.c_void_p(_c.strdup(b"used_dltensor_versioned"))
"""Never freed: the end of a capsule, which reads it, may come behind that of this module."""


class Offered:
    """The table of a type, as C code calls it."""

    def __init__(self, kind: type) -> None:
        capsule = vars(kind)["__dlpack_c_exchange_api__"]
        self.table = _abi.Exchange.from_address(get_pointer(capsule, NAME))

    def from_object(self, thing: Any) -> _abi.VersionedTensor:
        out = ctypes.c_void_p()
        assert FROM_OBJECT(self.table.from_object)(thing, ctypes.byref(out)) == 0
        return _abi.VersionedTensor.from_address(out.value or 0)

    def to_object(self, tensor: _abi.VersionedTensor) -> Any:
        out = ctypes.c_void_p()
        assert TO_OBJECT(self.table.to_object)(ctypes.addressof(tensor), ctypes.byref(out)) == 0
        thing = ctypes.cast(out, ctypes.py_object).value
        ctypes.pythonapi.Py_DecRef(ctypes.py_object(thing))  # the reference that was returned is ours now
        return thing

    def stream(self, kind: int, number: int = 0) -> int:
        out = ctypes.c_void_p(99)
        assert STREAM(self.table.current_stream)(kind, number, ctypes.byref(out)) == 0
        return out.value or 0

    def allocate(self, prototype: _abi.Tensor) -> Any:
        """The tensor, or what was said."""
        out, said = ctypes.c_void_p(), []
        set_error = SET_ERROR(lambda _, kind, text: said.append((kind.decode(), text.decode())))
        failed = ALLOCATE(self.table.allocate)(ctypes.byref(prototype), ctypes.byref(out), None, set_error)
        return said[0] if failed else _abi.VersionedTensor.from_address(out.value or 0)


def delete(tensor: _abi.VersionedTensor) -> None:
    DELETER(tensor.deleter)(ctypes.addressof(tensor))


def table(
    from_object: Any, stream: Any, *, version: tuple[int, int] = (1, 3), previous: int | None = None
) -> Any:
    """A capsule. from_object(thing) -> address of a tensor; stream(device type, id) -> handle."""

    @FROM_OBJECT
    def give(thing: Any, out: Any) -> int:
        out[0] = from_object(thing)
        return 0 if out[0] else -1

    @STREAM
    def current(kind: int, number: int, out: Any) -> int:
        handle = stream(kind, number)
        out[0] = handle
        return 0 if handle is not None else -1

    made = _abi.Exchange()
    made.header.major, made.header.minor = version
    made.header.previous = previous
    made.from_object = ctypes.cast(give, ctypes.c_void_p)
    made.current_stream = ctypes.cast(current, ctypes.c_void_p)
    HAND_MADE.append((made, give, current, NAME))
    return new(ctypes.addressof(made), NAME, None)


def used(capsule: Any) -> None:
    """Its tensor was given away by other means."""
    ctypes.pythonapi.PyCapsule_SetName(ctypes.py_object(capsule), _USED)
