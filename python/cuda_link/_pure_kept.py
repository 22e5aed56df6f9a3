# SPDX-License-Identifier: MIT
"""What the copies of sends still read; python/core/kept.c says more.

The library tells on any thread, also while Python ends, so what it calls is no function of Python's: it posts
a semaphore, which later calls of the exporter look at, and behind its close a thread waits for.
"""

from __future__ import annotations

import ctypes
import threading
from collections import deque
from ctypes import c_int, c_size_t, c_uint, c_void_p
from typing import Any

from ._library import library

_SIZE = 64  # bytes; a sem_t has 32
_CLOSED = -5

_c = ctypes.CDLL(None)
_c.calloc.argtypes, _c.calloc.restype = [c_size_t, c_size_t], c_void_p
_c.free.argtypes = [c_void_p]
_c.sem_init.argtypes = [c_void_p, c_int, c_uint]
_c.sem_trywait.argtypes = _c.sem_wait.argtypes = [c_void_p]
_post = ctypes.cast(_c.sem_post, c_void_p)

_lock = threading.RLock()
"""Python may collect garbage while a thread has it: an exporter's end is then called on that very thread."""
_of: dict[int, deque[tuple[int, Any]]] = {}
"""By exporter: a semaphore, in memory that outlives Python, and what is kept."""
_over: deque[int] = deque(maxlen=64)
"""Exporters that were closed last: a send of another thread may keep something all the same."""


def keep(exporter: int, thing: Any) -> bool:
    """It stays until what was sent so far is copied. False: it is the caller's, who does not know for how
    long."""
    semaphore = _c.calloc(1, _SIZE)
    if not semaphore:
        raise MemoryError
    _c.sem_init(semaphore, 0, 0)
    entry = (semaphore, thing)
    with _lock:
        kept = _of.setdefault(exporter, deque())
        kept.append(entry)
        status = library.cudalink_exporter_keep(exporter, semaphore, _post)
        if status < 0:
            kept.remove(entry)
            _c.free(semaphore)
    if exporter in _over:
        _wait_aside(exporter)
    else:
        let_go(exporter)
    return bool(status >= 0 or status == _CLOSED)  # closed: nothing reads it any more


def let_go(exporter: int) -> None:
    """What is copied."""
    if exporter not in _of or _lock._is_owned():  # type: ignore[attr-defined]
        return  # a later call does it
    done = []
    with _lock:
        kept = _of.get(exporter, deque())
        while kept and _c.sem_trywait(kept[0][0]) == 0:
            semaphore, thing = kept.popleft()
            _c.free(semaphore)
            done.append(thing)
        if not kept:
            _of.pop(exporter, None)
    del done  # what their ends do is done without the lock


def _wait(exporter: int) -> None:
    with _lock:
        kept = _of.pop(exporter, None)
    while kept:
        while _c.sem_wait(kept[0][0]) != 0:  # a signal came
            pass
        _c.free(kept.popleft()[0])


def closed(exporter: int) -> None:
    """Nobody calls for it any more."""
    let_go(exporter)
    _over.append(exporter)
    _wait_aside(exporter)


def _wait_aside(exporter: int) -> None:
    if exporter in _of:
        threading.Thread(target=_wait, args=(exporter,), daemon=True, name="cuda_link").start()
