# SPDX-License-Identifier: MIT
"""Tensors of torch in GPU memory, with a stand-in for torch: no torch runs on the fake driver. What torch
itself does with them is in ../frameworks/test_torch_cuda.py."""

from __future__ import annotations

import ctypes
import gc
import sys
import time
import types

import cuda_link
import numpy as np
import pytest
import tables
from capsules import get_pointer, look
from cuda_link import _abi, _frameworks
from test_gpu import LIMIT, SHAPE, Blocked, picture, pytestmark, stream  # noqa: F401 (found by pytest)


class Current:
    """The two things of torch.cuda that are current, and who looked."""

    def __init__(self, handle):
        self.number, self.handle, self.entered = 0, handle, []

    def current_stream(self, device):
        return types.SimpleNamespace(cuda_stream=self.handle)

    def current_device(self):
        return self.number

    def device(self, number):
        current = self

        class Guard:
            def __enter__(self):
                self.before, current.number = current.number, number
                current.entered.append(number)

            def __exit__(self, *exception):
                current.number = self.before

        return Guard()


@pytest.fixture
def torch(monkeypatch, stream):  # noqa: F811
    class Tensor:
        """Over a held frame, as torch.from_dlpack(frame) is."""

        is_nested, layout, dtype = False, "strided", "uint8"
        requires_grad = is_sparse = is_quantized = is_meta = False

        def __init__(self, frame):
            self.frame, self.asked = frame, []

        def __dlpack_device__(self):
            return self.frame.__dlpack_device__()

        def __dlpack__(self, *, stream=-1, max_version=None):
            if stand_in.cuda.number != self.__dlpack_device__()[1]:
                raise BufferError("Can't export tensors on a different CUDA device index.")
            self.asked.append(stream)
            return self.frame.__dlpack__(stream=stream, max_version=max_version)

    Tensor.__module__ = "torch"
    stand_in = types.SimpleNamespace(Tensor=Tensor, cuda=Current(stream), strided="strided", bool="bool")
    monkeypatch.setitem(sys.modules, "torch", stand_in)
    return stand_in


@pytest.fixture
def channels():
    with cuda_link.open_exporter("torch", shape=SHAPE, kind="vmm") as exporter:
        with cuda_link.open_importer("torch", timeout=10, hold=4) as importer:
            with cuda_link.open_exporter("relay", shape=SHAPE, kind="vmm") as relay:
                with cuda_link.open_importer("relay", timeout=10) as end:
                    yield exporter, importer, relay, end


def test_a_tensor_is_sent_behind_the_current_stream(torch, channels, stream):  # noqa: F811
    exporter, importer, relay, end = channels
    exporter.send(picture())
    tensor = torch.Tensor(importer.acquire(10))
    with Blocked(stream):
        relay.send(tensor)
        assert tensor.asked == [stream]
        with pytest.raises(cuda_link.TimedOutError):
            end.acquire(0)  # its pixels are not complete
    with end.acquire(10) as frame:
        np.testing.assert_array_equal(frame.numpy(), picture())
    relay.send(tensor, stream=-1)
    assert tensor.asked == [stream, -1]


def test_the_default_stream_is_the_legacy_one(torch, channels):
    exporter, importer, relay, _ = channels
    torch.cuda.handle = 0
    exporter.send(picture())
    tensor = torch.Tensor(importer.acquire(10))
    relay.send(tensor)
    assert tensor.asked == [1]


def test_a_tensor_of_a_gpu_that_is_not_current(torch, channels):
    exporter, importer, relay, end = channels
    torch.cuda.number = 1
    exporter.send(picture())
    relay.send(torch.Tensor(importer.acquire(10)))
    assert torch.cuda.entered == [0] and torch.cuda.number == 1
    with end.acquire(10) as frame:
        np.testing.assert_array_equal(frame.numpy(), picture())


def imported(torch, initialized=True):
    """What torch.from_dlpack was given."""
    given = []
    torch.from_dlpack = lambda source: given.append(source) or source
    torch.cuda.is_initialized = lambda: initialized
    torch._C = types.SimpleNamespace(_cuda_getCurrentRawStream=lambda device: torch.cuda.handle)
    return given


def test_a_frame_is_lent_on_the_current_stream(torch, channels, stream):  # noqa: F811
    exporter, importer, _, _ = channels
    given = imported(torch)
    exporter.send(picture())
    frame = importer.acquire(10)
    slot = frame._slot
    with Blocked(stream):  # the current one: the release comes behind what is queued there
        frame.torch()
        assert look(given[0])[0] == frame._address and given[0] is not frame
        given.clear()
        frame.release()
        for _ in range(20):
            exporter.send(picture(), timeout=10)
            with importer.acquire(10) as other:
                assert other._slot != slot


def test_a_frame_is_lent_on_the_default_stream(torch, channels):
    exporter, importer, _, _ = channels
    given = imported(torch)
    torch.cuda.handle = 0
    exporter.send(picture())
    importer.acquire(10).torch()
    assert len(given) == 1


def test_torch_starts_cuda_itself(torch, channels):
    """Frames that are not torch's to write to are its own business, too."""
    exporter, importer, _, _ = channels
    given = imported(torch, initialized=False)
    exporter.send(picture())
    frame = importer.acquire(10)
    frame.torch()
    assert given == [frame]
    frame.release()
    imported(torch)
    with cuda_link.open_importer("torch", timeout=10, access="read") as reader:
        frame = reader.acquire(10)
        assert frame.torch() is frame


class Given:
    """A tensor that torch was given in C."""

    def __init__(self, address):
        self.tensor = _abi.VersionedTensor.from_address(address)

    def __del__(self):
        tables.delete(self.tensor)


@pytest.fixture
def gives(torch, monkeypatch):
    """torch's table; what it was asked, and answers."""
    monkeypatch.setattr(_frameworks, "torch_table", None)
    asked, fails = [], []

    @tables.TO_OBJECT
    def to_object(address, out):
        if fails:
            return -1
        made = Given(address)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(made))
        out[0] = id(made)
        return 0

    capsule = tables.table(lambda _: 0, lambda *device: asked.append(device) or torch.cuda.handle)
    table = _abi.Exchange.from_address(get_pointer(capsule, tables.NAME))
    table.to_object = ctypes.cast(to_object, ctypes.c_void_p)
    tables.HAND_MADE.append(to_object)
    torch.Tensor = type("Tensor", (), {"__dlpack_c_exchange_api__": capsule, "__module__": "torch"})
    return asked, fails


core_only = pytest.mark.skipif(cuda_link.backend.name != "core", reason="the ctypes back end gives capsules")


@core_only
def test_the_second_frame_is_given_by_table(torch, channels, gives, stream):  # noqa: F811
    exporter, importer, _, _ = channels
    capsules = imported(torch)
    exporter.send(picture())
    importer.acquire(10).torch()
    assert len(capsules) == 1 and not gives[0]
    capsules.clear()
    exporter.send(picture(3))
    frame = importer.acquire(10)
    slot, address = frame._slot, frame._address
    with Blocked(stream):  # the current one: the release comes behind what is queued there
        tensor = frame.torch()
        assert gives[0] == [(2, 0)] and not capsules
        given = tensor.tensor.tensor
        assert (given.data, given.dimensions, given.device.type) == (address, 3, 2)
        assert not tensor.tensor.flags & _abi.DLPACK_READ_ONLY
        frame.release()
        del frame, tensor
        for _ in range(20):
            exporter.send(picture(), timeout=10)
            with importer.acquire(10) as other:
                assert other._slot != slot


@core_only
def test_a_tensor_given_by_table_keeps_its_frame(torch, channels, gives):
    exporter, importer, _, _ = channels
    capsules = imported(torch)
    torch.cuda.handle = 0
    for n in range(2):
        exporter.send(picture(n))
        tensor = importer.acquire(10).torch()
    capsules.clear()
    gc.collect()
    assert isinstance(tensor, Given) and importer.statistics().held == 1
    del tensor
    end = time.monotonic() + LIMIT
    while importer.statistics().held:
        assert time.monotonic() < end


@core_only
def test_types_that_torch_has_not_been_given(torch, channels, gives):
    """If its table fails nobody knows whose the tensor is: the first of a type goes by a capsule."""
    exporter, importer, _, _ = channels
    capsules = imported(torch)
    for data in (picture(), picture().view(np.uint16), picture().view(np.uint16), picture()):
        exporter.send(data)
        importer.acquire(10).torch()
    assert len(capsules) == 3 and len(gives[0]) == 1


@core_only
def test_frames_that_are_not_to_be_written_to_are_not_given(torch, channels, gives):
    exporter, importer, _, _ = channels
    imported(torch)
    exporter.send(picture())
    importer.acquire(10).torch()
    with cuda_link.open_importer("torch", timeout=10, access="read") as reader:
        frame = reader.acquire(10)
        assert frame.torch() is frame and not gives[0]


@core_only
def test_a_frame_that_can_not_be_given(torch, channels, gives):
    exporter, importer, _, _ = channels
    imported(torch)
    exporter.send(picture())
    frame = importer.acquire(10)
    frame.torch()
    gives[1].append(1)
    with pytest.raises(RuntimeError, match="exchange table"):
        frame.torch()
    frame.release()
    with pytest.raises(ValueError, match="was released"):
        frame.torch()
