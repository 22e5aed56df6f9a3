# SPDX-License-Identifier: MIT
"""A consumer's end of a channel."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from typing import Any

from . import _abi, _arguments, _streams, _wait
from ._backend import low
from ._description import LayoutCache
from ._end import End
from ._errors import (
    BusyError,
    ChannelNotFoundError,
    EndedError,
    PeerLostError,
    TimedOutError,
    TooManyFramesError,
)
from ._frame import Frame
from ._readable import closing, readable
from ._statistics import ImporterStatistics, importer_statistics

POLICIES = {"latest": 0, "ready_only": 1, "in_order": 2, "every": 3, "shared": 4}
_OF_THE_PROGRAM = {"ready": "ready_only", "order": "in_order"}  # `cudalink recv --policy`


def _policy(policy: str | None, group: str | None) -> int:
    if policy is None:
        policy = "latest" if group is None else "shared"
    if isinstance(policy, str):
        policy = _OF_THE_PROGRAM.get(policy, policy)
    if not isinstance(policy, str) or policy not in POLICIES:
        raise ValueError(f"{policy!r} is no policy; these are: {', '.join(POLICIES)}")
    if (policy == "shared") != (group is not None):
        raise ValueError(
            'policy "shared" and group="name" go together: each frame to one member of the group'
        )
    return POLICIES[policy]


class Held(low.Held):  # type: ignore[misc,name-defined]
    """The frames that an importer holds, and what these share. Frames outlive their importer."""

    def __init__(self) -> None:
        super().__init__()
        self.layouts = LayoutCache()


class ChannelImporter(low.Taker, End):  # type: ignore[misc,name-defined]
    """Takes the frames of one channel. Made by `open_importer`.

    It finds its producer whenever there is one; producer and consumer may start in any order, and when
    the producer is replaced it goes on with the new one. All methods may be called from any thread.
    """

    def __init__(self, name: str, identifier: int, hold: int, once: bool) -> None:
        super().__init__(name, identifier)
        self._hold: int = hold
        self._once = once
        self._keep(Held())
        self._descriptor = -1

    def _wait_producer(self, limit: int) -> None:
        _wait.wait(
            lambda ns: low.importer_wait_producer(self._id, ns), limit, (TimedOutError, ChannelNotFoundError)
        )

    # ---- frames

    def _refuse_more(self) -> None:
        """Raises when this importer holds as many frames as it may, from whatever place."""
        held = self.statistics().held
        if held < self._hold:
            return
        names = sorted(self._held.numbers())
        frames = "1 frame is" if held == 1 else f"{held} frames are"
        others = held - len(names)
        which = ", ".join(str(number) for number in names)
        if others > 0:
            which += f"{' and ' if which else ''}{others} that only arrays or tensors keep"
        raise TooManyFramesError(
            f"importer of {self.name!r}: {frames} held and hold={self._hold} "
            f"(frame{'s' if held > 1 else ''} {which}); "
            f"release one first (frame.release(), del its arrays), or open_importer(..., hold={held + 1})"
        )

    def _take(self, call: Any, stream: Any, timeout: float | None) -> Frame:
        kind, handle = _streams.COMPLETE if stream is None else _streams.resolve(stream)
        limit = _wait.nanoseconds(timeout)
        if len(self._held) >= self._hold:
            self._refuse_more()
        try:
            frame: Frame = _wait.wait(lambda ns: call(self._id, kind, handle, ns, self._held, Frame), limit)
            return frame
        except BusyError:
            self._refuse_more()
            raise

    def acquire(self, timeout: float | None = None, *, stream: Any = None) -> Frame:
        """Takes the next frame by the importer's policy.

        timeout: seconds, 0 = do not wait, None = no limit. stream: where the pixels will be used, with
        gpu_wait=True: then the stream waits for them instead of the caller, and the frame is `pending`.

        Errors: TimedOutError (also TimeoutError), TooManyFramesError (names the frames that are held),
        PeerLostError (the producer died) and EndedError (it closed): each once, then acquire waits for
        the next producer; EvictedError, ClosedError, RefusedError, VersionError, ProtocolError.
        """
        return self._take(low.importer_acquire, stream, timeout)

    def wait_next(self, timeout: float | None = None, *, stream: Any) -> Frame:
        """Takes the frame that the producer works on now: its pixels are complete once `stream`, which
        waits for it, has come so far. Errors: BusyError (nothing is announced), as acquire."""
        return self._take(low.importer_wait_next, stream, timeout)

    def __iter__(self) -> Iterator[Frame]:
        """Frame after frame, without end: producers may come and go. With once=True it ends when the
        producer closes, and a producer that died raises PeerLostError.

        A step of the loop releases the frame of the step before; arrays of it stay good, and count as
        held, until they go.
        """
        while True:
            try:
                frame = self.acquire()
            except EndedError:
                if self._once:
                    return
                continue
            except PeerLostError:
                if self._once:
                    raise
                continue
            yield frame
            if not frame.released:
                frame.release()
            del frame

    async def next(self, timeout: float | None = None, *, stream: Any = None) -> Frame:
        """`acquire` for asyncio: waits on the importer's descriptor, no thread is used. Errors as
        acquire."""
        limit = _wait.nanoseconds(timeout)
        # No asyncio.wait_for: before Python 3.12 it can swallow a cancellation, and with 0 it never looks.
        loop = asyncio.get_running_loop()
        end = None if limit == _abi.FOREVER else loop.time() + limit / 1e9
        hands = None
        while True:
            descriptor = self.fileno()
            try:
                return self.acquire(0, stream=stream)
            except TimedOutError:
                if end is not None and loop.time() >= end:
                    raise
                hands = None
            except BusyError:
                # One that was let go may be on its way back, by another thread. acquire waits as long for it.
                hands = hands or loop.time() + _wait.SLICE / 1e9
                over = loop.time() >= (hands if end is None else min(hands, end))
                if over or len(self._held) >= self._hold:
                    raise
                await asyncio.sleep(0.001)
                continue
            if low.importer_arm(self._id):
                await readable(descriptor, end, lambda: not self.closed)

    def __aiter__(self) -> ChannelImporter:
        return self

    async def __anext__(self) -> Frame:
        return await self.next()

    # ---- waiting elsewhere

    def fileno(self) -> int:
        """A descriptor for poll, select and epoll: readable when there may be something to acquire.
        Call `arm` before each wait; do not read or close it."""
        self._descriptor = low.importer_descriptor(self._id)
        return self._descriptor

    def arm(self) -> bool:
        """Prepares `fileno` for one wait. False: there is something to acquire right now."""
        armed: bool = low.importer_arm(self._id)
        return armed

    # ---- the rest

    def statistics(self) -> ImporterStatistics:
        """Counters since it was opened."""
        return importer_statistics(self._id)

    @property
    def held(self) -> int:
        """Frames that this importer holds now, those that only arrays keep among them."""
        return self.statistics().held

    def close(self) -> None:
        """Ends this consumer. Frames that are held stay good until they are released. An acquire that
        waits in another thread gets ClosedError. A second close does nothing."""
        super().close()

    def _close(self, identifier: int) -> None:
        if self._descriptor >= 0:
            closing(self._descriptor)
        low.importer_close(identifier)


low.taker_offer(ChannelImporter, Frame)


def opened(
    name: str, spec: _abi.ImporterSpec, once: bool, kind: type[ChannelImporter] = ChannelImporter
) -> ChannelImporter:
    """A channel of which all but the name is in the spec. Ctrl-C ends the wait for its producer."""
    limit, spec.open_timeout = spec.open_timeout, 0
    importer = kind(name, low.importer_open(spec), spec.hold, once)
    if limit == 0:
        return importer
    try:
        importer._wait_producer(limit)
    except BaseException:
        importer.close()
        raise
    return importer


def open_importer(
    name: str,
    *,
    policy: str | None = None,
    group: str | None = None,
    hold: int = 2,
    access: str = "write",
    isolated: bool = False,
    gpu_wait: bool = False,
    once: bool = False,
    device: int | None = None,
    directory: str | os.PathLike[str] | None = None,
    timeout: float | None = 0,
    gpu_wait_limit: float = 0,
    spin: float = 0,
) -> ChannelImporter:
    """Opens a channel to take frames from it.

    name: the channel. Its producer may come later.
    policy: "latest" (the newest frame; older ones are skipped and counted), "ready_only" (the newest
    whose pixels are complete), "in_order" (the oldest that is still there), "every" (the producer waits
    for this consumer), "shared" (with group). "ready" and "order", as the program says, are taken too.
    group: frames go to exactly one member of the group of this name.
    hold: frames that will be held at the same time, 1 to 16. Two, because a loop still has the arrays of
    one frame while it asks for the next.
    access: "write" maps GPU frames writable where the producer allows it, "read" maps them read-only.
    isolated: a block of memory of its own; costs one copy per frame.
    gpu_wait: acquire leaves the wait for pixels to the stream that it names.
    once: stay with the first producer.
    device: the GPU to map for, as this process counts; None = the producer's.
    directory: where to look first; None = all the usual folders.
    timeout: seconds that the call waits for a producer; 0 = it returns at once, None = no limit.
    gpu_wait_limit: seconds until a wait that was left to a stream is given up; 0 = 2 s.
    spin: seconds that acquire looks before it sleeps.

    Errors: ValueError; with a timeout also ChannelNotFoundError (also FileNotFoundError), TimedOutError
    (also TimeoutError: there is a producer, but it does not answer), RefusedError, VersionError,
    ProtocolError.
    """
    if access not in ("read", "write"):
        raise ValueError(f'access {access!r}; it is "read" or "write"')
    hold = _arguments.whole("hold", hold, 1, _abi.MAX_HOLD)
    spec = _abi.ImporterSpec(
        name=_abi.encode(_arguments.text("name", name), "name"),
        policy=_policy(policy, group),
        group=_abi.encode(group, "group"),
        hold=hold,
        writable=access == "write",
        isolated=isolated,
        gpu_wait=gpu_wait,
        once=once,
        device=_arguments.device(device),
        directory=_abi.encode(_arguments.folder(directory), "directory"),
        open_timeout=_wait.nanoseconds(timeout),
        gpu_wait_limit=_wait.limited("gpu_wait_limit", gpu_wait_limit),
        spin=_wait.limited("spin", spin),
    )
    spec.size = _abi.size(spec)
    return opened(name, spec, once)
