# SPDX-License-Identifier: MIT
"""torch and cuda-link: tensors out of frames, frames out of tensors, on the CPU. Passes with Debian's torch
1.13 (legacy capsules only) and with today's."""

from __future__ import annotations

import ctypes
import gc
import signal
import threading

import cuda_link
import numpy as np
import pytest
from conftest import TORCH_LIMIT, run_python, until_held

torch = pytest.importorskip("torch")
ct = pytest.importorskip("cuda_link.torch")

TYPES = [
    getattr(torch, name)
    for name in (
        "uint8 int8 int16 int32 int64 uint16 uint32 uint64 float16 bfloat16 float32 float64 complex64 "
        "complex128 bool float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu"
    ).split()
    if hasattr(torch, name)
]


@pytest.fixture
def exporter():
    with cuda_link.open_exporter("torch", shape=(6, 8), kind="host") as opened:
        yield opened


@pytest.fixture
def importer(exporter):
    with cuda_link.open_importer("torch", timeout=10, hold=8) as opened:
        yield opened


def numbers(dtype=torch.int16, add=0):
    return (torch.arange(48) + add).reshape(6, 8).to(dtype)


def same(one, other):
    """Bit by bit: not every type can be compared."""
    return one.dtype == other.dtype and one.shape == other.shape and to_bytes(one) == to_bytes(other)


def to_bytes(tensor):
    flat = tensor.contiguous().reshape(-1)
    return bytes(flat.view(torch.uint8).tolist()) if flat.numel() else b""


# ---- frames as tensors


def test_a_frame_is_imported_any_number_of_times(exporter, importer):
    exporter.send(numbers())
    frame = importer.acquire(10)
    tensors = [torch.from_dlpack(frame) for _ in range(5)] + [frame.torch(), ct.to_torch(frame)]
    assert {tensor.data_ptr() for tensor in tensors} == {frame.numpy().ctypes.data}
    assert all(same(tensor, numbers()) for tensor in tensors)
    assert importer.statistics().copies == 0
    frame.release()
    del tensors[1:]
    assert importer.held == 1 and same(tensors[0], numbers())
    tensors.clear()
    until_held(importer, 0)


def test_a_capsule_is_used_once(exporter, importer):
    exporter.send(numbers())
    frame = importer.acquire(10)
    capsule = frame.__dlpack__()
    first = torch.from_dlpack(capsule)
    with pytest.raises((RuntimeError, ValueError, BufferError)):
        torch.from_dlpack(capsule)
    assert same(first, numbers())


def test_a_tensor_outlives_everything(exporter, importer):
    exporter.send(numbers(add=7))
    kept = torch.from_dlpack(importer.acquire(10))
    view = kept[2:, ::2]
    for n in range(1000):
        exporter.send(numbers(add=n))
        if n % 10 == 0:
            importer.acquire(10).release()
    exporter.send(torch.zeros(600, 800))  # a new generation
    assert importer.acquire(10).shape == (600, 800)
    exporter.close()
    importer.close()
    gc.collect()
    assert same(kept, numbers(add=7))
    del kept
    assert same(view, numbers(add=7)[2:, ::2])


def test_exit_with_tensors_alive():
    ended = run_python(
        "import cuda_link, torch\n"
        "e = cuda_link.open_exporter('exit', shape=(4,), kind='host')\n"
        "i = cuda_link.open_importer('exit', timeout=10)\n"
        "e.send(torch.ones(4)); frame = i.acquire(10)\n"
        "tensor, view = torch.from_dlpack(frame), frame.torch()[1:]\n"
        "import cuda_link.torch; array = cuda_link.torch.from_torch(torch.ones(3))\n",
        timeout=TORCH_LIMIT,
    )
    assert (ended.returncode, ended.stderr) == (0, "")


def test_tensors_end_on_any_thread(exporter, importer):
    exporter.send(numbers())
    frame = importer.acquire(10)
    failed = []

    def work():
        for _ in range(200):
            if torch.from_dlpack(frame)[5, 7].item() != 47:
                failed.append(1)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    frame.release()
    assert not failed
    until_held(importer, 0)


def test_planes(exporter, importer):
    exporter.send({"a": numbers(), "b": numbers(torch.float32).T})
    frame = importer.acquire(10)
    assert same(ct.to_torch(frame.tensor("a")), numbers())
    assert same(frame.torch("b"), numbers(torch.float32).T)
    with pytest.raises(BufferError, match="'a', 'b'"):
        ct.to_torch(frame)


def test_writing_to_a_read_only_frame_ends_the_process():
    """torch can't be told; the kernel can. What is there to be written is a copy."""
    code = (
        "import cuda_link, torch, cuda_link.torch as ct\n"
        "e = cuda_link.open_exporter('read', shape=(4,), kind='host')\n"
        "i = cuda_link.open_importer('read', timeout=10)\n"
        "e.send(torch.ones(4)); frame = i.acquire(10)\n"
        "assert not frame.writable\n"
        "ct.to_torch(frame, copy=True).add_(1); frame.copy().torch().add_(1)\n"
        "assert frame.torch().sum() == 4; print('so far', flush=True)\n"
        "torch.from_dlpack(frame).add_(1); print('written')\n"
    )
    ended = run_python(code, timeout=TORCH_LIMIT)
    assert ended.stdout == "so far\n"
    assert ended.returncode in (-signal.SIGSEGV, -signal.SIGBUS)


def test_a_lent_slot_is_written_in_place(exporter, importer):
    with exporter.frame(shape=(6, 8), dtype=torch.float32) as slot:
        target = ct.to_torch(slot)
        torch.mul(numbers(torch.float32), 2, out=target)
        assert target.data_ptr() == slot.address
    assert same(importer.acquire(10).torch(), numbers(torch.float32) * 2)
    assert exporter.statistics().copies == 0


# ---- tensors as frames


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_every_type(exporter, importer, dtype):
    whole = numbers().to(torch.float32).remainder(5).to(dtype)
    for tensor in (whole, whole.T, whole[1:5, ::3], whole[2, 3], whole[:0]):
        assert exporter.send(tensor)
        frame = importer.acquire(10)
        assert frame.dtype == str(dtype).partition(".")[2]
        assert same(ct.to_torch(frame), tensor)
        assert same(ct.to_torch(ct.from_torch(tensor)), tensor)
        del frame
        until_held(importer, 0)


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float16, np.float64, np.complex64, np.bool_])
def test_a_tensor_is_sent_as_its_numpy_array(exporter, importer, dtype):
    array = np.arange(48).reshape(6, 8).astype(dtype)
    for part in (np.s_[:], np.s_[::2, 1:], np.s_[3], np.s_[2, 5], np.s_[:0]):
        frames = []
        for data in (torch.from_numpy(array)[part], array[part]):
            assert exporter.send(data)
            frames.append(importer.acquire(10))
        assert frames[0].planes == frames[1].planes
        assert frames[0].packed() == frames[1].packed()


def test_broadcast_and_flipped_tensors(exporter, importer):
    for tensor in (torch.arange(8).expand(6, 8), torch.arange(6)[:, None].expand(6, 8), numbers().flip(0)):
        exporter.send(tensor)
        assert same(importer.acquire(10).torch(), tensor)


def test_one_copy(exporter, importer):
    for n, tensor in enumerate((numbers(), numbers()[2:], numbers(torch.bool)), 1):
        exporter.send(tensor)
        importer.acquire(10).release()
        assert exporter.statistics().copies == n
    assert importer.statistics().copies == 0


def odd_tensors():
    real = torch.arange(12.0).reshape(3, 4)
    complex_ = torch.complex(real, real)
    return {
        "grad": (real.clone().requires_grad_(), "detach"),
        "result of grad": (real.clone().requires_grad_() * 2, "detach"),
        "sparse": (real.to_sparse(), "to_dense"),
        "onednn": (
            real.to_mkldnn() if torch.backends.mkldnn.is_available() else real.to_sparse(),
            "to_dense",
        ),
        "conj": (complex_.conj(), "resolve_conj"),
        "neg": (complex_.conj().imag, "resolve_neg"),
        "meta": (torch.empty(3, device="meta"), "real device"),
    }


@pytest.mark.parametrize("name", list(odd_tensors()))
def test_tensors_that_are_refused(exporter, importer, name):
    tensor, way_out = odd_tensors()[name]
    with pytest.raises(BufferError, match=way_out):
        exporter.send(tensor)
    with pytest.raises(BufferError, match=way_out):
        exporter.send({"a": numbers(), "b": tensor})
    with pytest.raises(BufferError, match=way_out):
        ct.from_torch(tensor)
    assert exporter.statistics().published == 0
    if way_out in ("detach", "to_dense", "resolve_conj", "resolve_neg"):
        plain = getattr(tensor, way_out)()
        exporter.send(plain)
        assert same(importer.acquire(10).torch(), plain)


@pytest.mark.filterwarnings("ignore")  # torch warns of its own features
def test_quantized_nested_and_compressed_tensors_are_refused(exporter):
    real = torch.arange(12.0).reshape(3, 4)
    for tensor, way_out in (
        (torch.quantize_per_tensor(real, 0.1, 0, torch.qint8), "int_repr"),
        (real.to_sparse_csr(), "to_dense"),
        (torch.nested.nested_tensor([real, real[:2]]), "unbind"),
    ):
        with pytest.raises(BufferError, match=way_out):
            exporter.send(tensor)
        with pytest.raises(BufferError, match=way_out):
            ct.from_torch(tensor)


def test_misaligned_tensors(exporter, importer):
    memory = bytearray(range(64))
    odd = torch.frombuffer(memory, dtype=torch.float32, count=6, offset=3)
    assert odd.data_ptr() % 4
    exporter.send(odd)
    assert importer.acquire(10).packed() == memory[3:27]
    with pytest.raises(BufferError, match="align"):
        ct.to_torch(ct.from_torch(odd))


# ---- from_torch and to_torch


def test_both_ways_the_same_memory():
    whole = numbers(torch.float32)
    for tensor in (
        whole,
        whole.T,
        whole[1:, 2:],
        whole[3, 4],
        numbers(torch.bool),
        torch.zeros(2, 3).expand(4, 2, 3),
    ):
        array = ct.from_torch(tensor)
        back = ct.to_torch(array)
        assert back.data_ptr() == array.address == tensor.data_ptr()
        assert back.stride() == tensor.stride() and back.dtype == tensor.dtype
        assert array.shape == tuple(tensor.shape) and array.dtype == str(tensor.dtype)[6:]
        assert array.strides == tuple(step * tensor.element_size() for step in tensor.stride())
        assert array.__dlpack_device__() == (1, 0)
    array = ct.from_torch(whole)
    ct.to_torch(array)[0, 0] = 77
    assert whole[0, 0] == 77
    assert ct.to_torch(ct.from_torch(torch.zeros(0, 3))).shape == (0, 3)


def test_copies_are_apart():
    whole = numbers(torch.float32)
    for copied in (
        ct.to_torch(ct.from_torch(whole, copy=True)),
        ct.to_torch(ct.from_torch(whole), copy=True),
        torch.from_dlpack(ct.from_torch(whole).__dlpack__(copy=True)),
    ):
        assert same(copied, whole)
        copied[0, 0] = 77
    assert whole[0, 0] == 0


def test_the_memory_outlives_the_tensor():
    array = ct.from_torch(numbers().clone())
    back, other = ct.to_torch(array), ct.to_torch(array)
    del array, other
    gc.collect()
    junk = [torch.zeros(6, 8, dtype=torch.int16) for _ in range(50)]
    assert same(back, numbers()) and junk


def test_numpy_sees_the_same_memory():
    tensor = numbers(torch.float32)
    assert np.from_dlpack(ct.from_torch(tensor)).ctypes.data == tensor.data_ptr()
    made = np.arange(6.0)
    assert ct.to_torch(made).data_ptr() == made.ctypes.data


def test_wrong_things():
    with pytest.raises(TypeError, match="ndarray"):
        ct.from_torch(np.zeros(3))
    with pytest.raises(TypeError, match="__dlpack__"):
        ct.to_torch([1, 2])
    array = ct.from_torch(numbers())
    with pytest.raises(BufferError):
        array.__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError):
        array.__dlpack__(stream=1)
    with pytest.raises(TypeError):
        array.__dlpack__(stream="1")


def test_sending_what_from_torch_gave(exporter, importer):
    for tensor in (numbers(), numbers(torch.bool)):
        exporter.send(ct.from_torch(tensor))
        assert same(ct.to_torch(importer.acquire(10)), tensor)


# ---- the adapter of the VFX guide


class Adapter:
    """As that guide wraps a bare capsule for JAX, which takes none."""

    def __init__(self, capsule, device):
        self.capsule, self.device = capsule, device

    def __dlpack__(self, stream=None):
        return self.capsule

    def __dlpack_device__(self):
        return self.device


def stand_in_for_jax(array):
    """What jax.dlpack.from_dlpack asks for: an object, one keyword, the legacy capsule."""
    if not hasattr(array, "__dlpack__"):
        raise TypeError("JAX takes objects with __dlpack__, no capsules")
    assert array.__dlpack_device__()[0] == 1
    capsule = array.__dlpack__(stream=None)
    get_name = ctypes.pythonapi.PyCapsule_GetName
    get_name.restype, get_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    assert get_name(capsule) == b"dltensor"
    return torch.from_dlpack(capsule)


def test_the_adapter_for_jax(exporter, importer):
    exporter.send(numbers(torch.float32))
    frame = importer.acquire(10)
    with pytest.raises(TypeError, match="capsules"):
        stand_in_for_jax(frame.__dlpack__())
    through = stand_in_for_jax(Adapter(frame.__dlpack__(), frame.__dlpack_device__()))
    direct = stand_in_for_jax(frame)
    lent = stand_in_for_jax(ct.from_torch(numbers(torch.float32)))
    assert all(same(tensor, numbers(torch.float32)) for tensor in (through, direct, lent))
    assert through.data_ptr() == direct.data_ptr()
    frame.release()
    del through
    assert importer.held == 1 and same(direct, numbers(torch.float32))
    del direct
    until_held(importer, 0)
