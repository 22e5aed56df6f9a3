# SPDX-License-Identifier: MIT
"""What the C extension does without Python is what Python does: frames beside their tensors."""

from __future__ import annotations

import gc
import inspect
import itertools
import weakref

import cuda_link
import numpy as np
import pytest
from capsules import look
from conftest import until_held


@pytest.fixture
def pair():
    with cuda_link.open_exporter("fast", shape=(6, 8), kind="host") as exporter:
        with cuda_link.open_importer("fast", timeout=10, hold=2) as importer:
            yield exporter, importer


@pytest.fixture
def frame(pair):
    exporter, importer = pair
    exporter.send(np.arange(48, dtype=np.int16).reshape(6, 8))
    return importer.acquire(10)


SAID = {
    "stream": [None, -1, 0, 1, 2, 77, -2, True, 1.0, "1", 2**70],
    "max_version": [None, (0, 8), (1, 0), (1, 3), (2, 0), [1, 0]],
    "dl_device": [None, (1, 0), (2, 0)],
    "copy": [None, False, True],
}


def outcome(exported, options):
    try:
        return look(exported.__dlpack__(**options))
    except Exception as error:
        return type(error), str(error)


def test_frames_answer_as_their_tensors_do(frame):
    for names in itertools.chain.from_iterable(itertools.combinations(SAID, n) for n in range(len(SAID) + 1)):
        for values in itertools.product(*(SAID[name] for name in names)):
            options = dict(zip(names, values))
            of_frame = outcome(frame, options)
            of_tensor = outcome(frame.tensor(), options)
            if options.get("copy") and len(of_frame) > 2:
                of_frame, of_tensor = of_frame[1:], of_tensor[1:]  # each copy has an address of its own
            assert of_frame == of_tensor, options


def test_words_that_nobody_knows(frame):
    for call in (lambda: frame.__dlpack__(None), lambda: frame.__dlpack__(streams=1)):
        with pytest.raises(TypeError):
            call()
    made = "".join(["max_", "version"])  # not interned
    assert look(frame.__dlpack__(**{made: (1, 0)})) == look(frame.__dlpack__(max_version=(1, 0)))


def test_a_frame_can_be_referred_to_weakly(pair):
    exporter, importer = pair
    exporter.send(b"abcd")
    frame, gone = importer.acquire(10), []
    kept = weakref.ref(frame, gone.append)
    assert kept() is frame
    del frame
    gc.collect()
    assert kept() is None and gone == [kept]
    until_held(importer, 0)


def test_a_frame_is_not_made_by_hand():
    with pytest.raises(TypeError):
        cuda_link.Frame()


def test_what_it_was_can_be_read_after_release(pair):
    exporter, importer = pair
    for planes in (1, 3, 16):
        sent = {f"p{i}": np.full((2, i + 1), i, np.uint8) for i in range(planes)}
        exporter.send(sent, pts=5, user=b"")
        frame = importer.acquire(10)
        frame.release()
        gc.collect()
        assert [plane.shape for plane in frame.planes] == [(2, i + 1) for i in range(planes)]
        assert (frame.pts, frame.kind, frame.writable, frame.invalid) == (5, "host", False, None)


def test_frames_that_look_alike_share_their_layout(pair):
    exporter, importer = pair
    wide, high = np.zeros((2, 8), np.uint8), np.zeros((8, 2), np.uint8)
    layouts = []
    for sent, options in [(wide, {"pts": 1}), (wide, {"pts": 2}), (high, {}), ({"a": wide, "b": wide}, {})]:
        exporter.send(sent, **options)
        layouts.append(importer.acquire(10).layout)
    assert layouts[0] is layouts[1] and [plane.shape for plane in layouts[2].planes] == [(8, 2)]
    assert [plane.name for plane in layouts[3].planes] == ["a", "b"]


def test_a_slot_that_was_not_lent_yet(pair):
    slot = pair[0].frame()
    for call in (slot._publish, slot._abandon, slot._view):
        with pytest.raises(ValueError):
            call(0, 0)
    with pytest.raises(ValueError):
        slot._publish_invalid("no")
    with pytest.raises(ValueError):
        slot._export(slot._description, 0, True)


def test_a_look_tells_nothing_that_a_wait_would_tell(pair):
    exporter, importer = pair
    frames = [importer.acquire(10) for _ in range(2) if exporter.send(b"abcd")]
    assert sorted(importer._held.numbers()) == [1, 2]
    exporter.send(b"abcd")
    with pytest.raises(cuda_link.TooManyFramesError, match=r"frames 1, 2\)"):
        importer.acquire()
    frames.clear()
    until_held(importer, 0)
    assert importer.acquire(0).sequence == 3
    assert importer._held.numbers() == [] and len(importer._held) == 0
    exporter.close()
    with pytest.raises(cuda_link.EndedError):
        importer.acquire(10)
    with pytest.raises(cuda_link.TimedOutError):
        importer.acquire(0)
    importer.close()
    with pytest.raises(cuda_link.ClosedError):
        importer.acquire(0)


def test_full_hands_are_told_before_an_end(pair):
    exporter, importer = pair
    frames = [importer.acquire(10) for _ in range(2) if exporter.send(b"abcd")]
    exporter.close()
    while importer.statistics().connection == "joined":
        pass
    with pytest.raises(cuda_link.TooManyFramesError):
        importer.acquire(0)
    frames.clear()
    with pytest.raises(cuda_link.EndedError):
        importer.acquire(10)


@pytest.mark.parametrize(
    "positional, named",
    [
        ((), {}),
        ((None,), {}),
        ((0,), {}),
        ((0.5,), {}),
        ((True,), {}),
        ((2**70,), {}),
        ((np.float32(1),), {"stream": None}),
        ((), {"timeout": 0}),
        ((), {"timeout": float("inf"), "stream": None}),
        ((), {"".join(["time", "out"]): 1}),  # not interned
        ((10,), {"stream": -1}),
    ],
)
def test_every_way_to_ask_for_a_frame(pair, positional, named):
    exporter, importer = pair
    exporter.send(b"abcd")
    assert importer.acquire(*positional, **named).sequence == 1


@pytest.mark.parametrize(
    "positional, named, error",
    [
        ((0, None), {}, "positional"),
        ((0,), {"timeout": 0}, "multiple values for argument 'timeout'"),
        ((), {"streams": None}, "unexpected keyword argument 'streams'"),
        (("1",), {}, "timeout='1'"),
        ((), {"timeout": "1"}, "timeout='1'"),
        ((), {"stream": "1"}, "'1' is not a stream"),
    ],
)
def test_words_that_acquire_does_not_know(pair, positional, named, error):
    exporter, importer = pair
    exporter.send(b"abcd")
    with pytest.raises(TypeError, match=error):
        importer.acquire(*positional, **named)
    assert importer.acquire(0).sequence == 1


def test_acquire_is_described_whoever_answers():
    method = cuda_link.ChannelImporter.acquire
    assert "policy" in (method.__doc__ or "")
    assert list(inspect.signature(method).parameters) == ["self", "timeout", "stream"]


def test_an_importer_of_another_class(pair):
    class Counting(cuda_link.ChannelImporter):
        asked = 0

        def acquire(self, *arguments, **options):
            self.asked += 1
            return super().acquire(*arguments, **options)

    exporter, importer = pair
    other = Counting(importer.name, importer._id, 2, False)
    exporter.send(b"abcd")
    assert next(iter(other)).sequence == 1 and other.asked == 1
    importer.close()
    other._id = 0


def test_time_outs_are_looked_at_first(pair):
    exporter, importer = pair
    exporter.send(b"abcd")
    for bad in (-1, float("nan")):
        with pytest.raises(ValueError, match="time-out"):
            importer.acquire(bad)
    assert importer.acquire(0).sequence == 1


def test_the_layout_that_was_found_first_stays(frame):
    """Two threads may ask at once, and both find one."""
    first = frame.layout
    frame._layout = object()
    assert frame.layout is first or cuda_link.backend.name == "pure"
