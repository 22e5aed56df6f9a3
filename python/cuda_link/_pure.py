# SPDX-License-Identifier: MIT
"""The same functions as `_core`, through ctypes. ctypes gives up the GIL around every call."""

from __future__ import annotations

import ctypes
from ctypes import addressof, byref, c_int, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from time import monotonic_ns
from typing import Any, cast

from ._abi import STREAM_COMPLETE, ChannelInfo, Description, Dtype, Frame, HostCopy, Stream, encode
from ._buffer import borrowed
from ._library import library
from ._pure_array import Array, array_of, array_pinned, array_take
from ._pure_capsule import sweep
from ._pure_kept import closed, let_go
from ._pure_kept import keep as exporter_keep
from ._pure_lease import Held, Lease, view
from ._pure_lease import check as _check
from ._pure_slot import Slot, slot_address
from ._pure_table import table_offer, table_take

__all__ = [
    "Array",
    "Held",
    "Lease",
    "Slot",
    "array_of",
    "array_pinned",
    "array_take",
    "exporter_keep",
    "slot_address",
    "table_offer",
    "table_take",
    "view",
]

_BUSY = -4


def _text(text: str) -> bytes:
    encoded = encode(text)
    if encoded is None:
        raise TypeError("a str is needed, not None")
    return encoded


def _stream(kind: int, handle: int) -> Stream:
    return Stream(kind, 0, handle)


def version() -> int:
    return cast(int, library.cudalink_version())


def now() -> int:
    return cast(int, library.cudalink_now())


# ---- exporter


def exporter_open(spec: Any) -> int:
    exporter = c_uint32()
    _check(library.cudalink_exporter_open(byref(exporter), addressof(spec)))
    return exporter.value


def exporter_send(
    exporter: int,
    description: Description,
    data: int,
    user: bytes | None,
    kind: int,
    handle: int,
    timeout: int,
) -> None:
    if user is not None and len(user) < description.user_size:
        raise ValueError("send: a buffer is too small")
    address = None if user is None else ctypes.cast(ctypes.c_char_p(user), c_void_p)
    stream = _stream(kind, handle)
    _check(library.cudalink_exporter_send(exporter, addressof(description), data, address, stream, timeout))


def exporter_send_buffer(
    exporter: int,
    description: Description,
    data: Any,
    user: bytes | None,
    kind: int,
    handle: int,
    timeout: int,
) -> None:
    try:
        with borrowed(data) as address:
            exporter_send(exporter, description, address, user, kind, handle, timeout)
    finally:
        let_go(exporter)


def exporter_send_planes(
    exporter: int,
    description: Description,
    sources: Any,
    user: bytes | None,
    kind: int,
    handle: int,
    timeout: int,
) -> None:
    if len(sources) < description.plane_count or (user is not None and len(user) < description.user_size):
        raise ValueError("send: a buffer is too small")
    address = None if user is None else ctypes.cast(ctypes.c_char_p(user), c_void_p)
    send = library.cudalink_exporter_send_planes
    stream = _stream(kind, handle)
    _check(send(exporter, addressof(description), addressof(sources), address, stream, timeout))


def exporter_stream(exporter: int) -> tuple[int, int]:
    stream = Stream()
    _check(library.cudalink_exporter_get_stream(exporter, addressof(stream)))
    return stream.kind, stream.handle


def exporter_send_array(
    exporter: int,
    description: Description,
    array: Array,
    user: bytes | None,
    kind: int,
    handle: int,
    timeout: int,
) -> bool:
    if user is not None and len(user) < description.user_size:
        raise ValueError("send: a buffer is too small")
    address = None if user is None else ctypes.cast(ctypes.c_char_p(user), c_void_p)
    shared = c_int(0)
    owner = library.cudalink_array_retain(array._array)
    drop = ctypes.cast(library.cudalink_array_drop, c_void_p)
    status = library.cudalink_exporter_send_shared(
        exporter,
        addressof(description),
        array._look()[0],
        address,
        _stream(kind, handle),
        timeout,
        owner,
        drop,
        byref(shared),
    )
    if not shared.value:
        library.cudalink_array_drop(owner)  # never the last one
    _check(status)
    return bool(shared.value)


def library_path() -> str:
    return library._name


def exporter_wait_consumers(exporter: int, count: int, timeout: int) -> None:
    _check(library.cudalink_exporter_wait_consumers(exporter, count, timeout))


def exporter_wait_taken(exporter: int, timeout: int) -> None:
    _check(library.cudalink_exporter_wait_taken(exporter, timeout))


def exporter_statistics(exporter: int, statistics: Any) -> None:
    _check(library.cudalink_exporter_get_statistics(exporter, addressof(statistics)))


def exporter_close(exporter: int) -> None:
    try:
        _check(library.cudalink_exporter_close(exporter))
    finally:
        closed(exporter)


class Sender:
    """python/core/sender.c: there is no shorter way here."""

    def learn(self, kind: type, capsule: Any, array: Array, description: Description) -> None:
        """Nothing, see above."""

    def send(self, array: Any, after: tuple[int, int] | None) -> bool | None:
        return None


def sender(exporter: int) -> Sender:
    return Sender()


# ---- importer


class Taker:
    """python/core/taker.c: acquire is Python's here."""

    _held: Held

    def _keep(self, held: Held) -> None:
        self._held = held


def taker_offer(kind: type, frames: type[Lease]) -> None:
    """Nothing, see above."""


class Getter:
    """python/core/getter.c: get_frame is Python's here."""

    def _note(self, frame: Lease) -> None:
        self.frame_count: int = self.frame_count + 1
        self._got = monotonic_ns()
        self._stamp: int = frame.timestamp

    def _straight(self, importer: Any, table: Any) -> None:
        """Nothing, see above."""


def getter_offer(kind: type, results: type, new: Any) -> None:
    """Nothing, see above."""


def importer_open(spec: Any) -> int:
    importer = c_uint32()
    _check(library.cudalink_importer_open(byref(importer), addressof(spec)))
    return importer.value


def importer_wait_producer(importer: int, timeout: int) -> None:
    _check(library.cudalink_importer_wait_producer(importer, timeout))


def _take(
    function: Any, importer: int, kind: int, handle: int, timeout: int, held: Held, lease: type[Lease]
) -> Lease:
    sweep()
    frame = Frame()
    try:
        _check(function(importer, _stream(kind, handle), timeout, byref(frame)))
        return lease._of(frame, held)
    except BaseException:
        if frame.lease:  # Ctrl-C in a wait is seen behind it, and a frame may have come
            library.cudalink_frame_release(byref(frame), Stream(STREAM_COMPLETE, 0, 0))
        raise


def importer_acquire(
    importer: int, kind: int, handle: int, timeout: int, held: Held, lease: type[Lease]
) -> Lease:
    return _take(library.cudalink_importer_acquire, importer, kind, handle, timeout, held, lease)


def importer_wait_next(
    importer: int, kind: int, handle: int, timeout: int, held: Held, lease: type[Lease]
) -> Lease:
    return _take(library.cudalink_importer_wait_next, importer, kind, handle, timeout, held, lease)


def importer_descriptor(importer: int) -> int:
    descriptor = c_int(-1)
    _check(library.cudalink_importer_descriptor(importer, byref(descriptor)))
    return descriptor.value


def importer_arm(importer: int) -> bool:
    status = library.cudalink_importer_arm(importer)
    if status != _BUSY:
        _check(status)
    return bool(status == 0)


def importer_statistics(importer: int, statistics: Any) -> None:
    sweep()
    _check(library.cudalink_importer_get_statistics(importer, addressof(statistics)))


def importer_finish(number: int) -> None:
    _check(library.cudalink_frame_to_host_finish(byref(HostCopy(number))))


def importer_close(importer: int) -> None:
    _check(library.cudalink_importer_close(importer))


# ---- formats and descriptions


def describe_picture(description: Description, format: int, width: int, height: int, alignment: int) -> None:
    _check(library.cudalink_describe_picture(addressof(description), format, width, height, alignment))


def describe_tensor(
    description: Description, name: str | None, code: int, bits: int, lanes: int, shape: tuple[int, ...]
) -> None:
    if any(extent >= 2**63 for extent in shape):
        raise OverflowError(f"shape {shape}: an extent has 63 bits")
    extents = (c_int64 * max(1, len(shape)))(*shape)
    encoded = encode(name)
    dtype = Dtype(code, bits, lanes)
    _check(library.cudalink_describe_tensor(addressof(description), encoded, dtype, len(shape), extents))


def _count(function: Any, description: Description) -> int:
    count = c_uint64()
    _check(function(addressof(description), byref(count)))
    return count.value


def description_bytes(description: Description) -> int:
    return _count(library.cudalink_description_bytes, description)


def packed_bytes(description: Description) -> int:
    return _count(library.cudalink_packed_bytes, description)


def format_name(format: int) -> str | None:
    name = library.cudalink_format_name(format)
    return None if name is None else name.decode()


def format_from_name(name: str) -> int:
    return cast(int, library.cudalink_format_from_name(_text(name)))


def format_next(format: int) -> int:
    return cast(int, library.cudalink_format_next(format))


def copy_dense(address: int, source: Any) -> None:
    whole = memoryview(source)
    dense = whole if whole.c_contiguous else whole.tobytes()
    with borrowed(dense) as start:
        ctypes.memmove(address, start, whole.nbytes)


# ---- channels


def channels_list(directory: str | None, timeout: int) -> bytes:
    infos, count = c_void_p(), c_size_t()
    path = encode(directory)
    _check(library.cudalink_channels_list(path, timeout, byref(infos), byref(count)))
    try:
        size = count.value * ctypes.sizeof(ChannelInfo)
        return ctypes.string_at(infos.value, size) if infos.value else b""
    finally:
        library.cudalink_channels_free(infos)


def channels_clean(directory: str | None) -> int:
    removed = c_size_t()
    path = encode(directory)
    _check(library.cudalink_channels_clean(path, byref(removed)))
    return removed.value
