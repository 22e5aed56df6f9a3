# SPDX-License-Identifier: MIT
"""Recordings in Python, after docs/recording.md: an eye of its own on what record writes."""

import struct
import zlib
from dataclasses import dataclass, field, replace
from itertools import product

MAGIC, MARK, VERSION = b"CUDALREC", b"FRAM", 2
INVALID, LOST = 1, 2
HEAD = struct.Struct("<8sIIQ208s32s")
FRAME = struct.Struct("<4sIQIIQQQIIIIII8BqqIIII16s96sII")
ASPECT_BYTES = 8  # at the end of FRAME, not in version 1
PLANE = struct.Struct("<24sBBHIQQ8q8q")
UINT8, FLOAT32, FLOAT16, BOOL = (1, 8, 1), (2, 32, 1), (2, 16, 1), (6, 8, 1)


@dataclass(frozen=True)
class Plane:
    name: bytes
    dtype: tuple  # code, bits, lanes
    shape: tuple
    strides: tuple
    offset: int
    bytes: int

    def pack(self):
        pad = (0,) * (8 - len(self.shape))
        return PLANE.pack(
            self.name, *self.dtype, len(self.shape), self.offset, self.bytes, *self.shape, *pad,
            *self.strides, *pad,
        )  # fmt: skip

    def runs(self):
        """Where its elements lie: (offset, bytes); of small elements, rows of the last dimension."""
        bits = self.dtype[1] * self.dtype[2]
        small = bits < 8 and len(self.shape) > 0
        size = (self.shape[-1] * bits + 7) // 8 if small else (bits + 7) // 8
        steps = list(zip(self.shape, self.strides, strict=True))
        for place in product(*(range(length) for length, _ in (steps[:-1] if small else steps))):
            yield self.offset + sum(i * stride for i, (_, stride) in zip(place, steps)), size


def tensor(name, dtype, shape, offset=0):
    """A dense one."""
    strides, size = [], dtype[1] * dtype[2] // 8
    for length in reversed(shape):
        strides.insert(0, size)
        size *= length
    return Plane(name, dtype, tuple(shape), tuple(strides), offset, size)


@dataclass(frozen=True)
class Frame:
    planes: tuple = ()
    data: bytes = b""
    user: bytes = b""
    flags: int = 0
    sequence: int = 0
    timestamp: int = 0
    missed: int = 0
    session: int = 1
    picture: tuple = (0, 0, 0)  # format, width, height
    colour: tuple = (0,) * 8
    pts: int = 0
    duration: int = 0
    time_base: tuple = (0, 0)
    rate: tuple = (0, 0)
    clock: bytes = b""
    text: bytes = b""
    aspect: tuple = (0, 0)  # of a pixel
    offset: int = field(default=0, compare=False)  # in the file

    def content(self):
        """What a replay keeps."""
        return replace(self, sequence=0, timestamp=0, session=0, missed=0)

    def without_gaps(self):
        """With 0 for the bytes that belong to no element: a GPU need not keep them."""
        kept = bytearray(len(self.data))
        for plane in self.planes:
            for start, length in plane.runs():
                kept[start : start + length] = self.data[start : start + length]
        return replace(self.content(), data=bytes(kept))

    def pack(self, version=VERSION):
        head = FRAME.pack(
            MARK, 0, len(self.data), zlib.crc32(self.data), self.flags, self.sequence, self.timestamp,
            self.missed, self.session, len(self.planes), len(self.user), *self.picture, *self.colour,
            self.pts, self.duration, *self.time_base, *self.rate, self.clock, self.text,
            *self.aspect,
        )[8:]  # fmt: skip
        head = head[:-ASPECT_BYTES] if version == 1 else head
        rest = head + b"".join(plane.pack() for plane in self.planes) + self.user
        return MARK + struct.pack("<I", zlib.crc32(rest)) + rest + self.data


def pack_head(channel=b"x", version=VERSION):
    rest = HEAD.pack(MAGIC, version, 0, 0, channel, b"")[16:]
    return MAGIC + struct.pack("<II", version, zlib.crc32(rest)) + rest


def write(path, frames, channel=b"x", version=VERSION):
    with open(path, "wb") as file:
        file.write(pack_head(channel, version))
        for frame in frames:
            file.write(frame.pack(version))


def text(value):
    return value.split(b"\0", 1)[0]


def read_plane(data, at):
    name, code, bits, lanes, dimensions, offset, size, *numbers = PLANE.unpack_from(data, at)
    shape, strides = tuple(numbers[:dimensions]), tuple(numbers[8 : 8 + dimensions])
    return Plane(text(name), (code, bits, lanes), shape, strides, offset, size)


def read_frame(data, start):
    (mark, crc, data_bytes, data_crc, flags, sequence, timestamp, missed, session, plane_count, user_size,
     *picture) = FRAME.unpack_from(data, start)  # fmt: skip
    colour, rest = tuple(picture[3:11]), picture[11:]
    at = start + FRAME.size
    planes = tuple(read_plane(data, at + i * PLANE.size) for i in range(plane_count))
    at += plane_count * PLANE.size
    user = data[at : at + user_size]
    at += user_size
    pixels = data[at : at + data_bytes]
    assert mark == MARK and len(pixels) == data_bytes, f"byte {start}"
    assert zlib.crc32(data[start + 8 : at]) == crc and zlib.crc32(pixels) == data_crc, f"byte {start}"
    frame = Frame(
        planes, pixels, user, flags, sequence, timestamp, missed, session, tuple(picture[:3]), colour,
        rest[0], rest[1], tuple(rest[2:4]), tuple(rest[4:6]), text(rest[6]), text(rest[7]),
        tuple(rest[8:10]), start,
    )  # fmt: skip
    return frame, at + data_bytes


def read(path):
    """All frames of a whole file."""
    with open(path, "rb") as file:
        data = file.read()
    magic, version, crc, _, channel, _ = HEAD.unpack_from(data)
    assert (magic, version) == (MAGIC, VERSION) and zlib.crc32(data[16 : HEAD.size]) == crc
    frames, at = [], HEAD.size
    while at < len(data):
        frame, at = read_frame(data, at)
        frames.append(frame)
    return text(channel), frames
