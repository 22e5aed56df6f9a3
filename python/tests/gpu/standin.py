# SPDX-License-Identifier: MIT
"""What stands in for torch and CuPy where they have no GPU: modules with just what the package asks for,
over the CUDA driver. Tensors take capsules as the frameworks do; their memory is the frame's own."""

from __future__ import annotations

import ctypes
import types
from ctypes import byref, c_size_t, c_uint64, c_void_p

import numpy as np
from cuda_link import Array, _driver, _dtypes
from cuda_link._backend import low

driver = ctypes.CDLL("libcuda.so.1")
driver.cuInit(0)
driver.cuDevicePrimaryCtxRetain(byref(c_void_p()), 0)  # for good: streams end with their context


def cu(name, *arguments):
    with _driver._Context(0):
        status = getattr(driver, name)(*arguments)
    assert status == 0, (name, status)


def new_stream():
    """A handle. It is never destroyed: frames may be given back behind it at any time."""
    handle = c_void_p()
    cu("cuStreamCreate", byref(handle), 1)
    return handle.value


def new_memory(array):
    """The address of GPU memory with these bytes."""
    address = c_uint64()
    cu("cuMemAlloc_v2", byref(address), c_size_t(max(array.nbytes, 1)))
    cu("cuMemcpyHtoD_v2", address, array.ctypes.data_as(c_void_p), c_size_t(array.nbytes))
    return address.value


def fill(address, value, size, stream):
    """Queues a fill on a stream."""
    cu("cuMemsetD8Async", c_uint64(address), ctypes.c_ubyte(value), c_size_t(size), c_void_p(stream))


class Tensor:
    """A dense array on the GPU."""

    def __init__(self, owner, address, shape, dtype, module):
        self._owner, self._address, self._module = owner, address, module
        self.shape, self._dtype = tuple(shape), dtype

    device = 0
    ndim = property(lambda self: len(self.shape))
    dtype = property(lambda self: f"torch.{self._dtype}")
    nbytes = property(lambda self: int(np.prod(self.shape)) * np.dtype(self._dtype).itemsize)

    def data_ptr(self):
        return self._address

    def _as(self, shape, dtype):
        return Tensor(self, self._address, shape, dtype, self._module)

    def reshape(self, shape):
        count = self.nbytes // np.dtype(self._dtype).itemsize
        return self._as((count,) if shape == -1 else shape, self._dtype)

    def view(self, dtype):
        return self._as((self.nbytes // np.dtype(dtype).itemsize,), dtype)

    def __getitem__(self, index):
        assert index == (..., None)
        return self._as((*self.shape, 1), self._dtype)

    def clone(self):
        self._module.on_clone()
        address = c_uint64()
        cu("cuMemAlloc_v2", byref(address), c_size_t(self.nbytes))
        stream = c_void_p(self._module.stream)
        cu("cuMemcpyDtoDAsync_v2", address, c_uint64(self._address), c_size_t(self.nbytes), stream)
        return Tensor(None, address.value, self.shape, self._dtype, self._module)

    copy = clone

    def numpy(self):
        """Waits for the current stream."""
        out = np.empty(self.shape, self._dtype)
        cu("cuStreamSynchronize", c_void_p(self._module.stream))
        cu("cuMemcpyDtoH_v2", out.ctypes.data_as(c_void_p), c_uint64(self._address), c_size_t(out.nbytes))
        return out

    def div_(self, number):
        new = self.numpy() // np.dtype(self._dtype).type(number)
        cu("cuMemcpyHtoD_v2", c_uint64(self._address), new.ctypes.data_as(c_void_p), c_size_t(new.nbytes))
        return self


class Module(types.ModuleType):
    """torch and cupy at once."""

    def __init__(self, name):
        super().__init__(name)
        self.on_clone = lambda: None
        self.stream = new_stream()
        """The current one."""
        current = types.SimpleNamespace(
            cuda_stream=self.stream,
            ptr=self.stream,
            synchronize=lambda: cu("cuStreamSynchronize", c_void_p(self.stream)),
        )
        self.cuda = types.SimpleNamespace(
            is_available=lambda: True,
            current_stream=lambda *_: current,
            get_current_stream=lambda: current,
        )

    def __getattr__(self, name):
        if name in _dtypes._DTYPES:
            return name
        raise AttributeError(name)

    def from_dlpack(self, source):
        assert source.__dlpack_device__() == (2, 0)
        array = low.array_take(source.__dlpack__(stream=self.stream, max_version=(1, 0)), Array)
        assert array.is_dense
        return Tensor(array, array.address, array.shape, array.dtype, self)
