# SPDX-License-Identifier: MIT
"""What is wrong is an error of Python that says so, never another value, other bytes or a crash."""

from __future__ import annotations

import copy
import pickle
from fractions import Fraction

import cuda_link
import numpy as np
import pytest

BEYOND = 2**32  # what a field of 32 bits takes for 0
NO_SUCH_VALUE = (ValueError, OverflowError)


@pytest.fixture
def exporter():
    with cuda_link.open_exporter("misuse", shape=(4,), kind="host", user_size=16) as opened:
        yield opened


@pytest.fixture
def importer(exporter):
    with cuda_link.open_importer("misuse", timeout=10, hold=4) as opened:
        yield opened


# ---- copies of what can't be copied


def things(exporter, importer):
    """One of each kind, each of them with a part in memory that is counted or an end that is closed."""
    exporter.send(b"abcd")
    frame = importer.acquire(10)
    slot = exporter.frame()
    yield from (exporter, importer, frame, frame.tensor(), frame.copy(), frame.copy().tensor())
    with slot:
        yield from (slot, slot.tensor())


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, pickle.dumps])
def test_nothing_is_copied_behind_its_back(exporter, importer, how):
    for thing in things(exporter, importer):
        with pytest.raises(TypeError, match="can't be pickled or copied"):
            how(thing)
    assert not exporter.closed and exporter.statistics().consumers == 1


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, pickle.dumps])
def test_nor_are_the_ends_of_the_known_face(how):
    spec = cuda_link.FrameSpec("known", height=4, width=4)
    with cuda_link.Exporter.open(spec) as exporter:
        with cuda_link.Importer.open(cuda_link.ImportSpec("known")) as importer:
            for thing in (exporter, importer):
                with pytest.raises(TypeError, match="can't be pickled or copied: open the channel"):
                    how(thing)
            assert exporter.is_ready() and importer.is_ready()


def test_a_queue_takes_none_of_them(exporter, importer):
    queue = cuda_link.Queue(1)
    for thing in things(exporter, importer):
        with pytest.raises(TypeError, match="can't be pickled or copied"):
            queue.put(thing, timeout=10)
    assert queue.empty()


def test_every_error_can_be_pickled():
    for name in cuda_link.__all__:
        kind = getattr(cuda_link, name)
        if isinstance(kind, type) and issubclass(kind, cuda_link.CudaLinkError):
            error = kind("why")
            error.code = -3
            again = pickle.loads(pickle.dumps(error))
            assert (type(again), str(again), again.code) == (kind, "why", -3)


@pytest.mark.parametrize("kind", [cuda_link.Array, cuda_link.Frame])
def test_neither_frames_nor_arrays_are_made_by_hand(kind):
    for arguments in ((), (0,), (set(),)):
        with pytest.raises(TypeError):
            kind(*arguments)


# ---- numbers that do not fit


@pytest.mark.parametrize(
    "words",
    [
        {"slots": BEYOND + 4},
        {"slots": -1},
        {"max_slots": BEYOND + 5},
        {"user_size": BEYOND + 1},
        {"user_size": -1},
        {"device": BEYOND},
        {"device": 2**31 - 1},
        {"zombie_limit": 2**64},
        {"zombie_limit": -1},
        {"allowed_users": [BEYOND]},  # not root
        {"allowed_users": [-1]},
        {"shape": (2**64 + 4,)},
        {"shape": (BEYOND + 480, 640), "format": "RGBA8"},
        {"shape": (480, 2**64 + 640), "format": "RGBA8"},
    ],
    ids=str,
)
def test_numbers_that_no_channel_has(words):
    with pytest.raises(NO_SUCH_VALUE):
        cuda_link.open_exporter("misuse", **{"shape": (4,), "kind": "host", **words})


def test_a_device_that_no_machine_has():
    with pytest.raises(NO_SUCH_VALUE):
        cuda_link.open_importer("misuse", device=BEYOND)


def test_auto_takes_no_memory_of_the_cpu_for_a_named_gpu():
    with pytest.raises(cuda_link.UnsupportedError, match=r"kind auto on GPU 999: "):
        cuda_link.open_exporter("misuse", shape=(4,), device=999)


@pytest.mark.parametrize("count", [-1, BEYOND, BEYOND + 1])
def test_a_number_of_consumers_that_can_not_be(exporter, importer, count):
    with pytest.raises(NO_SUCH_VALUE):
        exporter.wait_consumers(count, 0)


@pytest.mark.parametrize(
    "words",
    [
        {"pts": 2**63},
        {"duration": -(2**63) - 1},
        {"time_base": -1},
        {"time_base": 0.1},  # as a float it is no fraction of 32 bits
        {"time_base": Fraction(1, BEYOND + 25)},
    ],
    ids=str,
)
def test_times_that_do_not_fit(exporter, words):
    with pytest.raises(NO_SUCH_VALUE):
        exporter.send(b"abcd", **words)
    assert exporter.statistics().published == 0


@pytest.mark.parametrize("shape", [(1.5,), 1.5, "12", ("1",), b"12"])
def test_shapes_that_are_no_numbers(shape):
    with pytest.raises(TypeError):
        cuda_link.open_exporter("misuse", shape=shape, kind="host")
    with pytest.raises((TypeError, ValueError)):
        cuda_link.open_exporter("misuse", shape=(shape, 4), format="RGBA8", kind="host")


def test_a_number_is_a_number():
    with cuda_link.open_exporter("misuse", shape=np.int64(4), kind="host") as exporter:
        with exporter.frame(shape=np.uint8(6)) as slot:
            assert slot.shape == (6,)


# ---- time-outs


@pytest.mark.parametrize("forever", [float("inf"), 1e300, 1e10, 10**400])
def test_long_time_outs(exporter, importer, forever):
    assert exporter.send(b"abcd", timeout=forever)
    importer.acquire(forever).release()
    queue = cuda_link.Queue(1)
    queue.put("thing", timeout=forever)
    assert queue.get(timeout=forever) == "thing"


@pytest.mark.parametrize("words", [{"spin": None}, {"gpu_wait_limit": None}], ids=str)
def test_what_no_importer_does_without_limit(words):
    with pytest.raises(TypeError, match=f"{next(iter(words))}=None: it is a number of seconds"):
        cuda_link.open_importer("misuse", **words)


def test_time_outs_of_the_known_face():
    pixels = np.zeros(64, "u1")
    spec = cuda_link.FrameSpec("known", height=4, width=4)
    with cuda_link.Exporter.open(spec) as exporter:
        with cuda_link.Importer.open(cuda_link.ImportSpec("known", timeout_ms=10**400)) as importer:
            frame = cuda_link.GpuFrame(pixels.ctypes.data, 64)
            assert exporter.export(frame) is cuda_link.FrameOutcome.PUBLISHED
            for long in (2**31, 2**70, 1e300, 10**400, float("inf")):
                assert importer.wait_for_doorbell(long)
            for wrong in (-1, -1e-9, float("nan")):
                with pytest.raises(ValueError, match="timeout_ms"):
                    importer.wait_for_doorbell(wrong)
                with pytest.raises(ValueError, match="timeout_ms"):
                    cuda_link.Importer.open(cuda_link.ImportSpec("known", timeout_ms=wrong))


# ---- streams and what else DLPack asks


@pytest.mark.parametrize("stream", ["0", 1.5, True, object(), -2, 2**64], ids=repr)
def test_a_stream_that_is_none_is_so_on_each_kind(stream):
    pixels = np.zeros(64, "u1")
    spec = cuda_link.FrameSpec("known", height=4, width=4)
    with cuda_link.Exporter.open(spec) as exporter:
        with pytest.raises((TypeError, ValueError), match=r"is (not a|no) stream"):
            exporter.export(cuda_link.GpuFrame(pixels.ctypes.data, 64, producer_stream=stream))
        assert exporter.get_stats()["frame_count"] == 0


@pytest.mark.parametrize(
    "words",
    [
        {"max_version": ()},
        {"max_version": 1},
        {"max_version": ("1", 0)},
        {"max_version": (None, 0)},
        {"max_version": [1.5]},
        {"dl_device": 1},
        {"dl_device": ("cpu", 0)},
        {"dl_device": ()},
        {"dl_device": (1, 0, 0)},
    ],
    ids=str,
)
def test_words_of_dlpack_that_are_none(exporter, importer, words):
    exporter.send(b"abcd")
    with importer.acquire(10) as frame, exporter.frame() as slot:
        for thing in (frame, frame.tensor(), frame.copy().tensor(), slot, slot.tensor()):
            with pytest.raises(TypeError, match=f"__dlpack__.{next(iter(words))}="):
                thing.__dlpack__(**words)
        slot.abandon()


# ---- text and bytes


@pytest.mark.parametrize("name", ["a\0b", "\0", 5, b"a"], ids=repr)
def test_names_that_are_none(exporter, name):
    with pytest.raises((TypeError, ValueError)):
        exporter.send({name: b"abcd"})
    with pytest.raises((TypeError, ValueError)):
        cuda_link.open_exporter("other", planes={name: ((4,), "uint8")}, kind="host")
    with exporter.frame() as slot, pytest.raises((TypeError, ValueError)):
        slot.publish_invalid(name)
    with pytest.raises((TypeError, ValueError)):
        cuda_link.open_exporter("other", shape=(4, 4), format=name, kind="host")
    with pytest.raises((TypeError, ValueError)):
        cuda_link.open_exporter("other", shape=(4, 4), format=f"RGBA8{name}", kind="host")


@pytest.mark.parametrize(
    "user",
    [bytearray(b"abc"), memoryview(b"abcdef")[::2][:2], np.arange(3, dtype="<i4"), np.uint8([7])],
    ids=lambda user: type(user).__name__,
)
@pytest.mark.parametrize("data", [b"abcd", np.zeros((4, 4))[:, ::2]], ids=["dense", "strided"])
def test_user_data_of_any_buffer(exporter, importer, user, data):
    exporter.send(data, user=user)
    with importer.acquire(10) as frame:
        assert frame.user == bytes(user)


@pytest.mark.parametrize("user", ["abc", 5, [1, 2], ""], ids=repr)
def test_user_data_that_is_none(exporter, user):
    with pytest.raises(TypeError):
        exporter.send(b"abcd", user=user)


class Claims:
    """An array that says more than it has."""

    def __init__(self, **interface):
        self.__array_interface__ = interface


@pytest.mark.parametrize(
    "words",
    [
        {"shape": (1_000_000,), "typestr": "|u1", "data": b"abc"},
        {"shape": (2,), "typestr": "<u2", "data": b"abc"},
        {"shape": (2,), "typestr": "|u1", "data": b"abc", "offset": 2},
        {"shape": (2**40, 2**40), "typestr": "|u1", "data": b"abc"},
        {"shape": (-1,), "typestr": "|u1", "data": b"abc"},
        {"shape": (2,), "typestr": "", "data": b"abc"},
        {"shape": (2,), "typestr": "|ux", "data": b"abc"},
        {"shape": (2,), "data": b"abc"},
        {"typestr": "|u1", "data": b"abc"},
        {"shape": 2, "typestr": "|u1", "data": b"abc"},
    ],
    ids=str,
)
def test_arrays_that_claim_too_much(exporter, words):
    with pytest.raises((TypeError, ValueError)):
        exporter.send(Claims(**words))
    assert exporter.statistics().published == 0


def test_the_offset_of_an_array_interface(exporter, importer):
    exporter.send(Claims(shape=(2,), typestr="|u1", data=b"abcd", offset=1))
    assert importer.acquire(10).packed() == b"bc"


class ClaimsOnGpu:
    """The same in memory of a GPU, where only the driver could tell. None of these gets so far."""

    def __init__(self, **interface):
        dense = {"version": 3, "shape": (4,), "typestr": "|u1", "data": (4096, False)}
        merged = {**dense, **interface}
        self.__cuda_array_interface__ = {name: said for name, said in merged.items() if said is not ...}


@pytest.mark.parametrize(
    "words",
    [
        *({name: ...} for name in ("shape", "typestr", "data")),
        {"data": None},
        {"data": 4096},
        {"data": (2**64 + 4096, False)},
        {"data": (-1, False)},
        {"data": ("4096", False)},
        {"shape": 4},
        {"shape": (-1,)},
        {"typestr": ""},
        {"typestr": 5},
        {"strides": (1, 2)},
        {"strides": ()},
        {"strides": 1},
        {"strides": (-1,)},
    ],
    ids=str,
)
def test_arrays_of_a_gpu_that_claim_too_much(exporter, words):
    with pytest.raises((TypeError, ValueError, BufferError)) as caught:
        exporter.send(ClaimsOnGpu(**words))
    assert "on a GPU" not in str(caught.value)  # what a channel of the CPU says to one that is right
    with pytest.raises(BufferError, match="on a GPU"):
        exporter.send(ClaimsOnGpu())


def test_the_stream_that_an_array_of_a_gpu_names(exporter):
    """0 is ambiguous, and its specification forbids it. Whoever sends may know better."""
    with pytest.raises(BufferError, match=r"stream 0.*1 .*2 .*None.*send\(x, stream=1\)"):
        exporter.send(ClaimsOnGpu(stream=0))
    for known in (1, 2, 4096, None):
        with pytest.raises(BufferError, match="on a GPU"):
            exporter.send(ClaimsOnGpu(stream=known))
    with pytest.raises(BufferError, match="on a GPU"):
        exporter.send(ClaimsOnGpu(stream=0), stream=-1)
    for wrong in (True, "1", 1.5):
        with pytest.raises(TypeError, match="is not a stream"):
            exporter.send(ClaimsOnGpu(stream=wrong))


@pytest.mark.parametrize("address", ["x" * 64, b"x" * 64, None, -1, 2**65, 1.5], ids=repr)
def test_addresses_that_are_none(address):
    spec = cuda_link.FrameSpec("known", height=4, width=4)
    with cuda_link.Exporter.open(spec) as exporter:
        with pytest.raises((TypeError, ValueError)):
            exporter.export(cuda_link.GpuFrame(ptr=address, size=64, producer_stream=0))
        assert exporter.get_stats()["frame_count"] == 0


# ---- what has nothing in it


def test_an_invalid_frame_can_be_looked_at(exporter, importer):
    with exporter.frame() as slot:
        slot.publish_invalid("no signal")
    with importer.acquire(10) as frame:
        assert "no signal" in repr(frame)
        assert frame.planes == () and frame.nbytes == 0 and frame.arrays() == {}
    assert "released" in repr(frame)


@pytest.mark.parametrize(
    "short, name", [("f4", "float32"), ("<u2", "uint16"), ("|b1", "bool"), ("c8", "complex64")]
)
def test_numpys_short_names_of_types(short, name):
    with cuda_link.open_exporter("short", shape=(4,), dtype=short, kind="host") as exporter:
        with exporter.frame() as slot:
            assert slot.dtype == name


@pytest.mark.parametrize("wrong", [">f4", "f3", "b4", "u16", "f"])
def test_wrong_short_names_of_types(wrong):
    with pytest.raises(ValueError, match=r"big-endian|is not a type"):
        cuda_link.open_exporter("short", shape=(4,), dtype=wrong, kind="host")


# ---- any argument of any other kind

ODD = [-1, 2**70, float("nan"), float("inf"), 1.5, "x", b"x", [], {}, object(), 1j, np.zeros(3)]

SENSIBLE = {
    "pts": ["-1"],
    "duration": ["-1"],
    "time_base": ["1.5"],
    "rate": ["1.5"],
    "clock": ["'x'"],
    "maxsize": ["-1"],
    "allowed_users": ["[]", "{}"],
    "array stream": ["-1"],
}


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: repr(odd)[:12])
def test_arguments_of_another_kind(exporter, importer, odd):
    exporter.send(b"abcd")
    sent = exporter.statistics().published
    calls = {
        "planes": lambda: cuda_link.open_exporter("other", planes=odd, kind="host"),
        "frame planes": lambda: exporter.frame(planes=odd),
        "frame dtype": lambda: exporter.frame(dtype=odd),
        "pts": lambda: exporter.send(b"abcd", pts=odd),
        "duration": lambda: exporter.send(b"abcd", duration=odd),
        "time_base": lambda: exporter.send(b"abcd", time_base=odd),
        "rate": lambda: exporter.send(b"abcd", rate=odd),
        "clock": lambda: exporter.send(b"abcd", clock=odd),
        "picture": lambda: exporter.send(b"abcd", picture=odd),
        "user_size": lambda: exporter.frame(user_size=odd),
        "maxsize": lambda: cuda_link.Queue(odd),
        "allowed_users": lambda: cuda_link.open_exporter("other", shape=4, allowed_users=odd),
    }
    with importer.acquire(10) as frame:
        copy = frame.copy()
        for what in ("plane", "numpy", "buffer", "tensor"):
            calls[f"frame {what}"] = lambda what=what: getattr(frame, what)(odd)
            calls[f"copy {what}"] = lambda what=what: getattr(copy, what)(odd)
        calls["array stream"] = lambda: copy.tensor().copy(stream=odd)
        for what, call in calls.items():
            if repr(odd) not in SENSIBLE.get(what, ()):
                with pytest.raises((TypeError, ValueError, LookupError)):
                    print(f"{what}={odd!r}: {call()!r}")
    assert exporter.statistics().published == sent


def test_a_plane_has_one_number(exporter, importer):
    exporter.send(b"abcd")
    with importer.acquire(10) as frame:
        assert bytes(frame.numpy(np.int64(0))) == b"abcd"
        for odd in (0.0, Fraction(0), None):
            with pytest.raises(TypeError, match="by its number or its name"):
                frame.numpy(odd)


def test_a_dtype_without_a_shape_says_nothing(exporter):
    with pytest.raises(TypeError, match="say what a frame looks like"):
        exporter.frame(dtype="float32")


def test_user_data_is_only_so_large(exporter):
    with pytest.raises(ValueError, match="user_size"):
        exporter.frame(user_size=2**40)
