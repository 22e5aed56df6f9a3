# SPDX-License-Identifier: MIT
"""Slot of the ctypes back end; python/core/slot.c says what its methods do."""

from __future__ import annotations

from ctypes import addressof, byref, c_void_p
from typing import Any, TypeVar

from . import _abi
from ._errors import CudaLinkError
from ._library import library
from ._pure_capsule import Dropper, capsule_of
from ._pure_kept import let_go
from ._pure_lease import check, view

_Self = TypeVar("_Self", bound="Slot")


class _SlotHold:
    """One holder of a slot's memory; the end of the object gives it up."""

    __slots__ = ("_pointer",)

    def __init__(self, pointer: int) -> None:
        self._pointer = pointer

    def __del__(self, drop: Any = library.cudalink_slot_hold_drop) -> None:
        drop(self._pointer)


class Slot:
    """A slot that an exporter lends, from begin to its end."""

    __slots__ = ("_exporter", "_open", "_slot")

    _exporter: int
    _open: bool
    _slot: _abi.Slot

    def __new__(cls: type[_Self], *arguments: object) -> _Self:
        made = super().__new__(cls)
        made._exporter = 0
        made._open = False
        made._slot = _abi.Slot()
        return made

    sequence = property(lambda self: int(self._slot.sequence))
    address = property(lambda self: int(self._slot.data or 0))
    _user = property(lambda self: int(self._slot.user or 0))
    _bytes = property(lambda self: int(self._slot.bytes))
    _device = property(lambda self: int(self._slot.device))

    def _begin(self, exporter: int, description: _abi.Description, timeout: int) -> None:
        slot = addressof(self._slot)
        self._exporter = exporter
        try:
            check(library.cudalink_exporter_begin(exporter, addressof(description), timeout, slot))
            self._open = True
        except BaseException as error:
            # Ctrl-C in a wait is seen behind it, and the slot may be ours.
            if self._slot.sequence and not isinstance(error, CudaLinkError):
                library.cudalink_exporter_abandon(exporter, slot, _abi.Stream(_abi.STREAM_COMPLETE, 0, 0))
            raise

    def _end(self, call: Any, end: Any) -> None:
        check(call(self._exporter, addressof(self._slot), end))
        self._open = False

    def _publish(self, kind: int, handle: int) -> None:
        self._end(library.cudalink_exporter_publish, _abi.Stream(kind, 0, handle))
        let_go(self._exporter)

    def _abandon(self, kind: int, handle: int) -> None:
        self._end(library.cudalink_exporter_abandon, _abi.Stream(kind, 0, handle))

    def _publish_invalid(self, text: str) -> None:
        self._end(library.cudalink_exporter_publish_invalid, _abi.encode(text))

    def _give_up(self) -> None:
        raise NotImplementedError

    def __del__(self) -> None:
        if getattr(self, "_open", False):
            self._give_up()

    def _hold(self) -> int:
        hold = c_void_p()
        check(library.cudalink_slot_hold_take(byref(hold), self._exporter, addressof(self._slot)))
        return hold.value or 0

    def _view(self, address: int, size: int) -> memoryview:
        return view(address, size, False, _SlotHold(self._hold()))

    def _export(self, description: _abi.Description, plane: int, versioned: bool) -> Any:
        looked = _abi.View()
        slot = addressof(self._slot)
        check(library.cudalink_view_of_slot(byref(looked), slot, addressof(description), plane))
        owner = Dropper(self._hold(), library.cudalink_slot_hold_drop)
        return capsule_of(looked, owner, versioned)


def slot_address(exporter: int, index: int) -> int:
    address = c_void_p()
    check(library.cudalink_exporter_slot_address(exporter, index, byref(address)))
    return address.value or 0
