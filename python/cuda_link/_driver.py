# SPDX-License-Identifier: MIT
"""The few calls of the CUDA driver that the package makes itself."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_int, c_void_p
from functools import lru_cache

from . import _abi
from ._streams import Stream

_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED
_HANDLES = {_abi.STREAM_LEGACY: 1, _abi.STREAM_PER_THREAD: 2}  # CU_STREAM_LEGACY, CU_STREAM_PER_THREAD


@lru_cache(maxsize=1)
def _driver() -> ctypes.CDLL:
    # The library, which has made an array on this GPU, has loaded it already.
    driver = ctypes.CDLL("libcuda.so.1")
    driver.cuCtxPushCurrent_v2.argtypes = [c_void_p]
    driver.cuStreamSynchronize.argtypes = [c_void_p]
    driver.cuThreadExchangeStreamCaptureMode.argtypes = [c_void_p]
    driver.cuDevicePrimaryCtxRetain.argtypes = [c_void_p, c_int]
    driver.cuDevicePrimaryCtxRelease_v2.argtypes = [c_int]
    return driver


class _Context:
    """The device's primary context, in which frameworks and the library work. Relaxed: waiting would end a
    capture that a framework makes meanwhile."""

    __slots__ = ("_context", "_device", "_entered", "_mode")

    def __init__(self, device: int) -> None:
        self._device = device
        self._context, self._mode = c_void_p(), c_int(_RELAXED)

    def __enter__(self) -> ctypes.CDLL:
        driver = _driver()
        self._entered = driver.cuDevicePrimaryCtxRetain(byref(self._context), self._device) == 0
        if self._entered:
            driver.cuCtxPushCurrent_v2(self._context)
            driver.cuThreadExchangeStreamCaptureMode(byref(self._mode))
        return driver

    def __exit__(self, *exception: object) -> None:
        if self._entered:
            driver = _driver()
            driver.cuThreadExchangeStreamCaptureMode(byref(self._mode))
            driver.cuCtxPopCurrent_v2(byref(self._context))
            driver.cuDevicePrimaryCtxRelease_v2(self._device)


def synchronize(stream: Stream, device: int) -> None:
    """The caller waits for all that is queued there now."""
    if stream.kind == _abi.STREAM_COMPLETE:
        return
    with _Context(device) as driver:
        driver.cuStreamSynchronize(_HANDLES.get(stream.kind, stream.handle))
