# SPDX-License-Identifier: MIT
"""Arrays with habits: flags that forbid a plain look at their memory, old signatures, nothing in them."""

from __future__ import annotations

import gc
import re
import weakref
from pathlib import Path

import cuda_link
import numpy as np
import pytest
from conftest import until_held
from cuda_link import _oddities


@pytest.fixture
def exporter():
    with cuda_link.open_exporter("odd", shape=(6, 8), kind="host") as opened:
        yield opened


@pytest.fixture
def importer(exporter):
    with cuda_link.open_importer("odd", timeout=10, hold=4) as opened:
        yield opened


@pytest.mark.parametrize(
    "flag, way_out",
    [
        ("requires_grad", r"tensor\.detach\(\)"),
        ("is_sparse", r"tensor\.to_dense\(\)"),
        ("is_quantized", r"tensor\.dequantize\(\)"),
        ("is_meta", "real device"),
        ("is_conj", r"tensor\.resolve_conj\(\)"),
        ("is_neg", r"tensor\.resolve_neg\(\)"),
    ],
)
def test_flags(exporter, flag, way_out):
    value = (lambda self: True) if flag in ("is_conj", "is_neg") else True
    odd = type("Odd", (), {flag: value})()
    with pytest.raises(BufferError, match=way_out):
        exporter.send(odd)
    assert exporter.statistics().published == 0


def test_the_short_way_asks_for_each():
    source = (Path(__file__).parents[1] / "core" / "sender.c").read_text()
    flags = int(re.search(r"#define FLAGS (\d+)", source)[1])
    asked = re.findall(r'"(\w+)"', re.search(r"oddities\[\w+\] = \{(.*?)\};", source, re.S)[1])
    assert {flag for flag, *_ in _oddities._FLAGS} <= set(asked[:flags])
    assert {method for method, *_ in _oddities._BITS} == set(asked[flags:])


class Old:
    """An array whose `__dlpack__` takes no words, as that of torch 1.13 takes no max_version."""

    def __init__(self, array):
        self.array = array

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self):
        return self.array.__dlpack__()


def test_sending_keeps_no_local_of_its_caller(exporter):
    class Local:
        pass

    def send():
        local = Local()
        exporter.send(Old(np.arange(4)))
        return weakref.ref(local)

    gc.disable()  # what only a collection ends is kept too long: frames, and the memory of arrays
    try:
        assert send()() is None
    finally:
        gc.enable()


def test_an_empty_tensor_keeps_no_frame(exporter, importer):
    """torch 1.13 never deletes an empty tensor that it imported."""
    for _ in range(20):
        exporter.send(np.zeros((0, 4), np.float32))
        frame = importer.acquire(10)
        capsules = [frame.__dlpack__(), frame.__dlpack__(max_version=(1, 0))]
        frame.release()
        until_held(importer, 0)
        del capsules


class Duck(np.ndarray):
    """An array with a mask that is none of NumPy's own, as astropy has them."""

    mask = property(lambda self: self > 1)


@pytest.mark.parametrize(
    "masked",
    [
        np.ma.array([1, 2], mask=[0, 1]),
        np.ma.array([1, 2]),
        np.ma.array(np.arange(8.0).reshape(2, 4), mask=np.eye(2, 4))[:, ::2],
        np.ma.array([1, 2], mask=[0, 1], dtype=np.float16),  # which no buffer shows
        np.ma.masked,
        np.arange(4).view(Duck),
    ],
    ids=["dense", "no mask yet", "strided", "float16", "constant", "not NumPy's"],
)
def test_a_mask_is_not_dropped(exporter, masked):
    exporter.send(np.ascontiguousarray(masked.data).view(np.ndarray))  # an array like it went before
    for thing in (masked, {"a": masked}):
        with pytest.raises(BufferError, match=r"would lose its mask.*array\.filled\(value\)"):
            exporter.send(thing)
    with pytest.raises(BufferError, match=r"would lose its mask.*array\.filled\(value\)"):
        cuda_link.from_dlpack(masked)
    assert exporter.statistics().published == 1
    assert exporter.send(np.ma.array([1, 2], mask=[0, 1]).filled(7))


def test_a_mask_of_an_array_interface(exporter):
    interface = {"shape": (2,), "typestr": "|u1", "data": b"ab", "version": 3}
    odd = type("Odd", (), {"__array_interface__": {**interface, "mask": np.array([True, False])}})()
    with pytest.raises(BufferError, match="would lose its mask"):
        exporter.send(odd)


def test_a_record_may_have_a_field_that_is_called_mask(exporter):
    records = np.rec.array([(1, 2)], dtype=[("mask", "u1"), ("x", "u1")])
    with pytest.raises(TypeError, match="numbers and bool can"):
        exporter.send(records)
    exporter.send(records.mask)


class Picture:
    """As Pillow has them: its bool is 255, and palettes are not in the array."""

    def __init__(self, mode, typestr="|u1"):
        self.mode = mode
        self.__array_interface__ = {"shape": (1, 4), "typestr": typestr, "data": b"\0\xff\1\0", "version": 3}

    def getpalette(self):
        return None


@pytest.mark.parametrize("mode", ["P", "PA"])
def test_a_palette_is_not_dropped(exporter, mode):
    with pytest.raises(BufferError, match=r'palette.*image\.convert\("RGB"\)'):
        exporter.send(Picture(mode))
    assert exporter.statistics().published == 0


def test_bool_of_pictures_is_0_or_1(exporter, importer):
    exporter.send(Picture("1", "|b1"))
    with importer.acquire(10) as frame:
        assert frame.dtype == "bool" and frame.packed() == b"\0\1\1\0"
    exporter.send(Picture("L"))
    with importer.acquire(10) as frame:
        assert frame.packed() == b"\0\xff\1\0"


@pytest.mark.parametrize(
    "what",
    [
        np.array(["2020-01-01"], "M8[s]"),
        np.array([1], "m8[s]"),
        np.array([1, None]),
        np.array(["ab"]),
        np.array([b"a"]),
        np.zeros(2, "V1"),
        np.zeros(2, [("a", "i4")]),
        np.rec.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f4")]),
        np.array([1], np.longdouble),
        np.array([1], np.clongdouble),
        np.array([1], ">i4"),
        np.arange(4, dtype=">f8")[::2],
        np.array([1], ">f2"),
        memoryview(np.array([1], ">u2")),
    ],
    ids=lambda what: str(getattr(what, "dtype", "memoryview")),
)
def test_elements_that_are_no_numbers_of_frames(exporter, what):
    for thing in (what, {"a": what}):
        with pytest.raises((TypeError, ValueError), match=r"big-endian|numbers and bool can"):
            exporter.send(thing)
    with pytest.raises((TypeError, ValueError, BufferError)):
        cuda_link.from_dlpack(what)
    assert exporter.statistics().published == 0


def test_subclasses_that_lose_nothing(exporter, importer):
    for array in (
        np.ones((1, 2)).view(np.matrix),
        np.arange(4).view(np.recarray),
        np.bool_(True),
        np.float16([1, 2]),
    ):
        exporter.send(array)
        with importer.acquire(10) as frame:
            assert np.array_equal(frame.numpy(), np.asarray(array))


def test_what_numpy_can_make_an_array_of(exporter):
    table = type("Table", (), {"__array__": lambda self, dtype=None: np.zeros(3)})()
    with pytest.raises(TypeError, match=r"Table can't be sent.*numpy\.asarray"):
        exporter.send(table)
    with pytest.raises(TypeError, match=r"list can't be sent.*a dict of them$"):
        exporter.send([1, 2])


class Graded:
    """A tensor that requires grad, of what torch there may be."""

    requires_grad = True

    def detach(self):
        return np.arange(4, dtype=np.uint8)


def test_tensors_that_require_grad_are_sent_when_told_so(exporter, importer):
    for data in (Graded(), {"": Graded()}, {"": np.arange(4, dtype=np.uint8)}):
        exporter.send(data, detach=True)
        with importer.acquire(10) as frame:
            assert frame.packed() == bytes(range(4))
    assert cuda_link.from_dlpack(Graded(), detach=True).numpy().tolist() == [0, 1, 2, 3]
    for refused in (lambda: exporter.send(Graded()), lambda: cuda_link.from_dlpack(Graded(), detach=False)):
        with pytest.raises(BufferError, match=r"detach\(\)"):
            refused()
