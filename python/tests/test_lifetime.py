# SPDX-License-Identifier: MIT
"""How long a frame is held: by the frame, by arrays, by tensors; and what happens in which order."""

from __future__ import annotations

import ctypes
import gc
import sys

import cuda_link
import numpy as np
import pytest
from capsules import look
from conftest import run_python, until_held


@pytest.fixture
def pair():
    with cuda_link.open_exporter("life", shape=(8, 8), kind="host") as exporter:
        with cuda_link.open_importer("life", timeout=10, hold=3) as importer:
            yield exporter, importer


def numbered(n):
    return np.full((8, 8), n, np.uint8)


def test_an_array_keeps_the_frame(pair):
    exporter, importer = pair
    exporter.send(numbered(1))
    frame = importer.acquire(10)
    array = frame.numpy()[2:4]
    frame.release()
    assert importer.held == 1
    for n in range(2, 40):
        exporter.send(numbered(n))
    assert (array == 1).all()
    del array
    gc.collect()
    until_held(importer, 0)


def test_the_end_of_the_frame_object_gives_it_back(pair):
    exporter, importer = pair
    exporter.send(numbered(1))
    frame = importer.acquire(10)
    del frame
    gc.collect()
    until_held(importer, 0)


def test_released_frames_say_so(pair):
    exporter, importer = pair
    exporter.send(numbered(1))
    frame = importer.acquire(10)
    frame.release()
    for use in (frame.numpy, frame.packed, frame.copy, frame.release, frame.tensor().__dlpack__):
        with pytest.raises(ValueError, match="released"):
            use()
    assert frame.shape == (8, 8) and "released" in repr(frame)  # what it was can still be read


@pytest.mark.skipif(sys.version_info < (3, 12), reason="needs Python 3.12")
@pytest.mark.parametrize("way", ["_to_host", "_to_host_begin"])
def test_a_buffer_that_releases_the_frame_that_it_is_for(pair, way):
    """Classes of Python's may have a buffer since 3.12."""
    exporter, importer = pair
    exporter.send(numbered(1))
    frame = importer.acquire(10)

    class Target:
        def __buffer__(self, flags):
            frame.release()
            return memoryview(bytearray(64))

    with pytest.raises(ValueError, match="released"):
        getattr(frame, way)(Target())
    until_held(importer, 0)


def test_too_many_frames_are_named(pair):
    exporter, importer = pair
    frames = []
    for n in range(3):
        exporter.send(numbered(n))
        frames.append(importer.acquire(10))
    exporter.send(numbered(9))
    with pytest.raises(cuda_link.TooManyFramesError, match=r"frames 1, 2, 3.*release.*hold=4"):
        importer.acquire(10)
    array = frames[0].numpy()
    frames[0].release()
    with pytest.raises(cuda_link.TooManyFramesError, match=r"2, 3 and 1 that only arrays"):
        importer.acquire(10)
    del array
    assert importer.acquire(10).sequence == 4


def test_frames_outlive_their_importer_and_exporter(pair):
    exporter, importer = pair
    exporter.send(numbered(7))
    frame = importer.acquire(10)
    array = frame.numpy()
    importer.close()
    exporter.close()
    assert (array == 7).all() and (frame.numpy() == 7).all()
    del array
    frame.release()


def test_a_frame_survives_a_resize(pair):
    exporter, importer = pair
    exporter.send(numbered(7))
    array = importer.acquire(10).numpy()
    for n in range(1, 20):
        exporter.send(np.zeros((64 * n, 64), np.uint8))
        importer.acquire(10)
    assert (array == 7).all()


def test_a_loop_holds_one_frame(pair):
    exporter, importer = pair
    exporter.send(numbered(0))
    seen = []
    for frame in importer:
        array = frame.numpy()  # still there while the loop asks for the next one
        seen.append(int(array[0, 0]))
        if len(seen) == 30:
            break
        exporter.send(numbered(len(seen)))
    assert seen == list(range(30))


def test_closing_in_any_order():
    for order in ("eif", "efi", "ief", "ife", "fei", "fie"):
        exporter = cuda_link.open_exporter("order", shape=(8, 8), kind="host")
        importer = cuda_link.open_importer("order", timeout=10)
        exporter.send(numbered(1))
        frame = importer.acquire(10)
        ends = {"e": exporter.close, "i": importer.close, "f": frame.release}
        for letter in order:
            ends[letter]()
        exporter.close()
        importer.close()


def test_closed_ends_say_so(pair):
    exporter, importer = pair
    importer.close()
    exporter.close()
    assert exporter.closed and importer.closed
    for use in (importer.acquire, importer.statistics, exporter.statistics, exporter.frame().__enter__):
        with pytest.raises(cuda_link.ClosedError):
            use()
    with pytest.raises(cuda_link.ClosedError):
        exporter.send(numbered(1))


def written(slot):
    """Every way to look at a slot's memory, with what writes all of it."""
    array, tensor, user = slot.numpy(), slot.tensor().__dlpack__(max_version=(1, 0)), slot.user
    address, size = look(tensor)[0], array.nbytes

    def write():
        array[:] = 3
        user[:] = b"12345678"
        ctypes.memset(address, 4, size)
        return tensor

    return write


@pytest.mark.parametrize("how", ["published", "abandoned", "begun", "moved"])
def test_the_memory_of_a_slot_outlives_its_exporter(how):
    exporter = cuda_link.open_exporter("slots", shape=(500, 500), kind="host", user_size=8)
    slot = exporter.frame(user_size=8)
    slot.__enter__()
    write = written(slot)
    if how == "published":
        slot.publish()
    if how == "abandoned":
        slot.abandon()
    if how == "moved":
        slot.publish()
        for n in range(1, 6):
            exporter.send(np.zeros((500 * n, 800), np.uint8))
    else:
        exporter.close()
        del exporter
    for _ in range(20):  # what was let go would be in use again by now
        with cuda_link.open_exporter("others", shape=(500, 500), kind="host") as other:
            other.send(numbered(1))
        write()
    del slot
    gc.collect()
    write()


def test_a_published_slot_lends_nothing_new(pair):
    exporter, _ = pair
    with exporter.frame() as slot:
        tensor = slot.tensor()
    for use in (slot.numpy, tensor.__dlpack__, lambda: slot.user):
        with pytest.raises(ValueError, match="lent"):
            use()
    with exporter.frame() as slot:
        exporter.close()
        with pytest.raises(ValueError, match="close"):
            slot.numpy()
        slot._open = False  # it can't be published any more


RELEASED_MEANWHILE = """
import random, sys, threading, time
import cuda_link

sys.setswitchinterval(1e-6)
exporter = cuda_link.open_exporter("meanwhile", shape=(64,), kind="host")
importer = cuda_link.open_importer("meanwhile", timeout=10, hold=2)
frames, failures, over = [None], [], threading.Event()


def look():
    steps = [
        lambda frame: frame.numpy().sum(),
        lambda frame: frame.lost,
        lambda frame: frame.__dlpack__(),
        lambda frame: frame.packed(),
        lambda frame: frame.release(stream=-1),
    ]
    while not over.is_set():
        frame = frames[0]
        try:
            if frame is not None:
                random.choice(steps)(frame)
        except ValueError:
            pass  # released
        except BaseException as error:
            failures.append(error)


threads = [threading.Thread(target=look) for _ in range(4)]
for thread in threads:
    thread.start()
for _ in range(1000):
    exporter.send(bytes(64))
    try:
        frames[0] = importer.acquire(10)
        time.sleep(0)
        frames[0].release(stream=-1)
    except (ValueError, cuda_link.BusyError):
        pass
over.set()
for thread in threads:
    thread.join()
del frames[:]
exporter.send(bytes(64))
importer.acquire(10).release()
end = time.monotonic() + 50
while importer.held and time.monotonic() < end:  # another thread may give it back
    time.sleep(0)
print(failures, importer.held)
"""


def test_a_frame_that_is_released_meanwhile():
    """Looked at, exported, copied and released on several threads at once."""
    ended = run_python(RELEASED_MEANWHILE)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "[] 0\n", "")


def test_an_exception_is_not_hidden_by_the_end_of_its_channel(pair):
    exporter, _ = pair
    with pytest.raises(KeyError, match="mine"), exporter.frame() as slot:
        exporter.close()
        raise KeyError("mine")
    with pytest.raises(ValueError, match="not lent"):
        slot.numpy()


def test_a_slot_of_a_closed_exporter_is_not_published(pair):
    exporter, _ = pair
    with pytest.raises(cuda_link.ClosedError) as caught, exporter.frame():
        exporter.close()
    assert caught.value.__context__ is None


def test_a_slot_that_is_dropped_is_given_back(pair):
    exporter, _ = pair
    array = exporter.frame().__enter__().numpy()
    gc.collect()
    exporter.send(numbered(1))
    assert array.shape == (8, 8) and exporter.statistics().abandoned == 1


def test_a_generator_that_is_dropped_half_way_gives_its_slot_back(pair):
    exporter, importer = pair

    def fill():
        with exporter.frame() as slot:
            yield slot.numpy()

    for _ in range(50):
        half_way = fill()
        next(half_way)[:] = 1
        del half_way
    gc.collect()
    assert exporter.send(numbered(2)) and exporter.statistics().published == 1
    frames = iter(importer)
    frame = next(frames)
    del frames
    assert frame.packed() == bytearray(b"\2" * 64) and frame.released is False
