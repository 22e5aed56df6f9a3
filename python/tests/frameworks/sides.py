# SPDX-License-Identifier: MIT
"""Frameworks on a real GPU, each behind the same few words, so that every pair of them can be tested.

A side has a stream of its own. `slow` keeps that stream busy, `filled` makes an array behind it, `wrong`
counts on that stream, into device memory, what differs from a value: the host waits for nothing until
`wrong_so_far`.
"""

from __future__ import annotations

import contextlib
import importlib.util

SHAPE = (512, 512, 4)
SLOW = 0.02  # seconds that a stream is kept busy
CYCLES = int(SLOW * 1.7e9)

SPIN = r"""
extern "C" __global__ void spin(long long cycles) {
  long long start = clock64();
  while (clock64() - start < cycles) {}
}
extern "C" __global__ void park(volatile int *go) {
  while (!*go) {}
}
"""


class TorchSide:
    name = "torch"

    def __init__(self):
        import torch

        self.torch = torch
        self.stream = torch.cuda.Stream()
        with self.on():
            self.count = torch.zeros((), dtype=torch.int64, device="cuda")
            self.array = torch.zeros(SHAPE, dtype=torch.uint8, device="cuda")
        torch.cuda.synchronize()

    def on(self):
        return self.torch.cuda.stream(self.stream)

    def slow(self):
        self.torch.cuda._sleep(CYCLES)

    def filled(self, value):
        self.slow()
        return self.array.fill_(value)

    def wrong(self, frame, value):
        tensor = self.torch.from_dlpack(frame)
        self.slow()
        self.count += (tensor != value).sum()

    def wrong_so_far(self):
        return int(self.count)


class CupySide:
    name = "cupy"

    def __init__(self):
        import cupy

        self.cupy = cupy
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.spin = cupy.RawModule(code=SPIN).get_function("spin")
        with self.on():
            self.count = cupy.zeros((), dtype=cupy.int64)
            self.array = cupy.zeros(SHAPE, dtype=cupy.uint8)
        self.stream.synchronize()

    def on(self):
        return self.stream

    def slow(self):
        self.spin((1,), (1,), (CYCLES,))

    def filled(self, value):
        self.slow()
        self.array.fill(value)
        return self.array

    def wrong(self, frame, value):
        array = self.cupy.from_dlpack(frame)
        self.slow()
        self.count += (array != value).sum()

    def wrong_so_far(self):
        return int(self.count)


class JaxSide:
    """JAX names no stream to its users: it has its own, and gives and takes arrays behind it."""

    name = "jax"
    stream = None

    def __init__(self):
        import jax
        import jax.numpy as jnp

        self.jax = jax
        self.count = jnp.zeros((), jnp.int32)
        square = jnp.eye(2048, dtype=jnp.float32)

        def busy(seed):
            return jax.lax.fori_loop(0, 64, lambda _, x: x @ square, square * seed)[0, 0]

        # The value passes through the long loop, so that what comes out is complete only behind it.
        self._fill = jax.jit(
            lambda value: (
                jnp.full(SHAPE, 0, jnp.uint8)
                + (value + 0 * busy(jnp.float32(1)).astype(jnp.int32)).astype(jnp.uint8)
            )
        )
        self._wrong = jax.jit(
            lambda count, array, value: (
                count
                + (array != (value + 0 * busy(jnp.float32(1)).astype(jnp.int32)).astype(jnp.uint8)).sum()
            )
        )
        self.wrong_array(self._fill(1), 1)
        assert self.wrong_so_far() == 0

    def on(self):
        return contextlib.nullcontext()

    def filled(self, value):
        return self._fill(value)

    def wrong_array(self, array, value):
        self.count = self._wrong(self.count, array, value)

    def wrong(self, frame, value):
        self.wrong_array(self.jax.dlpack.from_dlpack(frame), value)

    def wrong_so_far(self):
        return int(self.count)


SIDES = {side.name: side for side in (TorchSide, CupySide, JaxSide) if importlib.util.find_spec(side.name)}


class Parked:
    """A kernel that runs on CUDA's legacy default stream until the end of the block: whoever waits for
    that stream, or for the whole GPU, hangs."""

    def __enter__(self):
        import cupy

        self.memory = cupy.cuda.alloc_pinned_memory(4)
        import numpy as np

        self.go = np.frombuffer(self.memory, np.int32, 1)
        self.go[0] = 0
        park = cupy.RawModule(code=SPIN).get_function("park")
        with cupy.cuda.Stream.null:
            park((1,), (1,), (self.memory.ptr,))
        return self

    def __exit__(self, *exception):
        self.go[0] = 1
