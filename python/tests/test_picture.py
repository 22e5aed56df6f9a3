# SPDX-License-Identifier: MIT
"""What a sender says of its pictures and of their time, each value there and back."""

from __future__ import annotations

import os
import re
from fractions import Fraction
from pathlib import Path

import cuda_link
import numpy as np
import pytest
from cuda_link import _picture

INCLUDE = os.environ.get("CUDALINK_INCLUDE")
PIXELS = np.zeros((4, 6, 4), np.uint8)
NOT_SAID = {field: words.get("not_said", 0) for field, words in _picture.WORDS.items()}
VALUES = [
    pytest.param(field, said, number, id=f"{field}={said}")
    for field, words in _picture.WORDS.items()
    for word, number in words.items()
    for said in (word, number)
]


def opened(**words):
    return cuda_link.open_exporter("picture", format="RGBA8", shape=(4, 6), kind="host", **words)


@pytest.fixture
def exporter():
    with opened(user_size=8) as made:
        yield made


@pytest.fixture
def importer(exporter):
    with cuda_link.open_importer("picture", timeout=10) as made:
        yield made


def fields(frame):
    return {field: getattr(frame.picture, field) for field in _picture.FIELDS}


def received(importer):
    with importer.acquire(10) as frame:
        return frame


def sent(exporter, importer, **words):
    """What arrives of a frame of each way to send one."""
    assert exporter.send(PIXELS, **words)
    first = received(importer)
    with exporter.frame(**words):
        pass
    second = received(importer)
    assert first.layout == second.layout and first.timing == second.timing
    return first


@pytest.mark.parametrize("field, said, number", VALUES)
def test_every_value_arrives(exporter, importer, field, said, number):
    frame = sent(exporter, importer, picture={field: said})
    assert fields(frame) == {**NOT_SAID, "pixel_aspect": None, field: number}
    assert (frame.picture.format, frame.picture.width, frame.picture.height) == ("RGBA8", 6, 4)


@pytest.mark.parametrize("field", ["primaries", "transfer", "matrix"])
@pytest.mark.parametrize("number", [0, 3, 200, 255, np.uint8(7)])
def test_numbers_of_h273_that_have_no_word(exporter, importer, field, number):
    assert fields(sent(exporter, importer, picture={field: number}))[field] == number


@pytest.mark.parametrize("said", [1, "16/11", Fraction(16, 11), 1.5, Fraction(2**32 - 1, 2**32 - 2)])
def test_pixel_aspect(exporter, importer, said):
    assert sent(exporter, importer, picture={"pixel_aspect": said}).picture.pixel_aspect == Fraction(said)


@pytest.mark.skipif(not INCLUDE, reason="needs the public headers (CUDALINK_INCLUDE)")
def test_words_are_those_of_the_headers():
    header = Path(INCLUDE, "cudalink", "frame.h").read_text()
    for enum, field in (
        ("range", "range"),
        ("origin", "origin"),
        ("alpha", "alpha"),
        ("field", "field_order"),
        ("chroma", "chroma_location"),
    ):
        found = re.findall(rf"^ *CUDALINK_{enum.upper()}_(\w+) = (\d+)", header, re.M)
        assert {name.lower(): int(number) for name, number in found} == _picture.WORDS[field]


def test_words_are_those_of_the_page():
    page = (Path(__file__).resolve().parents[2] / "docs" / "formats.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| ((?:\d+ \w+(?:, )?)+) \|$", page, re.M)
    told = {field: {w: int(n) for n, w in (pair.split() for pair in row.split(", "))} for field, row in rows}
    assert told == _picture.WORDS


def test_what_was_said_at_the_open_stays():
    told = {"range": "limited", "origin": "bottom_left", "pixel_aspect": Fraction(4, 3)}
    with opened(picture=told, time_base="1/25", rate=25, clock="ptp") as exporter:
        importer = cuda_link.open_importer("picture", timeout=10)
        for shape in ((4, 6), (8, 2), (4, 6)):
            assert exporter.send(np.zeros((*shape, 4), np.uint8))
            seen = [received(importer)]
            with exporter.frame(shape=shape, format="RGBA8"):
                pass
            seen.append(received(importer))
            for frame in seen:
                assert (frame.picture.height, frame.picture.width) == shape
                assert (frame.picture.range, frame.picture.origin) == (1, 1)
                assert frame.picture.pixel_aspect == Fraction(4, 3)
                assert frame.timing == (0, 0, Fraction(1, 25), 25, "ptp")
        frame = sent(exporter, importer, picture={"range": "full"}, pts=7, rate=50)
        assert (frame.picture.range, frame.picture.origin) == (2, 1)
        assert frame.timing == (7, 0, Fraction(1, 25), 50, "ptp")
        frame = sent(exporter, importer, picture={"pixel_aspect": None}, clock="")
        assert frame.picture.pixel_aspect is None and frame.timing.clock == ""
        exporter.send(PIXELS)
        assert received(importer).picture.range == 1
        with exporter.frame(shape=(4, 6), format="GRAY8"):
            pass  # not that of RGBA8
        assert received(importer).picture.origin == 0
        importer.close()


def test_of_several_planes_and_packed():
    told = {"range": "limited", "matrix": "bt709"}
    with cuda_link.open_exporter("nv12", format="NV12", shape=(4, 6), kind="host", picture=told) as exporter:
        importer = cuda_link.open_importer("nv12", timeout=10)
        planes = {"y": np.zeros((4, 6), np.uint8), "uv": np.zeros((2, 3, 2), np.uint8)}
        for data in (planes, bytes(36), bytes(36)):
            for words, matrix in (({}, 1), ({"picture": {"matrix": 9}}, 9)):
                exporter.send(data, **words)
                frame = received(importer)
                assert (frame.picture.range, frame.picture.matrix) == (1, matrix)
        importer.close()


def test_another_description_takes_no_new_memory(exporter, importer):
    for number in range(40):
        words = {"primaries": number, "range": number % 3, "pixel_aspect": number + 1}
        exporter.send(PIXELS, picture=words, clock=str(number), user=bytes(number % 9))
        frame = received(importer)
        assert frame.picture.primaries == number and frame.timing.clock == str(number)
        assert frame.generation == 1
    assert exporter.statistics().generations == 1 and exporter.statistics().copies == 40


def test_times(exporter, importer):
    frame = sent(
        exporter,
        importer,
        pts=-5,
        duration=2,
        time_base=Fraction(1, 90000),
        rate="30000/1001",
        clock="uhrä" * 2,
    )
    assert frame.timing == (-5, 2, Fraction(1, 90000), Fraction(30000, 1001), "uhräuhrä")
    assert sent(exporter, importer).timing == (0, 0, None, None, "")


def test_times_of_tensors():
    with cuda_link.open_exporter("tensors", shape=(4,), kind="host", rate=30, clock="ptp") as exporter:
        importer = cuda_link.open_importer("tensors", timeout=10)
        for data in (b"abcd", np.zeros((3, 2), np.float32), {"a": b"x", "b": np.zeros(3)}):
            exporter.send(data)
            assert received(importer).timing == (0, 0, None, 30, "ptp")
        importer.close()


def test_a_frame_is_sent_on_as_it_was(exporter, importer):
    told = {field: list(words.values())[-1] for field, words in _picture.WORDS.items()}
    frame = sent(exporter, importer, picture={**told, "pixel_aspect": 2})
    assert fields(frame) == {**told, "pixel_aspect": 2}
    shape = (frame.picture.height, frame.picture.width)
    with cuda_link.open_exporter(
        "on", format=frame.picture.format, shape=shape, picture=frame.picture, kind="host"
    ) as relay:
        with cuda_link.open_importer("on", timeout=10) as taker:
            relay.send(PIXELS)
            assert received(taker).picture == frame.picture
            for data in (PIXELS, PIXELS[:2]):  # its size is its own
                exporter.send(PIXELS)
                plain = received(importer).picture
                relay.send(data, picture=plain)
                assert received(taker).picture == plain._replace(height=len(data))


WRONG = [
    ({"range": "fulll"}, ValueError, "range 'fulll'; it is one of not_said, limited, full"),
    ({"range": 3}, ValueError, "range=3; it is one of 0 not_said, 1 limited, 2 full"),
    ({"range": 257}, ValueError, "range=257; it is one of"),
    ({"origin": -1}, ValueError, "origin=-1; it is one of 0 top_left, 1 bottom_left"),
    ({"alpha": None}, TypeError, "alpha=None: it is a word (not_said, straight, premultiplied, ignored), or"),
    ({"field_order": 1.0}, TypeError, "field_order=1.0: it is a word (progressive, top_first, bottom_first)"),
    ({"chroma_location": b"left"}, TypeError, "chroma_location=b'left': it is a word (not_said, left,"),
    ({"primaries": "BT.709"}, ValueError, "primaries 'BT.709'; it is one of bt709, not_said,"),
    ({"primaries": 256}, ValueError, "primaries=256: a number of ITU-T H.273 is 0 to 255"),
    ({"transfer": -1}, ValueError, "transfer=-1: a number of ITU-T H.273 is 0 to 255"),
    ({"matrix": []}, TypeError, "matrix=[]: it is a word (rgb, bt709,"),
    (
        {"pixel_aspect": 0},
        ValueError,
        "pixel_aspect=0: it is a pixel's width divided by its height, more than",
    ),
    (
        {"pixel_aspect": "16:11"},
        ValueError,
        "pixel_aspect='16:11': it is a pixel's width divided by its height,",
    ),
    ({"pixel_aspect": 1.1}, ValueError, "each of the two has 32 bits; perhaps Fraction(11, 10) is meant?"),
    (
        {"colour": "bt709"},
        ValueError,
        "'colour' is no field of it; these are: primaries, transfer, matrix, range",
    ),
    ({1: 2}, ValueError, "1 is no field of it"),
    ({"width": 6}, ValueError, "'width' is said by format and shape"),
    ("full", TypeError, "picture='full': it is a dict, as {'range': 'full'}, or the picture of a frame"),
]


@pytest.mark.parametrize("said, kind, sentence", WRONG, ids=[str(said) for said, _, _ in WRONG])
def test_what_can_not_be_said(exporter, said, kind, sentence):
    calls = (
        lambda: exporter.send(PIXELS, picture=said),
        lambda: exporter.frame(picture=said),
        lambda: cuda_link.open_exporter("other", format="RGBA8", shape=(4, 6), picture=said),
    )
    for call in calls:
        with pytest.raises(kind, match=re.escape(sentence)):
            call()
    assert exporter.statistics().published == 0


def test_tensors_are_no_pictures():
    said = {"range": "full"}
    with cuda_link.open_exporter("tensors", shape=(4,), kind="host") as exporter:
        for call in (
            lambda: exporter.send(b"abcd", picture=said),
            lambda: exporter.frame(picture=said),
            lambda: cuda_link.open_exporter("other", shape=(4,), picture=said),
        ):
            with pytest.raises(ValueError, match="tensors, which have none; those of a format do"):
                call()
        with exporter.frame(format="RGBA8", shape=(4, 6), picture=said) as slot:
            assert slot.picture.range == 2


def test_a_picture_of_another_format(exporter, importer):
    theirs = sent(exporter, importer).picture._replace(format="NV12")
    with pytest.raises(ValueError, match="of format NV12, and this frame of RGBA8"):
        exporter.send(PIXELS, picture=theirs)


@pytest.mark.parametrize(
    "words, kind, sentence",
    [
        ({"rate": 0}, ValueError, "rate=0: it is a number of frames per second, more than 0"),
        (
            {"rate": "fast"},
            ValueError,
            "rate='fast': it is a number of frames per second, as Fraction(1, 25)",
        ),
        ({"rate": []}, TypeError, "rate=[]: it is a number of frames per second, a Fraction"),
        ({"rate": 29.97}, ValueError, "perhaps Fraction(2997, 100) is meant?"),
        ({"time_base": 0.04}, ValueError, "perhaps Fraction(1, 25) is meant?"),
        ({"time_base": -1}, ValueError, "time_base=-1: it is a number of seconds, more than 0"),
        ({"time_base": "1/0"}, ValueError, "time_base='1/0': it is a number of seconds"),
        ({"clock": 3}, TypeError, "clock=3: it is a str"),
        ({"clock": "a" * 16}, ValueError, "clock='aaaaaaaaaaaaaaaa': 16 bytes of UTF-8; 15 is most"),
        ({"clock": "a\0b"}, ValueError, "there is a NUL in it"),
    ],
    ids=str,
)
def test_times_that_can_not_be_said(exporter, words, kind, sentence):
    calls = (
        lambda: exporter.send(PIXELS, **words),
        lambda: exporter.frame(**words),
        lambda: cuda_link.open_exporter("other", shape=(4,), **words),
    )
    for call in calls:
        with pytest.raises(kind, match=re.escape(sentence)):
            call()
    assert exporter.statistics().published == 0
