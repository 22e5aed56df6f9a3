# SPDX-License-Identifier: MIT
"""For test_original_examples.py, in front of the path: the names that the original's examples import from
`cuda_link` and that ours refuses on purpose, so that the examples run unchanged. They use them for memory of
the GPU to draw in, and to find out what is installed."""

import ctypes
import sys
import types


def driver():
    """Of GPU 0, with its primary context current."""
    cuda = ctypes.CDLL("libcuda.so.1")
    context = ctypes.c_void_p()
    check(cuda.cuInit(0))
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    check(cuda.cuCtxSetCurrent(context))
    return cuda


def check(status):
    if status:
        raise RuntimeError(f"the CUDA driver answers {status}")


class GpuMemory:
    """What the examples call an adapter."""

    def __init__(self, *_arguments, **_options):
        self._cuda = driver()

    @classmethod
    def for_device(cls, device=0):
        return cls(device)

    def malloc(self, size):
        pointer = ctypes.c_uint64()
        check(self._cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size)))
        return ctypes.c_void_p(pointer.value)

    def free(self, pointer):
        check(self._cuda.cuMemFree_v2(ctypes.c_uint64(pointer.value)))

    def memcpy(self, dst, src, count, kind):
        assert kind == 1, "from the CPU to the GPU only"
        check(self._cuda.cuMemcpyHtoD_v2(ctypes.c_uint64(dst.value), src, ctypes.c_size_t(count)))


class CpuMemory:
    """The same without a GPU: example 01 looks at the calls only."""

    def __init__(self, device=0):
        self.device = device
        self.allocations = {}

    def malloc(self, size):
        block = (ctypes.c_ubyte * size)()
        self.allocations[ctypes.addressof(block)] = block
        return ctypes.c_void_p(ctypes.addressof(block))

    def free(self, pointer):
        del self.allocations[pointer.value]

    def memcpy(self, dst, src, count, kind):
        ctypes.memmove(dst, src, count)


class Interrupts:
    stop_requested = False
    shutdown_via = None


def add_module(package, name, **names):
    module = types.ModuleType(f"{package.__name__}.{name}")
    vars(module).update(names)
    sys.modules[module.__name__] = module
    setattr(package, name, module)


def add_names():
    import cuda_link

    # The original imports torch with itself. The examples' producers run for a few seconds only, and have
    # ended when a consumer imports it behind their start.
    try:
        import torch  # noqa: F401
    except ImportError:
        pass
    cuda_link.CTypesCUDAAdapter = GpuMemory
    cuda_link.FakeCUDAAdapter = CpuMemory
    add_module(cuda_link, "cuda_ipc_wrapper", CUDARuntimeAPI=GpuMemory)
    add_module(
        cuda_link,
        "importer",
        TORCH_AVAILABLE=cuda_link.TORCH_AVAILABLE,
        CUPY_AVAILABLE=cuda_link.CUPY_AVAILABLE,
    )
    add_module(cuda_link, "_console", install_console_ctrl_handler=lambda *_a, **_o: Interrupts())


add_names()
