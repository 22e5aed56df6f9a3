# SPDX-License-Identifier: MIT
"""Importer.from_connection: an importer over a connection that the script has opened itself, with its own
CUDA operations. When the producer's session ends, and the policy reconnects, it goes on as an importer of the
library's own."""

from __future__ import annotations

import logging
import threading
from contextlib import nullcontext
from dataclasses import replace
from time import monotonic, perf_counter, sleep
from typing import Any, Callable

from .. import _abi, _dtypes, _streams
from .._errors import ClosedError
from . import importer as importers
from .connection import Format, IPCConnection
from .layout import AcquireResult, SlotState
from .opening import open_importer
from .pipeline import Copy, Pipeline
from .policies import ImportPolicy
from .session import NAP, ON_DEVICE, TO_HOST, Session
from .values import ImportOutcome, ImportResult, ImportSpec
from .waiting import seconds

log = logging.getLogger("cuda_link")

WHEN_ASKED: Any = object()
"""A framework that was not named: imported when a get needs it. None says that there is none."""

_LATEST = 2**63 / 1e9  # s; what a frame's time has room for

_Place = tuple[Any, int, int, Any]  # an array, its address, the kind of the copy, the stream (None: ours)


class AdoptedImporter(importers.Importer):
    """An Importer whose first session is a connection of the script's. Gets return copies, proven not to be
    overwritten meanwhile, as everywhere on the old wire."""

    def __init__(
        self, spec: ImportSpec, policy: ImportPolicy, session: Session, frameworks: dict[str, Any]
    ) -> None:
        none: Any = None  # until the session is over
        super().__init__(spec, policy, none, Pipeline() if policy.d2h_pipelined else None)
        self._session: Session | None = session
        self._lock = threading.Lock()  # of what may end the session, or goes on in it
        self._frameworks = frameworks

    # ---- taking

    def _from_session(self, get: str, place: Callable[[Format], _Place], *stream: Any) -> ImportResult:
        """What a get returns; by Importer's get when the session is over."""
        with self._lock:
            if self._session is not None:
                pipeline = self._pipeline if get == "get_frame_numpy" else None
                return self._answer(self._session, place, pipeline)
        self._check_open()
        result: ImportResult = getattr(super(), get)(*stream)
        return result

    def _check_open(self) -> None:
        if self._importer is None and self._session is None:
            raise ClosedError(
                "this importer was closed, by close() or by the end of its with-block, and the connection "
                "with it; arrays that it gave stay good; open another one: Importer.open(spec)"
            )

    def _answer(
        self, session: Session, place: Callable[[Format], _Place], pipeline: Pipeline | None
    ) -> ImportResult:
        told = pipeline.told_now() if pipeline is not None else None
        if told is not None:
            return told
        found = self._of(session, place)
        if isinstance(found, ImportResult):
            last = pipeline.last(found) if pipeline is not None else None
            return self._delivered(last) or found
        before = pipeline.swap_done(found) if pipeline is not None else found
        return self._delivered(before) or ImportResult(ImportOutcome.NO_FRAME)

    def _of(self, session: Session, place: Callable[[Format], _Place]) -> Copy | ImportResult:
        if self._over:
            return ImportResult(ImportOutcome.SHUTDOWN)
        found = session.look()
        if found.state is SlotState.NO_FRAME:
            return ImportResult(ImportOutcome.NO_FRAME)
        if found.state is not SlotState.NEW_FRAME:
            return self._end_of(session, found.state)
        began = perf_counter()
        ready = session.wait(found.slot, seconds(self.spec.timeout_ms), self.policy.wait_spin_us)
        self._waits.note((perf_counter() - began) * 1e6, self.frame_count)
        return self._copy_of(session, found, place) if ready else ImportResult(ImportOutcome.TIMEOUT)

    def _copy_of(
        self, session: Session, found: AcquireResult, place: Callable[[Format], _Place]
    ) -> Copy | ImportResult:
        array, address, kind, stream = place(session.fmt)
        if not session.copy(found, address, kind, stream):
            return ImportResult(ImportOutcome.NO_FRAME)
        return Copy(array, None, _nanoseconds(found.timestamp), 0)

    def _end_of(self, session: Session, state: SlotState) -> ImportResult:
        if not self.policy.reconnect_enabled:
            self._over = True
            session.connection.close_ipc_handles()
            return ImportResult(ImportOutcome.SHUTDOWN)
        log.info("channel %r: the session that was handed over has ended", self.spec.shm_name)
        self._importer = open_importer(replace(self.spec, timeout_ms=0), self.policy, self._pipeline)
        self._session = None
        session.close()
        over = state is SlotState.SHUTDOWN
        return ImportResult(ImportOutcome.SHUTDOWN if over else ImportOutcome.RECONNECTING)

    def _framework(self, name: str, get: str) -> Any:
        module = self._frameworks[name]
        if module is WHEN_ASKED:
            try:
                module = __import__(name)
            except ImportError:
                module = None
        if module is None:
            raise RuntimeError(f"{get} needs {name}, which is not there")
        return module

    def get_frame_numpy(self) -> ImportResult:
        """As Importer's."""
        numpy = self._framework("numpy", "get_frame_numpy")

        def place(fmt: Format) -> _Place:
            array = numpy.empty(fmt.shape, fmt.numpy_dtype)
            return array, array.ctypes.data, TO_HOST, None

        return self._from_session("get_frame_numpy", place)

    def get_frame(self, stream: Any = None) -> ImportResult:
        """As Importer's; the CPU waits for the pixels, also when a stream is named: the copy that it gets has
        to be looked at behind its end. Without a GPU of torch's own the tensor is in memory of the CPU."""
        if stream is not None:
            _streams.resolve(stream)
        torch = self._framework("torch", "get_frame")

        def place(fmt: Format) -> _Place:
            dtype = _type_of(torch, fmt)
            if not torch.cuda.is_available():
                tensor = torch.empty(fmt.shape, dtype=dtype)
                return tensor, tensor.data_ptr(), TO_HOST, None
            device = f"cuda:{self.spec.device}"
            tensor = torch.empty(fmt.shape, dtype=dtype, device=device)
            return tensor, tensor.data_ptr(), ON_DEVICE, torch.cuda.current_stream(device).cuda_stream

        return self._from_session("get_frame", place, stream)

    def get_frame_cupy(self, stream: Any = None) -> ImportResult:
        """As Importer's; the CPU waits, as in get_frame."""
        if stream is not None:
            _streams.resolve(stream)
        cupy = self._framework("cupy", "get_frame_cupy")

        def place(fmt: Format) -> _Place:
            dtype = _dtypes.parse(fmt.dtype_str)
            with cupy.cuda.Device(self.spec.device) if self.spec.device else nullcontext():
                array = cupy.empty(fmt.shape, _dtypes.to_numpy(dtype))
                return array, array.data.ptr, ON_DEVICE, cupy.cuda.get_current_stream().ptr

        return self._from_session("get_frame_cupy", place, stream)

    # ---- waiting

    def wait_for_doorbell(self, timeout_ms: float) -> bool:
        """As Importer's; it looks at the segment now and then."""
        end = monotonic() + seconds(timeout_ms)
        while self._session is not None:
            with self._lock:
                if not self._is_quiet():
                    return True
            if monotonic() >= end:
                return False
            sleep(NAP * 10)
        self._check_open()
        return super().wait_for_doorbell(max(end - monotonic(), 0.0) * 1e3)

    def _is_quiet(self) -> bool:
        return self._session is not None and self._session.look().state is SlotState.NO_FRAME

    # ---- the rest

    def is_ready(self) -> bool:
        """Is there a producer?"""
        with self._lock:
            if self._session is not None:
                alive = self._session.look().state in (SlotState.NO_FRAME, SlotState.NEW_FRAME)
                return alive and not self._over
        return self._importer is not None and super().is_ready()

    @property
    def wait_backend_name(self) -> str:
        """ "python" as long as the connection is the script's."""
        return super().wait_backend_name if self._session is None else "python"

    def _raw(self) -> _abi.ImporterStatistics:
        session = self._session
        if session is None:
            return super()._raw() if self._importer is not None else _abi.ImporterStatistics()
        slots = session.layout.num_slots
        return _abi.ImporterStatistics(slots=slots, missed=session.missed, overwritten=session.torn)

    def get_stats(self) -> dict[str, Any]:
        """As Importer's."""
        stats, session = super().get_stats(), self._session
        if session is None:
            return stats
        stats["shape"], stats["dtype"] = session.fmt.shape, session.fmt.dtype_str
        stats["dev_ptrs"] = [hex(_number(pointer)) for pointer in session.connection.dev_ptrs]
        stats["tensor_device"] = f"cuda:{self.spec.device}"
        return stats

    def close(self) -> None:
        """Ends it, and closes the connection. May be called again."""
        waiting = self._session
        if waiting is not None:
            waiting.closing = True
        with self._lock:
            session, self._session = self._session, None
            if session is not None:
                session.close()
        if self._importer is not None:
            super().close()


def _type_of(torch: Any, fmt: Format) -> Any:
    try:
        return getattr(torch, fmt.dtype_str)
    except AttributeError:
        raise TypeError(f"this torch has no {fmt.dtype_str}; get_frame_numpy") from None


def _nanoseconds(stamp: float) -> int:
    """Of seconds that a producer says, which may be anything; 0: no time."""
    return int(stamp * 1e9) if 0 <= stamp < _LATEST else 0


def _number(pointer: Any) -> int:
    """Scripts keep addresses as numbers, or as ctypes.c_void_p."""
    return int(getattr(pointer, "value", pointer) or 0)


def adopt(
    spec: ImportSpec,
    policy: ImportPolicy,
    connection: IPCConnection,
    fmt: Format | None,
    cuda: Any,
    last_write_idx: int,
    frameworks: dict[str, Any],
) -> AdoptedImporter:
    """What Importer.from_connection returns; the arguments are checked there."""
    session = Session(connection, fmt, cuda, spec.device, last_write_idx)
    return AdoptedImporter(spec, policy, session, frameworks)
