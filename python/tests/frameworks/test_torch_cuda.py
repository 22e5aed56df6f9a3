# SPDX-License-Identifier: MIT
"""cuda_link.torch on a real GPU: scripts/gpu-run."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time

import cuda_link
import pytest

torch = pytest.importorskip("torch")
ct = pytest.importorskip("cuda_link.torch")

pytestmark = [
    pytest.mark.requires_cuda,
    pytest.mark.skipif(os.environ.get("CUDALINK_PYTHON_GPU") != "real", reason="needs a GPU"),
]
operators = pytest.mark.skipif(not ct.OPERATORS, reason="operators need torch 2.10")

SPIN = 20_000_000  # clock cycles, about 10 ms


@pytest.fixture
def exporter():
    with cuda_link.open_exporter("torch", shape=(256, 256), dtype="float32", kind="vmm", slots=8) as opened:
        yield ct.attach(opened)


@pytest.fixture
def importer(exporter):
    with cuda_link.open_importer("torch", timeout=10, hold=8, policy="in_order") as opened:
        yield ct.attach(opened)


def numbers(add=0.0):
    return torch.arange(65536.0, device="cuda").reshape(256, 256) + add


def late(value):
    """A tensor whose numbers come after a long kernel on the current stream."""
    tensor = torch.zeros(256, 256, device="cuda")
    torch.cuda._sleep(SPIN)
    return tensor.fill_(value)


def test_the_same_memory_both_ways(exporter, importer):
    for tensor in (
        numbers(),
        numbers().T,
        numbers()[3:, ::2],
        numbers() > 5,
        torch.zeros(0, 3, device="cuda"),
    ):
        back = ct.to_torch(ct.from_torch(tensor))
        assert back.data_ptr() == tensor.data_ptr() and back.stride() == tensor.stride()
        assert back.device == tensor.device and torch.equal(back, tensor)
        exporter.send(tensor)
        frame = importer.acquire(10)
        assert torch.equal(ct.to_torch(frame), tensor) and torch.equal(torch.from_dlpack(frame), tensor)
    copied = ct.to_torch(ct.from_torch(numbers(), copy=True))
    assert torch.equal(copied, numbers())


def test_side_streams_on_both_ends(exporter, importer):
    made, used = torch.cuda.Stream(), torch.cuda.Stream()
    for n in range(50):
        with torch.cuda.stream(made):
            source = late(n)
            exporter.send(source)
            source.fill_(-1)  # behind the copy
            del source
        frame = importer.acquire(10)
        with torch.cuda.stream(used):
            seen = torch.from_dlpack(frame)
            result = seen.sum()
        del seen
        frame.release()
        with torch.cuda.stream(used):  # where the sum is
            assert result.item() == 65536 * n


def test_frame_torch_is_ordered_behind_the_current_stream(exporter, importer):
    """It asks torch for the stream's number, not for an object of it."""
    made, used = torch.cuda.Stream(), torch.cuda.Stream()
    for n in range(50):
        with torch.cuda.stream(made):
            exporter.send(late(n))
        frame = importer.acquire(10)
        with torch.cuda.stream(used):
            seen = frame.torch()
            torch.cuda._sleep(SPIN // 10)
            result = seen.sum()
        assert seen.data_ptr() == torch.from_dlpack(frame).data_ptr() and seen.device.type == "cuda"
        frame.release()
        del seen  # while the stream still reads it
        with torch.cuda.stream(made):
            exporter.send(late(-1), timeout=10)
        importer.acquire(10).release()
        with torch.cuda.stream(used):
            assert result.item() == 65536 * n


def test_a_tensor_outlives_everything(exporter, importer):
    exporter.send(numbers(3))
    kept = torch.from_dlpack(importer.acquire(10))
    for n in range(1000):
        exporter.send(numbers(n), timeout=10)
        importer.acquire(10).release()
    exporter.send(torch.zeros(2000, 2000, device="cuda"), timeout=10)
    importer.acquire(10).release()
    exporter.close()
    importer.close()
    gc.collect()
    assert torch.equal(kept, numbers(3))


def test_around_a_graph(exporter, importer):
    static, out = numbers(), numbers()
    torch.mul(static, 2, out=out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        torch.mul(static, 2, out=out)
    for n in range(10):
        exporter.send(numbers(n))
        with importer.acquire(10) as frame:
            static.copy_(torch.from_dlpack(frame))
        graph.replay()
        exporter.send(out)
        assert torch.equal(ct.receive("torch", (256, 256), torch.float32, "cuda"), numbers(n) * 2)


def test_linear():
    x, weight, bias = numbers() / 65536, torch.randn(7, 256, device="cuda"), torch.randn(7, device="cuda")
    torch.testing.assert_close(ct.linear(x, weight, bias), torch.nn.functional.linear(x, weight, bias))


@operators
def test_opcheck(exporter, importer):
    x, weight = numbers() / 65536, torch.randn(7, 256, device="cuda")
    torch.library.opcheck(torch.ops.cuda_link.linear.default, (x, weight))
    torch.library.opcheck(torch.ops.cuda_link.send.default, (x, "torch", 10.0))


@operators
@pytest.mark.filterwarnings("ignore")  # of the compiler
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_compiled(exporter, importer, mode):
    weight = torch.eye(256, device="cuda")

    @torch.compile(fullgraph=True, mode=mode)
    def step(x):
        ct.send(x + 1, "torch", 10.0)
        first = ct.receive("torch", (256, 256), torch.float32, "cuda", 30.0)
        ct.send(x * 2, "torch", 10.0)
        second = ct.receive("torch", (256, 256), torch.float32, "cuda", 30.0)
        return ct.linear(first + second, weight)

    for n in range(6):
        x = numbers(n) / 65536
        torch.testing.assert_close(step(x), x * 3 + 1)
    assert exporter.statistics().published == 12


# ---- memory pools

pools = pytest.mark.skipif(not hasattr(torch.cuda, "MemPool"), reason="memory pools need torch 2.5")
MIB = 1 << 20


@pytest.fixture
def pool():
    made = ct.torch_mempool()
    yield made
    gc.collect()


def in_pool(pool, value, size=65536):
    with torch.cuda.use_mem_pool(pool):
        return torch.full((size // 256, 256), float(value), device="cuda")


@pools
def test_a_tensor_of_a_pool_is_sent_as_it_lies(exporter, importer, pool):
    for n in range(50):
        exporter.send(in_pool(pool, n), timeout=10)
        with importer.acquire(10) as frame:
            assert frame.shared and not frame.writable
            assert torch.from_dlpack(frame).sum().item() == 65536 * n
    counters = exporter.statistics()
    assert (counters.shared, counters.share_copies, counters.copies) == (50, 0, 0)
    exporter.send(numbers())  # of torch's own memory
    with importer.acquire(10) as frame:
        assert not frame.shared and torch.equal(torch.from_dlpack(frame), numbers())


@pools
def test_a_part_of_a_tensor_of_a_pool(exporter, importer, pool):
    whole = in_pool(pool, 1, 4 * 65536)
    whole[256:512] = 7
    exporter.send(whole[256:512])
    with importer.acquire(10) as frame:
        assert frame.shared and torch.equal(torch.from_dlpack(frame), whole[256:512])
    exporter.send(whole[:256, ::2])  # not dense
    with importer.acquire(10) as frame:
        assert not frame.shared and torch.equal(torch.from_dlpack(frame), whole[:256, ::2])


@pools
def test_late_numbers_of_a_pool(exporter, importer, pool):
    """The consumer waits for the stream that send was called on."""
    stream = torch.cuda.Stream()
    for n in range(20):
        with torch.cuda.stream(stream):
            tensor = in_pool(pool, -1)
            torch.cuda._sleep(SPIN)
            exporter.send(tensor.fill_(n), timeout=10)
        with importer.acquire(10) as frame:
            assert torch.from_dlpack(frame).sum().item() == 65536 * n


@pools
def test_a_pool_does_not_reuse_what_is_held(exporter, importer, pool):
    """torch's allocator gives freed memory to the next tensor of the same size at once."""
    held = []
    for n in range(4):
        exporter.send(in_pool(pool, n), timeout=10)
        held.append(importer.acquire(10))
    for n in range(200):
        exporter.send(in_pool(pool, 1000 + n), timeout=10)
        with importer.acquire(10) as frame:
            assert torch.from_dlpack(frame).sum().item() == 65536 * (1000 + n)
    for n, frame in enumerate(held):
        assert frame.shared and torch.from_dlpack(frame).sum().item() == 65536 * n
    addresses = {in_pool(pool, 0).data_ptr() for _ in range(3)}
    assert len(addresses) < 3  # it does reuse
    exporter.close()
    others = [in_pool(pool, -1) for _ in range(64)]
    torch.cuda.synchronize()
    for n, frame in enumerate(held):
        assert torch.from_dlpack(frame).sum().item() == 65536 * n
    del others


CONSUMER = """
import cuda_link, sys, torch
with cuda_link.open_importer("torch", timeout=30, policy="every", hold=2, once=True) as importer:
    print("open", flush=True)
    total, shared = 0, 0
    for frame in importer:
        total += int(torch.from_dlpack(frame).double().mean().item())
        shared += frame.shared
    print(total, shared, flush=True)
"""


@pools
def test_a_pool_between_processes(pool):
    options = {"shape": (256, 256), "dtype": "float32", "kind": "vmm", "slots": 8}
    command = [sys.executable, "-c", CONSUMER]
    exporter = cuda_link.open_exporter("torch", hold_limit=None, **options)  # it may load for long
    with exporter, subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as it:
        assert it.stdout is not None and it.stdout.readline() == "open\n"
        exporter.wait_consumers(1, timeout=60)
        for n in range(300):
            exporter.send(in_pool(pool, n, 65536 * (1 + n % 3)), timeout=60)
        exporter.wait_taken(timeout=60)
        exporter.close()
        total, shared = (int(word) for word in it.stdout.readline().split())
        assert it.wait(60) == 0
        assert total == sum(range(300)) and shared == 300


@pools
@pytest.mark.alone  # what is free on the GPU is everybody's
def test_memory_of_a_pool_goes(importer, exporter):
    """With the pool, the tensors, and the frames."""

    def pass_one(n=0.0):
        exporter.send(numbers(n), timeout=10)
        importer.acquire(10).release()

    def free():
        return torch.cuda.mem_get_info()[0] // MIB

    for n in range(40):  # kernels are loaded, and the ring has the size that it needs
        pass_one(n)
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    before = free()
    pool = ct.torch_mempool()
    tensor = in_pool(pool, 5, 64 * MIB)
    exporter.send(tensor)
    with_it = free()
    assert with_it < before - 200
    with importer.acquire(10) as frame:
        assert frame.shared
    del frame, tensor, pool
    for n in range(40):  # until its slot comes round
        pass_one(n)
    end = time.monotonic() + 60
    while free() < before - 100:
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        pass_one()
        kept = torch.cuda.memory_reserved() // MIB
        told = f"free: {before} MiB, then {with_it}, now {free()}; torch keeps {kept}"
        assert time.monotonic() < end, told
