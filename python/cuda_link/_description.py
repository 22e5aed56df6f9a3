# SPDX-License-Identifier: MIT
"""What is in a frame: made from Python values for the C library, and read back."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from operator import index
from typing import Any, NamedTuple

from . import _abi, _arguments, _dtypes, _picture
from ._backend import low
from ._dtypes import Dtype
from ._picture import Picture


class Plane(NamedTuple):
    """One array of a frame."""

    name: str
    dtype: Dtype
    shape: tuple[int, ...]
    """Elements per dimension."""
    strides: tuple[int, ...]
    """Bytes per step of a dimension."""
    offset: int
    """Bytes from the start of the frame."""
    nbytes: int
    """Bytes from offset to the end of the last element."""

    @property
    def is_dense(self) -> bool:
        """Row-major without gaps."""
        step = self.dtype.size
        for extent, stride in zip(reversed(self.shape), reversed(self.strides)):
            if extent != 1 and stride != step:
                return 0 in self.shape
            step *= extent
        return True


class Timing(NamedTuple):
    """When a frame is meant to be shown, in its producer's own clock."""

    pts: int
    """In units of time_base."""
    duration: int
    """In units of time_base."""
    time_base: Fraction | None
    """Seconds per unit; None = not said."""
    rate: Fraction | None
    """Frames per second; None = not said."""
    clock: str
    """The name of that clock; "" = not said."""


class Layout(NamedTuple):
    """The part of a description that mostly stays from frame to frame."""

    planes: tuple[Plane, ...]
    picture: Picture | None


# ---- reading


def _text(field: bytes) -> str:
    return field.decode(errors="replace")


def _plane(plane: _abi.Plane) -> Plane:
    dimensions = plane.dimensions
    dtype = Dtype(plane.dtype.code, plane.dtype.bits, plane.dtype.lanes)
    shape, strides = tuple(plane.shape[:dimensions]), tuple(plane.strides[:dimensions])
    return Plane(_text(plane.name), dtype, shape, strides, plane.offset, plane.bytes)


def layout(raw: bytes) -> Layout:
    """Planes and picture of a description."""
    description = _abi.Description.from_buffer_copy(raw)
    planes = tuple(_plane(description.planes[i]) for i in range(description.plane_count))
    return Layout(planes, _picture.read(description.picture))


def timing(raw: bytes) -> Timing:
    """The timing of a description."""
    read = _abi.Timing.from_buffer_copy(raw, _TIMING_START)
    return Timing(
        read.pts,
        read.duration,
        _picture.fraction(read.time_base_numerator, read.time_base_denominator),
        _picture.fraction(read.rate_numerator, read.rate_denominator),
        _text(read.clock),
    )


_TIMING_START = _abi.Description.timing.offset


class LayoutCache:
    """The layout of an importer's newest frame: mostly that of the next one too."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: tuple[bytes, Layout] | None = None

    def get(self, frame: Any) -> Layout:
        last = self._last  # once: another thread may replace it
        outline: bytes = frame._outline()
        if last and last[0] == outline:
            return last[1]
        found = layout(frame._description)
        self._last = (outline, found)
        return found


# ---- making


def _extents(shape: Any) -> tuple[int, ...]:
    """Of one number or several, of Python or NumPy; text and fractions are none."""
    if isinstance(shape, (str, bytes)):
        raise TypeError(f"the shape {shape!r} is no tuple of numbers")
    return tuple(index(extent) for extent in shape) if hasattr(shape, "__iter__") else (index(shape),)


def _add_tensor(description: _abi.Description, name: str | None, shape: Any, dtype: Any) -> None:
    parsed = _dtypes.parse(dtype)
    extents = _extents(shape)
    low.describe_tensor(description, name, parsed.code, parsed.bits, parsed.lanes, extents)


def make(
    shape: Any = None,
    dtype: Any = None,
    format: str | None = None,
    planes: dict[str, Any] | None = None,
) -> _abi.Description:
    """A description from what the user said; exactly one of these:

    shape and dtype: one tensor. format and shape=(height, width): a picture. planes: {name: (shape,
    dtype)}, up to 16 tensors.
    """
    description = _abi.Description()
    if planes is not None:
        if shape is not None or dtype is not None or format is not None:
            raise TypeError("planes stands for itself: leave shape, dtype and format out")
        if not isinstance(planes, Mapping):
            raise TypeError(f"planes={planes!r}: it is {{name: (shape, dtype)}}")
        if not planes:
            raise ValueError("planes is empty; a frame has 1 to 16")
        for name, said in planes.items():
            try:
                extents, kind = said
            except (TypeError, ValueError):
                raise TypeError(f"planes={{{name!r}: {said!r}}}: a plane is said by (shape, dtype)") from None
            _add_tensor(description, _arguments.plane_name(name), extents, kind)
    elif format is not None:
        if dtype is not None:
            raise TypeError(f"the format {format} says what the elements are: leave dtype out")
        _describe_picture(description, format, shape)
    elif shape is not None:
        _add_tensor(description, None, shape, "uint8" if dtype is None else dtype)
    else:
        raise TypeError("say what a frame looks like: shape and dtype, format and shape, or planes")
    return description


def _describe_picture(description: _abi.Description, format: str, shape: Any) -> None:
    number = low.format_from_name(_arguments.text("format", format))
    if not number:
        raise ValueError(f"{format!r} is no picture format; these are: {', '.join(formats())}")
    try:
        height, width = _extents(shape)
    except (TypeError, ValueError):
        raise ValueError(f"the format {format} needs shape=(height, width), not {shape!r}") from None
    if not (0 <= height < 2**31 and 0 <= width < 2**31):
        raise ValueError(f"shape {shape!r}: height and width are 1 to 65535")
    low.describe_picture(description, number, width, height, 1)


def formats() -> list[str]:
    """The names of all picture formats."""
    names: list[str] = []
    number = low.format_next(0)
    while number:
        names.append(low.format_name(number) or "")
        number = low.format_next(number)
    return names


def as_opened(description: _abi.Description, opened: _abi.Description) -> _abi.Description:
    """What a channel's frames mean stays when they look different."""
    description.timing = opened.timing
    width, height = description.picture.width, description.picture.height
    if description.picture.format == opened.picture.format:
        description.picture = opened.picture
        description.picture.width, description.picture.height = width, height
    return description


class Stamp(NamedTuple):
    """What a sender says of one frame, or of all; None = as all, or not said."""

    picture: Any = None
    pts: int | None = None
    duration: int | None = None
    time_base: Any = None
    rate: Any = None
    clock: str | None = None

    def put(self, description: _abi.Description) -> None:
        """Writes it into a description."""
        if self.picture is not None:
            _picture.say(description.picture, self.picture)
        timing = description.timing
        timing.pts = 0 if self.pts is None else _arguments.whole("pts", self.pts)
        timing.duration = 0 if self.duration is None else _arguments.whole("duration", self.duration)
        if self.time_base is not None:
            base = _arguments.fraction("time_base", self.time_base, "a number of seconds")
            timing.time_base_numerator, timing.time_base_denominator = base.numerator, base.denominator
        if self.rate is not None:
            rate = _arguments.fraction("rate", self.rate, "a number of frames per second")
            timing.rate_numerator, timing.rate_denominator = rate.numerator, rate.denominator
        if self.clock is not None:
            timing.clock = _clock(self.clock)


NO_STAMP = Stamp()


def _clock(name: Any) -> bytes:
    encoded = _abi.encode(_arguments.text("clock", name), "clock") or b""
    if len(encoded) > 15:
        raise ValueError(f"clock={name!r}: {len(encoded)} bytes of UTF-8; 15 is most")
    return encoded


def stamped(description: _abi.Description, stamp: Stamp, user_size: int) -> _abi.Description:
    """The description with a frame's own stamp and user data; itself when there are none."""
    if stamp is NO_STAMP and not user_size:
        return description
    copy = _abi.Description.from_buffer_copy(description)
    stamp.put(copy)
    copy.user_size = user_size
    return copy
