# SPDX-License-Identifier: MIT
"""The producer's end of a channel."""

from __future__ import annotations

import os
from collections.abc import Iterable
from ctypes import addressof
from typing import Any

from . import _abi, _arguments, _description, _streams, _wait
from ._array import Array
from ._backend import low
from ._description import NO_STAMP, Stamp
from ._device_source import DeviceSource
from ._end import End
from ._errors import BusyError
from ._oddities import detached
from ._picture import Picture, PictureFields
from ._plan import Plan, Planner
from ._slot import LentSlot
from ._statistics import ExporterStatistics, exporter_statistics

KINDS = {"auto": 0, "host": 1, "vmm": 2, "ipc": 3}


class ChannelExporter(End):
    """Publishes the frames of one channel. Made by `open_exporter`.

    All methods may be called from any thread; one frame is begun at a time.
    """

    def __init__(self, name: str, identifier: int, description: _abi.Description) -> None:
        super().__init__(name, identifier)
        self._description = description
        self._planner = Planner(description, lambda: _streams.Stream(*low.exporter_stream(identifier)))
        self._misses = 0
        self._for_good: list[Any] = []
        self._on_host = self.statistics().kind == "host"
        self._sender = low.sender(identifier)
        self._send_as_before = self._sender.send

    # ---- frames

    def send(
        self,
        data: Any,
        stream: Any = None,
        *,
        timeout: float | None = 0,
        pts: int | None = None,
        duration: int | None = None,
        time_base: Any = None,
        rate: Any = None,
        clock: str | None = None,
        picture: PictureFields | Picture | None = None,
        user: Any = None,
        detach: bool = False,
    ) -> bool:
        """Publishes a frame with one copy of `data`; with none if it is one dense array that lies in a memory
        pool (`cuda_link.torch.torch_mempool`), which then must not be written to any more.

        data: an array (NumPy, torch, CuPy, JAX, anything with the buffer protocol, `__dlpack__`,
        `__cuda_array_interface__` or `__array_interface__`), a DLPack capsule, or a dict of arrays by plane
        name. A new shape or type changes the channel on the fly; a channel that was
        opened with a picture format takes pictures of that format only, of any size.
        stream: after what `data` is complete; None = the array's own ordering.
        timeout: seconds to wait for a free slot; 0 = none, None = no limit.
        pts, duration: when to show it and for how long, in units of time_base; not said = 0.
        time_base, rate, clock, picture: as in `open_exporter`, of this frame; None, and fields of a picture
        that are left out: as there. Other ones than the frame before had take no new memory.
        user: bytes (or any buffer) that travel with the frame, at most user_size of `open_exporter`.
        detach: send tensors that require grad without their history; else they are refused.

        Returns True; False when nothing was free in time (counted in statistics().dropped).
        Errors: TypeError, ValueError, BufferError (data that can't be sent), ClosedError, NoSpaceError.
        """
        data = detached(data) if detach else data
        after = None if stream is None else _streams.resolve(stream)
        if timeout != 0 or not (pts is duration is time_base is picture is rate is clock is user is None):
            stamp = Stamp(picture, pts, duration, time_base, rate, clock)
            return self._send(self._planner.plan(data, after), after, timeout, stamp, user)
        sent: bool | None = self._send_as_before(data, after)
        if sent is None:
            plan = self._planner.plan(data, after)
            sent = self._send(plan, after, timeout)
            if plan.device:
                self._learn(data, plan)
        return sent

    def _learn(self, data: Any, plan: Plan) -> None:
        """The next ones will mostly be like this one."""
        table = vars(type(data)).get("__dlpack_c_exchange_api__")  # as in of_dlpack
        part, *others = plan.device
        if table is None or others or part.strides or not part.address or not isinstance(part.owner, Array):
            return
        if part.owner._dtype == part.dtype:  # torch's bool went as bytes
            self._sender.learn(type(data), table, part.owner, plan.description)

    def _send(
        self,
        plan: Plan,
        after: _streams.Stream | None,
        timeout: float | None,
        stamp: Stamp = NO_STAMP,
        user: Any = None,
    ) -> bool:
        own_data = None if user is None else _user_bytes(user)
        description = _description.stamped(plan.description, stamp, len(own_data or b""))
        limit = _wait.nanoseconds(timeout)
        try:
            if plan.device:
                self._send_device(plan.device, description, own_data, limit)
            elif plan.dense is not None:
                self._send_dense(plan.dense, description, own_data, after or _streams.COMPLETE, limit)
            else:
                self._send_parts(plan, description, own_data, limit)
        except BusyError:
            return False
        return True

    def _send_dense(
        self,
        data: Any,
        description: _abi.Description,
        user: bytes | None,
        after: _streams.Stream,
        limit: int,
    ) -> None:
        def call(ns: int) -> None:
            low.exporter_send_buffer(self._id, description, data, user, after.kind, after.handle, ns)

        self._retry(call, limit)

    def _send_device(
        self, parts: tuple[DeviceSource, ...], description: _abi.Description, user: bytes | None, limit: int
    ) -> None:
        if self._on_host:
            raise BufferError(
                f"channel {self.name!r} is in memory of the CPU and this array is on a GPU: send a copy on "
                'the CPU, or open the channel with kind="vmm"'
            )
        after = parts[0].stream or _streams.LEGACY
        identifier = self._id  # one for both: another thread may close meanwhile
        try:
            shared = self._send_sources(identifier, parts, description, user, after, limit)
        except BusyError:
            raise
        except BaseException:
            self._keep(identifier, parts, after)  # its copy may have been queued
            raise
        if not shared and not self._keep(identifier, parts, after):
            self._for_good.append(parts)  # nobody says for how long: until this object goes

    @staticmethod
    def _keep(identifier: int, parts: tuple[DeviceSource, ...], after: _streams.Stream) -> bool:
        """Keeps what copies read until they have run."""
        kept = True
        if after != _streams.COMPLETE:
            for part in parts:
                if part.owner is not None:
                    kept &= low.exporter_keep(identifier, part.owner)
        return kept

    def _send_sources(
        self,
        identifier: int,
        parts: tuple[DeviceSource, ...],
        description: _abi.Description,
        user: bytes | None,
        after: _streams.Stream,
        limit: int,
    ) -> bool:
        """True: it lies in a memory pool, is published there, and kept as long as anybody reads it."""
        kind, handle = after
        dense, array = len(parts) == 1 and not parts[0].strides, parts[0].owner
        shared = False

        def call(ns: int) -> None:
            low.exporter_send_planes(identifier, description, sources, user, kind, handle, ns)

        def call_dense(ns: int) -> None:
            low.exporter_send(identifier, description, parts[0].address, user, kind, handle, ns)

        def call_array(ns: int) -> None:
            nonlocal shared
            shared = low.exporter_send_array(identifier, description, array, user, kind, handle, ns)

        if dense:
            self._retry(call_array if isinstance(array, Array) else call_dense, limit)
            return shared
        sources = (_abi.Source * len(parts))()
        for place, part in zip(sources, parts):
            place.data = part.address
            if part.strides:
                place.strides[: len(part.strides)] = part.strides
        self._retry(call, limit)
        return False

    def _send_parts(self, plan: Plan, description: _abi.Description, user: bytes | None, limit: int) -> None:
        """Arrays that do not lie as the frame will."""
        if not self._on_host:
            self._send_dense(plan.gathered(), description, user, _streams.COMPLETE, limit)
            return
        with LentSlot(self, description, None, limit) as slot:
            kept = slot._keep()  # another thread may close meanwhile
            plan.copy_to(slot.address)
            del kept
            if user:
                slot.user[:] = user

    def _retry(self, call: Any, limit: int) -> None:
        """A long wait is cut into slices; the library counts each that fails as a drop, we want one."""
        if limit <= _wait.SLICE:
            call(limit)
            return
        tries = 0

        def counted(ns: int) -> None:
            nonlocal tries
            tries += 1
            call(ns)

        try:
            _wait.wait(counted, limit, again=BusyError)
        finally:
            self._misses += max(tries - 1, 0)

    def frame(
        self,
        *,
        shape: Any = None,
        dtype: Any = None,
        format: str | None = None,
        planes: dict[str, Any] | None = None,
        stream: Any = None,
        timeout: float | None = 0,
        pts: int | None = None,
        duration: int | None = None,
        time_base: Any = None,
        rate: Any = None,
        clock: str | None = None,
        picture: PictureFields | Picture | None = None,
        user_size: int = 0,
    ) -> LentSlot:
        """Lends the next slot, to be written in place with no copy:

            with exporter.frame() as slot:
                slot.numpy()[:] = 7

        shape, dtype, format, planes: as in `open_exporter`; none of them = as there.
        stream: after what the pixels will be complete; None = when the block ends.
        timeout, pts, duration, time_base, rate, clock, picture: as in `send`.
        user_size: bytes of `slot.user`.

        Errors: TypeError, ValueError. At the begin of the with-block: BusyError (every slot is held; counted
        as dropped), ClosedError, NoSpaceError, ValueError.
        """
        description = self._description
        if not (shape is None and dtype is None and format is None and planes is None):
            description = _description.make(shape, dtype, format, planes)
            _description.as_opened(description, self._description)
        if user_size != 0 or not (pts is duration is time_base is picture is rate is clock is None):
            size = _arguments.whole("user_size", user_size, 0, _abi.MAX_USER_SIZE)
            stamp = Stamp(picture, pts, duration, time_base, rate, clock)
            description = _description.stamped(description, stamp, size)
        return LentSlot(self, description, stream, _wait.nanoseconds(timeout))

    # ---- consumers

    def wait_consumers(self, count: int = 1, timeout: float | None = None) -> None:
        """Waits until so many consumers are connected. Errors: TimedOutError, ClosedError."""
        number = _arguments.whole("count", count)
        if not 0 <= number < 2**32:
            raise ValueError(f"count={count}: a channel has 0 to 64 consumers")
        _wait.wait(lambda ns: low.exporter_wait_consumers(self._id, number, ns), _wait.nanoseconds(timeout))

    def wait_taken(self, timeout: float | None = None) -> None:
        """Waits until consumers that want every frame, and groups, have taken all that was published:
        before a close that must lose nothing. Errors: TimedOutError, ClosedError."""
        _wait.wait(lambda ns: low.exporter_wait_taken(self._id, ns), _wait.nanoseconds(timeout))

    # ---- the rest

    def statistics(self) -> ExporterStatistics:
        """Counters since it was opened."""
        counters = exporter_statistics(self._id)
        return counters._replace(dropped=counters.dropped - self._misses)

    def close(self) -> None:
        """Ends the channel. Frames that consumers hold stay whole until they let go; nobody is waited
        for. A second close does nothing."""
        super().close()

    def _close(self, identifier: int) -> None:
        low.exporter_close(identifier)


def _user_bytes(user: Any) -> bytes:
    try:
        return bytes(memoryview(user))
    except TypeError:
        raise TypeError(f"user={user!r}: it is bytes, or another buffer") from None


def open_exporter(
    name: str,
    *,
    shape: Any = None,
    dtype: Any = None,
    format: str | None = None,
    planes: dict[str, Any] | None = None,
    picture: PictureFields | Picture | None = None,
    time_base: Any = None,
    rate: Any = None,
    clock: str | None = None,
    kind: str = "auto",
    slots: int = 0,
    max_slots: int = 0,
    user_size: int = 0,
    device: int | None = None,
    directory: str | os.PathLike[str] | None = None,
    hold_limit: float | None = 0,
    zombie_limit: int = 0,
    read_only: bool = False,
    allowed_users: Iterable[int] = (),
) -> ChannelExporter:
    """Opens a channel and becomes its producer.

    name: 1 to 200 bytes of UTF-8.
    shape, dtype: what a usual frame looks like: one tensor (dtype by name or as an object of NumPy or
    torch, "uint8" when left out). Larger and other frames may come later.
    format: instead of dtype, a picture format ("RGBA8", "NV12", ...) with shape=(height, width).
    planes: instead of both, {name: (shape, dtype)}: up to 16 tensors.
    picture: with a format, what the numbers mean: {"range": "full", "primaries": "bt709"}, fields and words
    as in `PictureFields`, or all that another one's `frame.picture` says (its size does not matter). What is
    left out is not said, and pictures are progressive with the top row first.
    time_base: the unit of pts and duration: seconds, a Fraction (or what makes one: "1/25").
    rate: frames per second, a Fraction.
    clock: the name of the clock that pts is of, at most 15 bytes of UTF-8. None: not said; so the others.
    kind: "auto" (a GPU where there is one, else host; statistics().reason says why), "host", "vmm",
    "ipc".
    slots, max_slots: frames in the ring to begin with, and at most; 0 = 4 and 16.
    user_size: bytes of user data that may travel with each frame.
    device: GPU, as this process counts; None = the first. With one named, "auto" never falls back to host.
    directory: folder of the channel's socket; None = the usual one.
    hold_limit: seconds that a consumer may sit on frames while no slot is free, before they are taken
    back; 0 = 2 s, None = never.
    zombie_limit: bytes of taken-back memory that may wait for its holder; 0 = as much as one ring.
    read_only: nobody maps this channel's GPU memory writable.
    allowed_users: uids that may connect, beside this user.

    Errors: NameInUseError (says by which program), ValueError, NoSpaceError, RefusedError,
    UnsupportedError and GpuError (GPU kinds), ForkedError.
    """
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(f"kind {kind!r}; it is one of {', '.join(KINDS)}")
    description = _description.make(shape, dtype, format, planes)
    Stamp(picture, time_base=time_base, rate=rate, clock=clock).put(description)
    if isinstance(allowed_users, (str, bytes)):
        raise TypeError(f"allowed_users={allowed_users!r}; it is a list of uids")
    try:
        users = [_arguments.whole("a uid of allowed_users", user) for user in allowed_users]
    except TypeError:
        raise TypeError(f"allowed_users={allowed_users!r}; it is a list of uids") from None
    if len(users) > 16:
        raise ValueError(f"{len(users)} allowed users; there may be 16")
    if not all(0 <= user < 2**32 for user in users):
        raise ValueError(f"allowed_users={users}; a uid has 32 bits")
    spec = _abi.ExporterSpec(
        name=_abi.encode(_arguments.text("name", name), "name"),
        description=addressof(description),
        plane_count=description.plane_count,
        user_size=_arguments.whole("user_size", user_size),
        slots=_arguments.whole("slots", slots),
        max_slots=_arguments.whole("max_slots", max_slots),
        kind=KINDS[kind],
        device=_arguments.device(device),
        directory=_abi.encode(_arguments.folder(directory), "directory"),
        hold_limit=_wait.nanoseconds(hold_limit, "hold_limit"),
        zombie_limit=_arguments.whole("zombie_limit", zombie_limit),
        refuse_writers=read_only,
        allowed_user_count=len(users),
    )
    spec.allowed_users[: len(users)] = users
    spec.size = _abi.size(spec)
    return ChannelExporter(name, low.exporter_open(spec), description)
