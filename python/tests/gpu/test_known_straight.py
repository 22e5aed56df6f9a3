# SPDX-License-Identifier: MIT
"""The known face's get_frame where torch takes tensors by its table: what the C extension does without Python
is what Python does."""

from __future__ import annotations

import ctypes
import inspect
import sys
import threading
import time

import cuda_link
import numpy as np
import pytest
import tables
from capsules import get_pointer
from cuda_link import Importer, ImportOutcome, ImportPolicy, ImportResult, ImportSpec, _abi, _frameworks
from standin import Module
from test_gpu import LIMIT, Blocked, pytestmark, stream  # noqa: F401 (found by pytest)

SHAPE = (6, 8, 4)
NEW, NOTHING = ImportOutcome.NEW_FRAME, ImportOutcome.NO_FRAME
core_only = pytest.mark.skipif(cuda_link.backend.name != "core", reason="the ctypes back end gives capsules")


class Given:
    """A tensor that torch was given in C."""

    def __init__(self, address):
        self.tensor = _abi.VersionedTensor.from_address(address)
        self.ndim = self.tensor.tensor.dimensions
        self.shape = tuple((ctypes.c_int64 * self.ndim).from_address(self.tensor.tensor.shape))
        self.address = self.tensor.tensor.data

    def __getitem__(self, index):
        assert index == (..., None)
        self.shape = (*self.shape, 1)
        return self

    def __del__(self):
        tables.delete(self.tensor)


def wait_until_held(importer, count):
    """A tensor that goes while the library is busy gives its frame back by another thread."""
    end = time.monotonic() + LIMIT
    while importer._importer.held != count:
        assert time.monotonic() < end


@pytest.fixture
def torch(monkeypatch):
    """Its table fails while `fails` is not empty."""
    module = Module("torch")
    module.fails = []

    @tables.TO_OBJECT
    def to_object(address, out):
        if module.fails:
            return -1
        made = Given(address)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(made))
        out[0] = id(made)
        return 0

    capsule = tables.table(lambda _: 0, lambda *_: module.stream)
    table = _abi.Exchange.from_address(get_pointer(capsule, tables.NAME))
    table.to_object = ctypes.cast(to_object, ctypes.c_void_p)
    tables.HAND_MADE.append(to_object)
    monkeypatch.setitem(sys.modules, "torch", module)
    monkeypatch.setattr(_frameworks, "torch_table", capsule)
    return module


@pytest.fixture
def exporter():
    with cuda_link.open_exporter("straight", shape=SHAPE, kind="vmm") as exporter:
        with cuda_link.open_importer("straight", timeout=10) as importer:
            exporter.send(picture(0))
            importer.acquire(10)._given()  # torch knows such elements
        yield exporter


@pytest.fixture
def asked(monkeypatch):
    """What Python was asked to get."""
    calls = []
    get = Importer._get_frame
    monkeypatch.setattr(
        Importer, "_get_frame", lambda self, *arguments: calls.append(arguments) or get(self, *arguments)
    )
    return calls


def picture(n):
    return np.full(SHAPE, n, np.uint8)


def until(importer, outcome=NEW):
    end = time.monotonic() + LIMIT
    while (result := importer.get_frame()).outcome is not outcome:
        assert time.monotonic() < end, result
    return result


def opened(exporter, asked, policy=None, **options):
    """An importer whose gets go straight."""
    importer = Importer.open(ImportSpec("straight", **options), policy=policy)
    exporter.send(picture(1))
    assert until(importer).outcome is NEW
    asked.clear()
    return importer


def complete(exporter, n):
    """A frame that is complete."""
    exporter.send(picture(n), timeout=10)
    with cuda_link.open_importer("straight", timeout=10) as importer:
        importer.acquire(10)


@core_only
def test_gets_go_straight(exporter, asked, torch):
    with opened(exporter, asked, ImportPolicy(hold=8)) as importer:
        kept = []
        for n in range(2, 12):
            complete(exporter, n)
            result = importer.get_frame() if n % 2 else importer.get_frame(stream=None)
            assert type(result) is ImportResult and result.outcome is NEW
            assert importer._frame.packed() == picture(n).tobytes()
            assert (result.frame.shape, result.frame.address) == (SHAPE, importer._frame._address)
            assert importer.frame_count == n and 0 < importer.last_latency < LIMIT * 1000
            kept = [result.frame]
        assert not asked and len(kept) == 1
        stats = importer.get_stats()
        assert (stats["frame_count"], stats["copies_made"], stats["frames_missed"]) == (11, 0, 0)
        assert importer.get_frame().outcome is NOTHING and asked == [(None,)]
        complete(exporter, 12)
        assert importer.get_frame(None).outcome is NEW and asked == [(None,)]


@core_only
def test_frames_are_given_back(exporter, asked, torch):
    with opened(exporter, asked) as importer:
        result = None
        for n in range(50):
            complete(exporter, n)
            result = until(importer)
        wait_until_held(importer, 1)
        importer._frame = None
        assert importer._importer.held == 1  # the tensor's
        del result
        wait_until_held(importer, 0)
        assert not asked or asked == [(None,)] * len(asked)


@core_only
def test_what_is_no_straight_frame(exporter, asked, torch):
    with opened(exporter, asked) as importer:
        exporter.send(picture(3)[0])
        result = until(importer)
        assert result.frame.shape == (8, 4, 1) and asked[-1][1] is importer._frame
        assert importer.frame_count == 2
        with exporter.frame() as slot:
            slot.publish_invalid("lens cap is on")
        asked.clear()
        end = time.monotonic() + LIMIT
        while not any(len(arguments) == 2 for arguments in asked):
            assert importer.get_frame().outcome is NOTHING and time.monotonic() < end
        assert importer.frame_count == 2
        asked.clear()
        exporter.send(picture(4).view(np.uint16))  # torch was not given such elements yet
        assert until(importer).frame.shape == (6, 8, 2) and len(asked[-1]) == 2
        assert importer.frame_count == 3


def test_several_planes_among_others(exporter, torch):
    if cuda_link.backend.name == "pure":
        _frameworks.torch_table = None
    with Importer.open(ImportSpec("straight")) as importer:
        for n in range(1, 9):
            exporter.send(picture(n))
            kept = until(importer)
            with exporter.frame(planes={"a": (SHAPE, "uint8"), "b": ((2, 2), "uint8")}) as slot:
                slot.publish()
            with pytest.raises(ValueError, match="open_importer"):
                until(importer)
            stats = importer.get_stats()
            assert stats["frame_count"] == n and stats["shape"] == SHAPE
            wait_until_held(importer, 1)
            assert kept.outcome is NEW


@core_only
def test_a_table_that_fails(exporter, asked, torch):
    with opened(exporter, asked) as importer:
        complete(exporter, 2)
        torch.fails.append(1)
        before = importer._frame
        with pytest.raises(RuntimeError, match="exchange table"):
            importer.get_frame()
        assert importer.frame_count == 2 and importer._frame is before and not asked
        torch.fails.clear()
        complete(exporter, 3)
        assert importer.get_frame().outcome is NEW


@pytest.mark.parametrize("options", [{"shape": (6, 16, 2)}, {"dtype": "int8"}])
def test_overrides_are_pythons(exporter, asked, torch, options):
    with Importer.open(ImportSpec("straight", **options)) as importer:
        for n in range(3):
            exporter.send(picture(n))
            asked.clear()
            if cuda_link.backend.name == "pure":
                until(importer)
            else:
                with pytest.raises(AttributeError):  # the stand-in is no tensor to change
                    until(importer)
            assert all(arguments == (None,) for arguments in asked) and asked


@core_only
def test_ends_are_told_once_and_then_some_gets_pass(exporter, asked, torch):
    policy = ImportPolicy(reconnect_backoff_frames=(4,))
    with opened(exporter, asked, policy) as importer:
        exporter.close()
        until(importer, ImportOutcome.SHUTDOWN)
        assert isinstance(asked[-1][1], (cuda_link.EndedError, cuda_link.PeerLostError))
        assert importer.get_frame().outcome is ImportOutcome.RECONNECTING
        assert importer._backoff.left == 3
        with cuda_link.open_exporter("straight", shape=SHAPE, kind="vmm") as again:
            again.send(picture(5))
            for left in (2, 1, 0):
                assert importer.get_frame().outcome is ImportOutcome.RECONNECTING
                assert importer._backoff.left == left
            until(importer)
            asked.clear()
            complete(again, 6)
            assert importer.get_frame().outcome is NEW and not asked


@core_only
def test_a_stream_that_waits_is_pythons(exporter, asked, torch, stream):  # noqa: F811
    policy = ImportPolicy(
        torch_gpu_wait_adaptive=True,
        gpu_wait_adaptive_window=1,
        gpu_wait_adaptive_sleep_pct=1,
        wait_spin_us=0,
    )
    with opened(exporter, asked, policy, timeout_ms=1) as importer:
        with Blocked(stream):
            exporter.send(picture(2), timeout=10)
            source = cuda_link.from_dlpack(importer._frame, copy=True, stream=stream)
            exporter.send(source, stream=stream)
            until(importer, ImportOutcome.TIMEOUT)
            assert importer.get_stats()["gpu_wait_active"]
        until(importer)
        asked.clear()
        complete(exporter, 3)
        until(importer)
        assert asked


@core_only
def test_words_that_get_frame_does_not_know(exporter, asked, torch):
    with opened(exporter, asked) as importer:
        for call in (
            lambda: importer.get_frame("a stream"),
            lambda: importer.get_frame(stream="a stream"),
            lambda: importer.get_frame(None, None),
            lambda: importer.get_frame(None, stream=None),
            lambda: importer.get_frame(streams=None),
        ):
            with pytest.raises(TypeError):
                call()
        complete(exporter, 2)
        assert importer.get_frame(**{"".join(["str", "eam"]): None}).outcome is NEW  # not interned
    with pytest.raises(cuda_link.ClosedError):
        importer.get_frame()


def test_get_frame_is_described_whoever_answers():
    assert "torch tensor" in (Importer.get_frame.__doc__ or "")
    assert list(inspect.signature(Importer.get_frame).parameters) == ["self", "stream"]


@core_only
def test_several_threads_get(exporter, asked, torch):
    policy = ImportPolicy(hold=8)
    with opened(exporter, asked, policy) as importer:
        got, over = [], threading.Event()

        def get():
            while not over.is_set():
                result = importer.get_frame()
                if result.outcome is NEW:
                    got.append(result.frame.shape)

        threads = [threading.Thread(target=get) for _ in range(3)]
        for thread in threads:
            thread.start()
        end = time.monotonic() + LIMIT
        while len(got) < 50:
            exporter.send(picture(len(got) % 200))
            assert time.monotonic() < end
        over.set()
        for thread in threads:
            thread.join()
        assert set(got) == {SHAPE}
