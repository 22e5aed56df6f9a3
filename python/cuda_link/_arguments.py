# SPDX-License-Identifier: MIT
"""Arguments of a wrong kind: a sentence says which, what was given, and what it may be."""

from __future__ import annotations

import os
import reprlib
from fractions import Fraction
from operator import index
from typing import Any

_WORDS_FOR_BOOL = ("bool", "bool_", "NoneType")  # NumPy's among them, whatever its version


def whole(name: str, value: Any, least: int | None = None, most: int | None = None) -> int:
    """A whole number, of Python or NumPy."""
    try:
        number = index(value)
    except TypeError:
        raise TypeError(f"{name}={value!r}: it is a whole number") from None
    if (least is not None and number < least) or (most is not None and number > most):
        raise ValueError(f"{name}={value!r}: it is {_range(least, most)}")
    return number


def _range(least: int | None, most: int | None) -> str:
    return f"{least} or more" if most is None else f"{least} to {most}"


def device(number: int | None) -> int:
    """CUDALINK_DEVICE(number) of the C structs, in which 0 is for None: the library chooses."""
    if number is None:
        return 0
    return whole("device", number, 0, 2**31 - 2) + 1


def fraction(name: str, value: Any, what: str) -> Fraction:
    """A number above 0 that the C structs have room for, as a Fraction or what makes one."""
    try:
        said = Fraction(value)
    except TypeError:
        raise TypeError(f"{name}={value!r}: it is {what}, a Fraction") from None
    except (OverflowError, ValueError, ZeroDivisionError):
        raise ValueError(f"{name}={value!r}: it is {what}, as Fraction(1, 25) or '1/25'") from None
    if said <= 0:
        raise ValueError(f"{name}={value!r}: it is {what}, more than 0")
    if max(said.numerator, said.denominator) >= 2**32:
        raise ValueError(
            f"{name}={value!r}: this is {said}, and each of the two has 32 bits; perhaps "
            f"{said.limit_denominator(100_000)!r} is meant?"
        )
    return said


def text(name: str, value: Any) -> str:
    """A str."""
    if not isinstance(value, str):
        raise TypeError(f"{name}={value!r}: it is a str")
    return value


def flag(name: str, value: Any) -> None:
    """True, False or None."""
    if type(value).__name__ not in _WORDS_FOR_BOOL:
        raise TypeError(f"{name}={value!r}: it is True, False or None")


def folder(value: Any) -> str | None:
    """A folder by its path; None = the usual ones."""
    if value is None:
        return None
    try:
        return text("directory", os.fspath(value))
    except TypeError:
        raise TypeError(f"directory={value!r}: it is a path, as a str or a pathlib.Path, or None") from None


def made_of(call: str, name: str, value: Any, kind: type, way_out: str) -> None:
    """An object of a class of ours; way_out shows one."""
    if not isinstance(value, kind):
        raise TypeError(f"{call}({name}={reprlib.repr(value)}): pass {way_out}")


def plane_name(name: Any) -> str:
    """Of a dict of arrays."""
    if not isinstance(name, str):
        raise TypeError(f"a plane is named by a str, not by {name!r}: {{'name': array}}")
    return name
