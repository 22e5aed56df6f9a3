# SPDX-License-Identifier: MIT
"""Memory of lent slots through ctypes; python/core/slot.c says what these do."""

from __future__ import annotations

from ctypes import addressof, byref, c_void_p
from typing import Any

from . import _abi
from ._library import library
from ._pure_capsule import Dropper, capsule_of
from ._pure_lease import check, view


def _hold(exporter: int, slot: _abi.Slot) -> int:
    hold = c_void_p()
    check(library.cudalink_slot_hold_take(byref(hold), exporter, addressof(slot)))
    return hold.value or 0


class _SlotHold:
    """One holder of a slot's memory; the end of the object gives it up."""

    __slots__ = ("_pointer",)

    def __init__(self, pointer: int) -> None:
        self._pointer = pointer

    def __del__(self, drop: Any = library.cudalink_slot_hold_drop) -> None:
        drop(self._pointer)


def slot_address(exporter: int, index: int) -> int:
    address = c_void_p()
    check(library.cudalink_exporter_slot_address(exporter, index, byref(address)))
    return address.value or 0


def slot_view(exporter: int, slot: _abi.Slot, address: int, size: int) -> memoryview:
    return view(address, size, False, _SlotHold(_hold(exporter, slot)))


def slot_export(
    exporter: int, slot: _abi.Slot, description: _abi.Description, plane: int, versioned: bool
) -> Any:
    looked = _abi.View()
    check(library.cudalink_view_of_slot(byref(looked), addressof(slot), addressof(description), plane))
    owner = Dropper(_hold(exporter, slot), library.cudalink_slot_hold_drop)
    return capsule_of(looked, owner, versioned)
