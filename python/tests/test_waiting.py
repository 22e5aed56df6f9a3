# SPDX-License-Identifier: MIT
"""Time-outs, threads, asyncio, Ctrl-C."""

from __future__ import annotations

import asyncio
import selectors
import signal
import threading

import cuda_link
import pytest
from conftest import LIMIT, run_python, start_python, until_held
from cuda_link import _readable
from cuda_link._backend import low


@pytest.fixture
def pair():
    """hold_limit: threads that a busy machine lets wait lose no frame."""
    with cuda_link.open_exporter("wait", shape=(4,), kind="host", hold_limit=None) as exporter:
        with cuda_link.open_importer("wait", timeout=10) as importer:
            yield exporter, importer


def test_time_outs(pair):
    exporter, importer = pair
    for timeout in (0, 0.01, 0.3):
        with pytest.raises(TimeoutError):
            importer.acquire(timeout)
    for bad in (-1, float("nan")):
        with pytest.raises(ValueError, match="time-out"):
            importer.acquire(bad)
    with pytest.raises(cuda_link.TimedOutError):
        exporter.wait_consumers(2, 0.01)
    exporter.wait_consumers(1, LIMIT)


def test_opening_waits_for_a_producer():
    with pytest.raises(FileNotFoundError, match="nobody"):
        cuda_link.open_importer("nobody", timeout=0.05)
    with cuda_link.open_importer("nobody") as importer:
        with pytest.raises(TimeoutError):
            importer.acquire(0)


def test_another_thread_sends(pair):
    exporter, importer = pair
    thread = threading.Thread(target=lambda: exporter.send(b"abcd"))
    thread.start()
    assert importer.acquire(LIMIT).packed() == b"abcd"
    thread.join()


def test_another_thread_closes(pair):
    _, importer = pair
    caught = []

    def take():
        try:
            importer.acquire()
        except Exception as error:
            caught.append(error)

    thread = threading.Thread(target=take)
    thread.start()
    importer.close()
    thread.join(LIMIT)
    assert [type(error) for error in caught] == [cuda_link.ClosedError]


def test_many_threads(pair):
    exporter, importer = pair
    with cuda_link.open_importer("wait", policy="every", hold=8, timeout=10) as every:
        exporter.wait_consumers(2, LIMIT)
        count, threads, numbers, lock = 400, 4, [], threading.Lock()

        def take():
            while True:
                with every.acquire(LIMIT) as frame:
                    if frame.packed() == b"stop":
                        return
                    with lock:
                        numbers.append(frame.sequence)

        workers = [threading.Thread(target=take) for _ in range(threads)]
        for worker in workers:
            worker.start()
        for _ in range(count):
            assert exporter.send(b"data", timeout=LIMIT)
        for _ in range(threads):
            assert exporter.send(b"stop", timeout=LIMIT)
        for worker in workers:
            worker.join(LIMIT)
        assert sorted(numbers) == list(range(1, count + 1))
    del importer


def test_asyncio(pair):
    exporter, importer = pair

    async def produce():
        for n in range(20):
            while not exporter.send(bytes([n] * 4)):
                await asyncio.sleep(0)
            await asyncio.sleep(0)

    async def consume():
        last = -1
        async for frame in importer:
            with frame:
                assert frame.packed()[0] > last
                last = frame.packed()[0]
            if last == 19:
                return

    async def both():
        await asyncio.wait_for(asyncio.gather(consume(), produce()), LIMIT)
        with pytest.raises(cuda_link.TimedOutError):
            await importer.next(0.05)

    asyncio.run(both())


def test_asyncio_waits_as_acquire_does(pair):
    exporter, importer = pair

    async def main():
        for bad in (-1, float("nan")):
            with pytest.raises(ValueError, match="time-out"):
                await importer.next(bad)
        for none in (0, 0.01):
            with pytest.raises(cuda_link.TimedOutError):
                await importer.next(none)
        for timeout in (0, 1e-9, float("inf"), None):
            exporter.send(b"abcd")
            (await importer.next(timeout)).release()

    asyncio.run(main())


def test_asyncio_waits_for_a_frame_that_is_on_its_way_back(pair):
    """One that only an array keeps, or another thread is about to give back, is waited for as by acquire."""
    exporter, _ = pair

    async def main(importer):
        exporter.send(b"abcd")
        kept = [importer.acquire(LIMIT).numpy()]
        exporter.send(b"efgh")
        with pytest.raises(cuda_link.TooManyFramesError):
            await importer.next(0)
        task = asyncio.ensure_future(importer.next(LIMIT))
        await asyncio.sleep(0)  # it has looked
        kept.clear()
        with await task as frame:
            assert frame.packed() == b"efgh"

    with cuda_link.open_importer("wait", hold=1, timeout=LIMIT) as importer:
        exporter.wait_consumers(2, LIMIT)
        asyncio.run(main(importer))


def test_asyncio_waits_for_each_frame_that_is_on_its_way_back(pair, monkeypatch):
    """Also for one that goes long after another one had to be waited for."""
    exporter, importer = pair
    answers = [cuda_link.BusyError, cuda_link.TimedOutError, cuda_link.BusyError]
    acquire, late = importer.acquire, 0

    def told(timeout, *, stream):
        nonlocal late
        if not answers:
            return acquire(LIMIT)
        late += answers[0] is cuda_link.TimedOutError
        raise answers.pop(0)

    async def main():
        loop = asyncio.get_running_loop()
        now = loop.time
        monkeypatch.setattr(loop, "time", lambda: now() + late)
        with await importer.next() as frame:
            assert frame.packed() == b"abcd"

    exporter.send(b"abcd")
    monkeypatch.setattr(importer, "acquire", told)
    asyncio.run(main())


def test_a_cancelled_wait_loses_no_frame():
    """At every step that a task makes, with and without a frame that comes at the same moment."""
    got, sent = [], 0

    async def take(importer, timeout):
        while True:
            with await importer.next(timeout) as frame:
                got.append(frame.sequence)

    async def main(exporter, importer):
        nonlocal sent
        for timeout in (None, LIMIT):
            for before in range(8):
                for after in range(8):
                    task = asyncio.ensure_future(take(importer, timeout))
                    for _ in range(before):
                        await asyncio.sleep(0)
                    assert exporter.send(b"abcd")
                    sent += 1
                    for _ in range(after):
                        await asyncio.sleep(0)
                    task.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await task
                    while len(got) < sent:
                        with await importer.next(LIMIT) as frame:
                            got.append(frame.sequence)

    with cuda_link.open_exporter("cancel", shape=(4,), kind="host") as exporter:
        with cuda_link.open_importer("cancel", policy="every", timeout=LIMIT) as importer:
            asyncio.run(main(exporter, importer))
            assert got == list(range(1, sent + 1)) and not _readable._waiting
            until_held(importer, 0)


def test_closing_wakes_asyncio(pair):
    _, importer = pair

    async def main():
        task = asyncio.ensure_future(importer.next())
        while importer._descriptor < 0:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        importer.close()
        with pytest.raises(cuda_link.ClosedError):
            await asyncio.wait_for(task, LIMIT)

    asyncio.run(main())


@pytest.mark.parametrize("when", ["before", "after"])
def test_closing_while_a_wait_begins(pair, monkeypatch, when):
    """On another thread, before the wait has its entry, or behind it."""
    _, importer = pair

    async def main():
        loop = asyncio.get_running_loop()
        add = loop.add_reader

        def adding(*arguments):
            if when == "before":
                with monkeypatch.context() as patch:
                    patch.setattr(_readable, "_waiting", {})  # as `closing` sees it
                    importer.close()
                add(*arguments)
            else:
                add(*arguments)
                importer.close()

        monkeypatch.setattr(loop, "add_reader", adding)
        with pytest.raises(cuda_link.ClosedError):
            await asyncio.wait_for(importer.next(), LIMIT)

    asyncio.run(main())
    assert not _readable._waiting


def test_a_descriptor_whose_number_comes_again(pair):
    """One waits for an importer that is closed; in the same turn of the loop another one gets its number."""
    exporter, importer = pair

    async def main():
        task = asyncio.ensure_future(importer.next())
        while importer._descriptor < 0:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        number = importer._descriptor
        importer.close()
        again = cuda_link.open_importer("wait", timeout=LIMIT)
        assert again.fileno() == number
        await asyncio.sleep(0)  # the close has been told, and the task has not gone on
        other = asyncio.ensure_future(again.next())
        for _ in range(5):
            await asyncio.sleep(0)
        assert exporter.send(b"abcd")
        (await asyncio.wait_for(other, LIMIT)).release()
        with pytest.raises(cuda_link.ClosedError):
            await task
        again.close()

    asyncio.run(main())
    assert not _readable._waiting


def test_closing_beside_a_loop_that_ends(pair, monkeypatch):
    _, importer = pair

    class Ending:
        def is_closed(self):
            return False

        def call_soon_threadsafe(self, *arguments):
            raise RuntimeError("Event loop is closed")

    importer.fileno()
    monkeypatch.setitem(_readable._waiting, (Ending(), importer._descriptor), [])
    identifier = importer._id
    importer.close()
    with pytest.raises(cuda_link.ClosedError):
        low.importer_arm(identifier)


def test_the_descriptor(pair):
    exporter, importer = pair
    selector = selectors.DefaultSelector()
    selector.register(importer.fileno(), selectors.EVENT_READ)
    taken = 0
    while taken < 5:
        if importer.arm():
            exporter.send(bytes(4))
            assert selector.select(LIMIT)
            continue
        try:
            importer.acquire(0).release()
            taken += 1
        except TimeoutError:
            pass  # the connection changed
    selector.close()


ANOTHER_RUNS = """
import sys, threading, time
import cuda_link

LIMIT, what = 60, sys.argv[1]
exporter = cuda_link.open_exporter("gil", shape=(4,), kind="host", slots=3, max_slots=3, hold_limit=None)
importer = cuda_link.open_importer("gil", timeout=LIMIT, policy="every", hold=3)
exporter.wait_consumers(1, LIMIT)


def full():
    while exporter.send(bytes(4), timeout=0):
        pass


def open_late():
    late.append(cuda_link.open_exporter("late", shape=(4,), kind="host"))


late, queue = [], cuda_link.Queue(1)
blocking = {
    "acquire": (lambda: importer.acquire(LIMIT), lambda: exporter.send(bytes(4)), None),
    "send": (lambda: exporter.send(bytes(4), timeout=LIMIT), lambda: importer.acquire(0).release(), full),
    "frame": (lambda: exporter.frame(timeout=LIMIT).__enter__(), lambda: importer.acquire(0).release(), full),
    "wait_consumers": (
        lambda: exporter.wait_consumers(2, LIMIT) or True,
        lambda: late.append(cuda_link.open_importer("gil", timeout=LIMIT)),
        None,
    ),
    "wait_taken": (
        lambda: exporter.wait_taken(LIMIT) or True,
        lambda: importer.acquire(0).release(),
        lambda: exporter.send(bytes(4)),
    ),
    "open_importer": (lambda: cuda_link.open_importer("late", timeout=LIMIT), open_late, None),
    "get": (lambda: queue.get(timeout=LIMIT), lambda: queue.put({"a": b"b"}), None),
}
call, unblock, before = blocking[what]
if before:
    before()
began, failed = [], []


def other():
    while not began:
        time.sleep(0)
    try:
        unblock()
    except BaseException as error:
        failed.append(error)


thread = threading.Thread(target=other, daemon=True)
thread.start()
sys.setswitchinterval(1000)  # from here on only who gives the GIL up lets others run
began.append(True)
print(bool(call()), failed)
"""


@pytest.mark.parametrize(
    "what", ["acquire", "send", "frame", "wait_consumers", "wait_taken", "open_importer", "get"]
)
def test_waits_give_up_the_gil(what):
    """Else the thread that ends the wait would never run."""
    ended = run_python(ANOTHER_RUNS, what)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "True []\n", "")


def test_ctrl_c_ends_a_wait():
    waiting = start_python(
        "import cuda_link\n"
        "importer = cuda_link.open_importer('silent')\n"
        "try:\n    print('ready', flush=True)\n    importer.acquire()\n"
        "except KeyboardInterrupt:\n    print('stopped', flush=True)\n"
    )
    assert waiting.stdout.readline() == "ready\n"
    waiting.send_signal(signal.SIGINT)
    out, errors = waiting.communicate(timeout=LIMIT)
    assert (out, errors, waiting.returncode) == ("stopped\n", "", 0)


WAITS_FOR_A_PRODUCER = """
import cuda_link
from cuda_link._backend import low
from cuda_link._importer import ChannelImporter

closed, close, call = [], ChannelImporter.close, low.importer_wait_producer


def wait(*arguments):
    print("ready", flush=True)
    return call(*arguments)


low.importer_wait_producer = wait
ChannelImporter.close = lambda importer: closed.append(close(importer))
try:
    cuda_link.open_importer("nobody", timeout=TIMEOUT)
except KeyboardInterrupt:
    print("stopped", len(closed), flush=True)
"""


@pytest.mark.parametrize("timeout", [None, 1000])
def test_ctrl_c_ends_the_wait_for_a_producer(timeout):
    """And nothing stays open of it."""
    waiting = start_python(WAITS_FOR_A_PRODUCER.replace("TIMEOUT", repr(timeout)))
    assert waiting.stdout.readline() == "ready\n"
    waiting.send_signal(signal.SIGINT)
    out, errors = waiting.communicate(timeout=LIMIT)
    assert (out.replace("ready\n", ""), errors, waiting.returncode) == ("stopped 1\n", "", 0)


@pytest.mark.skipif(cuda_link.backend.name != "pure", reason="C returns a frame or raises")
@pytest.mark.parametrize("what", ["acquire", "frame"])
def test_ctrl_c_that_comes_with_a_frame_keeps_none(pair, monkeypatch, what):
    """It is seen when the wait is over, which may have got something."""
    from cuda_link._library import library

    exporter, importer = pair
    name = {"acquire": "cudalink_importer_acquire", "frame": "cudalink_exporter_begin"}[what]
    call = getattr(library, name)

    def interrupted(*arguments):
        assert call(*arguments) == 0
        raise KeyboardInterrupt

    exporter.wait_consumers(1, LIMIT)
    assert exporter.send(b"abcd")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(library, name, interrupted)
        if what == "acquire":
            importer.acquire(LIMIT)
        else:
            exporter.frame(timeout=LIMIT).__enter__()
    until_held(importer, 0)
    assert exporter.send(b"efgh")


def test_policies(pair):
    exporter, _ = pair
    with cuda_link.open_importer("wait", policy="in_order", timeout=10) as importer:
        exporter.wait_consumers(2, LIMIT)
        exporter.send(bytes(4))
        importer.acquire(LIMIT).release()  # from here on nothing is before its place
        for n in range(3):
            assert exporter.send(bytes([n] * 4))
        assert [importer.acquire(LIMIT).packed()[0] for _ in range(3)] == [0, 1, 2]
    for bad in ({"policy": "best"}, {"policy": "shared"}, {"policy": "every", "group": "g"}):
        with pytest.raises(ValueError, match="polic"):
            cuda_link.open_importer("wait", **bad)
    for bad in ({"hold": 0}, {"hold": 17}, {"access": "rw"}, {"device": -1}, {"group": "x" * 64}):
        with pytest.raises(ValueError):
            cuda_link.open_importer("wait", **bad)


@pytest.mark.parametrize("given, listed", [("order", "in_order"), ("ready", "ready_only")])
def test_policies_as_the_program_says_them(pair, given, listed):
    exporter, _ = pair
    with cuda_link.open_importer("wait", policy=given, timeout=10):
        exporter.wait_consumers(2, LIMIT)
        (found,) = cuda_link.channels()
        assert listed in [consumer.policy for consumer in found.consumers]


def test_a_group_shares_frames(pair):
    exporter, _ = pair
    members = [cuda_link.open_importer("wait", group="workers", timeout=10) for _ in range(2)]
    exporter.wait_consumers(3, LIMIT)
    got = []
    for n in range(10):
        assert exporter.send(bytes([n] * 4), timeout=LIMIT)
        for member in members:
            try:
                with member.acquire(0) as frame:
                    got.append(frame.packed()[0])
            except TimeoutError:
                pass
    exporter.wait_taken(LIMIT)
    assert sorted(got) == list(range(10))
    for member in members:
        member.close()
