# SPDX-License-Identifier: MIT
"""A queue of arrays between processes, used like multiprocessing's."""

from __future__ import annotations

import logging
import os
import threading
import time
from multiprocessing import util
from multiprocessing.reduction import DupFd
from queue import Empty, Full
from typing import Any, Callable

from ._arguments import whole
from ._errors import (
    ChannelNotFoundError,
    ClosedError,
    EndedError,
    PeerLostError,
    SystemRefusedError,
    TimedOutError,
)
from ._queue_channels import Cell, Cells, Readers
from ._queue_item import Parts, apart, together
from ._queue_table import (
    INLINE,
    SLICE,
    Bell,
    LockHeldError,
    Putting,
    Record,
    Table,
    Taking,
    make_bell,
    make_memory,
)

log = logging.getLogger("cuda_link")

_MOST_ITEMS = 2**20
_LONGEST = threading.TIMEOUT_MAX / 2  # seconds, as good as for ever
_TAKE_LIMIT = 2.0  # seconds to connect to a putter; a stopped one does not answer
_FIND_LIMIT = 10.0  # seconds that get looks again for the channel of a putter that lives
_GONE = (PeerLostError, EndedError, ChannelNotFoundError)

_lingering: set[_State] = set()  # of queues that were dropped while items of this process waited
_process = object()  # this one; a pid may come again
_beginning = threading.RLock()  # of a forked child's own part, by one of its threads


def _after_fork() -> None:
    global _process, _beginning
    _process, _beginning = object(), threading.RLock()


os.register_at_fork(after_in_child=_after_fork)


class _Descriptors:
    """Open as long as somebody has this object."""

    def __init__(self, memory: int, items: int, space: int) -> None:
        self.all = (memory, items, space)

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        for descriptor in self.all:
            close(descriptor)


class _State:
    """What one process has of a queue."""

    def __init__(self, descriptors: _Descriptors) -> None:
        self._descriptors = descriptors
        self.process = _process
        memory, items, space = descriptors.all
        self.items, self.space = Bell(items), Bell(space)
        self.table = Table(memory, self.items, self.space)
        self.cells = Cells(self.table.identity, self.table.me)
        self.readers = Readers(self.table.identity)
        self._mutex = threading.Lock()
        self._waiting: dict[int, tuple[int, list[Cell]]] = {}  # by serial number: place and channels
        self._at_exit: Any = None
        self.closed = self.may_lose = self.over = False

    @property
    def is_ours(self) -> bool:
        """False: of the process that this one was forked from."""
        return self.process is _process

    def sweep(self) -> bool:
        """Takes back the channels of items that were taken. False: there are others."""
        with self._mutex:
            taken = [n for n, (place, _) in self._waiting.items() if not self.table.is_there(place, n)]
            cells = [cell for number in taken for cell in self._waiting.pop(number)[1]]
            left = len(self._waiting)
        for cell in cells:
            self.cells.give_back(cell)
        return left == 0

    def remember(self, putting: Putting, cells: list[Cell]) -> None:
        """These channels are free again when this item was taken."""
        if cells:
            with self._mutex:
                self._waiting[putting.serial] = putting.place, cells

    def cancel(self, putting: Putting, cells: list[Cell]) -> None:
        """A put was interrupted; its item may be there already."""
        if putting.serial:
            self.remember(putting, cells)
            return
        self.table.cancel(putting)
        for cell in cells:
            self.cells.give_back(cell)

    def give_up(self, taking: Taking) -> None:
        """If an item was claimed and not taken, it is for whoever comes next."""
        record = taking.record
        if record is None or taking.over:
            return
        try:
            for place in (record.host, record.gpu):
                if place:
                    self.readers.forget(record.putter, place)
        finally:
            self.table.undo(taking)

    def park(self, error: BaseException) -> None:
        """A daemon thread that is in a call while the process ends: it ends where it is, without a word, as
        with the standard queues."""
        if self.over and isinstance(error, ClosedError) and threading.current_thread().daemon:
            threading.Event().wait()

    def finish(self) -> None:
        """The end of this process's part, by whoever comes first. Items that are in its channels go with
        it."""
        with self._mutex:
            over, self.over = self.over or not self.is_ours, True
        if over:
            return
        self.table.detach()
        if self._at_exit is not None:
            self._at_exit.cancel()  # which keeps this object
        with self._mutex:
            cells = [cell for _, some in self._waiting.values() for cell in some]
            self._waiting = {}
        for cell in cells:
            cell.close()
        self.cells.close()
        self.readers.close()

    def linger(self) -> None:
        """Until its items were taken, or the process ends."""
        self._at_exit = util.Finalize(None, _dropped, (self,), exitpriority=-5)
        _lingering.add(self)

    def wait_taken(self) -> None:
        """Until every item that this process put into channels was taken, or nobody can take it."""
        while not self.sweep() and not self.may_lose:
            self.table.recover()
            if not self.table.others():
                return
            time.sleep(0.005)


def _dropped(state: _State) -> None:
    """A queue object went, or the process ends."""
    if not state.is_ours or state.over:
        return
    if util.is_exiting():
        state.wait_taken()
        state.finish()
    elif state.sweep() or state.may_lose:
        state.finish()
    else:
        state.linger()


def _sweep_lingering() -> None:
    for state in list(_lingering):
        if not state.is_ours:
            _lingering.discard(state)
        elif state.sweep():
            _lingering.discard(state)
            state.finish()


def _deadline(block: bool, timeout: float | None) -> float | None:
    if not block:
        return 0.0
    try:
        is_limit = timeout is None or timeout >= 0
    except TypeError:
        raise TypeError(f"timeout={timeout!r}: it is a number of seconds, or None for no limit") from None
    if not is_limit:
        raise ValueError("'timeout' must be a non-negative number")
    if timeout is None or timeout > _LONGEST:
        return None
    return time.monotonic() + timeout


def _make(maxsize: int) -> list[int]:
    """The descriptors of a new queue, or none."""
    made: list[int] = []
    try:
        made.append(make_memory(maxsize))
        made.append(make_bell())
        made.append(make_bell())
    except BaseException:
        for descriptor in made:
            os.close(descriptor)
        raise
    return made


class Queue:
    """A queue between processes, in the place of multiprocessing's and torch.multiprocessing's:

        queue = cuda_link.Queue(maxsize=4)
        multiprocessing.get_context("spawn").Process(target=work, args=(queue,)).start()
        queue.put({"picture": array, "depth": tensor})

    Any number of threads, and up to 64 processes, put and get; each item goes to exactly one of them, the
    oldest first. Arrays (NumPy, torch, CuPy, JAX; on the CPU or a GPU), wherever they are in the item,
    are copied into shared memory by put and into memory of the getter's own by get: what get returns is
    writable and stays. The rest of the item is pickled.

    maxsize: items that may wait, 2**20 at most; 0 = 1024. Each needs memory of its own, three times its size.

    A queue can be passed to other processes in whatever way multiprocessing pickles; to forked ones only
    if this process has used no channel yet (then they get ForkedError).

    Items wait in memory of the process that put them (small ones without arrays do not): at its end that
    process waits until they were taken, unless cancel_join_thread was called. So get before you join.
    When a process is killed, its items are lost, and one get raises PeerLostError, once, and goes on with
    the others' at the next call; what it was taking goes to another getter.
    """

    def __init__(self, maxsize: int = 0) -> None:
        size = whole("maxsize", maxsize)
        if size > _MOST_ITEMS:
            raise ValueError(f"maxsize={size}: a queue has room for {_MOST_ITEMS} items at most")
        _sweep_lingering()
        self._own(_Descriptors(*_make(size)))

    def _own(self, descriptors: _Descriptors) -> None:
        self._descriptors = descriptors
        self._begin()
        util.register_after_fork(self, Queue._watch_again)

    def _begin(self) -> None:
        self._state = _State(self._descriptors)
        self._watch()

    def _watch(self) -> None:
        """What the end of this queue, or of the process, does."""
        util.Finalize(self, _dropped, (self._state,), exitpriority=-5)

    def _watch_again(self) -> None:
        """Python 3.9 forgets what a spawned process has asked for while it was handed its arguments."""
        if self._state.is_ours:
            self._watch()

    def _here(self) -> _State:
        """This process's part; a forked child begins one of its own."""
        if not self._state.is_ours:
            with _beginning:
                if not self._state.is_ours:
                    self._begin()
        return self._state

    def __reduce__(self) -> tuple[Callable[..., Queue], tuple[Any, ...]]:
        return _rebuild, tuple(DupFd(descriptor) for descriptor in self._descriptors.all)

    # ---- put

    def put(self, obj: Any, block: bool = True, timeout: float | None = None) -> None:
        """Puts an item. What it consists of may be changed at once.

        block, timeout: wait for room, at most so many seconds; None = no limit.

        Errors: queue.Full; ValueError (the queue was closed here); BufferError, TypeError, ValueError
        (tensors that can't be sent: say what to do); those of pickle; ForkedError.
        """
        state = self._here()
        parts = apart(obj)
        deadline = _deadline(block, timeout)
        putting = Putting()
        cells: list[Cell] = []
        try:
            self._reserve(state, putting, deadline)
            host, gpu, rest = self._publish(state, parts, cells)
            state.table.commit(putting, host, gpu, rest, deadline)
            state.remember(putting, cells)
        except BaseException as error:
            state.cancel(putting, cells)
            if isinstance(error, LockHeldError):
                raise Full from None
            state.park(error)
            raise

    @staticmethod
    def _reserve(state: _State, putting: Putting, deadline: float | None) -> None:
        state.table.will_put()
        while True:
            if state.closed:
                raise ValueError("this queue was closed for putting by this process")
            state.sweep()
            if state.table.reserve(putting, deadline):
                return
            left = SLICE if deadline is None else min(SLICE, deadline - time.monotonic())
            if left <= 0:
                raise Full
            state.space.wait(left)
            state.table.recover(deadline)

    @staticmethod
    def _publish(state: _State, parts: Parts, cells: list[Cell]) -> tuple[int, int, bytes | None]:
        rest: bytes | None = parts.rest
        host, gpu = 0, 0
        arrays = parts.host
        if len(parts.rest) > INLINE:
            arrays, rest = [*arrays, parts.rest], None
        if arrays:
            nbytes = sum(getattr(array, "nbytes", 0) or len(array) for array in arrays)
            cells.append(state.cells.take("host", 0, nbytes))
            host = cells[-1].put(_frame_of(arrays))
        if parts.gpu:
            nbytes = sum(tensor.nbytes for tensor in parts.gpu)
            cells.append(state.cells.take(f"gpu{parts.device}", parts.device, nbytes))
            gpu = cells[-1].put(_frame_of(parts.gpu))
        return host, gpu, rest

    def put_nowait(self, obj: Any) -> None:
        """put without waiting for room. Errors: queue.Full, and as put."""
        self.put(obj, False)

    # ---- get

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Takes the oldest item.

        block, timeout: wait for one, at most so many seconds; None = no limit.

        Errors: queue.Empty; PeerLostError (a process was killed and its items are lost, or nobody is left
        who could put; each told once); ChannelNotFoundError (an item's putter is there, but has another
        CUDALINK_RUNTIME_DIR; told after some seconds, the item stays); those of pickle; ImportError (a
        framework that is not here).
        """
        state = self._here()
        deadline = _deadline(block, timeout)
        told = state.table.told  # before: another thread's get does not tell in place of this one
        avoid: set[int] = set()
        missing: float | None = None  # since when
        while True:
            taking = Taking()
            try:
                self._tell_lost(state, deadline)
                if state.table.claim(taking, deadline, avoid) is None:
                    self._wait(state, deadline, told)
                    avoid.clear()
                    continue
                done, item = self._take(state, taking, deadline)
            except ChannelNotFoundError as error:
                missing = self._not_found(error, deadline, missing)
                done = False
            except BaseException as error:
                state.give_up(taking)
                if isinstance(error, LockHeldError):
                    raise Empty from None
                state.park(error)
                raise
            if done:
                return item
            if taking.record is not None:
                avoid.add(taking.record.putter)

    @staticmethod
    def _tell_lost(state: _State, deadline: float | None) -> None:
        lost, who = state.table.lost(deadline)
        if lost:
            state.items.ring()  # whoever sleeps while this getter has a story to tell
            whose = f"process {who}, which died" if who else "the processes that put them"
            raise PeerLostError(
                f"{lost} item{'s' * (lost > 1)} of this queue went with {whose}; the others' are still "
                "there: get again"
            )

    @staticmethod
    def _wait(state: _State, deadline: float | None, told: tuple[int, int]) -> None:
        left = SLICE if deadline is None else min(SLICE, deadline - time.monotonic())
        if left > 0:
            state.items.wait(left)
            state.items.take(4096)
        who = state.table.widowed(state.table.recover(deadline), told)
        if who:
            raise PeerLostError(
                f"process {who} died, and no other process is there that has put into this queue; a new "
                "one may come: get again to wait for it"
            )
        if left <= 0 and not state.table.queued():
            raise Empty

    @staticmethod
    def _take(state: _State, taking: Taking, deadline: float | None) -> tuple[bool, Any]:
        """The item of a claimed record. False: not now."""
        record = taking.record
        assert record is not None
        try:
            if record.in_channels and not state.table.is_alive(record.putter):
                raise PeerLostError
            item = _item(state, record, _TAKE_LIMIT)
        except TimedOutError:
            return Queue._later(state, taking, deadline)
        except SystemRefusedError:  # no descriptor left, say: it stays for whoever comes next
            raise
        except _GONE as error:
            if isinstance(error, ChannelNotFoundError) and state.table.is_alive(record.putter):
                state.give_up(taking)
                raise
            state.table.lose(taking)
            return False, None  # and the next look tells
        except Exception:  # it can't be made here: as with multiprocessing, it is taken
            state.table.done(taking)
            raise
        state.table.done(taking)
        return True, item

    @staticmethod
    def _later(state: _State, taking: Taking, deadline: float | None) -> tuple[bool, Any]:
        """The putter does not answer now: its item stays where it was. Errors: queue.Empty."""
        state.give_up(taking)
        if deadline is not None and time.monotonic() > deadline:
            raise Empty from None
        return False, None

    @staticmethod
    def _not_found(error: Exception, deadline: float | None, since: float | None) -> float:
        """The putter of an item lives, but its channel is in no folder where this process looks; its item
        stays where it was. Returns since when. Errors: queue.Empty; ChannelNotFoundError."""
        log.info("%s", error)
        now = time.monotonic()
        if deadline is not None and now > deadline:
            raise Empty from None
        since = now if since is None else since
        if now - since < _FIND_LIMIT:
            return since
        raise ChannelNotFoundError(
            "the process that put an item is there, but its channels are in no folder where this one looks; "
            "give both the same CUDALINK_RUNTIME_DIR. The item stays in the queue"
        ) from error

    def get_nowait(self) -> Any:
        """get without waiting for an item. Errors: queue.Empty, and as get."""
        return self.get(False)

    # ---- what is in it

    def qsize(self) -> int:
        """Items that wait, at this moment."""
        return self._here().table.queued()

    def empty(self) -> bool:
        """Is there none, at this moment?"""
        return self.qsize() == 0

    def full(self) -> bool:
        """Would a put wait, at this moment?"""
        return self._here().table.is_full()

    # ---- the end

    def close(self) -> None:
        """This process puts nothing more; items that it has put can still be taken, as long as it lives.
        get goes on. A second close does nothing."""
        state = self._here()
        state.closed = True
        state.sweep()
        state.cells.close()
        state.space.ring()

    def join_thread(self) -> None:
        """Waits until all that this process has put was taken, or until no other process has the queue.
        The end of the process does it too."""
        self._here().wait_taken()

    def cancel_join_thread(self) -> None:
        """The end of this process does not wait for anybody: its items that were not taken are lost."""
        self._here().may_lose = True

    def __repr__(self) -> str:
        return f"<cuda_link.Queue with {self.qsize()} items>"


def _frame_of(arrays: list[Any]) -> Any:
    return arrays[0] if len(arrays) == 1 else {str(i): array for i, array in enumerate(arrays)}


def _item(state: _State, record: Record, seconds: float) -> Any:
    copy = None
    if record.host:
        with state.readers.frame(record.putter, record.host, seconds) as host:
            copy = host.copy()
    rest = record.rest
    if rest is None:
        assert copy is not None
        rest = bytes(copy.buffer(len(copy.planes) - 1))
    if not record.gpu:
        return together(rest, copy, None)
    with state.readers.frame(record.putter, record.gpu, seconds) as gpu:
        return together(rest, copy, gpu)


def _rebuild(*handles: Any) -> Queue:
    queue = Queue.__new__(Queue)
    queue._own(_Descriptors(*(handle.detach() for handle in handles)))
    return queue
