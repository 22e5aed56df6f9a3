# SPDX-License-Identifier: MIT
"""Lease and view of the ctypes back end; python/core/lease.c and view.c say what they do."""

from __future__ import annotations

import ctypes
import os
import threading
from ctypes import byref, c_uint32, c_uint64, c_void_p
from functools import lru_cache
from typing import Any

from . import _abi
from ._errors import error_for
from ._library import library
from ._pure_capsule import Dropper, capsule_of

_RELEASED = "this frame was released; what is needed longer has to be copied (frame.copy()) or released later"
_KEPT = (-1, -4, -17, -18)  # errors of release after which the frame is still held


def check(status: int) -> None:
    """Raises the exception of a status."""
    if status < 0:
        raise error_for(status, library.cudalink_last_error().decode(errors="replace"))


# A release on one thread and a look on another: while this is held, no pointer becomes invalid. Reentrant,
# since a collection may run anything; nobody waits in it.
_looking = threading.RLock()


def _after_fork() -> None:
    global _looking
    _looking = threading.RLock()


os.register_at_fork(after_in_child=_after_fork)


class Hold:
    """One reference to a held frame; the end of the object gives it back."""

    __slots__ = ("pointer",)

    def __init__(self, pointer: int) -> None:
        self.pointer: int | None = pointer

    def check(self) -> None:
        """Errors: ValueError (released meanwhile), ForkedError."""
        with _looking:
            if not self.pointer:
                raise ValueError(_RELEASED)
            check(library.cudalink_hold_use(self.pointer, _abi.Stream(_abi.STREAM_COMPLETE, 0, 0)))

    def retained(self) -> Hold:
        """Another one. Errors as check."""
        with _looking:
            self.check()
            return Hold(library.cudalink_hold_retain(self.pointer))

    def taken(self) -> int:
        """The pointer, which is the caller's from now on. Errors: ValueError (released meanwhile)."""
        with _looking:
            pointer, self.pointer = self.pointer, None
        if not pointer:
            raise ValueError(_RELEASED)
        return pointer

    def __del__(self, drop: Any = library.cudalink_hold_drop) -> None:
        pointer, self.pointer = self.pointer, None
        if pointer:
            drop(pointer)


@lru_cache(maxsize=64)
def _bytes_type(size: int) -> Any:
    return type("Bytes", (ctypes.c_ubyte * size,), {"owner": None})


def view(address: int, size: int, read_only: bool, owner: object) -> memoryview:
    """Memory at an address as a buffer that keeps its owner."""
    if size == 0:
        return memoryview(b"") if read_only else memoryview(bytearray())
    array = _bytes_type(size).from_address(address)
    array.owner = owner
    whole = memoryview(array).cast("B")
    return whole.toreadonly() if read_only else whole


class Held(set[int]):
    """The numbers of the frames of one importer that were not given back."""

    def numbers(self) -> list[int]:
        return list(self.copy())  # at once: other threads may release meanwhile


def _member(name: str) -> property:
    return property(lambda lease: int(getattr(lease._frame, name)))


class Lease:
    """One reference to a held frame, and what the frame is."""

    sequence = _member("sequence")
    timestamp = _member("timestamp")
    missed = _member("missed")
    session = _member("session")
    generation = _member("generation")
    _slot = _member("slot")
    _kind = _member("kind")
    _writable = _member("writable")
    _device = _member("device")
    _said = _member("flags")
    _layout: Any = None
    _is_written = False
    _hold: Hold | None = None
    _frame: _abi.Frame
    _held: Held

    def __init__(self, *arguments: object) -> None:
        raise TypeError("frames come from an importer: importer.acquire()")

    @classmethod
    def _of(cls, frame: _abi.Frame, held: Held) -> Lease:
        """Of a frame that was taken; before, a KeyboardInterrupt could get lost in its __del__."""
        made = cls.__new__(cls)
        made._frame = frame
        made._held = held
        return made._begin()

    def _begin(self) -> Lease:
        hold = c_void_p()
        status = library.cudalink_hold_take(byref(hold), byref(self._frame))
        if status < 0:
            error = error_for(status, library.cudalink_last_error().decode(errors="replace"))
            library.cudalink_frame_release(byref(self._frame), _abi.Stream(_abi.STREAM_COMPLETE, 0, 0))
            raise error
        self._hold = Hold(hold.value or 0)
        self._held.add(self._frame.sequence)
        return self

    def _kept(self) -> Hold:
        """A hold of the caller's own, whatever other threads do."""
        return self._own().retained()

    def _own(self) -> Hold:
        hold = self._hold
        if hold is None:
            raise ValueError(_RELEASED)
        return hold

    def _release(self, kind: int = 0, handle: int = 0) -> None:
        hold = self._own()
        if kind:
            pointer = hold.taken()
            self._hold = None
            status = library.cudalink_hold_release(pointer, _abi.Stream(kind, 0, handle))
            if status in _KEPT:
                hold.pointer, self._hold = pointer, hold
            else:
                self._held.discard(self._frame.sequence)
            check(status)
        else:
            try:
                hold.check()
            finally:  # of a forked child's copy nothing is left to give back
                self._hold = None
                self._held.discard(self._frame.sequence)

    def __del__(self) -> None:
        if self._hold is not None:
            self._held.discard(self._frame.sequence)

    def _flags(self) -> int:
        try:
            hold = self._kept()
        except ValueError:
            return int(self._frame.flags)
        flags = c_uint32()
        check(library.cudalink_frame_flags(library.cudalink_hold_frame(hold.pointer), byref(flags)))
        self._frame.flags = flags.value
        return flags.value

    def _give(self, table: Any) -> Any:
        """By an exchange table: `__dlpack__` is as good here."""
        return None

    def _given(self) -> None:
        """Nothing, see above."""

    def _to_host(self, out: Any) -> None:
        hold = self._kept()
        size = memoryview(out).nbytes
        target = (ctypes.c_ubyte * size).from_buffer(out)
        if self._is_written:
            check(library.cudalink_hold_wait(hold.pointer, _abi.Stream(_abi.STREAM_COMPLETE, 0, 0)))
        check(library.cudalink_frame_to_host(library.cudalink_hold_frame(hold.pointer), target, size))

    def _to_host_begin(self, out: Any) -> int:
        hold = self._own()
        hold.check()
        size = memoryview(out).nbytes
        target = (ctypes.c_ubyte * size).from_buffer(out)
        self._own().check()  # the buffer may have released the frame
        copy = _abi.HostCopy()
        pointer = hold.taken()
        self._hold = None
        try:
            check(library.cudalink_hold_to_host_begin(pointer, target, size, byref(copy)))
        finally:
            if copy.id:
                self._held.discard(self._frame.sequence)
            else:
                hold.pointer, self._hold = pointer, hold
        return int(copy.id)

    def _view(self) -> memoryview:
        hold = self._kept()
        if self._frame.kind != _abi.KIND_HOST:
            raise BufferError("this frame is in GPU memory")
        size = c_uint64()
        check(library.cudalink_description_bytes(ctypes.addressof(self._frame.description), byref(size)))
        return view(self._frame.data, size.value, not self._frame.writable, hold)

    def _wait(self, kind: int, handle: int) -> None:
        hold = self._kept()
        check(library.cudalink_hold_wait(hold.pointer, _abi.Stream(kind, 0, handle)))

    def _written(self, kind: int, handle: int) -> None:
        hold = self._kept()
        check(library.cudalink_hold_written(hold.pointer, _abi.Stream(kind, 0, handle)))
        self._is_written = True

    def _export(self, plane: int, versioned: bool) -> Any:
        hold = self._kept()
        looked = _abi.View()
        frame = library.cudalink_hold_frame(hold.pointer)
        check(library.cudalink_view_of_frame(byref(looked), frame, plane))
        owner = Dropper(library.cudalink_hold_retain(hold.pointer), library.cudalink_hold_drop)
        return capsule_of(looked, owner, versioned)

    @property
    def _plane_count(self) -> int:
        return int(self._frame.description.plane_count)

    @property
    def _dimensions(self) -> int:
        return int(self._frame.description.planes[0].dimensions)

    @property
    def released(self) -> bool:
        return self._hold is None

    def _outline(self) -> bytes:
        raw = self._description
        size = self._plane_count * ctypes.sizeof(_abi.Plane)
        return raw[: _abi.Description.timing.offset] + raw[_abi.Description.planes.offset :][:size]

    @property
    def _description(self) -> bytes:
        return bytes(self._frame.description)

    @property
    def user(self) -> bytes:
        kept = self._kept()
        size = self._frame.description.user_size
        user = ctypes.string_at(self._frame.user, size) if self._frame.user else b""
        del kept
        return user

    @property
    def _text(self) -> str:
        return bytes(self._frame.text).decode(errors="replace")

    @property
    def _address(self) -> int:
        return self._frame.data or 0
