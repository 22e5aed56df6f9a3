# SPDX-License-Identifier: MIT
"""Arrays on a GPU that look as the last one did are sent in one call, and by the same rules."""

from __future__ import annotations

import ctypes
import gc
import threading
import types
import weakref

import cuda_link
import numpy as np
import pytest
import tables
from capsules import get_pointer
from cuda_link import _abi, _plan
from test_gpu import (  # noqa: F401 (fixtures)
    LIMIT,
    SHAPE,
    Blocked,
    exporter,
    importer,
    is_gone,
    picture,
    pytestmark,
    stream,
)

core_only = pytest.mark.skipif(
    cuda_link.backend.name != "core", reason="the ctypes back end has no such call"
)


@pytest.fixture
def array(exporter, importer):  # noqa: F811
    """On the GPU, and complete."""
    return made(exporter, importer, picture())


def made(exporter, importer, data):  # noqa: F811
    exporter.send(data)
    with importer.acquire(10) as frame:
        array = cuda_link.from_dlpack(frame, copy=True)
    array.numpy()
    return array


@pytest.fixture
def relay():
    with cuda_link.open_exporter("relay", shape=SHAPE, kind="vmm") as opened:
        yield opened


@pytest.fixture
def end(relay):
    with cuda_link.open_importer("relay", timeout=10, hold=4) as opened:
        yield opened


@pytest.fixture
def plans(monkeypatch):
    """How often the long way was gone."""
    counted, plan = [], _plan.Planner.plan
    monkeypatch.setattr(_plan.Planner, "plan", lambda *given: counted.append(1) or plan(*given))
    return counted


class Base:
    """As a torch tensor: what its table gives is what it has."""

    requires_grad = is_sparse = is_quantized = is_meta = is_nested = False

    def __init__(self, array):
        self.array = array

    def is_conj(self):
        return False

    def is_neg(self):
        return False

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def give_away(array):
    """A tensor that is its taker's to delete."""
    capsule = array.__dlpack__(stream=-1, max_version=(1, 0))
    tensor = get_pointer(capsule, b"dltensor_versioned")
    tables.used(capsule)
    return tensor


def kind(current=0, borrow=False):
    """A type with a table whose current stream is that one."""

    def give(thing):
        return give_away(thing.array)

    capsule = tables.table(give, lambda *_: current() if callable(current) else current)
    if borrow:
        lend = tables.FROM_OBJECT(lambda thing, out: borrowed(thing, out))
        table = _abi.Exchange.from_address(get_pointer(capsule, tables.NAME))
        table.borrow_from_object = ctypes.cast(lend, ctypes.c_void_p)
        tables.HAND_MADE.append(lend)
    return type("WithTable", (Base,), {"__dlpack_c_exchange_api__": capsule})


def borrowed(thing, out):
    thing.lent = thing.array.__dlpack__(stream=-1, max_version=(1, 0))
    tensor = _abi.VersionedTensor.from_address(get_pointer(thing.lent, b"dltensor_versioned")).tensor
    ctypes.memmove(out, ctypes.addressof(tensor), ctypes.sizeof(tensor))
    return 0


@core_only
@pytest.mark.parametrize("borrow", [False, True])
def test_the_second_one_goes_the_short_way(relay, end, array, plans, borrow):
    source = kind(borrow=borrow)(array)
    for n in range(5):
        assert relay.send(source) is True
        with end.acquire(10) as frame:
            assert frame.sequence == n + 1
            np.testing.assert_array_equal(frame.numpy(), picture())
    assert len(plans) == 1
    assert relay.statistics().copies == 5


@core_only
def test_an_array_of_ours(relay, end, array, plans):
    for _ in range(5):
        assert relay.send(array)
        np.testing.assert_array_equal(end.acquire(10).numpy(), picture())
    assert len(plans) == 1


def watched(array, deleted):
    """A tensor that tells when its taker deletes it."""
    tensor = give_away(array)
    whole = _abi.VersionedTensor.from_address(tensor)
    delete = tables.DELETER(whole.deleter)
    watching = tables.DELETER(lambda address: deleted.append(1) or delete(address))
    whole.deleter = ctypes.cast(watching, ctypes.c_void_p)
    tables.HAND_MADE.append(watching)
    return tensor


@core_only
def test_it_stays_until_its_copy_has_run(relay, array, stream, plans):  # noqa: F811
    given = []  # a list for each tensor

    def give(thing):
        given.append([])
        return watched(thing.array, given[-1])

    capsule = tables.table(give, lambda *_: stream)
    source = type("WithTable", (Base,), {"__dlpack_c_exchange_api__": capsule})(array)
    relay.send(source)
    with Blocked(stream):
        kept = weakref.ref(source)
        relay.send(source)
        del source
        gc.collect()
        assert kept() is None and not given[-1]  # what the table gave is kept
        assert len(plans) == 1
    relay.close()  # from here on it is told without a further call
    assert is_gone(lambda: None if given[-1] else given)


@core_only
def test_what_could_be_borrowed_is_taken(relay, array, plans):
    """An array that is kept may let go of its memory: `tensor.data = other`."""
    source = kind(borrow=True)(array)
    for _ in range(3):
        relay.send(source)
    assert len(plans) == 1 and not hasattr(source, "lent")


@core_only
def test_the_stream_that_its_table_names(relay, end, array, stream, plans):  # noqa: F811
    current = [0]
    with_table = kind(current=lambda: current[0])
    source = with_table(array)
    relay.send(source)
    current[0] = stream
    with Blocked(stream):
        relay.send(source)
        with pytest.raises(cuda_link.TimedOutError, match="not complete"):
            end.acquire(0)
        current[0] = 0
        relay.send(source, stream=stream)
        with pytest.raises(cuda_link.TimedOutError, match="not complete"):
            end.acquire(0)
        relay.send(source, stream=-1)
        assert end.acquire(10).sequence == 4
    for number in (0, 1, 2):
        current[0] = number
        relay.send(source)
        np.testing.assert_array_equal(end.acquire(10).numpy(), picture())
    assert len(plans) == 1


FLAGS = ["requires_grad", "is_sparse", "is_quantized", "is_meta"]


@pytest.mark.parametrize("flag", FLAGS)
def test_flags_are_refused(relay, array, flag):
    with_table = kind()
    fine, odd = with_table(array), with_table(array)
    relay.send(fine)
    setattr(odd, flag, True)
    with pytest.raises(BufferError, match="can't be lent or sent"):
        relay.send(odd)
    relay.send(fine)


@pytest.mark.parametrize("bit", ["conj", "neg"])
def test_bits_are_refused(relay, array, bit):
    with_table = kind()
    fine, odd = with_table(array), with_table(array)
    relay.send(fine)
    setattr(odd, f"is_{bit}", lambda: True)
    with pytest.raises(BufferError, match=f"the {bit} bit"):
        relay.send(odd)


def test_other_arrays_go_the_long_way(relay, end, exporter, importer, array, plans):  # noqa: F811
    with_table = kind()
    source = with_table(array)
    relay.send(source)
    others = {
        "another shape": picture()[:8].copy(),
        "another type": picture().view(np.uint16),
        "fewer dimensions": picture().reshape(24, 128),
    }
    made_of = [(data, with_table(made(exporter, importer, data))) for data in others.values()]
    made_of.append((picture()[:, ::2], with_table(array[:, ::2])))
    plans.clear()
    for n, (data, other) in enumerate(made_of):
        assert relay.send(other)
        assert len(plans) == n + 1
        with end.acquire(10) as frame:
            np.testing.assert_array_equal(frame.numpy(), data)
    for options in ({"pts": 3}, {"user": b""}, {"timeout": 1}):
        plans.clear()
        assert relay.send(source, **options)
        assert plans
    assert relay.send({"a": source}) and relay.send(picture())


@core_only
def test_a_part_of_an_array(relay, end, array, plans):
    """Its bytes begin elsewhere."""
    with_table = kind()
    for first in range(4):
        part = with_table(array[first : first + 20])
        assert relay.send(part)
        np.testing.assert_array_equal(end.acquire(10).numpy(), picture()[first : first + 20])
    assert len(plans) == 1


def test_a_subclass_goes_the_long_way(relay, end, array):
    with_table = kind()
    source = with_table(array)
    relay.send(source)

    class Sub(with_table):
        def __dlpack__(self, **options):
            raise BufferError("not this one")

    with pytest.raises(BufferError, match="not this one"):
        relay.send(Sub(array))


def test_a_table_that_fails_later(relay, end, array):
    fails = []

    def give(thing):
        return 0 if fails else give_away(thing.array)

    with_table = type("WithTable", (Base,), {"__dlpack_c_exchange_api__": tables.table(give, lambda *_: 0)})
    source = with_table(array)
    relay.send(source)
    end.acquire(10).release()
    fails.append(1)
    relay.send(source)
    np.testing.assert_array_equal(end.acquire(10).numpy(), picture())


def test_it_says_when_nothing_is_free(array):
    source = kind()(array)
    few = {"slots": 3, "max_slots": 3, "hold_limit": None}
    with cuda_link.open_exporter("full", shape=SHAPE, kind="vmm", **few) as full:
        with cuda_link.open_importer("full", timeout=10, policy="every") as slow:
            answers = [full.send(source) for _ in range(20)]
            assert answers[0] is True and answers[-1] is False
            assert full.statistics().dropped == answers.count(False)
            assert slow.acquire(10).sequence == 1
    with pytest.raises(cuda_link.ClosedError):
        full.send(source)


def test_an_exporter_of_the_cpu_refuses_all(array):
    with_table = kind()
    with cuda_link.open_exporter("host", shape=SHAPE, kind="host") as host:
        for _ in range(3):
            source = with_table(array)
            with pytest.raises(BufferError, match="memory of the CPU"):
                host.send(source)


@core_only
def test_a_table_that_sends_itself(relay, end, array):
    """What a sender has learned may change while it asks."""
    inner, busy = [], []

    def current(*_):
        if inner and not busy:
            busy.append(1)
            relay.send(inner[0])
        return 0

    with_table = kind(current=current)
    source = with_table(array)
    relay.send(source)
    inner.append(with_table(array[:8]))
    relay.send(source)
    assert busy and relay.statistics().published == 3


@pytest.mark.skipif(cuda_link.backend.name != "pure", reason="the C extension has no lock for it")
def test_garbage_is_collected_while_something_is_kept(relay, array, monkeypatch):
    """An exporter in a cycle ends on whatever thread collects it, also on one that has the lock."""
    from cuda_link import _pure_kept

    keep, closed = _pure_kept.library.cudalink_exporter_keep, []

    def collect(*arguments):
        gc.collect()
        closed.append(forgotten() is None)
        return keep(*arguments)

    def send():
        assert relay.send(array, stream=1)

    other = cuda_link.open_exporter("cycle", shape=SHAPE, kind="vmm")
    other.itself, forgotten = other, weakref.ref(other)
    other.send(array, stream=1)
    monkeypatch.setattr(_pure_kept, "library", types.SimpleNamespace(cudalink_exporter_keep=collect))
    del other
    sending = threading.Thread(target=send, daemon=True)
    sending.start()
    sending.join(LIMIT)
    assert not sending.is_alive() and closed == [True]
