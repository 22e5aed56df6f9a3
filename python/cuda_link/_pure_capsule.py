# SPDX-License-Identifier: MIT
"""DLPack's capsules through ctypes; python/core/capsule.c says what they do."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from ctypes import CFUNCTYPE, byref, c_char_p, c_int, c_void_p, py_object
from typing import Any, NamedTuple

from . import _abi
from ._errors import refusal_for
from ._library import library

LEGACY = b"dltensor"
VERSIONED = b"dltensor_versioned"
USED = {LEGACY: b"used_dltensor", VERSIONED: b"used_dltensor_versioned"}  # kept: capsules point to them
_DELETER = {LEGACY: _abi.LegacyTensor.deleter.offset, VERSIONED: _abi.VersionedTensor.deleter.offset}

# Of our own: functions of ctypes.pythonapi have one signature per process, whoever set it last.
_python = ctypes.PyDLL(None)
_new = _python.PyCapsule_New
_new.argtypes = [c_void_p, c_char_p, c_void_p]
_new.restype = py_object
is_valid = _python.PyCapsule_IsValid
is_valid.argtypes = [c_void_p, c_char_p]
is_valid.restype = c_int
pointer = _python.PyCapsule_GetPointer
pointer.argtypes = [c_void_p, c_char_p]
pointer.restype = c_void_p
_set_name = _python.PyCapsule_SetName
_set_name.argtypes = [c_void_p, c_char_p]
_set_name.restype = c_int

_Deleter = CFUNCTYPE(None, c_void_p)


def delete(tensor: int, name: bytes) -> None:
    """Calls a tensor's deleter, when it has one."""
    deleter = c_void_p.from_address(tensor + _DELETER[name]).value
    if deleter:
        _Deleter(deleter)(tensor)


# Capsules that we made and nobody has consumed yet, as far as we know. They have no destructor: it would
# be Python code that runs wherever a capsule happens to die, also while an exception is on its way. So
# each call that could care sweeps up the dead ones first.
_made: list[Any] = []
_sweeping = threading.Lock()


# From a look at a capsule's name until it has another: two threads that take one would both own its tensor.
# Reentrant, since a collection may run anything; nobody waits in it.
_taking = threading.RLock()


def _after_fork() -> None:
    global _taking
    _taking = threading.RLock()


os.register_at_fork(after_in_child=_after_fork)


def _references(things: list[Any], place: int) -> int:
    thing = things[place]
    return sys.getrefcount(thing)


# To what only a list has: how many that are depends on the Python (3.14 does not count all variables).
_ONLY_OURS = _references([object()], 0)


def _unused_name(address: int) -> bytes | None:
    for name in (LEGACY, VERSIONED):
        if is_valid(address, name):
            return name
    return None


def sweep() -> None:
    """Deletes the tensors of capsules that nobody consumed and nobody has any more."""
    if not _made or not _sweeping.acquire(blocking=False):
        return
    dead = []
    try:
        for i in reversed(range(len(_made))):
            # First: another thread may consume it between the two, and let go of it.
            is_ours_alone = _references(_made, i) <= _ONLY_OURS
            address = id(_made[i])
            name = _unused_name(address)
            if name is None:
                del _made[i]
            elif is_ours_alone:
                dead.append((pointer(address, name), name))
                del _made[i]
    finally:
        _sweeping.release()
    for tensor, name in dead:
        delete(tensor, name)


class Dropper(NamedTuple):
    """What keeps a tensor's memory: `drop(owner)` in C."""

    owner: int
    drop: Any


def capsule_of(view: _abi.View, owner: Any, versioned: bool) -> Any:
    """A capsule of a new tensor. Takes the owner over, also on failure."""
    sweep()
    if not view.data and owner:  # no memory to keep: some consumers never delete an empty tensor
        owner.drop(owner.owner)
        owner = None
    export = library.cudalink_dlpack_export if versioned else library.cudalink_dlpack_export_legacy
    tensor = c_void_p()
    drop = ctypes.cast(owner.drop, c_void_p) if owner else None
    status = export(byref(view), owner.owner if owner else None, drop, byref(tensor))
    if status < 0:
        error = refusal_for(status, library.cudalink_last_error().decode(errors="replace"))
        if owner:
            owner.drop(owner.owner)
        raise error
    capsule = _new(tensor, VERSIONED if versioned else LEGACY, None)
    _made.append(capsule)
    return capsule


def take(capsule: Any) -> int:
    """A cudalink_array of a capsule, which is used up."""
    if type(capsule).__name__ != "PyCapsule":
        raise TypeError(f"a DLPack capsule is needed, not {capsule!r}")
    address = id(capsule)
    for name, function in (
        (VERSIONED, library.cudalink_array_take),
        (LEGACY, library.cudalink_array_take_legacy),
    ):
        with _taking:
            if not is_valid(address, name):
                continue
            array = c_void_p()
            status = function(byref(array), pointer(address, name))
            if status < 0:
                raise refusal_for(status, library.cudalink_last_error().decode(errors="replace"))
            _set_name(address, USED[name])
            return array.value or 0
    raise BufferError(f"{capsule!r} holds no tensor: a DLPack capsule can be used once")
