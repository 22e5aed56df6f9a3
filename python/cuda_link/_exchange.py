# SPDX-License-Identifier: MIT
"""The rules of DLPack that do not depend on whose memory it is."""

from __future__ import annotations

from operator import index
from typing import Any

from . import _abi, _streams
from ._arguments import flag
from ._streams import Stream

Device = tuple[int, int]
CPU: Device = (_abi.DLPACK_CPU, 0)
Version = tuple[int, int]


def is_versioned(max_version: Version | None) -> bool:
    """A consumer that does not ask gets the legacy capsule: some look at nothing but the name."""
    if max_version is None:
        return False
    try:
        return index(max_version[0]) >= 1
    except (TypeError, LookupError):
        raise TypeError(
            f"__dlpack__(max_version={max_version!r}): None or two numbers, (major, minor)"
        ) from None


def consumer_stream(stream: Any, device: Device) -> Stream | None:
    """The stream that has to wait for the pixels; None = no wait.

    On the CPU only None and -1 make sense. On a GPU: None and 1 = the legacy default stream, 2 = the
    per-thread one, -1 = no wait, else a handle; 0 is ambiguous, and DLPack forbids it. BufferError for every
    number that is no stream, wherever the memory is.
    """
    if isinstance(stream, bool) or not (stream is None or isinstance(stream, int)):
        raise TypeError(f"__dlpack__(stream={stream!r}): None or a number")
    if device[0] == _abi.DLPACK_CPU:
        if stream not in (None, -1):
            raise BufferError(f"__dlpack__(stream={stream}): this memory is the CPU's, it has no streams")
        return None
    if stream == -1:
        return None
    if stream == 0:
        raise BufferError(
            "__dlpack__(stream=0) is ambiguous: 1 is the legacy default stream, 2 the per-thread one"
        )
    if stream is None:
        return _streams.LEGACY
    if not 0 < stream < 2**64:
        raise BufferError(
            f"__dlpack__(stream={stream}) is no stream: -1 asks for no wait, handles are positive"
        )
    return _streams.resolve(stream)


def check_copy(copy: bool | None) -> None:
    """It is True, False or None."""
    try:
        flag("copy", copy)
    except TypeError:
        raise TypeError(f"__dlpack__(copy={copy!r}): True, False or None") from None


def must_cross(wanted: Device | None, device: Device, copy: bool | None) -> bool:
    """Is a copy to the CPU asked for? BufferError for any other device."""
    check_copy(copy)
    if wanted is None:
        return False
    try:
        kind, number = map(index, wanted)
    except (TypeError, ValueError):
        raise TypeError(f"__dlpack__(dl_device={wanted!r}): None or two numbers, (type, id)") from None
    if (kind, number) == device:
        return False
    if (kind, number) != CPU:
        raise BufferError(
            f"this memory is on device {device} and can be exported there or to {CPU}, not to {wanted}"
        )
    if copy is False:
        raise BufferError(f"from device {device} to the CPU needs a copy, and copy=False forbids it")
    return True


def device_of(number: int) -> Device:
    """DLPack's name for where frames are: 0 is the CPU, else the GPU's number and one."""
    return (_abi.DLPACK_CUDA, number - 1) if number else CPU


def check_host_stream(stream: Any) -> None:
    """For an export from a GPU to the CPU."""
    if stream is not None:
        raise BufferError("an export to the CPU waits for its copy: leave stream out")


def unordered() -> BufferError:
    """For a capsule in GPU memory that nobody said a stream for."""
    return BufferError(
        "a bare capsule does not say after what its tensor is complete: name it with stream= (-1: it is "
        "complete), or pass the object that it comes from"
    )


# Of the array interfaces; other types have no letter there.
TYPESTRS = {
    **{f"int{bits}": f"<i{bits // 8}" for bits in (16, 32, 64)},
    **{f"uint{bits}": f"<u{bits // 8}" for bits in (16, 32, 64)},
    **{f"float{bits}": f"<f{bits // 8}" for bits in (16, 32, 64)},
    "int8": "|i1",
    "uint8": "|u1",
    "bool": "|b1",
    "complex64": "<c8",
    "complex128": "<c16",
}
