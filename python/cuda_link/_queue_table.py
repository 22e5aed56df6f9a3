# SPDX-License-Identifier: MIT
"""What the processes of one queue share: a table of items in a memfd, and two bells.

Every change of state is one store of 8 bytes, the last of what it publishes, under a lock that the kernel
gives back when its holder dies. So a process may be killed at any instruction: the next one that looks
finds the table whole and puts right what the dead one had begun.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import select
import struct
import threading
import time
import weakref
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from ._errors import ClosedError

MEMBERS = 64  # processes at the same time; as many consumers as a channel may have
UNLIMITED = 1024  # items of a queue without maxsize
INLINE = 960  # bytes of an item's rest that lie in the table itself
IN_FRAME = 0xFFFFFFFF  # its rest is the last plane of its frame of kind host
SLICE = 0.1  # seconds between two looks for dead processes, for whoever waits
_GOODBYE_LIMIT = 2.0  # seconds that the end of a process waits for the lock

# Words of the items. The oldest queued one is the smallest word.
_RESERVED = 1 << 62
_CLAIMED = 1 << 63
_FREE = (1 << 64) - 1

_HEADER, _MEMBER, _RECORD = 128, 32, 1024
_WORDS = _HEADER + MEMBERS * _MEMBER
_FIELDS = struct.Struct("=QQQQI")  # putter, claimer, 2 x channel number + 1, size of the rest
_LIVE = 1024  # the byte that member i locks for its life is _LIVE + i

# Header and members, as 64-bit words.
_ITEMS, _LIMIT, _IDENTITY, _SERIAL, _INCARNATION, _CRASHES, _PUTTER_CRASHES, _LOST, _DEAD = range(9)
_DEAD_MEMBER, _LOST_WITH = 9, 10

_OVER = "this process is at its end, and has said goodbye to the other processes of this queue"
_Deaths = tuple[int, int]  # all, and those of processes that have put


class Record(NamedTuple):
    """One item, claimed or about to be put."""

    place: int
    """In the table."""
    serial: int
    putter: int
    host: int
    """Number + 1 of the channel with its arrays in memory of the CPU; 0 = none."""
    gpu: int
    """Likewise in memory of a GPU."""
    rest: bytes | None
    """The pickle; None: it is in the host frame."""

    @property
    def in_channels(self) -> bool:
        """Does it need its putter to live?"""
        return self.host != 0 or self.gpu != 0


class LockHeldError(Exception):
    """A process that was stopped has the table's lock, and the time is over."""


class Putting:
    """An item on its way in, as far as it has come: whoever is interrupted finds here what to undo."""

    place = -1
    """In the table, once it is reserved."""
    serial = 0
    """Once it is there for others."""


class Taking:
    """An item on its way out, likewise."""

    record: Record | None = None
    """Once it is claimed."""
    over = False
    """It is not claimed any more."""


class Bell:
    """A pipe whose bytes are hints that something changed; everybody has both ends in one descriptor."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def ring(self) -> None:
        """Wakes somebody; a full pipe wakes them anyway."""
        try:
            os.write(self.descriptor, b"\0")
        except BlockingIOError:
            pass

    def take(self, most: int = 1) -> bool:
        """Takes hints away; False: there was none. Before a look, and never behind it: what such a hint is
        about the look may have missed, and whoever sleeps would sleep on."""
        try:
            return bool(os.read(self.descriptor, most))
        except BlockingIOError:
            return False

    def wait(self, seconds: float) -> None:
        """Until it was rung."""
        poll = select.poll()
        poll.register(self.descriptor, select.POLLIN)
        poll.poll(max(0, seconds * 1000))


def make_bell() -> int:
    """The descriptor of a new bell."""
    read, write = os.pipe()
    try:
        return os.open(f"/proc/self/fd/{read}", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    finally:
        os.close(read)
        os.close(write)


def make_memory(maxsize: int) -> int:
    """The memfd of a new table."""
    limit = maxsize if maxsize > 0 else UNLIMITED
    items = limit + MEMBERS  # claimed ones do not count
    descriptor = os.memfd_create("cuda_link.Queue", os.MFD_CLOEXEC)
    try:
        os.ftruncate(descriptor, _WORDS + items * (8 + _RECORD))
        identity = int.from_bytes(os.urandom(8), "little")
        os.pwrite(descriptor, struct.pack("=QQQ", items, limit, identity), 0)
        os.pwrite(descriptor, b"\xff" * (items * 8), _WORDS)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


_tables: weakref.WeakSet[Table] = weakref.WeakSet()


def _after_fork() -> None:
    """The child must not share its parent's locks: they would outlive the parent."""
    for table in list(_tables):
        table.abandon()


os.register_at_fork(after_in_child=_after_fork)


class Table:
    """The table, as one process uses it."""

    def __init__(self, descriptor: int, items: Bell, space: Bell) -> None:
        # A description of our own: its locks are this process's, whoever else has the descriptor.
        self._locks = os.open(f"/proc/self/fd/{descriptor}", os.O_RDWR | os.O_CLOEXEC)
        _tables.add(self)
        self._memory = mmap.mmap(descriptor, 0)  # which keeps a duplicate: not of the description with locks
        head = struct.unpack_from("=QQQ", self._memory)
        self._count, self.limit, self.identity = int(head[0]), int(head[1]), int(head[2])
        whole = memoryview(self._memory)
        self._head = whole[:_WORDS].cast("Q")
        self._words = whole[_WORDS : _WORDS + 8 * self._count].cast("Q")
        self._records = whole[_WORDS + 8 * self._count :]
        self._items, self._space = items, space
        self._mutex = threading.RLock()  # knows its owner, also behind an interrupt
        self._ending = threading.Lock()  # between what this process ends alone, and its goodbye
        self._gone = False
        self.me = 0
        try:
            self._attach()
        except BaseException:
            if self.me and self._head[self._member(self.me % MEMBERS)] == self.me:
                self._head[self._member(self.me % MEMBERS)] = 0  # else it would be one that died
            self.abandon()
            raise
        self.told = self._deaths()
        """Deaths that some get of this process has told."""

    # ---- locks

    def _lock_byte(self, byte: int, kind: int) -> bool:
        try:
            fcntl.fcntl(self._locks, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", kind, 0, byte, 1, 0))
        except (BlockingIOError, PermissionError):
            return False
        return True

    def _is_locked(self, byte: int) -> bool:
        if self._gone:
            raise ClosedError(_OVER)
        asked = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, byte, 1, 0)
        answer = fcntl.fcntl(self._locks, fcntl.F_OFD_GETLK, asked)
        return bool(struct.unpack("hhqqi4x", answer)[0] != fcntl.F_UNLCK)

    @contextmanager
    def _locked(self, deadline: float | None = None) -> Iterator[None]:
        """Held for some microseconds, by a process that was stopped in them for longer. Errors:
        LockHeldError; ClosedError."""
        if self._is_mine():
            raise RuntimeError(
                "a signal came in the middle of a call of this queue, and its handler calls it"
            )
        try:
            self._lock(deadline)
            yield
        finally:
            try:
                self._unlock()
            except BaseException:  # an interrupt; the others wait for this lock
                self._unlock()
                raise

    def _is_mine(self) -> bool:
        owned: bool = self._mutex._is_owned()  # type: ignore[attr-defined]
        return owned

    def _lock(self, deadline: float | None) -> None:
        left = -1 if deadline is None else max(deadline - time.monotonic(), 0.01)
        if not self._mutex.acquire(timeout=left):
            raise LockHeldError
        nap = 1e-5
        while not self._gone and not self._lock_byte(0, fcntl.F_WRLCK):
            if deadline is not None and nap > 0.001 and time.monotonic() > deadline:
                raise LockHeldError
            time.sleep(nap)
            nap = min(nap * 1.5, 0.002)
        if self._gone:
            raise ClosedError(_OVER)

    def _unlock(self) -> None:
        if self._is_mine():
            if self._locks >= 0:
                self._lock_byte(0, fcntl.F_UNLCK)
            self._mutex.release()

    # ---- members

    def _member(self, index: int) -> int:
        return (_HEADER + index * _MEMBER) // 8

    def _attach(self) -> None:
        with self._locked():
            if all(self._head[self._member(i)] for i in range(MEMBERS)):
                self._recover()
            for i in range(MEMBERS):
                place = self._member(i)
                if self._head[place] or not self._lock_byte(_LIVE + i, fcntl.F_WRLCK):
                    continue
                self._head[_INCARNATION] += 1
                self._head[place + 1] = os.getpid()
                self._head[place + 2] = 0
                self.me = self._head[_INCARNATION] * MEMBERS + i
                self._head[place] = self.me
                return
        raise ValueError(f"{MEMBERS} processes use this queue already; so many may")

    def detach(self) -> None:
        """Says goodbye. Items of this process that are in its channels are given up. Behind a process that is
        stopped with the lock nothing is said after a while: the others find what one leaves that died."""
        with suppress(LockHeldError), self._locked(time.monotonic() + _GOODBYE_LIMIT), self._ending:
            self._gone = True
            self._requeue_claims_of(self.me)
            self._drop_items_of(self.me)
            self._head[self._member(self.me % MEMBERS)] = 0
            self._lock_byte(_LIVE + self.me % MEMBERS, fcntl.F_UNLCK)  # here: the place may be the last one
        self.abandon()
        self._space.ring()

    def abandon(self) -> None:
        """Lets go of locks and descriptor without a word."""
        self._gone = True
        descriptor, self._locks = self._locks, -1
        if descriptor >= 0:
            os.close(descriptor)

    def will_put(self) -> None:
        """From now on its death matters to getters."""
        with self._ending:
            if not self._gone:
                self._head[self._member(self.me % MEMBERS) + 2] = 1

    def is_alive(self, who: int) -> bool:
        """Is this member still there?"""
        here = self._head[self._member(who % MEMBERS)] == who
        return here and (who == self.me or self._is_locked(_LIVE + who % MEMBERS))

    def others(self, putters: bool = False) -> bool:
        """Has another living process this queue (and put into it)?"""
        for i in range(MEMBERS):
            place = self._member(i)
            who = self._head[place]
            if who and who != self.me and (not putters or self._head[place + 2]):
                if self._is_locked(_LIVE + i):
                    return True
        return False

    # ---- the dead

    def recover(self, deadline: float | None = None) -> _Deaths:
        """Looks for members that died, and puts right what they left. Returns how many died so far. Errors:
        LockHeldError."""
        with self._locked(deadline):
            self._recover()
            return self._deaths()

    def _deaths(self) -> _Deaths:
        return self._head[_CRASHES], self._head[_PUTTER_CRASHES]

    def _recover(self) -> None:
        for i in range(MEMBERS):
            who = self._head[self._member(i)]
            if who and who != self.me and not self._is_locked(_LIVE + i):
                self._bury(i, who)

    def _bury(self, index: int, who: int) -> None:
        self._requeue_claims_of(who)
        place = self._member(index)
        self._head[_DEAD], self._head[_DEAD_MEMBER] = self._head[place + 1], who
        self._add_lost(self._drop_items_of(who), who)
        self._head[_CRASHES] += 1
        self._head[_PUTTER_CRASHES] += self._head[place + 2]
        self._head[place] = 0
        self._items.ring()
        self._space.ring()

    def _requeue_claims_of(self, who: int) -> None:
        for i, word in enumerate(self._words):
            if _CLAIMED <= word < _FREE and self._fields(i)[1] == who:
                self._words[i] = word - _CLAIMED

    def _drop_items_of(self, who: int) -> int:
        """Reserved ones, and those whose pixels go with their putter."""
        lost = 0
        for i, word in enumerate(self._words):
            if word >= _CLAIMED or self._fields(i)[0] != who:
                continue
            if word == _RESERVED or self._record(i).in_channels:
                self._words[i] = _FREE
                lost += word != _RESERVED
        return lost

    def _add_lost(self, count: int, who: int) -> None:
        """Items that went with a member; its pid is known when it was the last one that died."""
        if not count:
            return
        pid = self._head[_DEAD] if self._head[_DEAD_MEMBER] == who else 0
        others = self._head[_LOST] and self._head[_LOST_WITH] != pid
        self._head[_LOST_WITH] = 0 if others else pid
        self._head[_LOST] += count

    def lost(self, deadline: float | None = None) -> tuple[int, int]:
        """Items that went with their putters, and the pid if it was one, and died; told once to one getter.
        Errors: LockHeldError."""
        if not self._head[_LOST]:
            return 0, 0
        with self._locked(deadline):
            found, self._head[_LOST] = self._head[_LOST], 0
            return found, self._head[_LOST_WITH]

    def widowed(self, deaths: _Deaths, told: _Deaths) -> int:
        """The pid of a process that died, when nothing waits and nobody is left who may put. deaths: as
        recover says; told: those of which this getter knows. As long as somebody is left, or something
        waits, they stay to be told."""
        if deaths == told or self.queued():
            return 0
        putter_died = deaths[1] > told[1]  # else whoever is there may put, who never did too
        alone = not self._head[self._member(self.me % MEMBERS) + 2] and not self.others(putters=putter_died)
        if not alone or self.queued():  # of one that left since the first look: it comes first
            return 0
        self.told = deaths
        return self._head[_DEAD]

    # ---- items

    def _fields(self, index: int) -> tuple[int, ...]:
        return _FIELDS.unpack_from(self._records, index * _RECORD)

    def _record(self, index: int) -> Record:
        putter, _, host, gpu, size = self._fields(index)
        start = index * _RECORD + _FIELDS.size
        rest = None if size == IN_FRAME else bytes(self._records[start : start + size])
        return Record(index, self._words[index], putter, host, gpu, rest)

    def queued(self) -> int:
        """Items that wait to be taken."""
        return bisect_left(sorted(self._words), _RESERVED)

    def is_full(self) -> bool:
        """Is there no room for one more?"""
        return bisect_left(sorted(self._words), _CLAIMED) >= self.limit

    def reserve(self, putting: Putting, deadline: float | None) -> bool:
        """A place for an item; False: the queue is full. Errors: LockHeldError."""
        hinted = self._space.take(4096)
        with self._locked(deadline):
            words = list(self._words)
            room = self.limit - bisect_left(sorted(words), _CLAIMED)
            if room <= 0 or _FREE not in words:
                return False
            index = words.index(_FREE)
            _FIELDS.pack_into(self._records, index * _RECORD, self.me, 0, 0, 0, 0)
            self._words[index], putting.place = _RESERVED, index
        if hinted and room > 1:
            self._space.ring()  # the hints were for others, too
        return True

    def commit(
        self, putting: Putting, host: int, gpu: int, rest: bytes | None, deadline: float | None
    ) -> None:
        """The item is there. Errors: LockHeldError."""
        index = putting.place
        size = IN_FRAME if rest is None else len(rest)
        with self._locked(deadline):
            _FIELDS.pack_into(self._records, index * _RECORD, self.me, 0, host, gpu, size)
            if rest:
                start = index * _RECORD + _FIELDS.size
                self._records[start : start + len(rest)] = rest
            self._head[_SERIAL] = serial = self._head[_SERIAL] + 1
            self._words[index], putting.serial = serial, serial
        self._items.ring()

    def is_there(self, index: int, serial: int) -> bool:
        """Is that item still queued, or being taken?"""
        return self._words[index] in (serial, serial + _CLAIMED)

    def claim(self, taking: Taking, deadline: float | None, avoid: set[int]) -> Record | None:
        """The oldest item, for this process alone; not of the putters in `avoid`. Errors:
        LockHeldError."""
        if min(self._words) >= _RESERVED:
            return None
        self._items.take()
        with self._locked(deadline):
            words = [w for w in self._words if w < _RESERVED]
            for serial in sorted(words):
                index = list(self._words).index(serial)
                record = self._record(index)
                if record.putter in avoid:
                    continue
                struct.pack_into("=Q", self._records, index * _RECORD + 8, self.me)
                self._words[index], taking.record = serial + _CLAIMED, record
                break
        if len(words) > (taking.record is not None):
            self._items.ring()  # whoever drained the bell took the others' hints too
        if taking.record is not None:
            self._space.ring()
        return taking.record

    def _free(self, taking: Taking, word: int) -> None:
        """What is claimed becomes this word, if it is claimed by this process still."""
        with self._ending:
            if taking.record is not None and not taking.over and not self._gone:
                self._words[taking.record.place], taking.over = word, True

    def done(self, taking: Taking) -> None:
        """The claimed item was taken."""
        self._free(taking, _FREE)
        self._space.ring()

    def lose(self, taking: Taking) -> None:
        """The claimed item went with its putter; so did others, if that one died."""
        with self._locked():
            self._recover()
            if taking.record is not None and not taking.over:
                self._add_lost(1, taking.record.putter)
                self._words[taking.record.place], taking.over = _FREE, True
        self._space.ring()

    def undo(self, taking: Taking) -> None:
        """If an item was claimed and not taken, it is queued again, where it was."""
        if taking.record is not None and not taking.over:
            self._free(taking, taking.record.serial)
            self._items.ring()

    def cancel(self, putting: Putting) -> None:
        """Gives a reserved place back."""
        if putting.place < 0:
            return
        with self._ending:
            if not putting.serial and not self._gone:
                self._words[putting.place], putting.place = _FREE, -1
        self._space.ring()
