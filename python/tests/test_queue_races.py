# SPDX-License-Identifier: MIT
"""cuda_link.Queue when the world changes between two looks at it, and when a step is interrupted."""

from __future__ import annotations

import gc
import os
import pickle
import queue as standard
import select
import sys
import threading
from functools import partial

import cuda_link
import numpy as np
import pytest
from conftest import LIMIT, run_python
from cuda_link import _queue, _queue_channels, _queue_table
from queues import Passed, array


def another(queue):
    """The same queue, as if it were in another process."""
    return pickle.loads(pickle.dumps(Passed(queue)))


def is_rung(bell):
    return bool(select.select([bell.descriptor], [], [], 0)[0])


def aside(call):
    """What a call on a thread of its own raised, if it came back at all."""
    ended = []

    def run():
        try:
            ended.append(call())
        except BaseException as error:
            ended.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(LIMIT)
    return ended


# ---- who tells of a death


def put_and_tell(queue, here, told):
    queue.put(os.getpid())
    here.put(os.getpid())
    told.get()


def test_a_death_is_told_to_each_get_that_waits(start, monkeypatch):
    """Two threads of one process."""
    queue, here, told = cuda_link.Queue(), cuda_link.Queue(), cuda_link.Queue()
    killed = start(put_and_tell, queue, here, told)
    assert queue.get(timeout=LIMIT) == here.get(timeout=LIMIT) == killed.pid
    both = threading.Barrier(2)
    table = queue._state.table
    first_look, raised = threading.local(), []
    recover = table.recover

    def together(*arguments):
        if not hasattr(first_look, "over"):
            first_look.over = True
            both.wait(LIMIT)
        return recover(*arguments)

    def wait():
        try:
            queue.get(timeout=LIMIT)
        except Exception as error:
            raised.append(type(error))

    monkeypatch.setattr(table, "recover", together)
    threads = [threading.Thread(target=wait) for _ in range(2)]
    for thread in threads:
        thread.start()
    killed.kill()
    for thread in threads:
        thread.join()
    assert raised == [cuda_link.PeerLostError] * 2
    monkeypatch.undo()
    with pytest.raises(standard.Empty):  # once
        queue.get_nowait()


def test_a_death_is_told_also_when_another_putter_leaves_later(start):
    """Whether a get looked while that one was still there makes no difference."""
    queue, here, told = cuda_link.Queue(), cuda_link.Queue(), cuda_link.Queue()
    killed, leaver = (start(put_and_tell, queue, here, told) for _ in range(2))
    assert {here.get(timeout=LIMIT) for _ in range(2)} == {killed.pid, leaver.pid}
    assert {queue.get(timeout=LIMIT) for _ in range(2)} == {killed.pid, leaver.pid}
    killed.kill()
    killed.join()
    with pytest.raises(standard.Empty):  # the other one may put
        queue.get_nowait()
    told.put(None)
    leaver.join(LIMIT)
    with pytest.raises(cuda_link.PeerLostError, match=f"process {killed.pid} died"):
        queue.get(timeout=LIMIT)
    with pytest.raises(standard.Empty):
        queue.get_nowait()


def put_and_leave(queue, here, told):
    queue.put(array(1))
    queue.cancel_join_thread()
    here.put(os.getpid())
    told.get()


def test_who_leaves_is_not_called_one_who_died(start, monkeypatch):
    """An item went with its putter, which said goodbye; another process had died long before."""
    queue, here, told = cuda_link.Queue(), cuda_link.Queue(), cuda_link.Queue()
    killed = start(put_and_tell, queue, here, told)
    assert queue.get(timeout=LIMIT) == here.get(timeout=LIMIT)
    killed.kill()
    killed.join()
    with pytest.raises(cuda_link.PeerLostError, match=f"process {killed.pid} died"):
        queue.get(timeout=LIMIT)
    here, told = cuda_link.Queue(), cuda_link.Queue()
    leaver = start(put_and_leave, queue, here, told)
    here.get(timeout=LIMIT)
    item = _queue._item

    def late(*arguments):
        told.put(None)
        leaver.join(LIMIT)
        return item(*arguments)

    monkeypatch.setattr(_queue, "_item", late)
    with pytest.raises(cuda_link.PeerLostError, match="1 item of this queue went with the process"):
        queue.get(timeout=LIMIT)


# ---- hints


def test_a_get_takes_no_hint_of_an_item_that_it_did_not_see(monkeypatch):
    queue = cuda_link.Queue()
    other, bell = another(queue), queue._state.items
    queue.put(1)
    bell.take(4096)  # by whoever was woken
    take = bell.take

    def late(*arguments):
        monkeypatch.undo()
        other.put(2)
        return take(*arguments)

    monkeypatch.setattr(bell, "take", late)
    assert queue.get() == 1
    assert is_rung(bell)  # a getter that sleeps wakes


def test_a_put_leaves_a_hint_when_there_is_more_room():
    queue = cuda_link.Queue(2)
    bell = queue._state.space
    for number in range(2):
        queue.put(number)
    assert not is_rung(bell)
    for _ in range(2):
        queue.get()
    queue.put(0)
    assert is_rung(bell)  # a putter that sleeps wakes
    queue.put(1)
    with pytest.raises(standard.Full):
        queue.put_nowait(2)
    assert not is_rung(bell)


def test_a_getter_that_tells_what_was_lost_wakes_another():
    queue = cuda_link.Queue()
    queue.put(1)
    queue._state.items.take(4096)  # by the one that is about to tell
    queue._state.table._head[_queue_table._LOST] = 1
    with pytest.raises(cuda_link.PeerLostError, match="1 item "):
        queue.get()
    assert is_rung(queue._state.items)


# ---- a process that was stopped while it had the lock


@pytest.mark.parametrize("kept", [0, 1], ids=["empty", "full"])
def test_no_limit_is_passed_by_behind_a_stopped_process(kept):
    queue = cuda_link.Queue(1)
    stopped = another(queue)
    for number in range(kept):
        queue.put(number)
    table = queue._state.table
    calls = [
        (queue.get_nowait, standard.Empty),
        (lambda: queue.get(timeout=0.01), standard.Empty),
        (lambda: queue.put_nowait(1), standard.Full),
        (lambda: queue.put(1, timeout=0.01), standard.Full),
    ]
    for what in ("", "lost"):
        if what:
            table._head[_queue_table._LOST] = 1
        with stopped._state.table._locked():
            for call, error in calls:
                ended = aside(call)
                assert [type(one) for one in ended] == [error], (what, error)
    table._head[_queue_table._LOST] = 0
    assert queue.qsize() == kept


def test_the_end_of_a_process_does_not_wait_for_a_stopped_one(monkeypatch):
    monkeypatch.setattr(_queue_table, "_GOODBYE_LIMIT", 0.01)
    queue = cuda_link.Queue()
    stopped, leaver = another(queue), another(queue)
    leaver.put("small")
    with stopped._state.table._locked():
        assert aside(leaver._state.finish) == [None]
    assert queue.get(timeout=LIMIT) == "small"
    assert not queue._state.table.is_alive(leaver._state.table.me)


def test_a_put_that_can_not_say_that_its_item_is_there_gives_all_back(monkeypatch):
    queue = cuda_link.Queue(1)
    stopped, publish = another(queue), queue._publish
    lock = stopped._state.table._locked()

    def late(*arguments):
        published = publish(*arguments)
        lock.__enter__()
        return published

    monkeypatch.setattr(queue, "_publish", late)

    def put():
        try:
            queue.put(array(1), timeout=0.01)
        finally:
            lock.__exit__(None, None, None)

    assert [type(one) for one in aside(put)] == [standard.Full]
    monkeypatch.undo()
    queue.put_nowait(array(2))
    assert queue.get()[0] == 2 and len(queue._state.cells._free) + len(queue._state._waiting) == 1


# ---- interrupts


FILES = {module.__file__ for module in (_queue, _queue_table, _queue_channels)}


class Interrupt:
    """A KeyboardInterrupt at the n-th place where Python looks for signals in the queue's own code: the begin
    of a function, and behind each call of C."""

    def __init__(self, place):
        self.left = place
        self.error = None

    def __call__(self, frame, event, _):
        if event not in ("call", "c_return") or frame.f_code.co_filename not in FILES:
            return
        if frame.f_code.co_name == "__del__":  # where it is printed, and forgotten
            return
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt

    def of(self, call):
        sys.setprofile(self)
        try:
            call()
        except KeyboardInterrupt as error:
            self.error = error  # with all that its traceback keeps
        finally:
            sys.setprofile(None)
        return self.left > 0


def refused(error, call):
    with pytest.raises(error):
        call()


CALLS = {
    "put": lambda queue, item: queue.put(item),
    "get": lambda queue, item: queue.get(),
    "full": lambda queue, item: refused(standard.Full, partial(queue.put, item, timeout=1e-3)),
    "empty": lambda queue, item: refused(standard.Empty, partial(queue.get, timeout=1e-3)),
}


@pytest.mark.parametrize("item", [7, array(7)], ids=["small", "array"])
@pytest.mark.parametrize("what", CALLS)
def test_an_interrupt_at_any_place_leaves_nothing_behind(what, item):
    """No lock, no place, no claim, no channel."""
    gc.collect()  # of other tests
    place, over, cells = 0, False, _queue_channels._cells
    while not over:
        place += 1
        queue = cuda_link.Queue(2)
        other = another(queue)
        full = {"full": 2, "get": 1}.get(what, 0)
        for _ in range(full):
            queue.put(item)
        interrupt = Interrupt(place)
        over = interrupt.of(partial(CALLS[what], queue, item))
        # It would raise, were the lock not free.
        with other._state.table._locked(0.0):
            pass
        words = set(queue._state.table._words)
        assert all(word < _queue_table._RESERVED or word == _queue_table._FREE for word in words), place
        count = queue.qsize()
        assert count in ({0, 1} if what in ("put", "get") else {full}), place
        for _ in range(count):
            assert np.all(queue.get(timeout=LIMIT) == item), place
        assert queue._state.sweep(), place  # an end of the process would not wait
        for _ in range(2):
            queue.put_nowait(item)
        for _ in range(2):
            queue.get(timeout=LIMIT)
        interrupt.error = None
        del queue, other
        assert _queue_channels._cells == cells, place
    assert place > 10


def test_a_signal_handler_in_the_middle_of_a_call_is_refused(monkeypatch):
    """It would wait for what it interrupted."""
    queue = cuda_link.Queue()
    queue.put(1)
    table, refused = queue._state.table, []
    record = table._record

    def interrupted(index):
        monkeypatch.undo()
        try:
            queue.put(2)
        except RuntimeError as error:
            refused.append(str(error))
        return record(index)

    monkeypatch.setattr(table, "_record", interrupted)
    assert aside(queue.get) == [1]
    assert len(refused) == 1 and "signal" in refused[0] and queue.empty()


# ---- what is kept


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def test_a_queue_that_was_dropped_too_early_is_forgotten_in_the_end():
    queue = cuda_link.Queue()
    other = another(queue)
    queue.put(array(1))
    before = descriptors()
    for _ in range(5):
        queue = cuda_link.Queue()
        other = another(queue)
        queue.put(array(1))
        del queue
        assert other.get()[0] == 1
        del other
    cuda_link.Queue()
    assert descriptors() <= before


def test_a_process_too_many_keeps_no_descriptor():
    queue = cuda_link.Queue()
    copies = [another(queue) for _ in range(63)]
    before = descriptors()
    for _ in range(3):
        with pytest.raises(ValueError, match="64 processes"):
            another(queue)
    assert descriptors() == before
    del copies


def test_the_place_of_one_that_says_goodbye_is_free_at_once(monkeypatch):
    """Also the last one, and also when it is stopped in the middle of its goodbye."""
    queue = cuda_link.Queue()
    copies = [another(queue) for _ in range(63)]
    leaver = copies.pop()
    table, came = leaver._state.table, []
    abandon = table.abandon

    def late():
        came.append(another(queue))
        abandon()

    monkeypatch.setattr(table, "abandon", late)
    leaver._state.finish()
    assert len(came) == 1


# ---- the end of a process that has threads in calls


ENDING = """
import multiprocessing.util, os, sys, threading
import cuda_link
queue = cuda_link.Queue()
asked, looked = threading.Event(), threading.Event()
recover = queue._state.table.recover

def look(*arguments):
    try:
        return recover(*arguments)
    finally:
        asked.set()
        if queue._state.over:
            looked.set()

queue._state.table.recover = look
ended = []

def wait():
    try:
        queue.get()
    except ValueError as error:
        ended.append(error)

threading.Thread(target=wait, daemon=sys.argv[1] == "daemon").start()
asked.wait(60)

def later():
    assert looked.wait(60)
    if sys.argv[1] != "daemon":
        while not ended:
            pass
        assert isinstance(ended[0], cuda_link.ClosedError) and "at its end" in str(ended[0]), ended
    else:
        assert not ended, ended
    os.write(1, b"over")
    os._exit(0)

multiprocessing.util.Finalize(None, later, exitpriority=-6)
multiprocessing.util._exit_function()  # as a process of multiprocessing ends
"""


@pytest.mark.parametrize("kind", ["daemon", "other"])
def test_a_thread_that_waits_at_the_end_of_the_process(kind):
    ended = run_python(ENDING, kind)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "over", "")


def test_a_get_that_the_end_of_the_process_overtakes_takes_nothing(monkeypatch):
    """A thread has an item half; its process says goodbye, another one takes the item; the thread goes on."""
    queue = cuda_link.Queue(1)
    ending, third = another(queue), another(queue)
    queue.put(1)
    item = _queue._item
    got = []

    def late(*arguments):
        monkeypatch.undo()
        ending._state.finish()
        got.append(third.get_nowait())
        queue.put_nowait(2)  # in the same place
        return item(*arguments)

    monkeypatch.setattr(_queue, "_item", late)
    ending.get()
    assert got == [1] and queue.qsize() == 1 and third.get_nowait() == 2


def test_a_put_that_the_end_of_the_process_overtakes_puts_nothing(monkeypatch):
    queue = cuda_link.Queue(1)
    ending = another(queue)
    publish = ending._publish

    def late(*arguments):
        ending._state.finish()
        queue.put_nowait(2)  # in the same place
        return publish(*arguments)

    monkeypatch.setattr(ending, "_publish", late)
    with pytest.raises(cuda_link.ClosedError, match="at its end"):
        ending.put(1)
    assert queue.get_nowait() == 2 and queue.empty()


# ---- fork


def in_child(code):
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if code() else 1)
        except BaseException:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_child_with_the_pid_of_an_ancestor(monkeypatch):
    queue = cuda_link.Queue()
    pid = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: pid)

    def child():
        queue.put(1)
        return queue.get_nowait() == 1

    assert in_child(child) == 0


def test_two_threads_of_a_child_have_one_part_of_the_queue(monkeypatch):
    queue = cuda_link.Queue()

    def child():
        made, state = [], _queue._State

        def make(*arguments):
            made.append(1)
            if len(made) == 1:
                thread = threading.Thread(target=queue.qsize, daemon=True)
                thread.start()
                thread.join(1)  # it waits for this one, or has made a second part meanwhile
            return state(*arguments)

        monkeypatch.setattr(_queue, "_State", make)
        queue.qsize()
        return len(made) == 1

    assert in_child(child) == 0
