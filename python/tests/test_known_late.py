# SPDX-License-Identifier: MIT
"""ImportPolicy.d2h_pipelined: get_frame_numpy is one frame late, also where there is nothing to overlap."""

from __future__ import annotations

import os
import signal
import time

import cuda_link
import numpy as np
import pytest
from conftest import run_python, start_python
from cuda_link import (
    Exporter,
    FrameOutcome,
    FrameSpec,
    GpuFrame,
    Importer,
    ImportOutcome,
    ImportPolicy,
    ImportSpec,
)
from cuda_link._importer import ChannelImporter
from gets import frame_of, take, until

NAME = f"test_known_late_{os.getpid()}"
SPEC = FrameSpec(NAME, height=6, width=8)
LIMIT = 60
POLICY = ImportPolicy(d2h_pipelined=True, reconnect_backoff_frames=())
NEW, NOTHING, OVER, AGAIN = (
    ImportOutcome.NEW_FRAME,
    ImportOutcome.NO_FRAME,
    ImportOutcome.SHUTDOWN,
    ImportOutcome.RECONNECTING,
)


def send(exporter, n):
    pixels = np.full((exporter.spec.height, exporter.spec.width, 4), n, np.uint8)
    assert exporter.export(GpuFrame(pixels.ctypes.data, pixels.nbytes)) is FrameOutcome.PUBLISHED


def opened(policy=POLICY, **options):
    return Importer.open(ImportSpec(NAME, **options), policy=policy)


def begin(importer):
    """A get that takes a frame and returns none."""
    assert take(importer) == (NOTHING, None)


def get(importer, n):
    """A get that takes a frame and returns frame n."""
    return frame_of(take(importer), n)


def last(importer, n):
    """A get behind the end of the producer."""
    end = time.monotonic() + LIMIT
    while (result := importer.get_frame_numpy()).outcome is NOTHING:
        assert time.monotonic() < end
        importer.wait_for_doorbell(1000)
    return frame_of(result, n)


def nothing(importer, outcome=NOTHING):
    result = importer.get_frame_numpy()
    assert (result.outcome, result.frame) == (outcome, None)


def test_one_frame_late():
    with Exporter.open(SPEC) as exporter, opened() as importer:
        nothing(importer)
        send(exporter, 0)
        begin(importer)
        assert importer.frame_count == 0 and importer.get_stats()["copies_made"] == 0
        for n in range(1, 12):
            send(exporter, n)
            get(importer, n - 1)
            nothing(importer)  # n waits for n + 1
            assert importer.frame_count == importer.get_stats()["copies_made"] == n
        assert 0 < importer.last_latency < LIMIT * 1000


def test_the_keys_are_the_same():
    with Exporter.open(SPEC), opened() as importer, opened(ImportPolicy()) as other:
        assert importer.get_stats().keys() == other.get_stats().keys()


def test_the_environment(monkeypatch):
    monkeypatch.setenv("CUDALINK_D2H_PIPELINED", "1")
    with Exporter.open(SPEC) as exporter, opened(None) as importer:
        send(exporter, 1)
        begin(importer)
        send(exporter, 2)
        get(importer, 1)


def test_an_array_is_the_scripts_own():
    with Exporter.open(SPEC) as exporter, opened() as importer:
        send(exporter, 0)
        begin(importer)
        kept = []
        for n in range(1, 12):
            send(exporter, n)
            kept.append(get(importer, n - 1))
        assert [int(array.min()) for array in kept] == [int(array.max()) for array in kept] == list(range(11))
        kept.clear()
        places = set()
        for n in range(12, 30):
            send(exporter, n)
            places.add(get(importer, n - 1).ctypes.data)
        assert len(places) < 12  # memory is used again


def test_an_array_outlives_its_importer():
    with Exporter.open(SPEC) as exporter:
        with opened() as importer:
            send(exporter, 1)
            begin(importer)
            send(exporter, 2)
            array = get(importer, 1)
    assert (array == 1).all()
    with pytest.raises(cuda_link.ClosedError):
        importer.get_frame_numpy()


def test_the_last_frame_comes_before_the_end():
    """1.x lost it."""
    with opened(timeout_ms=0) as importer:
        for n in (10, 20):  # F23: the first frame of a session was the last one of the session before
            with Exporter.open(SPEC) as exporter:
                exporter._exporter.wait_consumers(1, LIMIT)
                send(exporter, n)
                begin(importer)
                send(exporter, n + 1)
                get(importer, n)
            last(importer, n + 1)
            assert importer.wait_for_doorbell(0)  # there is something to get
            nothing(importer, OVER)
            nothing(importer, AGAIN)
        assert importer.frame_count == 4


def test_the_end_without_reconnecting():
    policy = ImportPolicy(d2h_pipelined=True, reconnect_enabled=False)
    with Exporter.open(SPEC) as exporter:
        importer = opened(policy)
        send(exporter, 1)
        begin(importer)
    last(importer, 1)
    for _ in range(3):
        nothing(importer, OVER)
    importer.close()


def test_an_end_with_nothing_on_its_way():
    with opened() as importer:
        with Exporter.open(SPEC) as exporter:
            exporter._exporter.wait_consumers(1, LIMIT)
        until(importer, OVER)


def test_close_says_nothing_more():
    with Exporter.open(SPEC) as exporter:
        importer = opened()
        send(exporter, 1)
        begin(importer)
    last(importer, 1)
    importer.close()
    with pytest.raises(cuda_link.ClosedError):
        importer.get_frame_numpy()


KILLED = """
import sys
import numpy
from cuda_link import Exporter, FrameSpec, GpuFrame
with Exporter.open(FrameSpec(sys.argv[1], height=6, width=8)) as exporter:
    exporter._exporter.wait_consumers(1, 60)
    pixels = numpy.full(192, 7, numpy.uint8)
    print(exporter.export(GpuFrame(pixels.ctypes.data, 192)).name, flush=True)
    sys.stdin.read()
"""


def test_a_producer_that_is_killed(request):
    with opened(timeout_ms=0) as importer:
        producer = start_python(KILLED, NAME)
        request.addfinalizer(producer.communicate)
        while importer.get_frame_numpy().outcome is AGAIN:
            pass
        assert producer.stdout.readline() == "PUBLISHED\n"
        while not importer._importer.statistics().received:
            assert importer.get_frame_numpy().frame is None
        producer.send_signal(signal.SIGKILL)
        last(importer, 7)
        nothing(importer, OVER)


def test_frames_of_another_size():
    with cuda_link.open_exporter(NAME, shape=(2, 3, 4)) as exporter, opened() as importer:
        shapes = [(2, 3, 4), (7, 5, 3), (7, 5, 3), (2, 9)]
        for n, shape in enumerate(shapes):
            exporter.send(np.full(shape, n, np.uint16))
            if not n:
                begin(importer)
                continue
            before = shapes[n - 1]
            array = get(importer, n - 1)
            assert array.shape == before and array.dtype == np.uint16
        exporter.close()
        assert last(importer, 3).shape == (2, 9, 1)


def test_frames_that_are_none():
    with cuda_link.open_exporter(NAME, shape=(2, 3, 4)) as exporter, opened() as importer:
        exporter.send(np.full((2, 3, 4), 1, np.uint8))
        begin(importer)
        with exporter.frame() as slot:
            slot.publish_invalid("lens cap is on")
        begin(importer)
        with exporter.frame(planes={"a": ((2, 2), "uint8"), "b": ((2, 2), "uint8")}) as slot:
            slot.publish()
        with pytest.raises(ValueError, match="open_importer"):
            take(importer)
        exporter.send(np.full((2, 3, 4), 2, np.uint8))
        get(importer, 1)
        assert importer.frame_count == 1


FORKED = """
import os
import threading
import numpy
from cuda_link import Exporter, FrameSpec, GpuFrame, Importer, ImportPolicy, ImportSpec
pixels = numpy.full(192, 7, numpy.uint8)
with Exporter.open(FrameSpec("late", height=6, width=8)) as exporter:
    importer = Importer.open(ImportSpec("late"), policy=ImportPolicy(d2h_pipelined=True))
    exporter.export(GpuFrame(pixels.ctypes.data, 192))
    while not importer._importer.statistics().received:
        importer.get_frame_numpy()
    with importer._pipeline._lock:  # as another thread may have it
        child = os.fork()
        if child == 0:
            del importer
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    importer.close()
"""


def test_a_forked_child_waits_for_nobody():
    ended = run_python(FORKED)
    assert ended.returncode == 0, ended.stderr


def test_a_producer_that_lets_wait(monkeypatch, request):
    """Looks that found nobody end no pipeline."""
    exporters, look = [], ChannelImporter._wait_producer

    def first_in_vain(importer, limit):
        try:
            return look(importer, limit)
        except cuda_link.ChannelNotFoundError:
            exporters.append(Exporter.open(SPEC))
            request.addfinalizer(exporters[0].close)
            raise

    monkeypatch.setattr(ChannelImporter, "_wait_producer", first_in_vain)
    with opened(timeout_ms=LIMIT * 1000) as importer:
        send(exporters[0], 1)
        begin(importer)
        send(exporters[0], 2)
        get(importer, 1)
