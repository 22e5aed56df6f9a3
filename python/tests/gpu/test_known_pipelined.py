# SPDX-License-Identifier: MIT
"""ImportPolicy.d2h_pipelined in GPU memory: the copy of a frame runs while the script has the one before."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import threading
import time

import cuda_link
import numpy as np
import pytest
from conftest import start_python, until_held
from cuda_link import Exporter, ExportPolicy, GpuFrame, Importer, ImportOutcome, ImportPolicy, ImportSpec
from cuda_link._backend import low
from gets import frame_of, take, until
from standin import cu, new_memory, new_stream
from test_gpu import LIMIT, Blocked, pytestmark  # noqa: F401 (found by pytest)
from test_known_gpu import (
    HEIGHT,
    LATE,
    NEW,
    NOTHING,
    PUBLISHED,
    SIZE,
    WIDTH,
    Peer,
    connect,
    is_pinned,
    name,  # noqa: F401 (a fixture)
    spec,
    until_joined,
)

OVER = ImportOutcome.SHUTDOWN
POLICY = ImportPolicy(d2h_pipelined=True, reconnect_backoff_frames=())


@pytest.fixture
def exporter(name):  # noqa: F811
    with Exporter.open(spec(name), policy=ExportPolicy(wire="own", export_sync=True)) as exporter:
        yield exporter


@pytest.fixture
def importer(exporter):
    with Importer.open(ImportSpec(exporter.spec.shm_name), policy=POLICY) as importer:
        yield importer


def send(exporter, n, stream=0):
    source = new_memory(np.full((HEIGHT, WIDTH, 4), n, np.uint8))
    assert exporter.export(GpuFrame(source, SIZE, stream)) is PUBLISHED


def begin(importer, exporter, n):
    send(exporter, n)
    assert take(importer) == (NOTHING, None)


def get(importer, n):
    return frame_of(take(importer), n)


@pytest.fixture
def calls(monkeypatch):
    """Of the library, in their order."""
    made = []

    def watch(what):
        call = getattr(low, what)
        monkeypatch.setattr(low, what, lambda *arguments: (made.append(what), call(*arguments))[1])

    watch("importer_finish")
    watch("importer_close")
    return made


@pytest.fixture
def paused():
    """The GPU, on the fake driver: what is queued stays so."""
    try:
        pause = ctypes.CDLL("libcuda.so.1").fakecuda_pause
    except AttributeError:
        pytest.skip("a real GPU can't be paused")
    yield pause
    pause(0)


def test_one_frame_late(exporter, importer):
    begin(importer, exporter, 0)
    kept = []
    for n in range(1, 20):
        send(exporter, n)
        kept.append(get(importer, n - 1))
        assert importer.get_frame_numpy().outcome is NOTHING
    assert all((array == n).all() for n, array in enumerate(kept))
    assert is_pinned(kept[0]) and not is_pinned(kept[-1])  # copied at once
    assert importer.frame_count == importer.get_stats()["copies_made"] == 19
    until_held(importer._importer, 0)


def test_a_get_does_not_wait_for_its_copy(exporter, importer, paused):
    begin(importer, exporter, 0)
    for n in range(1, 10):
        send(exporter, n)
        importer.wait_for_doorbell(LIMIT * 1000)
        cu("cuCtxSynchronize")  # the script works, and the copy of n - 1 ends
        paused(1)
        get(importer, n - 1)  # or it never returns
        assert importer.get_frame_numpy().outcome is NOTHING
        paused(0)


def test_the_memory_of_two_frames_takes_turns(exporter, importer):
    begin(importer, exporter, 0)
    places = set()
    for n in range(1, 20):
        send(exporter, n)
        places.add(get(importer, n - 1).ctypes.data)
    assert len(places) == 2


def test_close_waits_for_the_copy(exporter, importer, calls):
    """F22."""
    begin(importer, exporter, 1)
    calls.clear()
    importer.close()
    assert calls == ["importer_finish", "importer_close"]
    with pytest.raises(cuda_link.ClosedError):
        importer.get_frame_numpy()
    importer.close()


@pytest.mark.parametrize("cycle", [False, True])
def test_so_does_the_end_of_the_object(exporter, calls, cycle):
    importer = Importer.open(ImportSpec(exporter.spec.shm_name), policy=POLICY)
    begin(importer, exporter, 1)
    calls.clear()
    if cycle:
        importer.itself = importer
    del importer
    gc.collect()
    assert calls == ["importer_finish", "importer_close"]


def test_a_frame_that_was_taken_before_another_thread_closed(exporter, importer, monkeypatch):
    begin(importer, exporter, 1)
    arrays = importer._arrays.get

    def closing(*arguments):
        importer.close()
        return arrays(*arguments)

    monkeypatch.setattr(importer._arrays, "get", closing)
    send(exporter, 2)
    with pytest.raises(cuda_link.ClosedError, match="another thread"):
        while not importer._importer.closed:
            importer.get_frame_numpy()


def test_the_last_frame_comes_before_the_end(name):  # noqa: F811
    with Importer.open(ImportSpec(name, timeout_ms=0), policy=POLICY) as importer:
        for n in (10, 20):
            with Exporter.open(spec(name), policy=ExportPolicy(wire="own")) as exporter:
                exporter._exporter.wait_consumers(1, LIMIT)
                while importer.get_frame_numpy().outcome is not NOTHING:
                    pass
                begin(importer, exporter, n)
                send(exporter, n + 1)
                get(importer, n)
            frame_of(until(importer, NEW), n + 1)
            assert importer.get_frame_numpy() == (OVER, None)


KILLED = """
import sys
sys.path[:0] = sys.argv[2:]
from cuda_link import *
from standin import new_memory
import numpy
with Exporter.open(FrameSpec(sys.argv[1], height=24, width=32), policy=ExportPolicy(wire="own")) as exporter:
    exporter._exporter.wait_consumers(1, 60)
    exporter.export(GpuFrame(new_memory(numpy.full(24 * 32 * 4, 7, numpy.uint8)), 24 * 32 * 4, 0))
    sys.stdin.read()
"""


def test_a_producer_that_is_killed(name, request):  # noqa: F811
    folder = os.path.dirname(__file__)
    with Importer.open(ImportSpec(name, timeout_ms=0), policy=POLICY) as importer:
        producer = start_python(KILLED, name, folder, os.path.dirname(folder))
        request.addfinalizer(producer.communicate)
        request.addfinalizer(producer.kill)
        end = time.monotonic() + LIMIT
        while not importer._importer.statistics().received:
            assert importer.get_frame_numpy().frame is None and time.monotonic() < end
        producer.send_signal(signal.SIGKILL)
        frame_of(until(importer, NEW), 7)
        assert importer.get_frame_numpy() == (OVER, None)


def test_another_get_that_has_told_the_end(name):  # noqa: F811
    """Then the first frame of the next session is no frame of the one before."""
    with Importer.open(ImportSpec(name, timeout_ms=0), policy=POLICY) as importer:
        with Exporter.open(spec(name), policy=ExportPolicy(wire="own")) as exporter:
            exporter._exporter.wait_consumers(1, LIMIT)
            while importer.get_frame_numpy().outcome is not NOTHING:
                pass
            begin(importer, exporter, 1)
        end = time.monotonic() + LIMIT
        while importer._take(None).outcome is not OVER:
            assert time.monotonic() < end
        with Exporter.open(spec(name), policy=ExportPolicy(wire="own")) as exporter:
            exporter._exporter.wait_consumers(1, LIMIT)
            until_joined(importer)
            begin(importer, exporter, 2)
            send(exporter, 3)
            get(importer, 2)


def test_pixels_that_come_late(name):  # noqa: F811
    """TIMEOUT as ever; what is on its way stays so."""
    stream = new_stream()
    with Exporter.open(spec(name), policy=ExportPolicy(wire="own")) as exporter:
        with Importer.open(ImportSpec(name, timeout_ms=LIMIT * 1000), policy=POLICY) as importer:
            begin(importer, exporter, 1)
            importer.spec = ImportSpec(name, timeout_ms=1)
            with Blocked(stream):
                send(exporter, 2, stream)
                until(importer, LATE)
            importer.spec = ImportSpec(name, timeout_ms=LIMIT * 1000)
            get(importer, 1)
            send(exporter, 3)
            get(importer, 2)


def test_frames_of_another_size(name):  # noqa: F811
    with cuda_link.open_exporter(name, shape=(8, 8, 4), kind="vmm") as exporter:
        with Importer.open(ImportSpec(name), policy=POLICY) as importer:
            shapes = [(8, 8, 4), (512, 300, 3), (512, 300, 3), (2, 9), (8, 8, 4)]
            for n, shape in enumerate(shapes):
                exporter.send(np.full(shape, n, np.uint8), timeout=LIMIT)
                if n:
                    assert get(importer, n - 1).shape == (shapes[n - 1] + (1,))[:3]
                else:
                    assert take(importer).outcome is NOTHING


def test_where_nothing_can_be_pinned(exporter, importer, monkeypatch):
    def refuse(*_):
        raise cuda_link.GpuError("no")

    monkeypatch.setattr(low, "array_pinned", refuse)
    begin(importer, exporter, 0)
    for n in range(1, 5):
        send(exporter, n)
        assert not is_pinned(get(importer, n - 1))


def test_a_copy_that_fails_is_told(exporter, importer, monkeypatch):
    begin(importer, exporter, 0)

    def fail(number, finish=low.importer_finish):
        finish(number)
        raise cuda_link.GpuLostError("gone")

    with monkeypatch.context() as patch:
        patch.setattr(low, "importer_finish", fail)
        send(exporter, 1)
        with pytest.raises(cuda_link.GpuLostError):
            take(importer)
    send(exporter, 2)
    get(importer, 1)


def test_several_threads(exporter):
    with Importer.open(ImportSpec(exporter.spec.shm_name), policy=POLICY) as importer:
        got, over = [], threading.Event()

        def work():
            while not over.is_set():
                result = importer.get_frame_numpy()
                if result.outcome is NEW:
                    first = int(result.frame.flat[0])
                    got.append(first if (result.frame == first).all() else None)

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            end = time.monotonic() + LIMIT
            sources = [new_memory(np.full(SIZE, n, np.uint8)) for n in range(9)]
            while len(got) < 50:
                exporter.export(GpuFrame(sources[len(got) % 9], SIZE, 0))
                assert time.monotonic() < end
        finally:
            over.set()
            for thread in threads:
                thread.join()
        assert None not in got


def test_frames_of_the_old_wire(name):  # noqa: F811
    with Peer("send", name, HEIGHT, WIDTH, 3) as peer:
        with Importer.open(ImportSpec(name), policy=POLICY) as importer:
            peer.ask(1)
            end = time.monotonic() + LIMIT
            while not importer._importer.statistics().received:  # its first frame makes it a producer
                assert importer.get_frame_numpy().frame is None and time.monotonic() < end
            for n in (2, 3, 4, 5):
                peer.ask(n)
                get(importer, n - 1)
            peer.ask("stop")
            frame_of(until(importer, NEW), 5)
            assert importer.get_frame_numpy() == (OVER, None)


def test_a_connection_that_is_handed_over(name):  # noqa: F811
    with Peer("send", name, HEIGHT, WIDTH, 3) as peer:
        with Importer.from_connection(ImportSpec(name), POLICY, connect(name)) as importer:
            peer.ask(1)
            assert importer.get_frame_numpy() == (NOTHING, None) and importer.frame_count == 0
            for n in (2, 3, 4, 5):
                peer.ask(n)
                frame_of(importer.get_frame_numpy(), n - 1)
                assert importer.frame_count == importer.get_stats()["copies_made"] == n - 1
            assert importer.last_latency > 0 and importer.get_frame_numpy().outcome is NOTHING
            peer.ask("stop")
            frame_of(importer.get_frame_numpy(), 5)
            assert importer.get_frame_numpy() == (OVER, None)
            with Exporter.open(spec(name)) as exporter:
                exporter._exporter.wait_consumers(1, LIMIT)
                while importer.get_frame_numpy().outcome is not NOTHING:
                    pass
                begin(importer, exporter, 6)
                send(exporter, 7)
                get(importer, 6)
