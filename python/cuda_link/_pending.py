# SPDX-License-Identifier: MIT
"""Memory that a copy still reads: `send` on a stream returns before the copy has run, and its source has
to stay until then. An event behind each copy says when; finished ones are let go at the next send.
"""

from __future__ import annotations

import ctypes
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import byref, c_int, c_uint, c_void_p
from functools import lru_cache
from typing import Any

from . import _abi
from ._streams import Stream

_DISABLE_TIMING = 2  # CU_EVENT_DISABLE_TIMING
_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED
_NOT_READY = 600  # CUDA_ERROR_NOT_READY
_HANDLES = {_abi.STREAM_LEGACY: 1, _abi.STREAM_PER_THREAD: 2}  # CU_STREAM_LEGACY, CU_STREAM_PER_THREAD


@lru_cache(maxsize=1)
def _driver() -> ctypes.CDLL:
    # The library, which has made a copy on this GPU, has loaded it already.
    driver = ctypes.CDLL("libcuda.so.1")
    driver.cuCtxPushCurrent_v2.argtypes = [c_void_p]
    driver.cuEventCreate.argtypes = [c_void_p, c_uint]
    driver.cuEventRecord.argtypes = [c_void_p, c_void_p]
    driver.cuEventQuery.argtypes = [c_void_p]
    driver.cuEventDestroy_v2.argtypes = [c_void_p]
    driver.cuStreamSynchronize.argtypes = [c_void_p]
    driver.cuThreadExchangeStreamCaptureMode.argtypes = [c_void_p]
    driver.cuDevicePrimaryCtxRetain.argtypes = [c_void_p, c_int]
    driver.cuDevicePrimaryCtxRelease_v2.argtypes = [c_int]
    return driver


@contextmanager
def _context(device: int) -> Iterator[None]:
    """The device's primary context, in which frameworks and the library work. Relaxed: asking an event
    would end a capture that a framework makes meanwhile."""
    driver, context = _driver(), c_void_p()
    if driver.cuDevicePrimaryCtxRetain(byref(context), device) != 0:
        yield
        return
    driver.cuCtxPushCurrent_v2(context)
    mode = c_int(_RELAXED)
    driver.cuThreadExchangeStreamCaptureMode(byref(mode))
    try:
        yield
    finally:
        driver.cuThreadExchangeStreamCaptureMode(byref(mode))
        driver.cuCtxPopCurrent_v2(byref(context))
        driver.cuDevicePrimaryCtxRelease_v2(device)


def synchronize(stream: Stream, device: int) -> None:
    """The caller waits for all that is queued there now."""
    if stream.kind == _abi.STREAM_COMPLETE:
        return
    with _context(device):
        _driver().cuStreamSynchronize(_HANDLES.get(stream.kind, stream.handle))


class Pending:
    """The sources of one exporter's copies."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sources: deque[tuple[c_void_p, int, Any]] = deque()

    def keep(self, owner: Any, stream: Stream, device: int) -> None:
        """Until what is queued on the stream now has run. An event that can't be recorded (a stream that
        captures) keeps it until the exporter goes."""
        event = c_void_p()
        with _context(device):
            driver = _driver()
            driver.cuEventCreate(byref(event), _DISABLE_TIMING)
            driver.cuEventRecord(event, _HANDLES.get(stream.kind, stream.handle))
        with self._lock:
            self._sources.append((event, device, owner))

    def sweep(self) -> None:
        """Lets go what is finished."""
        if not self._sources:
            return
        done = []
        with self._lock:
            while self._sources and self._is_done(*self._sources[0][:2]):
                done.append(self._sources.popleft())
        for event, device, _ in done:
            with _context(device):
                _driver().cuEventDestroy_v2(event)

    @staticmethod
    def _is_done(event: c_void_p, device: int) -> bool:
        with _context(device):
            return bool(_driver().cuEventQuery(event) != _NOT_READY)
