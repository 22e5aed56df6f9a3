# SPDX-License-Identifier: MIT
"""Importer: the newest frame as a torch tensor, a CuPy array, or a NumPy array."""

from __future__ import annotations

import logging
import select
from contextlib import suppress
from time import monotonic_ns, perf_counter
from typing import Any

from .. import _abi, _dtypes, _frameworks, _streams
from .._arguments import made_of, text, whole
from .._backend import low
from .._errors import (
    BusyError,
    ChannelNotFoundError,
    ClosedError,
    CudaLinkError,
    EndedError,
    EvictedError,
    OverwrittenError,
    PeerLostError,
    ProtocolError,
    RefusedError,
    StreamError,
    TimedOutError,
    TooManyFramesError,
)
from .._frame import Frame
from .._importer import ChannelImporter
from .._only_one import refuse_copies
from . import availability
from .arrays import Form, HostArrays, form
from .connection import Format, IPCConnection
from .nvml import checked_observer, observer_from_env
from .opening import open_importer
from .pipeline import Copy, Pipeline
from .policies import ImportPolicy
from .values import ImportOutcome, ImportResult, ImportSpec
from .waiting import Backoff, Waits, seconds

log = logging.getLogger("cuda_link")

_LONGEST_POLL = 2**31 - 1  # ms
_NEW = ImportOutcome.NEW_FRAME
_made = tuple.__new__  # ImportResult(...) is a function of Python's, and one is made per get
_AGAIN = ImportResult(ImportOutcome.RECONNECTING)
_NOTHING = ImportResult(ImportOutcome.NO_FRAME)
_GONE = ImportResult(ImportOutcome.SHUTDOWN)
_WHOLE = (
    "wait_spin_us",
    "d2h_num_streams",
    "gpu_wait_adaptive_window",
    "gpu_wait_adaptive_sleep_pct",
    "reconnect_max_attempts",
)
_LATE = ImportResult(ImportOutcome.TIMEOUT)


def _check_spec(spec: ImportSpec) -> None:
    made_of("Importer.open", "spec", spec, ImportSpec, "ImportSpec(name)")
    text("ImportSpec.shm_name", spec.shm_name)
    whole("ImportSpec.device", spec.device, 0)
    seconds(spec.timeout_ms)
    if spec.dtype is not None:
        _dtypes.parse(spec.dtype)
    if spec.shape is None:
        return
    try:
        extents = [whole("ImportSpec.shape", extent, 0) for extent in spec.shape]
    except TypeError:
        extents = []
    if not extents:
        raise TypeError(f"ImportSpec.shape={spec.shape!r}: it is (height, width, channels), or None")


def _check_policy(policy: ImportPolicy) -> None:
    made_of("Importer.open", "policy", policy, ImportPolicy, "ImportPolicy(), or None: the environment's")
    for name in _WHOLE:
        whole(f"ImportPolicy.{name}", getattr(policy, name))
    whole("ImportPolicy.hold", policy.hold, 1, _abi.MAX_HOLD)
    try:
        for gets in policy.reconnect_backoff_frames:
            whole("ImportPolicy.reconnect_backoff_frames", gets)
    except TypeError:
        given = policy.reconnect_backoff_frames
        raise TypeError(
            f"ImportPolicy.reconnect_backoff_frames={given!r}: it is a tuple of whole numbers"
        ) from None


class Importer(low.Getter):  # type: ignore[misc,name-defined]
    """Takes the newest frame of a channel. Made by `Importer.open`; a context manager."""

    def __init__(
        self, spec: ImportSpec, policy: ImportPolicy, importer: ChannelImporter, pipeline: Pipeline | None
    ) -> None:
        self.spec = spec
        self.policy = policy
        self._importer = importer
        self._pipeline = pipeline
        self._overrides = spec.shape is not None or spec.dtype is not None
        self._backoff = Backoff(policy.reconnect_backoff_frames, policy.reconnect_max_attempts)
        self._waits = Waits(
            policy.wait_spin_us,
            policy.torch_gpu_wait_adaptive,
            policy.gpu_wait_adaptive_window,
            policy.gpu_wait_adaptive_sleep_pct,
        )
        self._gpu_wait = policy.torch_gpu_wait
        self._torch: Any = None
        self._over = False
        self._frame: Frame | None = None
        self._observer: Any = observer_from_env(spec.device)
        self._arrays = HostArrays()
        self._form: tuple[bytes, Form] | None = None
        self._copies = 0
        self._got = self._stamp = 0
        self.frame_count = 0
        """Frames that were got."""

    @classmethod
    def open(cls, spec: ImportSpec, *, policy: ImportPolicy | None = None, cuda: Any = None) -> Importer:
        """Waits up to spec.timeout_ms for the producer. Without one: an importer whose gets say
        RECONNECTING, or FileNotFoundError when the policy does not reconnect. policy None = from the
        environment; cuda is not used (the log says so).

        Errors: ValueError (dtype, timeout_ms), RuntimeError; without reconnecting also RefusedError and
        ProtocolError.
        """
        if cuda is not None:
            log.warning("Importer.open: cuda= is not used: the library talks to the driver")
        _check_spec(spec)
        policy = ImportPolicy.from_env() if policy is None else policy
        _check_policy(policy)
        pipeline = Pipeline() if policy.d2h_pipelined else None
        return cls(spec, policy, open_importer(spec, policy, pipeline), pipeline)

    @classmethod
    def from_connection(
        cls,
        spec: ImportSpec,
        policy: ImportPolicy | None,
        conn: IPCConnection,
        fmt: Format | None = None,
        *,
        last_write_idx: int = 0,
        cuda: Any = None,
        **frameworks: Any,
    ) -> Importer:
        """An importer over a connection that the script has opened by its own CUDA operations; it is the
        importer's from now on, and closed with it. policy None = from the environment, fmt None = as the
        segment says, cuda None = the connection's. torch, cupy, numpy: the modules to make arrays by, None =
        there is none; what is not named is imported when a get needs it.

        Gets return copies, proven not to be overwritten meanwhile. When the session ends and the policy
        reconnects, the next one of that name is the library's to open.

        Errors: ValueError (what is missing in the connection; a format of other bytes than the frames';
        a ring of one slot), ProtocolError (the segment is none of the old wire, or has other slots)."""
        from .adopted import WHEN_ASKED, adopt

        made_of("Importer.from_connection", "conn", conn, IPCConnection, "an IPCConnection")
        if fmt is not None:
            made_of("Importer.from_connection", "fmt", fmt, Format, "a Format, or None: the segment's")
        _check_spec(spec)
        policy = ImportPolicy.from_env() if policy is None else policy
        _check_policy(policy)
        whole("last_write_idx", last_write_idx, 0, 2**32 - 1)
        modules = dict.fromkeys(("torch", "cupy", "numpy"), WHEN_ASKED)
        if unknown := frameworks.keys() - modules.keys():
            raise TypeError(f"Importer.from_connection() got an unexpected argument {min(unknown)!r}")
        return adopt(spec, policy, conn, fmt, cuda, last_write_idx, {**modules, **frameworks})

    @property
    def last_latency(self) -> float:
        """Age of the last frame when it was got, in ms."""
        return (self._got - self._stamp) / 1e6

    # ---- taking

    def _take(self, stream: Any, taken: Frame | CudaLinkError | None = None) -> Frame | ImportResult:
        """The newest frame, or why there is none. With a stream that waits for the pixels, not the CPU.
        taken: what was tried without a stream."""
        if taken is not None:
            frame = taken if isinstance(taken, Frame) else self._without(taken, stream)
        elif self._backoff.passes():
            return _AGAIN
        else:
            try:
                frame = self._importer.acquire(0) if stream is None else self._acquire(0, stream)
            except CudaLinkError as error:
                frame = self._without(error, stream)
        if isinstance(frame, ImportResult):
            return frame
        if frame._said and frame._said & _abi.FRAME_INVALID:
            frame.release()
            return _NOTHING
        if frame._plane_count != 1:
            self._form_of(frame)  # says that they are for the modern face
        return frame

    def _acquire(self, timeout: float, stream: Any) -> Frame:
        """Memory of the CPU has no streams: the one that a script names, or torch has, counts for nothing."""
        try:
            return self._importer.acquire(timeout, stream=stream)
        except StreamError:
            if self._importer.statistics().kind != "host":
                raise
        return self._importer.acquire(timeout)

    def _without(self, error: CudaLinkError, stream: Any) -> Frame | ImportResult:
        """acquire has given no frame at once: wait for one that was published, or say why there is none."""
        if isinstance(error, BusyError):
            self._frame = None  # was kept for scripts that look at its address
            return self._wait(stream)
        if isinstance(error, TimedOutError):
            text = str(error)
            if "was published" in text:
                return self._wait(stream)
            if "no producer" not in text:
                self._backoff.reset()
                return _NOTHING
            return self._failed(error)
        if isinstance(error, (EndedError, PeerLostError)):
            if not self.policy.reconnect_enabled:
                self._over = True
            elif not self._over:
                log.info("channel %r: %s", self.spec.shm_name, error)
            self._backoff.reset()
            return _GONE
        if isinstance(error, ChannelNotFoundError):  # an old producer that has sent nothing yet
            return _NOTHING
        if isinstance(error, EvictedError):
            log.warning("%s", error)
            return _AGAIN
        if isinstance(error, (RefusedError, ProtocolError)) and self.policy.reconnect_enabled:
            log.info("%s", error)
            return self._failed(error)
        raise error

    def _failed(self, error: CudaLinkError) -> ImportResult:
        """There is no producer: some gets pass without a look."""
        self._straight(None, None)
        self._backoff.failed(error)
        return _AGAIN

    def _wait(self, stream: Any) -> Frame | ImportResult:
        """Up to timeout_ms for the pixels of a frame that is there, for memory that the producer has just
        made to be mapped, or for a stream to give a frame back."""
        began = perf_counter()
        try:
            return self._acquire(seconds(self.spec.timeout_ms), stream)
        except TimedOutError as error:
            return _LATE if "was published" in str(error) else _NOTHING
        except BusyError as error:
            counters = self._importer.statistics()
            frames = "1 frame is" if counters.held == 1 else f"{counters.held} frames are"
            raise TooManyFramesError(
                f"channel {self.spec.shm_name!r}: {frames} held, and {counters.hold} may "
                f"be (ImportPolicy.hold is {self.policy.hold}; the producer's max_slots may allow less): "
                "let go of tensors, clone() what is needed longer, or raise that"
            ) from error
        except (EndedError, PeerLostError, EvictedError) as error:
            return self._without(error, stream)
        finally:
            self._waits.note((perf_counter() - began) * 1e6, self.frame_count)
            if self._waits.latched is not None:
                self._gpu_wait = True
                self._straight(None, None)

    def _form_of(self, frame: Frame) -> Form:
        """What the script gets. Errors: ValueError; the frame is released then."""
        outline: bytes = frame._outline()
        known = self._form
        if known is not None and known[0] == outline:
            return known[1]
        try:
            found = form(self.spec, frame.layout)
        except ValueError:
            frame.release()
            raise
        self._form = (outline, found)
        return found

    def _end(self, frame: Frame, current_stream: Any = None) -> ImportResult | None:
        """Gives a frame back whose pixels were copied; not None when the copy is worth nothing.

        Producers on the old wire (kind ipc) write on: whether one did during the copy is only known when
        the copy is over, so the CPU waits for the stream that makes it."""
        try:
            if current_stream is not None and frame.kind == "ipc":
                current_stream().synchronize()
                frame.release(stream=-1)
            else:
                frame._release()
        except (OverwrittenError, PeerLostError):
            self.frame_count -= 1
            return _NOTHING
        return None

    # ---- NumPy

    def get_frame_numpy(self) -> ImportResult:
        """The newest frame as a NumPy array in memory of the CPU. Its memory is used again for a later frame
        when nothing looks at the array any more.

        With ImportPolicy.d2h_pipelined the one before: the get that finds the first frame of a session says
        NO_FRAME, and the last frame comes before the session's end is told.

        Errors: ImportError, ValueError (overrides that do not fit, frames of several planes), TypeError
        (NumPy has no such type)."""
        if self._pipeline is not None:
            return self._get_pipelined(self._pipeline)
        frame = self._take(None)
        if isinstance(frame, ImportResult):
            return frame
        self._note(frame)
        array = self._arrays.get(self._form_of(frame), frame._device)
        try:
            frame._to_host(array)
        except (OverwrittenError, PeerLostError):
            if self._end(frame) is None:
                self.frame_count -= 1
            return _NOTHING
        self._copies += 1
        return self._end(frame) or _made(ImportResult, (_NEW, array))

    def _get_pipelined(self, pipeline: Pipeline) -> ImportResult:
        told = pipeline.told_now()
        if told is not None:
            return told
        frame = self._take(None)
        if isinstance(frame, ImportResult):
            return self._delivered(pipeline.last(frame)) or frame
        array = self._arrays.get(self._form_of(frame), frame._device)
        return self._delivered(pipeline.swap(frame, array)) or _NOTHING

    def _delivered(self, copy: Copy | None) -> ImportResult | None:
        """The frame of the get before."""
        if copy is None:
            return None
        self._copies += 1
        if copy.frame is not None:
            self._note(copy.frame)
        else:
            self.frame_count += 1
            self._got, self._stamp = monotonic_ns(), copy.stamp
        return _made(ImportResult, (_NEW, copy.array))

    # ---- torch, CuPy

    def _lent(self, frame: Frame, tensor: Any, framework: Any, stream: Any) -> ImportResult:
        """A tensor over the slot. The frame of the last get stays until the next one, whatever becomes of its
        tensor. A stream that was named is waited for by the release, too."""
        if stream is not None:
            frame._wait(*_streams.resolve(stream))
        self._frame = frame
        if self._overrides or frame._dimensions != 3:
            tensor = _shaped(tensor, framework, self._form_of(frame) if self._overrides else None)
        return _made(ImportResult, (_NEW, tensor))

    def _import_torch(self) -> Any:
        try:
            import torch
        except ImportError as error:
            raise RuntimeError("get_frame needs torch; get_frame_numpy does not") from error
        self._torch = torch
        return torch

    def get_frame(self, stream: Any = None) -> ImportResult:
        """The newest frame as a torch tensor over its own memory. It stays as it is as long as the tensor
        lives, or until the next get; hold such frames may be kept. Where consumers may not write to frames
        (kind host, read-only channels, the old wire) it is a copy of the script's own, counted in get_stats.

        stream: a number, or an object with .cuda_stream or .ptr: it waits for the pixels, and the CPU does
        not. Else the CPU waits, at most timeout_ms (TIMEOUT). On kind host there is nothing to wait for.

        Errors: RuntimeError (no torch), TooManyFramesError, ValueError (overrides that do not fit, frames of
        several planes).
        """
        return self._get_frame(stream)

    def _get_frame(self, stream: Any, taken: Frame | CudaLinkError | None = None) -> ImportResult:
        torch = self._torch or self._import_torch()
        if stream is not None:
            _streams.resolve(stream)
        elif self._gpu_wait and torch.cuda.is_available():
            stream = torch.cuda.current_stream()
        frame = self._take(stream, taken)
        if isinstance(frame, ImportResult):
            return frame
        self._note(frame)
        table = _frameworks.torch_table
        tensor = frame._give(table)
        if tensor is not None:
            if not self._overrides and not self._gpu_wait:
                self._straight(self._importer, table)
            return self._lent(frame, tensor, torch, stream)
        if frame._writable:
            return self._lent(frame, frame.torch(), torch, stream)
        copy = frame.torch().clone()
        return self._copied(frame, copy, torch, lambda: torch.cuda.current_stream(copy.device))

    def _copied(self, frame: Frame, copy: Any, framework: Any, current_stream: Any) -> ImportResult:
        """A copy of the script's own, made on the framework's current stream."""
        self._copies += 1
        wanted = self._form_of(frame) if self._overrides else None
        return self._end(frame, current_stream) or ImportResult(_NEW, _shaped(copy, framework, wanted))

    def get_frame_cupy(self, stream: Any = None) -> ImportResult:
        """The newest frame as a CuPy array, as get_frame; CuPy's current stream, or the one that is named,
        waits for the pixels. Errors: RuntimeError when CuPy is missing or the frame is in memory of the
        CPU; as get_frame."""
        try:
            import cupy
        except ImportError as error:
            raise RuntimeError("get_frame_cupy needs CuPy; get_frame_numpy does not") from error
        if stream is None:
            stream = cupy.cuda.get_current_stream()
        _streams.resolve(stream)
        frame = self._take(stream)
        if isinstance(frame, ImportResult):
            return frame
        self._note(frame)
        if frame.kind == "host":
            frame.release()
            raise RuntimeError("this channel is in memory of the CPU: use get_frame_numpy")
        if not frame.writable:
            return self._copied(frame, frame.cupy().copy(), cupy, cupy.cuda.get_current_stream)
        return self._lent(frame, frame.cupy(), cupy, stream)

    # ---- waiting

    def wait_for_doorbell(self, timeout_ms: float) -> bool:
        """Sleeps until there may be a new frame, or a producer; False when the time is over.

        Errors: ValueError (timeout_ms is negative)."""
        waits = seconds(timeout_ms) * 1e3
        if self._pipeline is not None and self._pipeline.told is not None:
            return True
        limit = waits if waits < _LONGEST_POLL else None
        descriptor = self._importer.fileno()
        if self._importer.arm():
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            if not poll.poll(limit):
                return False
        self._backoff.hurry()
        return True

    def request_immediate_reconnect(self) -> None:
        """The next get looks for a producer."""
        self._backoff.hurry()

    # ---- the rest

    def is_ready(self) -> bool:
        """Is there a producer?"""
        try:
            joined = self._importer.statistics().connection == "joined"
        except ClosedError:  # by another thread at any moment
            return False
        if joined:
            self._backoff.hurry()
        return joined

    @property
    def wait_backend_name(self) -> str:
        """ "native": waits are the library's."""
        return "native"

    def attach_nvml_observer(self, observer: Any) -> None:
        """Its snapshot is added to get_stats."""
        self._observer = checked_observer(observer)

    def _raw(self) -> _abi.ImporterStatistics:
        counters = _abi.ImporterStatistics()
        counters.size = _abi.size(counters)
        with suppress(ClosedError):
            low.importer_statistics(self._importer._id, counters)
        return counters

    def _where(self, kind: int) -> str | None:
        """As torch names devices; None before there was a producer."""
        if kind in (0, _abi.KIND_HOST):
            return "cpu" if kind else None
        device = self._frame._device - 1 if self._frame is not None else self.spec.device
        return f"cuda:{device}"

    def get_stats(self) -> dict[str, Any]:
        """Counters, by their known keys. num_slots: the producer's slots now; 0 without a producer. New:
        copies_made, frames_missed (between two gets), frames_torn (old wire: overwritten while they were
        copied)."""
        counters, waits, frame = self._raw(), self._waits, self._frame
        shown = self._form_of(frame) if frame is not None and not frame.released else None
        if shown is None and self._form is not None:
            shown = self._form[1]
        on_gpu = frame is not None and not frame.released
        stats: dict[str, Any] = {
            "initialized": self.is_ready(),
            "shm_name": self.spec.shm_name,
            "shape": shown.shape if shown else self.spec.shape,
            "dtype": shown.dtype.name if shown else self.spec.dtype,
            "device": self.spec.device,
            "num_slots": counters.slots,
            "frame_count": self.frame_count,
            "torch_available": availability.TORCH_AVAILABLE,
            "numpy_available": availability.NUMPY_AVAILABLE,
            "dev_ptrs": [hex(frame._address)] if on_gpu and frame is not None else [],
            "tensor_device": self._where(counters.kind),
            "wait_backend": self.wait_backend_name,
            "wait_spin_hits": waits.spin[0],
            "wait_sleep_hits": waits.sleep[0],
            "avg_spin_us": waits.average(waits.spin),
            "avg_sleep_us": waits.average(waits.sleep),
            "gpu_wait_active": self._gpu_wait,
            "gpu_wait_latched_frame": waits.latched,
            "copies_made": self._copies,
            "frames_missed": counters.missed,
            "frames_torn": counters.overwritten,
        }
        if self._observer is not None:
            stats["nvml"] = self._observer.snapshot()
        return stats

    def close(self) -> None:
        """Ends it. What gets have returned stays good as long as it lives. May be called again."""
        self._frame = None
        self._arrays.clear()
        self._importer.close()

    __reduce_ex__ = refuse_copies

    def __enter__(self) -> Importer:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


low.getter_offer(Importer, ImportResult, _NEW)


def _shaped(array: Any, framework: Any, wanted: Form | None) -> Any:
    """A tensor as height x width x channels, or as the spec says."""
    if wanted is None:
        return array[..., None] if array.ndim == 2 else array
    if str(array.dtype).rpartition(".")[2] != wanted.dtype.name:
        array = array.reshape(-1).view(getattr(framework, wanted.dtype.name))
    return array.reshape(wanted.shape)
