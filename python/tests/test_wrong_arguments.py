# SPDX-License-Identifier: MIT
"""Arguments of a wrong kind: the exception says which one, what was given and what it may be, and nothing was
done."""

from __future__ import annotations

import asyncio
import logging
import re

import cuda_link
import numpy as np
import pytest
from cuda_link import (
    Exporter,
    ExportPolicy,
    FrameOutcome,
    FrameSpec,
    GpuFrame,
    Importer,
    ImportPolicy,
    ImportSpec,
    from_dlpack,
    open_exporter,
    open_importer,
)

PIXELS = np.zeros(64, "u1")
SPEC = FrameSpec("known", height=4, width=4)
WHOLE = "it is a whole number"
SECONDS = "it is a number of seconds"
TEXT = "it is a str"
CHOICE = "True, False or None"


@pytest.fixture
def ends():
    """Both ends of a channel, and of one of the known face."""
    with open_exporter("modern", shape=(4,), kind="host") as exporter, Exporter.open(SPEC) as known:
        with open_importer("modern", timeout=10) as importer, Importer.open(ImportSpec("known")) as taker:
            yield exporter, importer, known, taker


def importing(**words):
    return Importer.open(ImportSpec(**{"shm_name": "known", **words}))


def exporting(**words):
    return Exporter.open(FrameSpec(**{"shm_name": "other", "height": 4, "width": 4, **words}))


def with_policy(**words):
    return Importer.open(ImportSpec("known"), policy=ImportPolicy(**words))


KNOWN = {
    "Importer.open('x')": (lambda: Importer.open("x"), "Importer.open(spec='x'): pass ImportSpec(name)"),
    "Importer.open(FrameSpec)": (lambda: Importer.open(SPEC), "pass ImportSpec(name)"),
    "Importer policy": (
        lambda: Importer.open(ImportSpec("known"), policy=3),
        "policy=3): pass ImportPolicy()",
    ),
    "Exporter.open('x')": (lambda: Exporter.open("x"), "Exporter.open(spec='x'): pass FrameSpec(name,"),
    "Exporter policy": (lambda: Exporter.open(SPEC, policy=3), "policy=3): pass ExportPolicy()"),
    "the other's policy": (lambda: Exporter.open(SPEC, policy=ImportPolicy()), "pass ExportPolicy()"),
    "FrameSpec.shm_name": (lambda: exporting(shm_name=None), f"FrameSpec.shm_name=None: {TEXT}"),
    "FrameSpec.height": (lambda: exporting(height="4"), f"FrameSpec.height='4': {WHOLE}"),
    "FrameSpec.width": (lambda: exporting(width=4.5), f"FrameSpec.width=4.5: {WHOLE}"),
    "FrameSpec.channels": (lambda: exporting(channels=None), f"FrameSpec.channels=None: {WHOLE}"),
    "FrameSpec.num_slots": (lambda: exporting(num_slots="3"), f"FrameSpec.num_slots='3': {WHOLE}"),
    "FrameSpec.device": (lambda: exporting(device="cuda:0"), f"FrameSpec.device='cuda:0': {WHOLE}"),
    "FrameSpec.extra_flags": (lambda: exporting(extra_flags="4"), f"FrameSpec.extra_flags='4': {WHOLE}"),
    "ExportPolicy": (
        lambda: Exporter.open(SPEC, policy=ExportPolicy(barrier_stale_ns="x")),
        f"ExportPolicy.barrier_stale_ns='x': {WHOLE}",
    ),
    "ImportSpec.shm_name": (lambda: importing(shm_name=3), f"ImportSpec.shm_name=3: {TEXT}"),
    "ImportSpec.device": (lambda: importing(device="x"), f"ImportSpec.device='x': {WHOLE}"),
    "ImportSpec.shape": (lambda: importing(shape=3), "ImportSpec.shape=3: it is (height, width, channels)"),
    "ImportSpec.shape of text": (lambda: importing(shape="abc"), "ImportSpec.shape='abc': it is (height,"),
    "ImportSpec.timeout_ms": (lambda: importing(timeout_ms="x"), "timeout_ms='x': it is a number of milli"),
    "no ImportSpec.timeout_ms": (lambda: importing(timeout_ms=None), "timeout_ms=None: it is a number of"),
    "wait_spin_us": (lambda: with_policy(wait_spin_us="x"), f"ImportPolicy.wait_spin_us='x': {WHOLE}"),
    "d2h_num_streams": (lambda: with_policy(d2h_num_streams="x"), f"d2h_num_streams='x': {WHOLE}"),
    "hold": (lambda: with_policy(hold="x"), f"ImportPolicy.hold='x': {WHOLE}"),
    "backoff": (lambda: with_policy(reconnect_backoff_frames=3), "frames=3: it is a tuple of whole numbers"),
    "backoff of text": (lambda: with_policy(reconnect_backoff_frames=("x",)), "it is a tuple of whole"),
}

OPENING = {
    "name": (lambda: open_exporter(3, shape=4), f"name=3: {TEXT}"),
    "no name": (lambda: open_importer(None), f"name=None: {TEXT}"),
    "slots": (lambda: open_exporter("other", shape=4, slots="x"), f"slots='x': {WHOLE}"),
    "max_slots": (lambda: open_exporter("other", shape=4, max_slots=1.5), f"max_slots=1.5: {WHOLE}"),
    "user_size": (lambda: open_exporter("other", shape=4, user_size="x"), f"user_size='x': {WHOLE}"),
    "zombie_limit": (lambda: open_exporter("other", shape=4, zombie_limit="x"), f"zombie_limit='x': {WHOLE}"),
    "device": (lambda: open_exporter("other", shape=4, device="x"), f"device='x': {WHOLE}"),
    "hold_limit": (lambda: open_exporter("other", shape=4, hold_limit="x"), f"hold_limit='x': {SECONDS}"),
    "a uid": (lambda: open_exporter("other", shape=4, allowed_users=["x"]), "['x']; it is a list of uids"),
    "uids": (lambda: open_exporter("other", shape=4, allowed_users=3), "=3; it is a list of uids"),
    "directory": (lambda: open_exporter("other", shape=4, directory=3), "directory=3: it is a path"),
    "a plane": (lambda: open_exporter("other", planes={"a": 3}), "said by (shape, dtype)"),
    "a plane's name": (lambda: open_exporter("other", planes={1: (4, "u1")}), "named by a str, not by 1"),
    "format": (lambda: open_exporter("other", shape=(4, 4), format=3), f"format=3: {TEXT}"),
    "hold of an importer": (lambda: open_importer("modern", hold="x"), f"hold='x': {WHOLE}"),
    "group": (lambda: open_importer("modern", group=3, policy="shared"), f"group=3: {TEXT}"),
    "importer's device": (lambda: open_importer("modern", device="x"), f"device='x': {WHOLE}"),
    "timeout": (lambda: open_importer("modern", timeout="x"), f"timeout='x': {SECONDS}"),
    "spin": (lambda: open_importer("modern", spin="x"), f"spin='x': {SECONDS}"),
    "channels": (lambda: cuda_link.channels(3), "directory=3: it is a path"),
    "timeout of channels": (lambda: cuda_link.channels(timeout="x"), f"timeout='x': {SECONDS}"),
    "maxsize": (lambda: cuda_link.Queue("x"), f"maxsize='x': {WHOLE}"),
    "get": (lambda: cuda_link.Queue(1).get(timeout="x"), f"timeout='x': {SECONDS}"),
    "put": (lambda: cuda_link.Queue(1).put(1, timeout="x"), f"timeout='x': {SECONDS}"),
    "copy": (lambda: from_dlpack(PIXELS, copy=3), f"copy=3: it is {CHOICE}"),
    "copy as text": (lambda: from_dlpack(PIXELS, copy="never"), f"copy='never': it is {CHOICE}"),
    "copy of an export": (lambda: from_dlpack(PIXELS).__dlpack__(copy=3), f"(copy=3): {CHOICE}"),
}


@pytest.mark.parametrize("what", {**KNOWN, **OPENING})
def test_opening(ends, what):
    call, sentence = {**KNOWN, **OPENING}[what]
    with pytest.raises(TypeError, match=re.escape(sentence)):
        call()


@pytest.mark.parametrize(
    "call, sentence",
    [
        (lambda exporter: exporter.send(b"abcd", timeout="x"), f"timeout='x': {SECONDS}"),
        (lambda exporter: exporter.frame(timeout="x"), f"timeout='x': {SECONDS}"),
        (lambda exporter: exporter.send({1: b"a"}), "a plane is named by a str, not by 1"),
        (lambda exporter: exporter.send({None: b"a"}), "a plane is named by a str, not by None"),
        (lambda exporter: exporter.send(b"abcd", pts="x"), f"pts='x': {WHOLE}"),
        (lambda exporter: exporter.send(b"abcd", duration=1.5), f"duration=1.5: {WHOLE}"),
        (lambda exporter: exporter.send(b"abcd", time_base=[]), "time_base=[]: it is a number of seconds"),
        (lambda exporter: exporter.send(b"abcd", user="x"), "user='x': it is bytes, or another buffer"),
        (lambda exporter: exporter.frame(user_size="x"), f"user_size='x': {WHOLE}"),
        (lambda exporter: exporter.wait_consumers("x"), f"count='x': {WHOLE}"),
        (lambda exporter: exporter.wait_taken("x"), f"timeout='x': {SECONDS}"),
        (lambda exporter: publish_invalid(exporter, 3), f"text=3: {TEXT}"),
    ],
)
def test_sending(ends, call, sentence):
    with pytest.raises(TypeError, match=re.escape(sentence)):
        call(ends[0])
    assert ends[0].statistics().published == 0


def publish_invalid(exporter, text):
    with exporter.frame() as slot:
        slot.publish_invalid(text)


def test_taking(ends):
    exporter, importer, _, taker = ends
    exporter.send(b"abcd")
    for wrong in ("x", [], object()):
        with pytest.raises(TypeError, match=r"timeout=.*it is a number of seconds, or None"):
            importer.acquire(wrong)
        with pytest.raises(TypeError, match=r"timeout_ms=.*it is a number of milliseconds"):
            taker.wait_for_doorbell(wrong)
    with importer.acquire(10) as frame:
        for thing in (frame, frame.tensor(), frame.copy().tensor()):
            with pytest.raises(TypeError, match=r"__dlpack__\(copy=3\): True, False or None"):
                thing.__dlpack__(copy=3)
        assert from_dlpack(frame, copy=np.bool_(True)).shape == (4,)


@pytest.mark.parametrize(
    "thing",
    [None, 3, b"x" * 64, PIXELS, PIXELS[:63]],
    ids=["None", "a number", "bytes", "array", "short array"],
)
def test_exporting_what_is_no_frame(ends, thing):
    with pytest.raises(TypeError, match=r"is no frame: it takes GpuFrame\(ptr=.*send\(array\)"):
        ends[2].export(thing)
    assert ends[2].get_stats()["frame_count"] == 0


@pytest.mark.parametrize("wrong", [{"ptr": None}, {"size": "64"}, {"size": 64.0}], ids=str)
def test_frames_of_no_numbers(ends, wrong):
    frame = GpuFrame(**{"ptr": PIXELS.ctypes.data, "size": 64, **wrong})
    with pytest.raises(TypeError, match="has whole numbers as ptr and size"):
        ends[2].export(frame)


def test_a_wrong_number_of_bytes_is_told(ends, caplog):
    with caplog.at_level(logging.ERROR, "cuda_link"):
        assert ends[2].export(GpuFrame(PIXELS.ctypes.data, 63, 0)) is FrameOutcome.FAILED
    assert "63 bytes were given, and a frame of channel 'known' has 64 (4 x 4 x 4 of uint8)" in caplog.text


@pytest.mark.parametrize("face", [2, 3], ids=["exporter", "importer"])
def test_an_observer_that_is_none(ends, face):
    with pytest.raises(TypeError, match=r"3 has no snapshot\(\): pass an NVMLObserver, or None"):
        ends[face].attach_nvml_observer(3)
    ends[face].attach_nvml_observer(None)
    assert "nvml" not in ends[face].get_stats()


@pytest.mark.parametrize("hold", [0, 17])
def test_how_many_frames_the_known_face_may_hold(ends, hold):
    with pytest.raises(ValueError, match=f"ImportPolicy.hold={hold}: it is 1 to 16"):
        with_policy(hold=hold)


# ---- closed

EXPORTER = r"^this exporter was closed, .*; open another one: open_exporter\(name\)"
IMPORTER = r"^this importer was closed, .*; open another one: open_importer\(name\)"


@pytest.fixture
def closed(ends):
    for end in ends:
        end.close()
    return ends


def test_a_closed_exporter(closed, caplog):
    exporter, known = closed[0], closed[2]
    for call in (
        lambda: exporter.send(b"abcd"),
        lambda: exporter.frame().__enter__(),
        lambda: exporter.wait_consumers(1, 0),
        lambda: exporter.wait_taken(0),
        exporter.statistics,
    ):
        with pytest.raises(cuda_link.ClosedError, match=EXPORTER):
            call()
    with caplog.at_level(logging.ERROR, "cuda_link"):
        assert known.export(GpuFrame(PIXELS.ctypes.data, 64, 0)) is FrameOutcome.FAILED
    assert "export: this exporter was closed" in caplog.text and "cudalink_" not in caplog.text


def test_a_closed_importer(closed):
    importer, taker = closed[1], closed[3]
    for call in (
        lambda: importer.acquire(0),
        lambda: importer.acquire(1),
        lambda: importer.wait_next(0, stream=1),
        lambda: next(iter(importer)),
        lambda: asyncio.run(importer.next(0)),
        lambda: importer.held,
        importer.fileno,
        importer.arm,
        importer.statistics,
        taker.get_frame_numpy,
        lambda: taker.wait_for_doorbell(1),
    ):
        with pytest.raises(cuda_link.ClosedError, match=IMPORTER):
            call()


def test_errors_name_no_function_of_c(ends):
    with ends[0].frame() as slot:
        with pytest.raises(cuda_link.CudaLinkError) as caught:
            ends[0].frame(timeout=0).__enter__()  # one at a time
        slot.abandon()
    assert str(caught.value) and "cudalink_" not in str(caught.value)


@pytest.mark.parametrize(
    "says, call",
    [
        ("leave stream= out, or say -1", lambda exporter, importer: exporter.send(b"abcd", stream=0)),
        ("no streams: leave stream= out", lambda exporter, importer: exporter.send(b"abcd", stream=1234)),
        (
            "no streams: leave stream= out",
            lambda exporter, importer: importer.acquire(9).release(stream=1234),
        ),
        (
            "wait_next needs the stream .* -1 makes",
            lambda exporter, importer: importer.wait_next(0, stream=-1),
        ),
        ('access="write"', lambda exporter, importer: importer.acquire(10).mark_written(-1)),
        ('policy "shared" needs', lambda exporter, importer: open_importer("modern", group="g" * 64)),
    ],
    ids=lambda word: word if isinstance(word, str) else "",
)
def test_errors_name_things_as_they_are_called_here(ends, says, call):
    exporter, importer, *_ = ends
    exporter.send(b"abcd")
    with pytest.raises(cuda_link.CudaLinkError, match=says) as caught:
        call(exporter, importer)
    assert not re.search(r"cudalink_|CUDALINK_|COMPLETE|SHARED|`", str(caught.value))


@pytest.mark.parametrize(
    "name, call",
    [
        ("name", lambda: open_exporter("a\0b", shape=(4,))),
        ("name", lambda: open_importer("a\0b")),
        ("shm_name", lambda: exporting(shm_name="a\0b")),
        ("shm_name", lambda: importing(shm_name="a\0b")),
    ],
)
def test_a_nul_in_a_name(name, call):
    with pytest.raises(ValueError, match=rf"{name}='a.x00b': there is a NUL in it"):
        call()
