# SPDX-License-Identifier: MIT
"""What is in a frame: made from Python values for the C library, and read back."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from operator import index
from typing import Any, NamedTuple

from . import _abi, _arguments, _dtypes
from ._backend import low
from ._dtypes import Dtype


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


class Picture(NamedTuple):
    """What a frame's numbers mean as a picture. Colour: numbers of ITU-T H.273, 2 = not said."""

    format: str
    """As in docs/formats.md, "RGBA8"."""
    width: int
    height: int
    primaries: int
    transfer: int
    matrix: int
    range: int
    """0 not said, 1 limited, 2 full."""
    origin: int
    """0: the first row is the top one, 1: the bottom one."""
    alpha: int
    """0 not said, 1 straight, 2 premultiplied, 3 ignored."""
    field_order: int
    chroma_location: int
    pixel_aspect: Fraction | None
    """Width of a pixel divided by its height, 1 = square; None = not said."""


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


def _picture(picture: _abi.Picture) -> Picture | None:
    if not picture.format:
        return None
    name = low.format_name(picture.format) or f"0x{picture.format:08x}"
    said = {field: getattr(picture, field) for field in Picture._fields[1:-1]}
    aspect = _fraction(picture.pixel_aspect_numerator, picture.pixel_aspect_denominator)
    return Picture(name, **said, pixel_aspect=aspect)


def layout(raw: bytes) -> Layout:
    """Planes and picture of a description."""
    description = _abi.Description.from_buffer_copy(raw)
    planes = tuple(_plane(description.planes[i]) for i in range(description.plane_count))
    return Layout(planes, _picture(description.picture))


def _fraction(numerator: int, denominator: int) -> Fraction | None:
    return Fraction(numerator, denominator) if denominator else None


def timing(raw: bytes) -> Timing:
    """The timing of a description."""
    read = _abi.Timing.from_buffer_copy(raw, _TIMING_START)
    return Timing(
        read.pts,
        read.duration,
        _fraction(read.time_base_numerator, read.time_base_denominator),
        _fraction(read.rate_numerator, read.rate_denominator),
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


def stamped(
    description: _abi.Description,
    pts: int | None,
    duration: int | None,
    time_base: Any | None,
    user: bytes | None,
) -> _abi.Description:
    """The description with a frame's own timing and user data; itself when there are none."""
    if pts is None and duration is None and time_base is None and user is None:
        return description
    copy = _abi.Description.from_buffer_copy(description)
    copy.timing.pts = 0 if pts is None else _arguments.whole("pts", pts)
    copy.timing.duration = 0 if duration is None else _arguments.whole("duration", duration)
    if time_base is not None:
        try:
            base = Fraction(time_base)
        except TypeError:
            raise TypeError(f"time_base={time_base!r}: it is a number of seconds, a Fraction") from None
        except (OverflowError, ValueError):
            raise ValueError(f"time_base={time_base}: it is a number of seconds") from None
        copy.timing.time_base_numerator, copy.timing.time_base_denominator = base.numerator, base.denominator
    copy.user_size = len(user) if user else 0
    return copy
