#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""original.py send|receive NAME FRAMES

The original Python package cuda-link as one end of the old wire, for test_original.c. CUDALINK_ORIGINAL
names the folder that its package `cuda_link` lies in. Frames are 64 x 32 pixels of RGBA8; each byte of
frame i is i % 251. `send` writes a frame per line that it reads; `receive` prints the first and the last
byte of each new frame. What the package prints itself goes to the standard error.
"""
import ctypes
import os
import sys
import time

answers = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)
sys.path.insert(0, os.environ["CUDALINK_ORIGINAL"])
import cuda_link  # noqa: E402  pylint: disable=wrong-import-position

HEIGHT, WIDTH, CHANNELS = 32, 64, 4
SIZE = HEIGHT * WIDTH * CHANNELS


def device_memory(size):
    """A CUDA driver and memory of its device 0, in the primary context."""
    cuda = ctypes.CDLL("libcuda.so.1")
    context, pointer = ctypes.c_void_p(), ctypes.c_uint64()
    for status in (cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0),
                   cuda.cuCtxSetCurrent(context),
                   cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size))):
        if status:
            sys.exit(f"the CUDA driver answers {status}")
    return cuda, pointer


def send(name, frames):
    cuda, pointer = device_memory(SIZE)
    spec = cuda_link.FrameSpec(shm_name=name, height=HEIGHT, width=WIDTH, channels=CHANNELS, dtype="uint8")
    with cuda_link.Exporter.open(spec) as exporter:
        print("open", file=answers)
        for i in range(1, frames + 1):
            sys.stdin.readline()
            status = cuda.cuMemcpyHtoD_v2(pointer, bytes([i % 251]) * SIZE, ctypes.c_size_t(SIZE))
            if status:
                sys.exit(f"the CUDA driver answers {status}")
            frame = cuda_link.GpuFrame(ptr=pointer.value, size=SIZE, producer_stream=0)
            print("sent", exporter.export(frame).name, file=answers)
        sys.stdin.readline()


def receive(name, frames):
    spec = cuda_link.ImportSpec(shm_name=name)
    with cuda_link.Importer.open(spec) as importer:
        print("open", file=answers)
        while frames:
            result = importer.get_frame_numpy()
            if result.outcome.name != "NEW_FRAME":
                time.sleep(0.001)
                continue
            pixels = result.frame.reshape(-1)
            print("got", len(pixels), int(pixels[0]), int(pixels[-1]), file=answers)
            frames -= 1


{"send": send, "receive": receive}[sys.argv[1]](sys.argv[2], int(sys.argv[3]))
