# SPDX-License-Identifier: MIT
"""Memory that a copy still reads: `send` on a stream returns before the copy has run, and its source has
to stay until then. An event behind each copy says when; finished ones are let go at the next send.

Each call of the driver takes time that a send can't spare: events are used again, and a send enters the
context once.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections import deque
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


class _context:
    """The device's primary context, in which frameworks and the library work. Relaxed: asking an event
    would end a capture that a framework makes meanwhile."""

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
    with _context(device):
        _driver().cuStreamSynchronize(_HANDLES.get(stream.kind, stream.handle))


class _Sources:
    """Those on one GPU, each with the event behind its copy, and events that are free again. All in its
    context."""

    def __init__(self) -> None:
        self.waiting: deque[tuple[c_void_p, Any]] = deque()
        self.free: list[c_void_p] = []

    def add(self, driver: ctypes.CDLL, owner: Any, stream: int) -> bool:
        """False: no event could be recorded."""
        event = self.free.pop() if self.free else c_void_p()
        if not event.value:
            driver.cuEventCreate(byref(event), _DISABLE_TIMING)
        if driver.cuEventRecord(event, stream) != 0:
            if event.value:
                driver.cuEventDestroy_v2(event)
            return False
        self.waiting.append((event, owner))
        return True

    def finished(self, driver: ctypes.CDLL) -> list[Any]:
        """Takes out what has run."""
        owners = []
        while self.waiting:
            status = driver.cuEventQuery(self.waiting[0][0])
            if status == _NOT_READY:
                break
            event, owner = self.waiting.popleft()
            owners.append(owner)
            if status == 0:
                self.free.append(event)
            else:
                driver.cuEventDestroy_v2(event)
        return owners


class Pending:
    """The sources of one exporter's copies."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._devices: dict[int, _Sources] = {}
        self._for_good: list[Any] = []

    def keep(self, owner: Any, stream: Stream, device: int) -> None:
        """Until what is queued on the stream now has run. An event that can't be recorded (a stream that
        captures) keeps it until the exporter goes. Lets go what is finished."""
        with self._lock:
            sources = self._devices.get(device)
            if sources is None:
                sources = self._devices[device] = _Sources()
            with _context(device) as driver:
                done = sources.finished(driver)
                if not sources.add(driver, owner, _HANDLES.get(stream.kind, stream.handle)):
                    self._for_good.append(owner)
        del done  # what their ends do is done without the lock

    def sweep(self) -> None:
        """Lets go what is finished."""
        done: list[Any] = []
        if not self._devices:
            return
        with self._lock:
            for device, sources in self._devices.items():
                if sources.waiting:
                    with _context(device) as driver:
                        done += sources.finished(driver)
        del done

    def end(self) -> None:
        """Before the exporter closes, while its context is there: lets go what is finished, and all events
        that are free. A forked copy has none."""
        done: list[Any] = []
        if not self._devices or self._process != os.getpid():
            return
        with self._lock:
            for device, sources in self._devices.items():
                with _context(device) as driver:
                    done += sources.finished(driver)
                    while sources.free:
                        driver.cuEventDestroy_v2(sources.free.pop())
        del done
