# SPDX-License-Identifier: MIT
"""cuda_link.Queue, with real processes."""

from __future__ import annotations

import os
import pickle
import queue as standard
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time

import cuda_link
import numpy as np
import pytest
from conftest import LIMIT, run_python
from cuda_link import _queue, _queue_channels
from queues import Passed, array


def same(got, put):
    assert type(got) is type(put)
    if isinstance(put, np.ndarray):
        assert got.dtype == put.dtype and got.shape == put.shape and got.flags.writeable
        np.testing.assert_array_equal(got, put)
    elif isinstance(put, dict):
        assert list(got) == list(put)
        for key, value in put.items():
            same(got[key], value)
    elif isinstance(put, (list, tuple)):
        assert len(got) == len(put)
        for one, other in zip(got, put):
            same(one, other)
    else:
        assert got == put


# ---- what can be put


THINGS = {
    "array": np.arange(5000.0).reshape(50, 100),
    "strides": np.arange(5000).reshape(50, 100)[::-2, ::3],
    "small": np.arange(3),
    "scalar": np.array(2.5),
    "empty": np.zeros((3, 0, 2)),
    "half": np.arange(999).astype(np.float16),
    "complex": np.arange(999) * 1j,
    "bool": np.arange(999) % 3 == 0,
    "dict": {"picture": np.ones((40, 30, 4), np.uint8), "depth": np.ones((40, 30), np.float32), "n": 3},
    "nested": (7, [np.arange(500), {"deep": (np.arange(600), "text")}], None),
    "many": [np.full(100, i) for i in range(40)],
    "big endian": np.arange(500).astype(">i4"),
    "objects": np.array([1, "two", None] * 100, dtype=object),
    "long double": np.arange(500).astype(np.longdouble),
    "records": np.zeros(100, [("a", "i4"), ("b", "f8")]),
    "none": None,
    "text": "text",
    "large text": "text" * 5000,
    "large bytes and an array": {"bytes": b"x" * 5000, "array": np.arange(500)},
    "exception": ZeroDivisionError,
}


@pytest.mark.parametrize("thing", THINGS.values(), ids=THINGS.keys())
def test_what_comes_out_is_what_went_in(thing):
    queue = cuda_link.Queue(2)
    for _ in range(3):
        queue.put(thing)
        same(queue.get(timeout=LIMIT), thing)
    assert queue.empty()


def test_the_item_may_be_changed_at_once_and_the_result_stays():
    queue = cuda_link.Queue(3)
    source = array(1)
    results = []
    for number in range(6):
        source[:] = number
        queue.put(source)
        source[:] = -1
        results.append(queue.get())
    results[0][:] += 100
    assert [int(result[5]) for result in results] == [100, 1, 2, 3, 4, 5]


def test_one_array_twice_stays_one():
    queue = cuda_link.Queue()
    one = np.arange(1000)
    queue.put([one, {"again": one}])
    first, second = queue.get()
    assert first is second["again"]


def test_tensors():
    torch = pytest.importorskip("torch")
    queue = cuda_link.Queue()
    tensors = {
        "float": torch.arange(1000.0).reshape(10, 100).t(),
        "bool": torch.arange(1000) % 2 == 0,
        "bfloat16": torch.arange(1000).to(torch.bfloat16),
        "scalar": torch.tensor(3),
        "array": np.arange(1000),
    }
    queue.put(tensors)
    got = queue.get()
    assert [type(value) for value in got.values()] == [torch.Tensor] * 4 + [np.ndarray]
    for name in ("float", "bool", "bfloat16", "scalar"):
        assert got[name].dtype == tensors[name].dtype and torch.equal(got[name], tensors[name])
        got[name][...] = 0  # its own memory
    queue.put([torch.full((10,), i) for i in range(50)])
    assert [int(tensor[9]) for tensor in queue.get()] == list(range(50))


def test_tensors_that_can_not_be_put():
    torch = pytest.importorskip("torch")
    queue = cuda_link.Queue(1)
    for tensor, what in (
        (torch.zeros(3, requires_grad=True), "detach"),
        (torch.zeros(3, dtype=torch.complex64).conj(), "resolve_conj"),
        (torch.zeros(3).to_sparse(), "to_dense"),
    ):
        with pytest.raises(BufferError, match=what):
            queue.put_nowait(tensor)
    assert queue.empty() and not queue.full()  # no place is lost


def test_things_that_can_not_be_pickled():
    queue = cuda_link.Queue(1)
    for thing in (lambda: 0, {"array": np.zeros(1000), "lock": threading.Lock()}):
        with pytest.raises((TypeError, AttributeError, pickle.PicklingError)):
            queue.put(thing)
    queue.put_nowait(1)
    assert queue.get_nowait() == 1


class Unreadable:
    def __reduce__(self):
        return int, ("no number",)


def test_an_item_that_can_not_be_made_is_taken():
    queue = cuda_link.Queue(2)
    queue.put([np.zeros(1000), Unreadable()])
    queue.put(2)
    with pytest.raises(ValueError, match="no number"):
        queue.get()
    assert queue.get() == 2


# ---- the interface of queue.Queue


@pytest.mark.parametrize("item", [3, np.arange(1000)], ids=["small", "array"])
def test_full_and_empty(item):
    queue = cuda_link.Queue(2)
    assert queue.empty() and not queue.full() and queue.qsize() == 0
    for call in (queue.get_nowait, lambda: queue.get(False), lambda: queue.get(timeout=0.01)):
        with pytest.raises(standard.Empty):
            call()
    queue.put(item)
    assert not queue.empty() and not queue.full() and queue.qsize() == 1
    queue.put_nowait(item)
    assert queue.full() and queue.qsize() == 2
    for call in (queue.put_nowait, lambda x: queue.put(x, False), lambda x: queue.put(x, timeout=0.01)):
        with pytest.raises(standard.Full):
            call(item)
    queue.get()
    assert not queue.full() and "1 item" in repr(queue)
    with pytest.raises(ValueError, match="timeout"):
        queue.get(timeout=-1)


def test_without_a_limit():
    queue = cuda_link.Queue()
    for number in range(100):
        queue.put(array(number))
    assert [int(queue.get()[0]) for _ in range(100)] == list(range(100))


def test_as_many_as_descriptors_allow():
    """Each item with arrays has a channel, whose descriptors are the process's. Nothing is lost."""
    ended = run_python(
        textwrap.dedent("""
        import resource, cuda_link, numpy as np
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
        queue = cuda_link.Queue()
        for put in range(100):
            try:
                queue.put(np.full(5000, put))
            except cuda_link.SystemRefusedError as error:
                assert "ulimit -n" in str(error), error
                break
        assert put == 200 // 8, put
        for got in range(put):
            assert queue.get(timeout=20)[0] == got
            queue.put(np.full(5000, put + got))  # there is room again
        print(queue.qsize())
        queue.cancel_join_thread()
        """)
    )
    assert ended.stdout == "25\n", ended.stderr


def test_the_count_of_channels_is_right_after_a_failed_close():
    class Exporter:
        def close(self):
            raise KeyboardInterrupt

    before = _queue_channels._cells
    cell = _queue_channels.Cell(0, "host")
    cell.exporter = Exporter()
    _queue_channels._count_one(cell)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            cell.close()
    assert _queue_channels._cells == before


def test_a_forked_child_has_no_channels_and_no_lock_of_its_parents():
    with _queue_channels._counting:
        child = os.fork()
        if child == 0:
            free = _queue_channels._counting.acquire(blocking=False)
            os._exit(0 if free and _queue_channels._cells == 0 else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_waiting_put_and_a_waiting_get():
    queue = cuda_link.Queue(1)
    got = []
    thread = threading.Thread(target=lambda: got.extend(int(queue.get()[0]) for _ in range(50)))
    thread.start()
    for number in range(50):
        queue.put(array(number))
    thread.join(LIMIT)
    assert got == list(range(50))


def test_threads():
    queue = cuda_link.Queue(3)
    got = []

    def take():
        while (item := queue.get()) is not None:
            got.append(int(item[7]))

    takers = [threading.Thread(target=take) for _ in range(3)]
    putters = [
        threading.Thread(target=lambda base=base: [queue.put(array(base + i)) for i in range(30)])
        for base in (0, 100, 200)
    ]
    for thread in takers + putters:
        thread.start()
    for thread in putters:
        thread.join(LIMIT)
    for _ in takers:
        queue.put(None)
    for thread in takers:
        thread.join(LIMIT)
    assert sorted(got) == [base + i for base in (0, 100, 200) for i in range(30)]


def test_close_keeps_what_was_put():
    queue = cuda_link.Queue()
    for number in range(3):
        queue.put(array(number))
    queue.close()
    queue.close()
    with pytest.raises(ValueError, match="closed"):
        queue.put(1)
    assert [int(queue.get()[0]) for _ in range(3)] == [0, 1, 2]
    queue.join_thread()


def test_nothing_is_left_of_it(runtime_directory):
    before = set(os.listdir("/proc/self/fd"))
    queue = cuda_link.Queue()
    for number in range(3):
        queue.put(array(number))
    assert len(cuda_link.channels()) == 3
    for _ in range(3):
        queue.get()
    del queue
    assert cuda_link.channels() == [] and list(runtime_directory.iterdir()) == []
    assert set(os.listdir("/proc/self/fd")) <= before


# ---- several processes


def echo(questions, answers):
    while (item := questions.get()) is not None:
        answers.put((os.getpid(), item))


def test_each_item_goes_to_one_of_several_processes(start):
    questions, answers = cuda_link.Queue(4), cuda_link.Queue()
    workers = [start(echo, questions, answers) for _ in range(3)]
    for number in range(40):
        questions.put({"number": number, "array": array(number)})
    got = [answers.get(timeout=LIMIT) for _ in range(40)]
    assert sorted(item["number"] for _, item in got) == list(range(40))
    assert all((item["array"] == item["number"]).all() for _, item in got)
    for _ in workers:
        questions.put(None)
    for worker in workers:
        worker.join(LIMIT)
        assert worker.exitcode == 0
    assert answers.empty()


def put_all(queue, items):
    for item in items:
        queue.put(item)


def test_several_putters_each_in_its_order(start):
    queue = cuda_link.Queue(3)
    putters = [start(put_all, queue, [(name, i, array(i)) for i in range(20)]) for name in "abc"]
    got = [queue.get(timeout=LIMIT) for _ in range(60)]
    for name in "abc":
        assert [i for who, i, _ in got if who == name] == list(range(20))
    for putter in putters:
        putter.join(LIMIT)
        assert putter.exitcode == 0  # it waited until its last item was taken


def test_a_getter_that_comes_late(start):
    queue, answers = cuda_link.Queue(), cuda_link.Queue()
    for number in range(5):
        queue.put(array(number))
    queue.put(None)
    start(echo, queue, answers)
    assert [int(answers.get(timeout=LIMIT)[1][0]) for _ in range(5)] == list(range(5))


def take_one_and_wait(queue, answers, more):
    answers.put(int(queue.get()[0]))
    more.get()


def test_a_getter_that_does_not_ask_holds_nothing_up(start):
    queue, answers, more = cuda_link.Queue(2), cuda_link.Queue(), cuda_link.Queue()
    start(take_one_and_wait, queue, answers, more)
    queue.put(array(0))
    assert answers.get(timeout=LIMIT) == 0
    for number in range(1, 20):
        queue.put(array(number), timeout=LIMIT)
        assert queue.get(timeout=LIMIT)[0] == number


SCRIPT = """
import multiprocessing, os, sys
import cuda_link, numpy
def child(queue, answers):
    while (item := queue.get()) is not None:
        answers.put(item * 2)
if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    queue, answers = cuda_link.Queue(2), cuda_link.Queue(2)
    process = context.Process(target=child, args=(queue, answers))
    process.start()
    for number in range(10):
        queue.put(numpy.full(1000, number))
        assert (answers.get(timeout=60) == number * 2).all()
    queue.put(None)
    process.join()
    assert process.exitcode == 0 and queue.empty() and answers.empty()
"""


def run_script(tmp_path, text, *arguments):
    script = tmp_path / "script.py"
    script.write_text(text)
    command = [sys.executable, "-W", "error", str(script), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_ways_to_start_a_process(tmp_path, method):
    ended = run_script(tmp_path, SCRIPT, method)
    assert (ended.returncode, ended.stderr) == (0, "")


FORKED = """
import multiprocessing, sys
import cuda_link, numpy
def child(queue, answers):
    try:
        queue.put(numpy.zeros(1000))
    except cuda_link.ForkedError as error:
        answers.put(str(error))       # what needs no channel still works
if __name__ == "__main__":
    context = multiprocessing.get_context("fork")
    queue, answers = cuda_link.Queue(2), cuda_link.Queue(2)
    queue.put(numpy.zeros(1000))      # now this process uses channels
    process = context.Process(target=child, args=(queue, answers))
    process.start()
    assert "fork" in answers.get(timeout=60)
    process.join()
    assert queue.get().shape == (1000,) and queue.empty()
"""


def test_a_fork_after_the_first_array_is_told(tmp_path):
    ended = run_script(tmp_path, FORKED)
    assert (ended.returncode, ended.stderr) == (0, "")


def pass_on(first, answers):
    first.get().put(array(5))
    answers.get()


def test_a_queue_in_a_queue(start):
    first, second, end = cuda_link.Queue(), cuda_link.Queue(), cuda_link.Queue()
    start(pass_on, first, end)
    first.put(second)
    assert second.get(timeout=LIMIT)[0] == 5
    end.put(None)


# ---- the end of a process


def put_and_end(queue, may_lose):
    queue.put(array(1))
    queue.put("small")
    if may_lose:
        queue.cancel_join_thread()


def test_a_putter_ends_when_its_items_were_taken(start):
    queue = cuda_link.Queue()
    putter = start(put_and_end, queue, False)
    assert queue.get(timeout=LIMIT)[0] == 1
    putter.join(LIMIT)
    assert putter.exitcode == 0 and queue.get() == "small"  # such ones need no putter


def test_a_putter_that_may_lose_its_items(start):
    queue = cuda_link.Queue()
    putter = start(put_and_end, queue, True)
    putter.join(LIMIT)
    assert putter.exitcode == 0 and queue.get(timeout=LIMIT) == "small" and queue.empty()


def put_and_stay(queue, ready, end):
    for number in range(3):
        queue.put(array(number))
    queue.put("small")
    ready.put(os.getpid())
    end.get()


def test_a_killed_putter(start):
    queue, ready, end = cuda_link.Queue(), cuda_link.Queue(), cuda_link.Queue()
    killed = start(put_and_stay, queue, ready, end)
    ready.get(timeout=LIMIT)
    queue.put(array(7))
    assert queue.get(timeout=LIMIT)[0] == 0
    killed.kill()
    killed.join()
    got = []
    with pytest.raises(cuda_link.PeerLostError, match=f"2 items.*{killed.pid}"):
        while True:
            got.append(queue.get(timeout=LIMIT))
    while not queue.empty():
        got.append(queue.get(timeout=LIMIT))
    assert got[0] == "small" and got[1][0] == 7 and len(got) == 2
    with pytest.raises(standard.Empty):
        queue.get(timeout=0.3)


def put_and_fork(queue, ready):
    queue.put(array(1))
    if os.fork() == 0:
        ready.put(os.getpid())  # it says so itself: until it runs, it has its parent's locks
    signal.pause()


def test_a_killed_putter_whose_forked_child_lives(start):
    queue, ready = cuda_link.Queue(), cuda_link.Queue()
    killed = start(put_and_fork, queue, ready)
    child = ready.get(timeout=LIMIT)
    killed.kill()
    killed.join()
    try:
        with pytest.raises(cuda_link.PeerLostError, match=f"1 item .*process {killed.pid},"):
            queue.get(timeout=LIMIT)
    finally:
        os.kill(child, signal.SIGKILL)


def put_one_and_stay(queue, end):
    queue.put(array(1))
    end.get()


def test_a_killed_putter_ends_a_waiting_get(start):
    queue, end = cuda_link.Queue(), cuda_link.Queue()
    killed = start(put_one_and_stay, queue, end)
    queue.get(timeout=LIMIT)
    raised = []

    def wait():
        try:
            queue.get()
        except cuda_link.PeerLostError as error:
            raised.append(str(error))

    thread = threading.Thread(target=wait)
    thread.start()
    killed.kill()
    thread.join(LIMIT)
    assert len(raised) == 1 and str(killed.pid) in raised[0]


def put_when_told(queue, here, told):
    here.put(os.getpid())
    queue.put(told.get())


def test_the_last_items_of_one_that_leaves_come_before_a_death_is_told(start, monkeypatch):
    """One dies; another puts its last item and leaves while a get looks who is left."""
    queue, here, told = cuda_link.Queue(), cuda_link.Queue(), cuda_link.Queue()
    killed, leaver = (start(put_when_told, queue, here, told) for _ in range(2))
    assert {here.get(timeout=LIMIT) for _ in range(2)} == {killed.pid, leaver.pid}
    killed.kill()
    killed.join()
    table = queue._state.table
    others = table.others

    def slowly(putters=False):
        if leaver.is_alive():
            told.put("last words")
            leaver.join(LIMIT)
        return others(putters)

    monkeypatch.setattr(table, "others", slowly)
    assert queue.get(timeout=LIMIT) == "last words"
    with pytest.raises(cuda_link.PeerLostError, match=f"process {killed.pid} died"):
        queue.get(timeout=LIMIT)


def test_a_killed_putter_makes_room(start):
    queue, ready, end = cuda_link.Queue(4), cuda_link.Queue(), cuda_link.Queue()
    killed = start(put_and_stay, queue, ready, end)
    ready.get(timeout=LIMIT)
    assert queue.full()
    killed.kill()
    for number in range(3):
        queue.put(array(number), timeout=LIMIT)


def take_and_hang(queue, ready):
    """Is stopped between the claim and the end of get."""

    def hang(*_):
        ready.put(None)
        signal.pause()

    _queue.together = hang
    queue.get()


def test_what_a_killed_getter_was_taking_goes_to_another(start):
    queue, ready = cuda_link.Queue(), cuda_link.Queue()
    for number in range(3):
        queue.put(array(number))
    killed = start(take_and_hang, queue, ready)
    ready.get(timeout=LIMIT)
    assert queue.qsize() == 2 and queue.get()[0] == 1
    killed.kill()
    killed.join()
    assert [int(queue.get(timeout=LIMIT)[0]) for _ in range(2)] in ([2, 0], [0, 2])


def test_an_interrupted_get_takes_nothing(monkeypatch):
    queue = cuda_link.Queue()
    queue.put(array(1))

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(_queue, "together", interrupted)
        queue.get()
    assert queue.get(timeout=LIMIT)[0] == 1


def test_a_stopped_getter_and_a_stopped_putter(start):
    queue, answers, more = cuda_link.Queue(2), cuda_link.Queue(), cuda_link.Queue()
    getter = start(take_one_and_wait, queue, answers, more)
    putter = start(put_one_and_stay, answers, more)
    queue.put(array(0))
    got = [answers.get(timeout=LIMIT) for _ in range(2)]
    assert len(got) == 2
    for process in (getter, putter):
        os.kill(process.pid, signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
    for number in range(5):
        queue.put(array(number), timeout=LIMIT)
        assert queue.get(timeout=LIMIT)[0] == number
    for process in (getter, putter):  # they may have been stopped with the lock that the end of `more` takes
        process.kill()
        process.join()


def test_a_putter_that_was_stopped_loses_nothing(start, monkeypatch):
    """Who looks for its channel meanwhile finds nobody in time, and calls nobody dead."""
    queue, end = cuda_link.Queue(), cuda_link.Queue()
    stopped = start(put_one_and_stay, queue, end)
    while queue.empty():
        time.sleep(0)
    os.kill(stopped.pid, signal.SIGSTOP)
    os.waitpid(stopped.pid, os.WUNTRACED)
    with monkeypatch.context() as patch:
        patch.setattr(_queue, "_TAKE_LIMIT", 0.01)
        for call in (queue.get_nowait, lambda: queue.get(timeout=0.1)):
            with pytest.raises(standard.Empty):
                call()
    os.kill(stopped.pid, signal.SIGCONT)
    assert queue.get(timeout=LIMIT)[0] == 1


def put_elsewhere(queue, end, folder):
    os.environ["CUDALINK_RUNTIME_DIR"] = folder
    put_one_and_stay(queue, end)


def test_a_putter_with_another_runtime_directory_is_told(start, monkeypatch, tmp_path):
    """Nobody waits for it for ever, and nobody calls it dead."""
    queue, end = cuda_link.Queue(), cuda_link.Queue()
    start(put_elsewhere, queue, end, str(tmp_path))
    while queue.empty():
        time.sleep(0)
    with monkeypatch.context() as patch:
        patch.setattr(_queue, "_TAKE_LIMIT", 0.01)
        patch.setattr(_queue, "_FIND_LIMIT", 0.05, raising=False)
        with pytest.raises(cuda_link.ChannelNotFoundError, match="CUDALINK_RUNTIME_DIR"):
            queue.get(timeout=LIMIT)
        with pytest.raises(standard.Empty):
            queue.get_nowait()
    queue.put("another one's")
    assert queue.get(timeout=LIMIT) == "another one's"
    monkeypatch.setenv("CUDALINK_RUNTIME_DIR", str(tmp_path))
    assert queue.get(timeout=LIMIT)[0] == 1


def take_for_ever(queue, answers):
    answers.cancel_join_thread()
    for number in iter(lambda: int(queue.get()[0]), -1):
        answers.put(number)


def test_kills_at_random_moments(start):
    """An item is lost only with a getter that had it already, and none comes twice."""
    queue, answers = cuda_link.Queue(4), cuda_link.Queue()
    generator = random.Random(int(os.environ.get("CUDALINK_TEST_SEED") or 1))
    workers = [start(take_for_ever, queue, answers) for _ in range(2)]
    got, kills, rounds = [], 0, int(os.environ.get("CUDALINK_KILLS", "6"))
    for number in range(rounds * 20):
        queue.put(array(number), timeout=LIMIT)
        while not answers.empty():
            got.append(answers.get())
        if number % 20 == generator.randrange(20) and kills < rounds:
            victim = generator.randrange(len(workers))
            workers[victim].kill()
            workers[victim] = start(take_for_ever, queue, answers)
            kills += 1
    for _ in workers:
        queue.put(array(-1), timeout=LIMIT)
    for worker in workers:
        worker.join(LIMIT)
    while not answers.empty():
        got.append(answers.get())
    assert len(set(got)) == len(got) and rounds * 20 - kills <= len(got)


def test_too_many_processes():
    queue = cuda_link.Queue()
    copies = [pickle.loads(pickle.dumps(Passed(queue))) for _ in range(63)]
    with pytest.raises(ValueError, match="64 processes"):
        pickle.loads(pickle.dumps(Passed(queue)))
    del copies
    pickle.loads(pickle.dumps(Passed(queue)))
