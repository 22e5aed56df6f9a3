# SPDX-License-Identifier: MIT
"""Cycles through what the C extension's objects refer to are collected, and end as a last reference does."""

from __future__ import annotations

import gc
import sys
import weakref

import cuda_link
import numpy as np
import pytest
import tables
from cuda_link import _abi
from cuda_link._backend import low

core_only = pytest.mark.skipif(
    cuda_link.backend.name != "core", reason="the ctypes back end has no such call"
)


@pytest.fixture
def exporter():
    with cuda_link.open_exporter("cycle", shape=(4, 6), kind="host") as opened:
        yield opened


@pytest.fixture
def ends(monkeypatch):
    """The importers that were closed. An error in a destructor fails the test."""
    closed, close = [], low.importer_close
    monkeypatch.setattr(
        low, "importer_close", lambda identifier: closed.append(identifier) or close(identifier)
    )
    monkeypatch.setattr(sys, "unraisablehook", lambda raised: closed.append(raised.exc_value))
    return closed


def is_collected(gone):
    gc.collect()
    return gone() is None


def is_closed(identifier):
    counters = _abi.ImporterStatistics()
    counters.size = _abi.size(counters)
    try:
        low.importer_statistics(identifier, counters)
    except cuda_link.ClosedError:
        return True
    return False


def known():
    importer = cuda_link.Importer.open(cuda_link.ImportSpec("cycle"))
    return importer, importer._importer._id


def straight(importer):
    """As after a get that torch's table has answered."""
    importer._straight(importer._importer, tables.table(lambda _: 0, lambda *_: 0))
    importer._importer.itself = importer


def as_frame(importer):
    importer._frame = [importer]


@pytest.mark.parametrize("refer", [straight, as_frame])
def test_a_known_importer(exporter, ends, refer):
    importer, identifier = known()
    refer(importer)
    exporter.send(np.zeros((4, 6), np.uint8))
    gone = weakref.ref(importer)
    del importer
    assert is_collected(gone)
    assert ends == [identifier] and is_closed(identifier)


@pytest.mark.parametrize("refer", [straight, as_frame])
def test_a_known_importer_that_was_closed(exporter, ends, refer):
    importer, identifier = known()
    refer(importer)
    importer.close()
    gone = weakref.ref(importer)
    del importer
    assert is_collected(gone)
    assert ends == [identifier]


@pytest.mark.parametrize("base", [cuda_link.Importer, cuda_link.ChannelImporter])
def test_a_subclass_that_has_the_only_one(exporter, base):
    """An object has its class."""
    kind = type("Kind", (base,), {})
    if base is cuda_link.Importer:
        kind.only = kind.open(cuda_link.ImportSpec("cycle"))
    else:
        kind.only = cuda_link.open_importer("cycle")
        kind.only.__class__ = kind
    gone = weakref.ref(kind)
    del kind
    assert is_collected(gone)


def test_a_known_importer_that_is_used_stays(exporter):
    """What a collection must not take: the ways from outside are counted."""
    importer, identifier = known()
    straight(importer)
    for _ in range(3):
        gc.collect()
    assert importer._importer.itself is importer and not is_closed(identifier)
    exporter.send(np.full((4, 6), 3, np.uint8))
    result = importer.get_frame_numpy()
    assert result.outcome is cuda_link.ImportOutcome.NEW_FRAME and (result[1] == 3).all()
    importer.close()


def test_an_importer_through_what_it_holds(exporter, ends):
    importer = cuda_link.open_importer("cycle", timeout=10)
    identifier, gone = importer._id, weakref.ref(importer)
    importer._held.importer = importer
    exporter.send(np.zeros((4, 6), np.uint8))
    frame = importer.acquire(10)
    del importer
    assert not is_collected(gone) and ends == []  # the frame has what it was held by
    del frame
    assert is_collected(gone)
    assert ends == [identifier] and is_closed(identifier)


@core_only
def test_an_exporter_through_the_type_that_it_sends(exporter):
    """A class of arrays that has its exporter as an attribute: the sender has learned the class."""
    array = cuda_link.from_dlpack(np.zeros((4, 6), np.uint8))
    kind = type("Kind", (), {"sender": low.sender(exporter._id)})
    kind.sender.learn(kind, tables.table(lambda _: 0, lambda *_: 0), array, bytes(_abi.Description()))
    gone = weakref.ref(kind)
    assert not is_collected(gone)
    del kind
    assert is_collected(gone)


@core_only
def test_a_sender_is_collected_with_a_buffer_that_refers_to_it(exporter):
    class Buffer(bytearray):
        pass

    array = cuda_link.from_dlpack(np.zeros((4, 6), np.uint8))
    description = Buffer(bytes(_abi.Description()))
    description.sender = low.sender(exporter._id)
    description.sender.learn(type(array), tables.table(lambda _: 0, lambda *_: 0), array, description)
    gone = weakref.ref(description)
    del description
    assert is_collected(gone)
