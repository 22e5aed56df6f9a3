#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The least that such a hand-over takes: calls of the CUDA driver and a shared number, without a check, without
a lease, for one consumer that keeps up. torch only looks at the memory.

raw_gpu.py pixel|kernel ROUNDS prints one number per line: microseconds from the copy of a picture into shared
memory of the GPU until the other process has read one pixel of it, or until a kernel has run over it there.
"""
import ctypes
import math
import multiprocessing
import sys
import time
from ctypes import byref, c_size_t, c_uint64, c_void_p

from stamps import SHAPE, WARM_UP, Watched, collected, show, used_on_gpu

SLOTS = 3
BYTES = math.prod(SHAPE)
BLOCK = -(-BYTES // 2**21) * 2**21  # a block of its own: what is shared is always the whole one
OPEN_LAZILY, NO_TIMING_BETWEEN_PROCESSES = 1, 2 | 4


class Handle(ctypes.Structure):
    """CUipcMemHandle and CUipcEventHandle."""

    _fields_ = [("bytes", ctypes.c_char * 64)]


class Driver:
    """With torch's context on this thread."""

    def __init__(self):
        self.library = ctypes.CDLL("libcuda.so.1")
        context = c_void_p()
        self.cuInit(0)
        self.cuDevicePrimaryCtxRetain(byref(context), 0)
        self.cuCtxSetCurrent(context)

    def __getattr__(self, name):
        function = getattr(self.library, name)

        def call(*arguments):
            status = function(*arguments)
            if status:
                raise RuntimeError(f"{name}: {status}")

        setattr(self, name, call)
        return call


class Memory:
    """What torch makes a tensor of."""

    def __init__(self, address):
        self.__cuda_array_interface__ = {
            "version": 3,
            "shape": SHAPE,
            "typestr": "|u1",
            "data": (address, False),
            "strides": None,
        }


def began(torch):
    """The driver, and the stream that torch uses."""
    torch.zeros(1, device="cuda")
    return Driver(), c_void_p(torch.cuda.current_stream().cuda_stream)


def handle_of(raw):
    return Handle.from_buffer_copy(raw)


def made(driver):
    """Addresses and events of all slots, and what another process opens of them."""
    addresses = [c_uint64() for _ in range(SLOTS)]
    events = [c_void_p() for _ in range(SLOTS)]
    handles = []
    for address, event in zip(addresses, events):
        memory, signal = Handle(), Handle()
        driver.cuMemAlloc_v2(byref(address), c_size_t(BLOCK))
        driver.cuIpcGetMemHandle(byref(memory), address)
        driver.cuEventCreate(byref(event), NO_TIMING_BETWEEN_PROCESSES)
        driver.cuIpcGetEventHandle(byref(signal), event)
        handles.append((bytes(memory), bytes(signal)))
    return addresses, events, handles


def opened(driver, handles):
    addresses, events = [], []
    for memory, signal in handles:
        address, event = c_uint64(), c_void_p()
        driver.cuIpcOpenMemHandle_v2(byref(address), handle_of(memory), OPEN_LAZILY)
        driver.cuIpcOpenEventHandle(byref(event), handle_of(signal))
        addresses.append(address.value)
        events.append(event)
    return addresses, events


def consume(what, shared, head, seen, rounds):
    import torch

    driver, stream = began(torch)
    addresses, events = opened(driver, shared.get())
    pictures = [torch.as_tensor(Memory(address), device="cuda") for address in addresses]
    used = used_on_gpu(what, torch)
    seen.put(0)
    for number in range(rounds):
        while head.value <= number:
            pass
        driver.cuStreamWaitEvent(stream, events[number % SLOTS], 0)
        used(pictures[number % SLOTS])
        seen.put(time.perf_counter_ns())


def produce(shared, head, seen, rounds):
    import torch

    driver, stream = began(torch)
    addresses, events, handles = made(driver)
    picture = torch.full(SHAPE, 17, dtype=torch.uint8, device="cuda")
    source = c_uint64(picture.data_ptr())
    torch.cuda.synchronize()
    shared.put(handles)
    seen.get()

    def send():
        start = time.perf_counter_ns()
        slot = head.value % SLOTS
        driver.cuMemcpyDtoDAsync_v2(addresses[slot], source, c_size_t(BYTES), stream)
        driver.cuEventRecord(events[slot], stream)
        head.value += 1
        return start

    return collected(send, seen, rounds, True)


def main():
    what, rounds = sys.argv[1], int(sys.argv[2]) + WARM_UP
    context = multiprocessing.get_context("spawn")
    shared, seen = context.Queue(), context.Queue()
    head = context.Value("q", 0, lock=False)
    consumer = context.Process(target=consume, args=(what, shared, head, seen, rounds), daemon=True)
    consumer.start()
    stamps = produce(shared, head, Watched(seen, consumer), rounds)
    consumer.join()
    show("latency", stamps)


if __name__ == "__main__":
    main()
