# SPDX-License-Identifier: MIT
"""Element types: the names that NumPy, torch and JAX share, and DLPack's numbers for them."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, NamedTuple


class Dtype(NamedTuple):
    """An element type as DLPack numbers it."""

    code: int
    bits: int
    lanes: int = 1

    @property
    def name(self) -> str:
        """The name ("float32"); for a type without one "code6 bits8 lanes4"."""
        return _NAMES.get(self) or f"code{self.code} bits{self.bits} lanes{self.lanes}"

    @property
    def size(self) -> int:
        """Bytes of one element; 0 for those of less than a byte."""
        return self.bits * self.lanes // 8


_DTYPES = {
    "int8": Dtype(0, 8),
    "int16": Dtype(0, 16),
    "int32": Dtype(0, 32),
    "int64": Dtype(0, 64),
    "uint8": Dtype(1, 8),
    "uint16": Dtype(1, 16),
    "uint32": Dtype(1, 32),
    "uint64": Dtype(1, 64),
    "float16": Dtype(2, 16),
    "float32": Dtype(2, 32),
    "float64": Dtype(2, 64),
    "bfloat16": Dtype(4, 16),
    "complex64": Dtype(5, 64),
    "complex128": Dtype(5, 128),
    "bool": Dtype(6, 8),
    "float8_e3m4": Dtype(7, 8),
    "float8_e4m3": Dtype(8, 8),
    "float8_e4m3b11fnuz": Dtype(9, 8),
    "float8_e4m3fn": Dtype(10, 8),
    "float8_e4m3fnuz": Dtype(11, 8),
    "float8_e5m2": Dtype(12, 8),
    "float8_e5m2fnuz": Dtype(13, 8),
    "float8_e8m0fnu": Dtype(14, 8),
    "float6_e2m3fn": Dtype(15, 6),
    "float6_e3m2fn": Dtype(16, 6),
    "float4_e2m1fn": Dtype(17, 4),
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_PYTHON = {"float": "float64", "int": "int64", "bool_": "bool", "half": "float16", "complex": "complex128"}

# The letters of the buffer protocol, and what they are; sizes come from the buffer. (There is one for
# float16, but memoryview.cast refuses it.)
_SIGNED, _UNSIGNED, _FLOAT = "bhilqn", "BHILQN", "efd"
_STRUCT = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint8": "B",
    "uint16": "H",
    "uint32": "I",
    "uint64": "Q",
    "float32": "f",
    "float64": "d",
}


_SHORT = {"i": "int", "u": "uint", "f": "float", "c": "complex"}  # of NumPy's short names


def parse(dtype: Any) -> Dtype:
    """A Dtype, a name ("float32", or NumPy's "f4"), or a dtype object of NumPy, ml_dtypes, torch or JAX."""
    if isinstance(dtype, Dtype):
        return dtype
    if getattr(dtype, "byteorder", "=") == ">":
        raise ValueError(f"{dtype} is big-endian; frames are little-endian: convert with .astype('<...')")
    if isinstance(dtype, str):
        name = dtype
    else:
        name = getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype)
    name = name.rpartition(".")[2]
    short = re.fullmatch(r"([<>=|]?)(b1|[iufc]\d{1,2})", name)
    if short:
        order, letter, size = short[1], short[2][0], int(short[2][1:])
        if order == ">" and size > 1:
            raise ValueError(f"{dtype!r} is big-endian; frames are little-endian")
        name = "bool" if letter == "b" else f"{_SHORT[letter]}{size * 8}"
    found = _DTYPES.get(_PYTHON.get(name, name))
    if found is None:
        raise ValueError(f"{dtype!r} is not a type of frames; these are: {', '.join(_DTYPES)}")
    return found


def from_buffer(format: str, itemsize: int) -> Dtype:
    """The type of a memoryview, by its format and the size of an item in bytes."""
    order, letter = (format[0], format[1:]) if format[:1] in ("@", "=", "<", ">", "!") else ("@", format)
    if order in (">", "!") and itemsize > 1:
        raise ValueError(f"this buffer is big-endian (format {format!r}); frames are little-endian")
    if letter == "?":
        return _DTYPES["bool"]
    if letter == "c" or (letter and letter in _UNSIGNED):
        return Dtype(1, itemsize * 8)
    if letter and letter in _SIGNED:
        return Dtype(0, itemsize * 8)
    if letter and letter in _FLOAT:
        return Dtype(2, itemsize * 8)
    if letter in ("Zf", "Zd", "F", "D"):
        return Dtype(5, itemsize * 8)
    raise TypeError(f"elements of the format {format!r} can't be sent; numbers and bool can")


def from_typestr(typestr: str) -> Dtype:
    """The type of an array interface ("<f4")."""
    if not isinstance(typestr, str) or not typestr[2:].isdecimal():
        raise TypeError(f"{typestr!r} is no type of an array interface; one is '<f4'")
    order, letter, size = typestr[0], typestr[1], int(typestr[2:])
    if order == ">" and size > 1:
        raise ValueError(f"this array is big-endian (typestr {typestr!r}); frames are little-endian")
    codes = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
    if letter not in codes:
        raise TypeError(f"elements of the type {typestr!r} can't be sent; numbers and bool can")
    return Dtype(codes[letter], size * 8)


def struct_letter(dtype: Dtype) -> str | None:
    """The letter for memoryview.cast; None where memoryview knows no such type."""
    return _STRUCT.get(dtype.name)


@lru_cache(maxsize=64)
def to_numpy(dtype: Dtype) -> Any:
    """The NumPy dtype; ml_dtypes has those that NumPy itself lacks."""
    import numpy

    try:
        return numpy.dtype(dtype.name)
    except TypeError:
        pass
    try:
        import ml_dtypes

        return numpy.dtype(getattr(ml_dtypes, dtype.name))
    except (ImportError, AttributeError, TypeError):
        raise TypeError(
            f"NumPy has no {dtype.name}: install ml_dtypes, or take the bytes (frame.packed())"
        ) from None
