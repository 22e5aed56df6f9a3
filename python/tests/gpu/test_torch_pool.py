# SPDX-License-Identifier: MIT
"""torch_mempool with a stand-in for torch, over the fake driver. torch's own pools are in
../frameworks/test_torch_cuda.py."""

from __future__ import annotations

import ctypes
import gc
import importlib
import sys
import threading
import time
import types
from ctypes import CFUNCTYPE, c_int, c_size_t, c_void_p
from pathlib import Path

import cuda_link
import numpy as np
import pytest
from cuda_link import _abi, _pure_capsule
from standin import cu
from test_gpu import LIMIT, SHAPE, exporter, importer, picture, pytestmark, stream  # noqa: F401

BLOCK = 2 << 20
TENSOR = int(np.prod(SHAPE))
DROPS = []  # callbacks, for ever


class PluggableAllocator:
    """As torch.cuda.memory.CUDAPluggableAllocator: loads the file once more, by its path."""

    def __init__(self, path, alloc, free):
        library = ctypes.CDLL(path)
        self.alloc, self.free = getattr(library, alloc), getattr(library, free)
        self.alloc.restype, self.alloc.argtypes = c_void_p, [c_size_t, c_int, c_void_p]
        self.free.restype, self.free.argtypes = None, [c_void_p, c_size_t, c_int, c_void_p]

    def allocator(self):
        return self


class Storage:
    """A piece of a block, which is written over once nobody has it any more."""

    def __init__(self, pool, address):
        self.pool, self.address, self.kept, self.lock = pool, address, 1, threading.Lock()
        self.dropped_by = None

    def keep(self):
        with self.lock:
            self.kept += 1

    def drop(self):
        with self.lock:
            self.dropped_by = threading.current_thread()
            self.kept -= 1
            over = not self.kept
        if over:
            cu("cuMemsetD8_v2", ctypes.c_uint64(self.address), ctypes.c_ubyte(0xDD), c_size_t(TENSOR))
            self.pool.leave()


class Tensor:
    def __init__(self, pool, address):
        self.storage = Storage(pool, address)

    def __del__(self):
        self.storage.drop()

    def fill(self, array):
        address = ctypes.c_uint64(self.storage.address)
        cu("cuMemcpyHtoD_v2", address, array.ctypes.data_as(c_void_p), c_size_t(TENSOR))
        return self

    def __dlpack_device__(self):
        return (2, 0)

    def __dlpack__(self, *, stream=None, max_version=None):  # noqa: F811
        view = _abi.View(device=_abi.Device(2, 0), dtype=_abi.Dtype(1, 8, 1), dimensions=3)
        view.data, step = self.storage.address, 1
        for i in reversed(range(3)):
            view.shape[i], view.strides[i] = SHAPE[i], step
            step *= SHAPE[i]
        storage = self.storage
        storage.keep()
        drop = CFUNCTYPE(None, c_void_p)(lambda _: storage.drop())
        DROPS.append(drop)
        return _pure_capsule.capsule_of(view, _pure_capsule.Dropper(1, drop), True)


class MemPool:
    """Hands out pieces of one block, which is freed behind the last of them."""

    def __init__(self, allocator):
        self.allocator, self.next, self.uses, self.lock = allocator, 512, 1, threading.Lock()
        self.block = allocator.alloc(BLOCK, 0, None)
        assert self.block

    def tensor(self):
        with self.lock:
            self.uses += 1
        made = Tensor(self, self.block + self.next)
        self.next += TENSOR + 512 - TENSOR % 512
        return made

    def leave(self):
        with self.lock:
            self.uses -= 1
            over = not self.uses
        if over:
            self.allocator.free(self.block, BLOCK, 0, None)


@pytest.fixture
def pool(monkeypatch):
    """Of cuda_link.torch alone, which without torch can't be imported as a whole."""
    cuda = types.SimpleNamespace(
        MemPool=MemPool,
        memory=types.SimpleNamespace(CUDAPluggableAllocator=PluggableAllocator),
        is_available=lambda: True,
    )
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda, __version__="0"))
    package = types.ModuleType("cuda_link.torch")
    package.__path__ = [str(Path(cuda_link.__file__).parent / "torch")]
    monkeypatch.setitem(sys.modules, "cuda_link.torch", package)
    module = importlib.import_module("cuda_link.torch._pool")
    monkeypatch.delitem(sys.modules, "cuda_link.torch._pool")
    monkeypatch.delitem(sys.modules, "torch")  # what is sent is nobody's whom the package knows
    made = module.torch_mempool()
    yield made
    made.leave()


def test_tensors_are_sent_as_they_lie(exporter, importer, pool, stream):  # noqa: F811
    exporter.send(pool.tensor().fill(picture(1)), stream=stream, user=b"12345678")
    counters = exporter.statistics()
    assert (counters.shared, counters.share_copies, counters.copies) == (1, 0, 0)
    with importer.acquire(10) as frame:
        assert frame.shared and not frame.writable and frame.kind == "vmm"
        assert frame.user == b"12345678"
        np.testing.assert_array_equal(frame.numpy(), picture(1))
    exporter.send(picture(2))
    with importer.acquire(10) as frame:
        assert not frame.shared and frame.writable
        np.testing.assert_array_equal(frame.numpy(), picture(2))


def test_a_held_tensor_is_kept(exporter, importer, pool, stream):  # noqa: F811
    tensor = pool.tensor().fill(picture(3))
    storage = tensor.storage
    exporter.send(tensor, stream=stream)
    frame = importer.acquire(10)
    del tensor
    gc.collect()
    for n in range(20):
        exporter.send(pool.tensor().fill(picture(n)), stream=stream, timeout=10)
        with importer.acquire(10) as other:
            np.testing.assert_array_equal(other.numpy(), picture(n))
    np.testing.assert_array_equal(frame.numpy(), picture(3))
    assert storage.kept
    frame.release()
    del frame
    end = time.monotonic() + LIMIT
    while storage.kept:  # until its slot is needed
        exporter.send(picture(), timeout=10)
        assert time.monotonic() < end


def test_it_is_kept_beyond_close(exporter, importer, pool, stream):  # noqa: F811
    tensor = pool.tensor().fill(picture(4))
    storage = tensor.storage
    exporter.send(tensor, stream=stream)
    del tensor
    frame = importer.acquire(10)
    exporter.close()
    with pytest.raises(cuda_link.EndedError):
        importer.acquire(10)
    np.testing.assert_array_equal(frame.numpy(), picture(4))
    assert storage.kept
    frame.release()
    end = time.monotonic() + LIMIT
    while storage.kept:
        assert time.monotonic() < end
        time.sleep(0.001)
    if cuda_link.backend.name == "core":  # the library's own threads may outlive Python
        assert storage.dropped_by is threading.main_thread()


def test_what_is_copied_is_not_kept(exporter, pool, stream):  # noqa: F811
    tensor = pool.tensor().fill(picture(5))
    with cuda_link.open_importer("gpu", timeout=10, isolated=True) as isolated:
        exporter.send(tensor, stream=stream)
        assert exporter.statistics().share_copies == 1
        assert "isolated" in exporter.statistics().share_reason
        with isolated.acquire(10) as frame:
            assert not frame.shared
            np.testing.assert_array_equal(frame.numpy(), picture(5))
    two = {"a": tensor, "b": pool.tensor().fill(picture(6))}
    exporter.send(two, stream=stream)  # several tensors are one frame in a slot
    assert exporter.statistics().shared == 0


def test_without_pools(pool, monkeypatch):
    torch = types.SimpleNamespace(cuda=types.SimpleNamespace(), __version__="1.13")
    monkeypatch.setitem(sys.modules, "torch", torch)
    module = importlib.import_module("cuda_link.torch._pool")
    monkeypatch.delitem(sys.modules, "cuda_link.torch._pool")
    with pytest.raises(cuda_link.UnsupportedError, match=r"1\.13"):
        module.torch_mempool()
