#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""NumPy as the other side of cudalink/dlpack.h, through ctypes and nothing else: its arrays over our
frames, our arrays over its memory. Debian 12's NumPy 1.24 knows legacy capsules only."""

import ctypes
import gc
import os
import subprocess
import sys
import threading
import unittest
from ctypes import POINTER, byref, c_char_p, c_int, c_int32, c_int64, c_size_t, c_uint8, c_uint16
from ctypes import c_uint32, c_uint64, c_void_p

import numpy
from program import ProgramTest, main

library = ctypes.CDLL(os.environ["CUDALINK_LIBRARY"])
library.cudalink_last_error.restype = c_char_p
library.cudalink_hold_retain.restype = library.cudalink_array_retain.restype = c_void_p
library.cudalink_hold_frame.restype = library.cudalink_array_view.restype = c_void_p
BUSY, UNSUPPORTED = -4, -19


class Stream(ctypes.Structure):
    _fields_ = [("kind", c_uint32), ("reserved", c_uint32), ("handle", c_uint64)]


class Handle(ctypes.Structure):
    _fields_ = [("id", c_uint32)]


class Dtype(ctypes.Structure):
    _fields_ = [("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16)]


class ExporterSpec(ctypes.Structure):  # as far as it is needed
    _fields_ = [
        ("size", c_size_t), ("name", c_char_p), ("description", c_void_p), ("slot_bytes", c_uint64),
        ("plane_count", c_uint32), ("user_size", c_uint32), ("slots", c_uint32),
        ("max_slots", c_uint32), ("kind", c_int), ("device", c_int32),
    ]  # fmt: skip


class ImporterSpec(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t), ("name", c_char_p), ("policy", c_int), ("group", c_char_p),
        ("hold", c_uint32), ("writable", c_uint32), ("isolated", c_uint32), ("gpu_wait", c_uint32),
        ("once", c_uint32), ("device", c_int32), ("directory", c_char_p), ("open_timeout", c_int64),
    ]  # fmt: skip


class View(ctypes.Structure):
    _fields_ = [
        ("data", c_void_p), ("device", c_int32 * 2), ("flags", c_uint64), ("dtype", Dtype),
        ("dimensions", c_uint32), ("shape", c_int64 * 8), ("strides", c_int64 * 8),
    ]  # fmt: skip


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", c_void_p), ("device", c_int32 * 2), ("dimensions", c_int32), ("dtype", Dtype),
        ("shape", POINTER(c_int64)), ("strides", POINTER(c_int64)), ("byte_offset", c_uint64),
    ]  # fmt: skip


Deleter = ctypes.CFUNCTYPE(None, c_void_p)


class Legacy(ctypes.Structure):
    _fields_ = [("tensor", Tensor), ("manager_context", c_void_p), ("deleter", Deleter)]


COMPLETE = Stream(1, 0, 0)
FOREVER = 2**63 - 1
HOST = 1


class Refused(Exception):
    def __init__(self, code):
        super().__init__(f"{code}: {library.cudalink_last_error().decode()}")
        self.code = code


def call(name, *arguments):
    code = getattr(library, "cudalink_" + name)(*arguments)
    if code < 0:
        raise Refused(code)


# ---- capsules ---------------------------------------------------------------------------------------

new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype, new_capsule.argtypes = ctypes.py_object, (c_void_p, c_char_p, c_void_p)
capsule_is = ctypes.pythonapi.PyCapsule_IsValid
capsule_is.argtypes = (ctypes.py_object, c_char_p)
capsule_is_raw = ctypes.PYFUNCTYPE(c_int, c_void_p, c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))
capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
capsule_pointer.restype, capsule_pointer.argtypes = c_void_p, (ctypes.py_object, c_char_p)
raw_pointer = ctypes.PYFUNCTYPE(c_void_p, c_void_p, c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
set_name = ctypes.pythonapi.PyCapsule_SetName
set_name.argtypes = (ctypes.py_object, c_char_p)
NEW, USED = b"dltensor", b"used_dltensor"  # must stay: a capsule keeps the pointer


@ctypes.PYFUNCTYPE(None, c_void_p)
def delete_unused(capsule):
    if capsule_is_raw(capsule, NEW):
        delete(raw_pointer(capsule, NEW))


def delete(pointer):
    Legacy.from_address(pointer).deleter(pointer)


class Shared:
    """What NumPy is given: an object that mints a capsule whenever it is asked."""

    def __init__(self, view, owner, retain, drop):
        self.view, self.owner, self.retain, self.drop = view, owner, retain, drop

    def __dlpack_device__(self):
        return tuple(self.view.device)

    def __dlpack__(self, stream=None):
        tensor = c_void_p()
        owner = c_void_p(self.retain(self.owner))
        try:
            call("dlpack_export_legacy", byref(self.view), owner, self.drop, byref(tensor))
        except Refused:
            self.drop(owner)
            raise
        return new_capsule(tensor, NEW, ctypes.cast(delete_unused, c_void_p))


def share_array(array):
    view = View.from_address(library.cudalink_array_view(array))
    return Shared(view, array, library.cudalink_array_retain, library.cudalink_array_drop)


def take_array(numbers):
    """An array of ours over NumPy's memory."""
    capsule = numbers.__dlpack__()
    array = c_void_p()
    call("array_take_legacy", byref(array), c_void_p(capsule_pointer(capsule, NEW)))
    set_name(capsule, USED)
    return array


# ---- a channel in this process ----------------------------------------------------------------------


class Channel:
    def __init__(self, numbers):
        self.description = ctypes.create_string_buffer(8192)
        kind = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}[numbers.dtype.kind]
        dtype = Dtype(kind, numbers.itemsize * 8, 1)
        shape = (c_int64 * max(numbers.ndim, 1))(*numbers.shape)
        call("describe_tensor", self.description, b"x", dtype, c_uint32(numbers.ndim), shape)
        self.exporter, self.importer = Handle(), Handle()
        spec = ExporterSpec(name=b"x", description=ctypes.addressof(self.description), kind=HOST)
        spec.size = ctypes.sizeof(spec)
        call("exporter_open", byref(self.exporter), byref(spec))
        spec = ImporterSpec(name=b"x", open_timeout=FOREVER)
        spec.size = ctypes.sizeof(spec)
        call("importer_open", byref(self.importer), byref(spec))

    def send(self, numbers):
        data = c_void_p(numbers.ctypes.data)
        call("exporter_send", self.exporter, self.description, data, None, COMPLETE, c_int64(FOREVER))

    def hold(self, timeout=FOREVER):
        frame, hold = ctypes.create_string_buffer(8192), c_void_p()
        call("importer_acquire", self.importer, COMPLETE, c_int64(timeout), frame)
        call("hold_take", byref(hold), frame)
        return hold

    def close(self):
        call("importer_close", self.importer)
        call("exporter_close", self.exporter)


def share_frame(hold, change=None):
    view = View()
    call("view_of_frame", byref(view), c_void_p(library.cudalink_hold_frame(hold)), c_uint32(0))
    if change:
        change(view)
    return Shared(view, hold, library.cudalink_hold_retain, library.cudalink_hold_drop)


class Dlpack(ProgramTest):
    def setUp(self):
        super().setUp()
        os.environ["CUDALINK_RUNTIME_DIR"] = str(self.channels)

    def check_frame(self, numbers):
        channel = Channel(numbers)
        channel.send(numbers)
        hold = channel.hold()
        seen = numpy.from_dlpack(share_frame(hold))
        again = numpy.from_dlpack(share_frame(hold))  # any number of times
        library.cudalink_hold_drop(hold)
        self.assertEqual(seen.dtype, numbers.dtype)
        self.assertEqual(seen.shape, numbers.shape)
        self.assertEqual(seen.tobytes(), numbers.tobytes())
        self.assertEqual(again.tobytes(), numbers.tobytes())
        self.assertFalse(seen.flags.writeable and seen.size)
        del seen, again
        channel.close()

    def test_frames_of_every_type(self):
        for name in ("u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8", "c8", "c16"):
            self.check_frame(numpy.arange(24).reshape(2, 3, 4).astype(name))
        self.check_frame(numpy.array(3.5, "f4"))
        self.check_frame(numpy.zeros((0, 3), "f4"))
        self.check_frame(numpy.zeros((1, 7, 1), "u1"))

    def test_an_array_keeps_the_frame(self):
        numbers = numpy.arange(1000, dtype="f4").reshape(10, 100)
        channel = Channel(numbers)
        channel.send(numbers)
        hold = channel.hold()
        seen = numpy.from_dlpack(share_frame(hold))[2:5, ::3]  # NumPy's own view keeps it too
        library.cudalink_hold_drop(hold)
        for i in range(20):
            channel.send(numbers + i + 1)
        with self.assertRaises(Refused) as refused:
            channel.hold(0)
        self.assertEqual(refused.exception.code, BUSY)
        self.assertTrue((seen == numbers[2:5, ::3]).all())
        del seen
        gc.collect()
        newest = channel.hold()
        seen = numpy.from_dlpack(share_frame(newest))
        library.cudalink_hold_drop(newest)
        self.assertTrue((seen == numbers + 20).all())
        channel.close()
        self.assertTrue((seen == numbers + 20).all())
        del seen

    def test_parts_of_a_frame(self):
        numbers = numpy.arange(120, dtype="i4").reshape(4, 5, 6)
        channel = Channel(numbers)
        channel.send(numbers)
        hold = channel.hold()

        def change(view):
            five = [c_int64(i) for i in (4, 3, -2)]
            call("view_slice", byref(view), c_uint32(1), *five)
            call("view_index", byref(view), c_uint32(0), c_int64(2))

        seen = numpy.from_dlpack(share_frame(hold, change))
        self.assertTrue((seen == numbers[2, 4::-2]).all())
        self.assertEqual(seen.strides, (-48, 4))
        library.cudalink_hold_drop(hold)
        del seen
        channel.close()

    def test_unused_capsules_give_back(self):
        numbers = numpy.zeros(10, "f4")
        channel = Channel(numbers)
        channel.send(numbers)
        hold = channel.hold()
        for _ in range(1000):
            share_frame(hold).__dlpack__()
        library.cudalink_hold_drop(hold)
        channel.send(numbers)
        library.cudalink_hold_drop(channel.hold(0))
        channel.close()

    def test_deleters_need_no_interpreter_lock(self):
        numbers = numpy.zeros(10, "f4")
        channel = Channel(numbers)
        channel.send(numbers)
        hold = channel.hold()
        tensors = [share_frame(hold).__dlpack__() for _ in range(400)]
        pointers = [capsule_pointer(capsule, NEW) for capsule in tensors]
        for capsule in tensors:
            set_name(capsule, USED)
        threads = [  # ctypes lets go of the lock during the call
            threading.Thread(target=lambda part: [delete(p) for p in part], args=(pointers[i::4],))
            for i in range(4)
        ]
        library.cudalink_hold_drop(hold)
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        channel.send(numbers)
        library.cudalink_hold_drop(channel.hold())
        channel.close()

    # ---- NumPy's memory ------------------------------------------------------------------------------

    def test_arrays_over_numpy(self):
        base = numpy.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5)
        for name in ("u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8", "c8", "c16"):
            typed = base.astype(name)
            for numbers in (
                typed, numpy.array(typed[0, 1, 2, 3]), typed.transpose(3, 1, 0, 2), typed[:, ::-1],
                typed[::-1, 1:, ::2, ::-2], typed[:0], numpy.broadcast_to(typed[0, 0], (3, 4, 5)).copy(),
            ):  # fmt: skip
                array, copy = take_array(numbers), c_void_p()
                expected = numbers.copy()
                call("array_copy", byref(copy), array, COMPLETE)
                shared = numpy.from_dlpack(share_array(array))
                self.assertTrue(numpy.array_equal(shared, expected))
                if numbers.size:
                    self.assertEqual(shared.ctypes.data, numbers.ctypes.data)
                    numbers[...] = 0  # who shares sees it, who has a copy does not
                    self.assertFalse(shared.any())
                library.cudalink_array_drop(array)
                copied = numpy.from_dlpack(share_array(copy))
                library.cudalink_array_drop(copy)
                self.assertTrue(numpy.array_equal(copied, expected))
                self.assertTrue(copied.flags.c_contiguous)
                numbers[...] = expected
                del shared, copied

    def test_the_memory_outlives_its_array(self):
        numbers = numpy.arange(100000, dtype="f8")
        expected = numbers.copy()
        array = take_array(numbers)
        del numbers
        gc.collect()
        filler = [numpy.full(100000, -1.0) for _ in range(20)]
        seen = numpy.from_dlpack(share_array(array))
        library.cudalink_array_drop(array)
        self.assertTrue((seen == expected).all())
        del filler

    def test_a_misaligned_array_is_refused(self):
        numbers = numpy.zeros(41, "u1")[1:].view("f4")
        array = take_array(numbers)
        with self.assertRaises(Refused) as refused:
            share_array(array).__dlpack__()
        self.assertEqual(refused.exception.code, UNSUPPORTED)
        copy = c_void_p()
        call("array_copy", byref(copy), array, COMPLETE)
        self.assertFalse(numpy.from_dlpack(share_array(copy)).any())
        library.cudalink_array_drop(copy)
        library.cudalink_array_drop(array)

    # ---- the end -------------------------------------------------------------------------------------

    def test_exit_with_arrays_alive(self):
        self.leaves_nothing = False  # nobody closes
        for _ in range(10):
            done = subprocess.run(
                [sys.executable, __file__, "leave"], env=dict(os.environ), capture_output=True, timeout=60
            )
            self.assertEqual((done.returncode, done.stderr), (0, b""))


def leave():
    """Ends with frames and arrays in globals."""
    numbers = numpy.arange(10, dtype="f4")
    channel = Channel(numbers)
    channel.send(numbers)
    hold = channel.hold()
    globals()["kept"] = numpy.from_dlpack(share_frame(hold))
    globals()["array"] = numpy.from_dlpack(share_array(take_array(numbers)))
    library.cudalink_hold_drop(hold)


if __name__ == "__main__":
    leave() if sys.argv[1:] == ["leave"] else main()
