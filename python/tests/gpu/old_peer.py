# SPDX-License-Identifier: MIT
"""The other end of the old wire, as a program of cuda-link 1.x plays it: from the layout in
docs/protocol.md and the CUDA driver alone, with nothing of the package.

old_peer.py send NAME HEIGHT WIDTH SLOTS     lines: a number = a frame of that byte; "stop"
old_peer.py receive NAME                     lines: "take"

Frames are RGBA of 8 bits. Each line is answered by one.
"""

import ctypes
import mmap
import os
import struct
import sys
from ctypes import byref, c_size_t, c_uint64, c_void_p

MAGIC = 0x43495044
driver = ctypes.CDLL("libcuda.so.1")


class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_ubyte * 64)]


def cu(name, *arguments):
    status = getattr(driver, name)(*arguments)
    if status:
        sys.exit(f"{name}: {status}")


def begin():
    context = c_void_p()
    cu("cuInit", 0)
    cu("cuDevicePrimaryCtxRetain", byref(context), 0)
    cu("cuCtxSetCurrent", context)


def lines():
    for line in sys.stdin:
        yield line.strip()


def say(*words):
    print(*words, flush=True)


def send(name, height, width, slots):
    size = height * width * 4
    end = 20 + 128 * slots
    path = f"/dev/shm/{name}"
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    os.ftruncate(file, end + 29)
    block = mmap.mmap(file, end + 29)
    memory, events = [], []
    for i in range(slots):
        pointer, event, handle = c_uint64(), c_void_p(), Handle()
        cu("cuMemAlloc_v2", byref(pointer), c_size_t(2 << 20))
        cu("cuEventCreate", byref(event), 2 | 4)
        cu("cuIpcGetMemHandle", byref(handle), pointer)
        block[20 + 128 * i : 84 + 128 * i] = bytes(handle)
        cu("cuIpcGetEventHandle", byref(handle), event)
        block[84 + 128 * i : 148 + 128 * i] = bytes(handle)
        memory.append(pointer)
        events.append(event)
    struct.pack_into("<BIIIBBHId", block, end, 0, width, height, 4, 1, 8, 0, size, 0.0)
    struct.pack_into("<IQII", block, 0, MAGIC, 1, slots, 0)
    say("open")
    count = 0
    for line in lines():
        if line == "stop":
            break
        slot = count % slots
        cu("cuMemsetD8_v2", memory[slot], int(line), c_size_t(size))
        cu("cuEventRecord", events[slot], None)
        count += 1
        struct.pack_into("<d", block, end + 21, 1.0)
        struct.pack_into("<I", block, 16, count)
        say("sent")
    block[end] = 1
    os.unlink(path)
    say("stopped")


class Reader:
    def __init__(self, name):
        file = os.open(f"/dev/shm/{name}", os.O_RDWR)
        self.block = mmap.mmap(file, os.fstat(file).st_size)
        self.version, self.last = 0, 0
        self.opened = {}

    def get(self, format, at):
        return struct.unpack_from("<" + format, self.block, at)[0]

    def open_handles(self, slots):
        for i in range(slots):
            pointer, event = c_uint64(), c_void_p()
            memory = Handle.from_buffer_copy(self.block, 20 + 128 * i)
            cu("cuIpcOpenMemHandle_v2", byref(pointer), memory, 1)
            cu("cuIpcOpenEventHandle", byref(event), Handle.from_buffer_copy(self.block, 84 + 128 * i))
            self.opened[i] = pointer, event

    def take(self):
        slots = self.get("I", 12)
        end = 20 + 128 * slots
        if self.block[end]:
            return "shutdown"
        if self.get("Q", 4) != self.version:
            self.version, self.last = self.get("Q", 4), 0
            self.open_handles(slots)
        count = self.get("I", 16)
        if count in (0, self.last):
            return "nothing"
        self.last = count
        pointer, event = self.opened[(count - 1) % slots]
        cu("cuEventSynchronize", event)
        size, flags = self.get("I", end + 17), self.get("H", end + 15)
        pixels = (ctypes.c_ubyte * size)()
        cu("cuMemcpyDtoH_v2", pixels, pointer, c_size_t(size))
        width, height = self.get("I", end + 1), self.get("I", end + 5)
        return f"{width}x{height} {pixels[0]} {pixels[size - 1]} flags {flags}"


def receive(name):
    reader = Reader(name)
    say("open")
    for _ in lines():
        say(reader.take())


begin()
{"send": send, "receive": receive}[sys.argv[1]](sys.argv[2], *(int(word) for word in sys.argv[3:]))
