# SPDX-License-Identifier: MIT
"""The structs of the public headers, laid out with ctypes under the names that they have in C.

Both back ends pass them as buffers. `tests/test_abi.py` compares every size and offset with the
headers.
"""

from __future__ import annotations

from ctypes import (
    Structure,
    c_char,
    c_char_p,
    c_int32,
    c_int64,
    c_size_t,
    c_uint8,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
    sizeof,
)
from typing import Any

FOREVER = 2**63 - 1
MAX_PLANES = 16
MAX_DIMENSIONS = 8
MAX_HOLD = 16
MAX_USER_SIZE = 65536
LATENCY_BUCKETS = 96

KIND_HOST = 1

STREAM_COMPLETE = 1
STREAM_LEGACY = 2
STREAM_PER_THREAD = 3
STREAM_HANDLE = 4
STREAM_EVENT = 5

DLPACK_CPU = 1
DLPACK_CUDA = 2
DLPACK_CUDA_HOST = 3
DLPACK_CUDA_MANAGED = 13
DLPACK_READ_ONLY = 1
DLPACK_IS_COPIED = 2

FRAME_PENDING = 1
FRAME_INVALID = 2
FRAME_REDELIVERED = 4
FRAME_LOST = 8
FRAME_SHARED = 16


class Stream(Structure):
    _fields_ = [("kind", c_uint32), ("reserved", c_uint32), ("handle", c_uint64)]


class Dtype(Structure):
    _fields_ = [("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16)]


class _Fitting(Structure):
    """Refuses numbers that do not fit their field; ctypes cuts them off, and 2**32 would be user 0."""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if hasattr(value, "__index__") and (getattr(self, name) or 0) != value:
            raise ValueError(f"{name}={value} does not fit: {getattr(type(self), name).size * 8} bits")


class Plane(Structure):
    _fields_ = [
        ("name", c_char * 24),
        ("dtype", Dtype),
        ("dimensions", c_uint32),
        ("offset", c_uint64),
        ("bytes", c_uint64),
        ("shape", c_int64 * MAX_DIMENSIONS),
        ("strides", c_int64 * MAX_DIMENSIONS),
    ]


class Picture(Structure):
    _fields_ = [
        ("format", c_uint32),
        ("width", c_uint32),
        ("height", c_uint32),
        ("primaries", c_uint8),
        ("transfer", c_uint8),
        ("matrix", c_uint8),
        ("range", c_uint8),
        ("origin", c_uint8),
        ("alpha", c_uint8),
        ("field_order", c_uint8),
        ("chroma_location", c_uint8),
        ("pixel_aspect_numerator", c_uint32),
        ("pixel_aspect_denominator", c_uint32),
    ]


class Timing(_Fitting):
    _fields_ = [
        ("pts", c_int64),
        ("duration", c_int64),
        ("time_base_numerator", c_uint32),
        ("time_base_denominator", c_uint32),
        ("rate_numerator", c_uint32),
        ("rate_denominator", c_uint32),
        ("clock", c_char * 16),
    ]


class Description(Structure):
    _fields_ = [
        ("plane_count", c_uint32),
        ("user_size", c_uint32),
        ("picture", Picture),
        ("timing", Timing),
        ("planes", Plane * MAX_PLANES),
    ]


class ExporterSpec(_Fitting):
    _fields_ = [
        ("size", c_size_t),
        ("name", c_char_p),
        ("description", c_void_p),
        ("slot_bytes", c_uint64),
        ("plane_count", c_uint32),
        ("user_size", c_uint32),
        ("slots", c_uint32),
        ("max_slots", c_uint32),
        ("kind", c_uint32),
        ("device", c_int32),
        ("directory", c_char_p),
        ("hold_limit", c_int64),
        ("zombie_limit", c_uint64),
        ("refuse_writers", c_uint32),
        ("allowed_user_count", c_uint32),
        ("allowed_users", c_uint32 * 16),
        ("own_stream", c_uint32),
        ("own_stream_priority", c_uint32),
        ("export_sync", c_uint32),
        ("flush_probe", c_uint32),
        ("strict_device", c_uint32),
        ("convert", c_uint32),
        ("cipd_name", c_char_p),
        ("cipd_slots", c_uint32),
        ("cipd_only", c_uint32),
        ("cipd_ignore_barrier", c_uint32),
        ("cipd_barrier_limit", c_int64),
    ]


class Slot(Structure):
    _fields_ = [
        ("sequence", c_uint64),
        ("bytes", c_uint64),
        ("index", c_uint32),
        ("generation", c_uint32),
        ("device", c_int32),
        ("data", c_void_p),
        ("user", c_void_p),
    ]


class Source(Structure):
    _fields_ = [("data", c_void_p), ("array", c_void_p), ("strides", c_int64 * MAX_DIMENSIONS)]


class ImporterSpec(_Fitting):
    _fields_ = [
        ("size", c_size_t),
        ("name", c_char_p),
        ("policy", c_uint32),
        ("group", c_char_p),
        ("hold", c_uint32),
        ("writable", c_uint32),
        ("isolated", c_uint32),
        ("gpu_wait", c_uint32),
        ("once", c_uint32),
        ("device", c_int32),
        ("directory", c_char_p),
        ("open_timeout", c_int64),
        ("gpu_wait_limit", c_int64),
        ("spin", c_uint64),
        ("host_streams", c_uint32),
        ("host_pipelined", c_uint32),
        ("convert", c_uint32),
        ("wire", c_uint32),
    ]


class Frame(Structure):
    _fields_ = [
        ("lease", c_uint64),
        ("sequence", c_uint64),
        ("timestamp", c_uint64),
        ("missed", c_uint64),
        ("session", c_uint32),
        ("generation", c_uint32),
        ("slot", c_uint32),
        ("flags", c_uint32),
        ("kind", c_uint32),
        ("writable", c_uint32),
        ("device", c_int32),
        ("data", c_void_p),
        ("user", c_void_p),
        ("text", c_char * 96),
        ("description", Description),
    ]


class HostCopy(Structure):
    _fields_ = [("id", c_uint64), ("sequence", c_uint64), ("bytes", c_uint64), ("data", c_void_p)]


class Device(Structure):
    """cudalink_dlpack_device"""

    _fields_ = [("type", c_int32), ("id", c_int32)]


class View(Structure):
    _fields_ = [
        ("data", c_void_p),
        ("device", Device),
        ("flags", c_uint64),
        ("dtype", Dtype),
        ("dimensions", c_uint32),
        ("shape", c_int64 * MAX_DIMENSIONS),
        ("strides", c_int64 * MAX_DIMENSIONS),
    ]


class Tensor(Structure):
    """cudalink_dlpack_tensor"""

    _fields_ = [
        ("data", c_void_p),
        ("device", Device),
        ("dimensions", c_int32),
        ("dtype", Dtype),
        ("shape", c_void_p),
        ("strides", c_void_p),
        ("byte_offset", c_uint64),
    ]


class LegacyTensor(Structure):
    """cudalink_dlpack_legacy"""

    _fields_ = [("tensor", Tensor), ("manager_context", c_void_p), ("deleter", c_void_p)]


class VersionedTensor(Structure):
    """cudalink_dlpack_versioned"""

    _fields_ = [
        ("major", c_uint32),
        ("minor", c_uint32),
        ("manager_context", c_void_p),
        ("deleter", c_void_p),
        ("flags", c_uint64),
        ("tensor", Tensor),
    ]


class ExchangeHeader(Structure):
    """cudalink_dlpack_exchange_header"""

    _fields_ = [("major", c_uint32), ("minor", c_uint32), ("previous", c_void_p)]


class Exchange(Structure):
    """cudalink_dlpack_exchange"""

    _fields_ = [
        ("header", ExchangeHeader),
        ("allocate", c_void_p),
        ("from_object", c_void_p),
        ("to_object", c_void_p),
        ("borrow_from_object", c_void_p),
        ("current_stream", c_void_p),
    ]


class ExporterStatistics(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("published", c_uint64),
        ("dropped", c_uint64),
        ("abandoned", c_uint64),
        ("bytes", c_uint64),
        ("copies", c_uint64),
        ("waits", c_uint64),
        ("evicted", c_uint64),
        ("cursors_lost", c_uint64),
        ("redelivered", c_uint64),
        ("deaths", c_uint64),
        ("wakes", c_uint64),
        ("generations", c_uint64),
        ("retired_bytes", c_uint64),
        ("memory_bytes", c_uint64),
        ("consumers", c_uint32),
        ("slots", c_uint32),
        ("slots_short", c_uint32),
        ("kind", c_uint32),
        ("path", c_char * 32),
        ("reason", c_char * 160),
        ("cipd_published", c_uint64),
        ("cipd_skipped", c_uint64),
        ("cipd_held_back", c_uint64),
        ("cipd_stale", c_uint64),
        ("cipd_reason", c_char * 160),
        ("shared", c_uint64),
        ("share_copies", c_uint64),
        ("share_reason", c_char * 96),
        ("gpu_waits", c_uint64),
    ]


class ImporterStatistics(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("received", c_uint64),
        ("missed", c_uint64),
        ("bytes", c_uint64),
        ("copies", c_uint64),
        ("waits", c_uint64),
        ("wakes", c_uint64),
        ("sessions", c_uint64),
        ("generations", c_uint64),
        ("lost", c_uint64),
        ("evictions", c_uint64),
        ("redelivered", c_uint64),
        ("held", c_uint32),
        ("hold", c_uint32),
        ("connection", c_uint32),
        ("kind", c_uint32),
        ("wake_latency", c_uint64 * 36),
        ("path", c_char * 32),
        ("reason", c_char * 160),
        ("overwritten", c_uint64),
        ("slots", c_uint32),
        ("reserved", c_uint32),
    ]


class Telemetry(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("known", c_uint32),
        ("gpu_percent", c_uint32),
        ("memory_percent", c_uint32),
        ("temperature", c_uint32),
        ("memory_used", c_uint64),
        ("memory_total", c_uint64),
        ("sm_clock_mhz", c_uint32),
        ("memory_clock_mhz", c_uint32),
        ("pcie_sent_kb", c_uint32),
        ("pcie_received_kb", c_uint32),
        ("power_mw", c_uint32),
        ("power_limit_mw", c_uint32),
        ("throttle", c_uint64),
    ]


class ConsumerInfo(Structure):
    _fields_ = [
        ("pid", c_int32),
        ("uid", c_uint32),
        ("program", c_char * 32),
        ("group", c_char * 64),
        ("policy", c_uint32),
        ("hold", c_uint32),
        ("held", c_uint32),
        ("isolated", c_uint32),
        ("held_for", c_uint64),
        ("position", c_uint64),
        ("received", c_uint64),
        ("missed", c_uint64),
        ("latency", c_uint64),
        ("measured", c_uint64),
        ("latencies", c_uint64 * LATENCY_BUCKETS),
    ]


class ChannelInfo(Structure):
    _fields_ = [
        ("name", c_char * 201),
        ("directory", c_char * 256),
        ("status", c_int32),
        ("pid", c_int32),
        ("uid", c_uint32),
        ("program", c_char * 32),
        ("kind", c_uint32),
        ("slots", c_uint32),
        ("slot_bytes", c_uint64),
        ("generation", c_uint64),
        ("published", c_uint64),
        ("dropped", c_uint64),
        ("newest_timestamp", c_uint64),
        ("opened", c_uint64),
        ("format", c_uint32),
        ("width", c_uint32),
        ("height", c_uint32),
        ("plane_count", c_uint32),
        ("path", c_char * 32),
        ("reason", c_char * 160),
        ("device_uuid", c_uint8 * 16),
        ("device", c_char * 48),
        ("device_name", c_char * 96),
        ("consumer_count", c_uint32),
        ("consumers", ConsumerInfo * 64),
    ]


def encode(text: str | None, what: str = "text") -> bytes | None:
    """UTF-8 for a struct; a NUL inside would end it early, so it is refused."""
    if text is None:
        return None
    if not isinstance(text, str):
        raise TypeError(f"{what}={text!r}: it is a str")
    if "\0" in text:
        raise ValueError(f"{what}={text!r}: there is a NUL in it")
    return text.encode()


def size(structure: Structure) -> int:
    """For the first member of specs and statistics."""
    return sizeof(structure)
