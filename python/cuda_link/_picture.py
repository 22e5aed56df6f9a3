# SPDX-License-Identifier: MIT
"""What the numbers of a picture mean: read from a description, and said by a sender in words."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, NamedTuple, TypedDict

from . import _abi, _arguments
from ._backend import low


class Picture(NamedTuple):
    """What a frame's numbers mean as a picture. Colour: numbers of ITU-T H.273, 2 = not said. docs/formats.md
    has the words for all numbers."""

    format: str
    """As in docs/formats.md, "RGBA8"."""
    width: int
    """Pixels."""
    height: int
    """Pixels."""
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
    """0 progressive, 1 top field first, 2 bottom field first."""
    chroma_location: int
    """0 not said, 1 left, 2 center, 3 top left."""
    pixel_aspect: Fraction | None
    """Width of a pixel divided by its height, 1 = square; None = not said."""


class PictureFields(TypedDict, total=False):
    """What a sender may say of its pictures: `picture={"range": "full", "origin": "bottom_left"}`. Each is a
    word of docs/formats.md, or the number that consumers read in `Picture`."""

    primaries: str | int
    """"bt709", "bt2020", ...; else "not_said"."""
    transfer: str | int
    """"bt709", "srgb", "pq", ...; else "not_said"."""
    matrix: str | int
    """"bt709", "rgb", ...; else "not_said"."""
    range: str | int
    """"limited" or "full"; else "not_said"."""
    origin: str | int
    """"top_left", else "bottom_left": where the first row is."""
    alpha: str | int
    """"straight", "premultiplied" or "ignored"; else "not_said"."""
    field_order: str | int
    """"progressive", else "top_first" or "bottom_first"."""
    chroma_location: str | int
    """"left", "center" or "top_left"; else "not_said"."""
    pixel_aspect: Fraction | int | float | str | None
    """Width of a pixel divided by its height, 1 = square; else None, not said."""


# Of the enums in cudalink/frame.h, in their order.
_ENUMS = {
    "range": ("not_said", "limited", "full"),
    "origin": ("top_left", "bottom_left"),
    "alpha": ("not_said", "straight", "premultiplied", "ignored"),
    "field_order": ("progressive", "top_first", "bottom_first"),
    "chroma_location": ("not_said", "left", "center", "top_left"),
}
# ITU-T H.273, tables 2 to 4.
WORDS: dict[str, dict[str, int]] = {
    "primaries": {
        "bt709": 1,
        "not_said": 2,
        "bt470m": 4,
        "bt470bg": 5,
        "bt601": 6,
        "smpte240m": 7,
        "film": 8,
        "bt2020": 9,
        "smpte428": 10,
        "dci_p3": 11,
        "display_p3": 12,
        "ebu3213": 22,
    },
    "transfer": {
        "bt709": 1,
        "not_said": 2,
        "gamma22": 4,
        "gamma28": 5,
        "bt601": 6,
        "smpte240m": 7,
        "linear": 8,
        "log100": 9,
        "log316": 10,
        "xvycc": 11,
        "bt1361": 12,
        "srgb": 13,
        "bt2020_10": 14,
        "bt2020_12": 15,
        "pq": 16,
        "smpte428": 17,
        "hlg": 18,
    },
    "matrix": {
        "rgb": 0,
        "bt709": 1,
        "not_said": 2,
        "fcc": 4,
        "bt470bg": 5,
        "bt601": 6,
        "smpte240m": 7,
        "ycgco": 8,
        "bt2020": 9,
        "bt2020_constant": 10,
        "smpte2085": 11,
        "chroma_derived": 12,
        "chroma_derived_constant": 13,
        "ictcp": 14,
    },
    **{field: {word: number for number, word in enumerate(words)} for field, words in _ENUMS.items()},
}
FIELDS = Picture._fields[3:]
_SIZE = Picture._fields[:3]


def fraction(numerator: int, denominator: int) -> Fraction | None:
    """As the structs have it; 0/0 is not said."""
    return Fraction(numerator, denominator) if denominator else None


def read(picture: _abi.Picture) -> Picture | None:
    """None: it is none."""
    if not picture.format:
        return None
    name = low.format_name(picture.format) or f"0x{picture.format:08x}"
    said = {field: getattr(picture, field) for field in Picture._fields[1:-1]}
    aspect = fraction(picture.pixel_aspect_numerator, picture.pixel_aspect_denominator)
    return Picture(name, **said, pixel_aspect=aspect)


def say(picture: _abi.Picture, said: Any) -> None:
    """Writes what a sender says; fields that it leaves out stay as they are."""
    for field, value in _fields(picture, said).items():
        if field == "pixel_aspect":
            _say_aspect(picture, value)
        elif field in WORDS:
            setattr(picture, field, _number(field, value))
        elif field in _SIZE:
            raise ValueError(f"picture: {field!r} is said by format and shape, and by what is sent")
        else:
            raise ValueError(f"picture: {field!r} is no field of it; these are: {', '.join(FIELDS)}")


def _fields(picture: _abi.Picture, said: Any) -> Mapping[str, Any]:
    """Also of a picture that somebody read: to be sent on, mostly with another size."""
    if not isinstance(said, (Picture, Mapping)):
        raise TypeError(f"picture={said!r}: it is a dict, as {{'range': 'full'}}, or the picture of a frame")
    if not picture.format:
        raise ValueError(
            f"picture={said!r}: these frames are tensors, which have none; those of a format do, "
            'as in format="RGBA8"'
        )
    if not isinstance(said, Picture):
        return said
    own = low.format_name(picture.format)
    if said.format != own:
        raise ValueError(
            f"picture={said!r}: it is of format {said.format}, and this frame of {own}; say the fields that "
            "are still true, as in {'origin': picture.origin}"
        )
    return {field: value for field, value in said._asdict().items() if field not in _SIZE}


def _number(field: str, value: Any) -> int:
    words = WORDS[field]
    if isinstance(value, str):
        if value not in words:
            raise ValueError(f"picture: {field} {value!r}; it is one of {', '.join(words)}")
        return words[value]
    try:
        number = _arguments.whole(field, value)
    except TypeError:
        way_out = f"it is a word ({', '.join(words)}), or its number"
        raise TypeError(f"picture: {field}={value!r}: {way_out}") from None
    if field not in _ENUMS:
        if not 0 <= number < 256:
            raise ValueError(f"picture: {field}={number}: a number of ITU-T H.273 is 0 to 255")
    elif number not in words.values():
        numbered = ", ".join(f"{number} {word}" for word, number in words.items())
        raise ValueError(f"picture: {field}={number}; it is one of {numbered}")
    return number


def _say_aspect(picture: _abi.Picture, value: Any) -> None:
    if value is None:
        picture.pixel_aspect_numerator = picture.pixel_aspect_denominator = 0
        return
    aspect = _arguments.fraction("pixel_aspect", value, "a pixel's width divided by its height")
    picture.pixel_aspect_numerator, picture.pixel_aspect_denominator = aspect.numerator, aspect.denominator
