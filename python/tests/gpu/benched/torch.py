# SPDX-License-Identifier: MIT
"""What stands in for torch in ../test_bench_gpu.py: as much of it as bench/python_gpu_rows.py calls, on the
fake driver. Its figures mean nothing. There is no torch.multiprocessing."""

import types
from ctypes import c_size_t, c_uint64, c_void_p

import numpy as np
import standin
from standin import cu, new_memory, new_stream

uint8, float32, bool, strided = "uint8", "float32", "bool", "strided"
_module = standin.Module("stand-in")
_current = _module.cuda.current_stream()


class Tensor(standin.Tensor):
    is_nested, layout = False, strided
    dtype = property(lambda self: self._dtype)

    @property
    def __cuda_array_interface__(self):
        return {
            "version": 3,
            "shape": self.shape,
            "typestr": np.dtype(self._dtype).str,
            "data": (self._address, False),
            "strides": None,
            "stream": _current.cuda_stream,
        }

    def copy_(self, source, non_blocking=False):
        size = c_size_t(self.nbytes)
        cu("cuMemcpyDtoD_v2", c_uint64(self._address), c_uint64(source._address), size)
        return self

    def clone(self):
        return empty_like(self).copy_(self)

    def add_(self, number):
        new = self.numpy() + np.dtype(self._dtype).type(number)
        cu("cuMemcpyHtoD_v2", c_uint64(self._address), c_void_p(new.ctypes.data), c_size_t(new.nbytes))
        return self

    def __getitem__(self, place):
        return self.numpy()[place]


def full(shape, value, dtype=float32, device=None):
    array = np.full(shape, value, dtype)
    return Tensor(None, new_memory(array), array.shape, dtype, _module)


def zeros(shape, dtype=float32, device=None):
    return full(shape, 0, dtype)


def empty(shape, dtype=float32, pin_memory=False):
    return full(shape, 0, dtype)


def empty_like(tensor):
    return full(tensor.shape, 0, tensor.dtype)


def as_tensor(source, device):
    made = source.__cuda_array_interface__
    return Tensor(source, made["data"][0], made["shape"], uint8, _module)


def from_dlpack(source):
    if isinstance(source, Tensor):
        return source
    taken = _module.from_dlpack(source)
    return Tensor(taken, taken.data_ptr(), taken.shape, taken._dtype, _module)


cuda = types.SimpleNamespace(
    is_available=lambda: True,
    synchronize=lambda: cu("cuCtxSynchronize"),
    current_stream=lambda *_: _current,
    Stream=lambda: types.SimpleNamespace(cuda_stream=new_stream()),
)
