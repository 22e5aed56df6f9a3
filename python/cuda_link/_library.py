# SPDX-License-Identifier: MIT
"""libcudalink.so.0 through ctypes: where it is, and what its functions take."""

from __future__ import annotations

import ctypes
import os
from ctypes import POINTER, c_char_p, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p

from . import _abi
from ._place import in_package

VARIABLE = "CUDALINK_LIBRARY"
NAME = "libcudalink.so.0"


def find() -> str:
    """CUDALINK_LIBRARY, else the one in this package, else the system's."""
    return os.environ.get(VARIABLE) or in_package(NAME) or NAME


def _load() -> ctypes.CDLL:
    path = find()
    try:
        return ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(
            f"{path} can't be loaded: {error}. Install the package with its library, install the library "
            f"itself, or name the file in {VARIABLE}"
        ) from error


_ID = c_uint32  # a handle is a struct of one uint32_t, which is passed like the number
_BUFFER = c_void_p

_SIGNATURES = {
    "cudalink_version": (c_uint32,),
    "cudalink_now": (c_uint64,),
    "cudalink_last_error": (c_char_p,),
    "cudalink_exporter_open": (c_int, POINTER(_ID), _BUFFER),
    "cudalink_exporter_begin": (c_int, _ID, _BUFFER, c_int64, _BUFFER),
    "cudalink_exporter_publish": (c_int, _ID, _BUFFER, _abi.Stream),
    "cudalink_exporter_publish_invalid": (c_int, _ID, _BUFFER, c_char_p),
    "cudalink_exporter_abandon": (c_int, _ID, _BUFFER, _abi.Stream),
    "cudalink_exporter_send": (c_int, _ID, _BUFFER, c_void_p, c_void_p, _abi.Stream, c_int64),
    "cudalink_exporter_send_planes": (c_int, _ID, _BUFFER, _BUFFER, c_void_p, _abi.Stream, c_int64),
    "cudalink_exporter_get_stream": (c_int, _ID, _BUFFER),
    "cudalink_exporter_send_shared": (
        c_int,
        _ID,
        _BUFFER,
        c_void_p,
        c_void_p,
        _abi.Stream,
        c_int64,
        c_void_p,
        c_void_p,
        POINTER(c_int),
    ),
    "cudalink_exporter_keep": (c_int, _ID, c_void_p, c_void_p),
    "cudalink_exporter_wait_consumers": (c_int, _ID, c_uint32, c_int64),
    "cudalink_exporter_wait_taken": (c_int, _ID, c_int64),
    "cudalink_exporter_get_statistics": (c_int, _ID, _BUFFER),
    "cudalink_exporter_slot_address": (c_int, _ID, c_uint32, POINTER(c_void_p)),
    "cudalink_exporter_close": (c_int, _ID),
    "cudalink_importer_open": (c_int, POINTER(_ID), _BUFFER),
    "cudalink_importer_wait_producer": (c_int, _ID, c_int64),
    "cudalink_importer_acquire": (c_int, _ID, _abi.Stream, c_int64, POINTER(_abi.Frame)),
    "cudalink_importer_wait_next": (c_int, _ID, _abi.Stream, c_int64, POINTER(_abi.Frame)),
    "cudalink_importer_descriptor": (c_int, _ID, POINTER(c_int)),
    "cudalink_importer_arm": (c_int, _ID),
    "cudalink_importer_get_statistics": (c_int, _ID, _BUFFER),
    "cudalink_importer_close": (c_int, _ID),
    "cudalink_frame_release": (c_int, POINTER(_abi.Frame), _abi.Stream),
    "cudalink_frame_flags": (c_int, POINTER(_abi.Frame), POINTER(c_uint32)),
    "cudalink_frame_to_host": (c_int, POINTER(_abi.Frame), c_void_p, c_uint64),
    "cudalink_frame_to_host_finish": (c_int, POINTER(_abi.HostCopy)),
    "cudalink_hold_take": (c_int, POINTER(c_void_p), POINTER(_abi.Frame)),
    "cudalink_hold_frame": (POINTER(_abi.Frame), c_void_p),
    "cudalink_hold_retain": (c_void_p, c_void_p),
    "cudalink_hold_drop": (None, c_void_p),
    "cudalink_hold_wait": (c_int, c_void_p, _abi.Stream),
    "cudalink_hold_use": (c_int, c_void_p, _abi.Stream),
    "cudalink_hold_written": (c_int, c_void_p, _abi.Stream),
    "cudalink_hold_release": (c_int, c_void_p, _abi.Stream),
    "cudalink_hold_to_host_begin": (c_int, c_void_p, c_void_p, c_uint64, POINTER(_abi.HostCopy)),
    "cudalink_slot_hold_take": (c_int, POINTER(c_void_p), _ID, _BUFFER),
    "cudalink_slot_hold_drop": (None, c_void_p),
    "cudalink_view_of_frame": (c_int, POINTER(_abi.View), POINTER(_abi.Frame), c_uint32),
    "cudalink_view_of_slot": (c_int, POINTER(_abi.View), _BUFFER, _BUFFER, c_uint32),
    "cudalink_view_extent": (c_int, POINTER(_abi.View), POINTER(c_void_p), POINTER(c_uint64)),
    "cudalink_view_index": (c_int, POINTER(_abi.View), c_uint32, c_int64),
    "cudalink_view_slice": (c_int, POINTER(_abi.View), c_uint32, c_int64, c_int64, c_int64),
    "cudalink_view_is_dense": (c_int, POINTER(_abi.View)),
    "cudalink_dlpack_export": (c_int, POINTER(_abi.View), c_void_p, c_void_p, POINTER(c_void_p)),
    "cudalink_dlpack_export_legacy": (c_int, POINTER(_abi.View), c_void_p, c_void_p, POINTER(c_void_p)),
    "cudalink_array_take": (c_int, POINTER(c_void_p), c_void_p),
    "cudalink_array_take_legacy": (c_int, POINTER(c_void_p), c_void_p),
    "cudalink_array_view": (c_void_p, c_void_p),
    "cudalink_array_part": (c_int, POINTER(c_void_p), c_void_p, POINTER(_abi.View)),
    "cudalink_array_ready": (c_int, c_void_p, _abi.Stream),
    "cudalink_array_wait": (c_int, c_void_p, _abi.Stream),
    "cudalink_array_copy": (c_int, POINTER(c_void_p), c_void_p, _abi.Stream),
    "cudalink_array_to_host": (c_int, POINTER(c_void_p), c_void_p, _abi.Stream),
    "cudalink_array_pinned": (c_int, POINTER(c_void_p), c_int32, _abi.Dtype, c_uint32, POINTER(c_int64)),
    "cudalink_array_retain": (c_void_p, c_void_p),
    "cudalink_array_drop": (None, c_void_p),
    "cudalink_describe_picture": (c_int, _BUFFER, c_uint32, c_uint32, c_uint32, c_uint32),
    "cudalink_describe_tensor": (c_int, _BUFFER, c_char_p, _abi.Dtype, c_uint32, POINTER(c_int64)),
    "cudalink_description_bytes": (c_int, _BUFFER, POINTER(c_uint64)),
    "cudalink_packed_bytes": (c_int, _BUFFER, POINTER(c_uint64)),
    "cudalink_format_name": (c_char_p, c_uint32),
    "cudalink_format_from_name": (c_uint32, c_char_p),
    "cudalink_format_next": (c_uint32, c_uint32),
    "cudalink_channels_list": (c_int, c_char_p, c_int64, POINTER(c_void_p), POINTER(c_size_t)),
    "cudalink_channels_free": (None, c_void_p),
    "cudalink_channels_clean": (c_int, c_char_p, POINTER(c_size_t)),
}


def _declare(loaded: ctypes.CDLL) -> ctypes.CDLL:
    for name, (result, *arguments) in _SIGNATURES.items():
        function = getattr(loaded, name)
        function.restype = result
        function.argtypes = arguments
    return loaded


library = _declare(_load())

# A foreign deleter may be Python's and need the GIL, which CDLL gives up and PyDLL keeps.
array_drop = ctypes.PyDLL(find()).cudalink_array_drop
array_drop.restype, array_drop.argtypes = None, [c_void_p]
