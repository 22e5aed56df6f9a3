# SPDX-License-Identifier: MIT
"""The control segment of the old wire (magic CIPD) as bytes: offsets, reading, writing. For scripts that
look at it themselves; docs/protocol.md says which field is what."""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass
from typing import Any, NamedTuple

MAGIC = 0x43495044
_SLOT_BYTES = 128
_HEADER_BYTES = 20
_METADATA = struct.Struct("<IIIBBHI")
_FLOAT, _UNSIGNED, _SIGNED = 2, 1, 0
_BFLOAT16 = 1  # the only flag that says something about the type

_DTYPES = {
    "float32": (_FLOAT, 32, 0),
    "float16": (_FLOAT, 16, 0),
    "bfloat16": (_FLOAT, 16, _BFLOAT16),
    "uint8": (_UNSIGNED, 8, 0),
    "uint16": (_UNSIGNED, 16, 0),
    "int8": (_SIGNED, 8, 0),
    "int16": (_SIGNED, 16, 0),
}


class DtypeCodec:
    """Element types by name and as (kind, bits, flags)."""

    @staticmethod
    def _triple(name: str) -> tuple[int, int, int]:
        if name not in _DTYPES:
            raise ValueError(f"{name!r} is no type of the old wire; these are: {', '.join(_DTYPES)}")
        return _DTYPES[name]

    @classmethod
    def encode(cls, name: str) -> tuple[int, int, int]:
        """(kind, bits, flags). Errors: ValueError."""
        return cls._triple(name)

    @staticmethod
    def decode(kind: int, bits: int, flags: int) -> str:
        """The name. An unknown type is an error: guessing float32 once meant four times the bytes."""
        for name, triple in _DTYPES.items():
            if triple == (kind, bits, flags & _BFLOAT16):
                return name
        raise ValueError(f"kind {kind}, {bits} bits, flags {flags} is no type of the old wire")

    @classmethod
    def itemsize(cls, name: str) -> int:
        """Bytes per element."""
        return cls._triple(name)[1] // 8

    @staticmethod
    def supported() -> list[str]:
        """All names."""
        return list(_DTYPES)

    @classmethod
    def typestr(cls, name: str) -> str:
        """For array interfaces; bfloat16 as plain 16-bit words."""
        kind, bits, flags = cls._triple(name)
        letter = "u" if flags else {_FLOAT: "f", _UNSIGNED: "u", _SIGNED: "i"}[kind]
        return f"{'|' if bits == 8 else '<'}{letter}{bits // 8}"

    @classmethod
    def numpy_name(cls, name: str) -> str:
        """NumPy's name; bfloat16 needs ml_dtypes."""
        cls._triple(name)
        return name

    @classmethod
    def cupy_name(cls, name: str) -> str | None:
        """CuPy's name; None for bfloat16."""
        return None if cls._triple(name)[2] else name


class SHMLayout:
    """Offsets in the segment of so many slots."""

    def __init__(self, num_slots: int) -> None:
        if num_slots < 1:
            raise ValueError(f"num_slots={num_slots}; it is 1 or more")
        self.num_slots = num_slots
        self.shutdown_offset = _HEADER_BYTES + _SLOT_BYTES * num_slots
        self.metadata_offset = self.shutdown_offset + 1
        self.timestamp_offset = self.metadata_offset + _METADATA.size
        self.total_size = self.timestamp_offset + 8

    def slot_offset(self, slot: int) -> int:
        """Of slot number `slot`. Errors: IndexError."""
        if not 0 <= slot < self.num_slots:
            raise IndexError(f"slot {slot}; there are {self.num_slots}")
        return _HEADER_BYTES + _SLOT_BYTES * slot

    def mem_handle_offset(self, slot: int) -> int:
        """Of its memory handle, 64 bytes."""
        return self.slot_offset(slot)

    def event_handle_offset(self, slot: int) -> int:
        """Of its event handle, 64 bytes."""
        return self.slot_offset(slot) + 64

    def build_buffer(self, version: int = 1, write_idx: int = 0) -> bytearray:
        """A segment with a header and zeros."""
        buffer = bytearray(self.total_size)
        struct.pack_into("<IQII", buffer, 0, MAGIC, version, self.num_slots, write_idx)
        return buffer


@dataclass
class Metadata:
    """What the frames are."""

    width: int = 0
    height: int = 0
    num_comps: int = 0
    format_kind: int = 0
    bits_per_comp: int = 0
    flags: int = 0
    data_size: int = 0

    @property
    def expected_size(self) -> int:
        """Bytes of a frame by its extents; data_size must be the same."""
        return self.width * self.height * self.num_comps * (self.bits_per_comp // 8)

    def pack_into(self, buffer: Any, offset: int) -> None:
        """Writes it there."""
        values = (self.width, self.height, self.num_comps, self.format_kind, self.bits_per_comp)
        _METADATA.pack_into(buffer, offset, *values, self.flags, self.data_size)

    @classmethod
    def read_from(cls, buffer: Any, offset: int) -> Metadata:
        """Reads it from there."""
        return cls(*_METADATA.unpack_from(buffer, offset))


class SlotState(enum.Enum):
    """What acquire_slot has found."""

    NO_FRAME = "no_frame"
    NEW_FRAME = "new_frame"
    SHUTDOWN = "shutdown"
    VERSION_CHANGED = "version_changed"


class AcquireResult(NamedTuple):
    """What acquire_slot returns."""

    state: SlotState
    slot: int = -1
    timestamp: float = 0.0
    new_version: int = 0
    write_idx: int = 0


def _read(format: str, buffer: Any, offset: int) -> Any:
    return struct.unpack_from(format, buffer, offset)[0]


def read_magic(buffer: Any) -> int:
    """The first four bytes."""
    return int(_read("<I", buffer, 0))


def read_version(buffer: Any) -> int:
    """Counts initialisations of the producer."""
    return int(_read("<Q", buffer, 4))


def read_num_slots(buffer: Any) -> int:
    """Slots."""
    return int(_read("<I", buffer, 12))


def read_write_idx(buffer: Any) -> int:
    """Frames published; 0 = none yet."""
    return int(_read("<I", buffer, 16))


def set_version(buffer: Any, version: int) -> None:
    """Writes the version."""
    struct.pack_into("<Q", buffer, 4, version)


def bump_version(buffer: Any) -> int:
    """Adds one to the version and returns it."""
    version = read_version(buffer) + 1
    set_version(buffer, version)
    return version


def set_shutdown(buffer: Any, layout: SHMLayout) -> None:
    """The producer has gone."""
    buffer[layout.shutdown_offset] = 1


def clear_shutdown(buffer: Any, layout: SHMLayout) -> None:
    """The producer is there."""
    buffer[layout.shutdown_offset] = 0


def publish_frame(buffer: Any, layout: SHMLayout, timestamp: float) -> int:
    """Time, then the counter; returns the counter. Errors: ValueError (the counter is at its end)."""
    count = read_write_idx(buffer) + 1
    if count > 0xFFFFFFFF:
        raise ValueError(
            "the counter is at its end, and 0 means no frame: begin a new session, with a new version"
        )
    struct.pack_into("<d", buffer, layout.timestamp_offset, timestamp)
    clear_shutdown(buffer, layout)
    struct.pack_into("<I", buffer, 16, count)
    return count


def acquire_slot(buffer: Any, layout: SHMLayout, last_version: int, last_write_idx: int) -> AcquireResult:
    """What a reader finds that has seen these two last."""
    if buffer[layout.shutdown_offset]:
        return AcquireResult(SlotState.SHUTDOWN)
    version = read_version(buffer)
    if last_version and version != last_version:
        return AcquireResult(SlotState.VERSION_CHANGED, new_version=version)
    count = read_write_idx(buffer)
    if count in (0, last_write_idx):
        return AcquireResult(SlotState.NO_FRAME, new_version=version, write_idx=count)
    timestamp = _read("<d", buffer, layout.timestamp_offset)
    slot = (count - 1) % layout.num_slots
    return AcquireResult(SlotState.NEW_FRAME, slot, timestamp, version, count)
