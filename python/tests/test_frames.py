# SPDX-License-Identifier: MIT
"""Frames from an exporter to an importer in one process, on kind host."""

from __future__ import annotations

import array
import sys
from fractions import Fraction

import cuda_link
import numpy as np
import pytest
from conftest import until_held
from cuda_link import _abi, _description
from cuda_link._backend import low

SHAPE = (24, 32, 4)


@pytest.fixture
def exporter():
    with cuda_link.open_exporter("frames", shape=SHAPE, kind="host", user_size=64) as opened:
        yield opened


@pytest.fixture
def importer(exporter):
    with cuda_link.open_importer("frames", timeout=10, hold=4) as opened:
        yield opened


def picture(shape=SHAPE, dtype=np.uint8):
    return (np.arange(np.prod(shape)) % 120).reshape(shape).astype(dtype)


def test_an_array_arrives_as_it_was(exporter, importer):
    sent = picture()
    assert exporter.send(sent)
    with importer.acquire(10) as frame:
        assert frame.sequence == 1
        assert frame.shape == SHAPE and frame.dtype == "uint8" and frame.kind == "host"
        assert frame.timestamp <= cuda_link.now()
        got = frame.numpy()
        assert got.dtype == np.uint8 and not got.flags.writeable
        np.testing.assert_array_equal(got, sent)
        del got
    assert frame.released
    until_held(importer, 0)


def test_an_import_makes_no_copy(exporter, importer):
    exporter.send(picture())
    frame = importer.acquire(10)
    first, second = frame.numpy(), frame.numpy()
    assert np.shares_memory(first, second)
    assert importer.statistics().copies == 0 and exporter.statistics().copies == 1


DTYPES = ["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"]
DTYPES += ["float16", "float32", "float64", "complex64", "complex128", "bool"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_type_of_numpy(exporter, importer, dtype):
    sent = picture((5, 7), dtype)
    exporter.send(sent)
    frame = importer.acquire(10)
    assert frame.dtype == dtype
    got = frame.numpy()
    assert got.dtype == sent.dtype
    np.testing.assert_array_equal(got, sent)


@pytest.mark.parametrize(
    "part",
    [np.s_[::-1], np.s_[:, ::2], np.s_[3:5, 1:2], np.s_[..., 0], np.s_[0:0], np.s_[2, 3, 1]],
    ids=["reversed", "every second", "part", "channel", "empty", "scalar"],
)
def test_arrays_that_are_not_dense(exporter, importer, part):
    sent = np.asarray(picture()[part])
    exporter.send(sent)
    got = importer.acquire(10).numpy()
    assert got.shape == sent.shape
    np.testing.assert_array_equal(got, sent)


def test_transposed_and_read_only(exporter, importer):
    sent = picture().transpose(2, 0, 1)
    sent.flags.writeable = False
    exporter.send(sent)
    np.testing.assert_array_equal(importer.acquire(10).numpy(), sent)


def test_plain_buffers(exporter, importer):
    for sent in (b"abc", bytearray(b"abcd"), array.array("f", [1, 2, 3]), memoryview(b"xyz")[::-1]):
        exporter.send(sent)
        frame = importer.acquire(10)
        assert frame.packed() == memoryview(sent).tobytes()
        assert frame.buffer().tolist() == memoryview(sent).tolist()


def test_types_that_a_memoryview_lacks(exporter, importer):
    for dtype in ("float16", "complex64"):
        exporter.send(picture((5, 7), dtype))
        with importer.acquire(10) as frame, pytest.raises(BufferError, match=dtype):
            frame.buffer()


def test_a_dict_of_arrays(exporter, importer):
    sent = {"colour": picture(), "depth": picture((24, 32), np.float32), "pose": np.eye(4)[:, ::-1]}
    exporter.send(sent)
    frame = importer.acquire(10)
    assert [plane.name for plane in frame.planes] == list(sent)
    for name, expected in sent.items():
        np.testing.assert_array_equal(frame.numpy(name), expected)
    np.testing.assert_array_equal(frame.arrays()["depth"], sent["depth"])
    assert frame.packed() == b"".join(a.tobytes() for a in sent.values())
    with pytest.raises(KeyError, match="colour"):
        frame.numpy("color")
    with pytest.raises(IndexError, match="there are 3"):
        frame.numpy(3)


def test_what_travels_with_a_frame(exporter, importer):
    exporter.send(picture(), pts=90, duration=2, time_base=Fraction(1, 30), user=b"\0abc")
    frame = importer.acquire(10)
    assert frame.pts == 90 and frame.timing.duration == 2 and frame.timing.time_base == Fraction(1, 30)
    assert frame.user == b"\0abc"
    frame.release()
    exporter.send(picture())
    frame = importer.acquire(10)
    assert frame.user == b"" and frame.timing.time_base is None


def test_too_much_user_data(exporter):
    with pytest.raises(ValueError, match="64"):
        exporter.send(picture(), user=bytes(65))


def test_a_lent_slot(exporter, importer):
    with exporter.frame(pts=7, user_size=3) as slot:
        slot.numpy()[:] = picture()
        slot.user[:] = b"xyz"
        number = slot.sequence
    frame = importer.acquire(10)
    assert frame.sequence == number and frame.pts == 7 and frame.user == b"xyz"
    np.testing.assert_array_equal(frame.numpy(), picture())
    assert exporter.statistics().copies == 0


def test_a_lent_slot_of_planes(exporter, importer):
    with exporter.frame(planes={"a": ((2, 3), "int16"), "b": ((), float)}) as slot:
        slot.numpy("a")[:] = 5
        slot.numpy("b")[()] = 2.5
    frame = importer.acquire(10)
    assert frame.numpy("a").tolist() == [[5] * 3] * 2 and float(frame.numpy("b")) == 2.5


def test_an_exception_gives_the_slot_back(exporter, importer):
    with pytest.raises(ZeroDivisionError), exporter.frame() as slot:
        slot.numpy()[:] = 1
        raise ZeroDivisionError
    assert exporter.statistics().abandoned == 1
    exporter.send(picture())
    np.testing.assert_array_equal(importer.acquire(10).numpy(), picture())


def test_an_invalid_frame(exporter, importer):
    with exporter.frame() as slot:
        slot.publish_invalid("lens cap is on")
    frame = importer.acquire(10)
    assert frame.invalid == "lens cap is on"
    frame.release()
    exporter.send(picture())
    assert importer.acquire(10).invalid is None


def test_an_invalid_frame_says_nothing_of_what_lies_behind_it(exporter, importer):
    """It has no planes, and no memory for any."""
    for _ in range(20):
        with exporter.frame() as slot:
            slot.publish_invalid("lens cap is on")
        frame = importer.acquire(10)
        blocks = [bytearray(b"\xff" * (sys.getsizeof(frame) - 8)) for _ in range(500)]
        frame.release()
        del frame, blocks[::2]  # the next one lies between two of them
        with exporter.frame() as slot:
            slot.publish_invalid("lens cap is on")
        frame = importer.acquire(10)
        assert (frame.planes, frame._plane_count, frame._dimensions) == ((), 0, 0)
        frame.release()


def test_a_slot_is_lent_once(exporter):
    slot = exporter.frame()
    with pytest.raises(ValueError, match="with"):
        slot.numpy()
    with slot:
        pass
    with pytest.raises(ValueError, match="with"):
        slot.numpy()
    with pytest.raises(ValueError, match="again"), slot:
        pass


def test_new_shapes_on_the_fly(exporter, importer):
    for shape, dtype in (((200, 300, 3), "float32"), ((4,), "int64"), ((64, 64, 4), "uint8")):
        exporter.send(picture(shape, dtype))
        frame = importer.acquire(10)
        assert frame.shape == shape and frame.dtype == dtype
        np.testing.assert_array_equal(frame.numpy(), picture(shape, dtype))
    assert exporter.statistics().generations > 1


def test_a_copy_is_its_own(exporter, importer):
    exporter.send({"a": picture(), "b": np.arange(3.0)}, pts=3, user=b"u")
    with importer.acquire(10) as frame:
        copy = frame.copy()
    exporter.send(picture() + 1)
    np.testing.assert_array_equal(copy.numpy("a"), picture())
    copy.numpy("a")[0] = 0
    assert copy.numpy("a")[0].sum() == 0 and copy.numpy("b").tolist() == [0, 1, 2]
    assert copy.sequence == 1 and copy.timing.pts == 3 and copy.user == b"u"
    assert copy.packed() == copy.numpy("a").tobytes() + copy.numpy("b").tobytes()


def test_a_copy_in_the_order_of_a_stream(exporter, importer):
    """In memory of the CPU a stream counts for nothing, but it has to be one."""
    exporter.send(picture())
    frame = importer.acquire(10)
    for named in (None, -1, 1, 2, 4096):
        copy = frame.copy(stream=named)
        np.testing.assert_array_equal(copy.numpy(), picture())
        assert copy.tensor().device == "cpu" and copy.tensor().writable
    for wrong in ("1", True, 1.5):
        with pytest.raises(TypeError, match="stream"):
            frame.copy(stream=wrong)


def test_asarray(exporter, importer):
    exporter.send(picture())
    frame = importer.acquire(10)
    np.testing.assert_array_equal(np.asarray(frame), picture())
    assert np.asarray(frame, dtype=np.float32).dtype == np.float32


def test_pictures():
    with cuda_link.open_exporter("picture", format="RGBA8", shape=(24, 32), kind="host") as exporter:
        importer = cuda_link.open_importer("picture", timeout=10)
        exporter.send(picture())
        frame = importer.acquire(10)
        assert (frame.picture.format, frame.picture.width, frame.picture.height) == ("RGBA8", 32, 24)
        np.testing.assert_array_equal(frame.numpy(), picture())
        frame.release()
        exporter.send(picture((48, 16, 4)))
        frame = importer.acquire(10)
        assert (frame.picture.width, frame.picture.height) == (16, 48)
        with pytest.raises(ValueError, match=r"RGBA8.*float32"):
            exporter.send(picture(SHAPE, np.float32))
        importer.close()


def test_pixel_aspect():
    """What a producer in C, or a file, said of it; not said is None."""
    description = _description.make(format="I420", shape=(576, 720))
    assert _description.layout(bytes(description)).picture.pixel_aspect is None
    description.picture.pixel_aspect_numerator, description.picture.pixel_aspect_denominator = 16, 11
    assert _description.layout(bytes(description)).picture.pixel_aspect == Fraction(16, 11)


def test_pictures_of_several_planes():
    with cuda_link.open_exporter("nv12", format="NV12", shape=(24, 32), kind="host") as exporter:
        importer = cuda_link.open_importer("nv12", timeout=10)
        packed = bytes(i % 251 for i in range(24 * 32 * 3 // 2))
        exporter.send(packed)
        frame = importer.acquire(10)
        assert frame.picture.format == "NV12" and len(frame.planes) == 2
        assert frame.packed() == packed
        planes = {plane.name: frame.numpy(plane.name).copy() for plane in frame.planes}
        frame.release()
        exporter.send(planes)
        assert importer.acquire(10).packed() == packed
        with pytest.raises(ValueError, match="NV12"):
            exporter.send(packed[:-1])
        importer.close()


def test_formats():
    assert "RGBA8" in cuda_link.formats() and len(cuda_link.formats()) > 50


def test_rows_that_are_not_dense(exporter, importer):
    """As programs in C send them: with a pitch."""
    description = _description.make((4, 3), "uint8")
    plane = description.planes[0]
    plane.strides[0], plane.bytes = 16, 3 * 16 + 3
    memory = np.arange(64, dtype=np.uint8).reshape(4, 16)
    low.exporter_send_buffer(exporter._id, description, memory, None, _abi.STREAM_COMPLETE, 0, 0)
    frame = importer.acquire(10)
    assert frame.strides == (16, 1) and not frame.plane().is_dense
    for got in (frame.numpy(), frame.copy().numpy(), np.from_dlpack(frame)):
        np.testing.assert_array_equal(got, memory[:, :3])
    assert frame.packed() == memory[:, :3].tobytes()
    with pytest.raises(BufferError, match="strides"):
        frame.buffer()


def test_nothing_free_is_a_drop():
    few = {"slots": 3, "max_slots": 3, "hold_limit": None}
    with cuda_link.open_exporter("full", shape=(4,), kind="host", **few) as exporter:
        with cuda_link.open_importer("full", policy="every", hold=1, timeout=10) as importer:
            exporter.wait_consumers(1, 10)
            results = [exporter.send(bytes(4)) for _ in range(6)]
            assert False in results
            assert exporter.statistics().dropped == results.count(False)
            assert not exporter.send(bytes(4), timeout=0.5)
            assert exporter.statistics().dropped == results.count(False) + 1
            with pytest.raises(cuda_link.BusyError), exporter.frame():
                pass
            del importer
