# SPDX-License-Identifier: MIT
"""The address of an object's buffer, with ctypes alone. (`ctypes.c_char.from_buffer` refuses read-only
objects.)"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import byref, c_char_p, c_int, c_ssize_t, c_void_p, py_object


class _PyBuffer(ctypes.Structure):
    """Py_buffer of the limited API, which is the same in every CPython since 3.9."""

    _fields_ = [
        ("buf", c_void_p),
        ("obj", c_void_p),
        ("len", c_ssize_t),
        ("itemsize", c_ssize_t),
        ("readonly", c_int),
        ("ndim", c_int),
        ("format", c_char_p),
        ("shape", c_void_p),
        ("strides", c_void_p),
        ("suboffsets", c_void_p),
        ("internal", c_void_p),
    ]


_SIMPLE = 0  # PyBUF_SIMPLE: dense, read-only is enough
# Of our own: functions of ctypes.pythonapi have one signature per process, whoever set it last.
_python = ctypes.PyDLL(None)
_get = _python.PyObject_GetBuffer
_get.argtypes = [py_object, ctypes.POINTER(_PyBuffer), c_int]
_get.restype = c_int
_release = _python.PyBuffer_Release
_release.argtypes = [ctypes.POINTER(_PyBuffer)]
_release.restype = None


@contextmanager
def borrowed(source: object) -> Iterator[int]:
    """The address of a dense buffer, which stays as it is during the with-block."""
    buffer = _PyBuffer()
    _get(source, byref(buffer), _SIMPLE)
    try:
        yield buffer.buf or 0
    finally:
        _release(byref(buffer))
