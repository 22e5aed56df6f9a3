# SPDX-License-Identifier: MIT
"""Real frameworks on a real GPU: what scripts/gpu-run runs as its part `python`. Nothing here can run on
the fake driver, whose memory no framework computes on.

GPU_ROUNDS: rounds of each stream-order test (500).
"""

from __future__ import annotations

import atexit
import faulthandler
import gc
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import cuda_link
import numpy as np
import pytest
from sides import SHAPE, SIDES, Parked

pytestmark = [
    pytest.mark.requires_cuda,
    pytest.mark.skipif(os.environ.get("CUDALINK_PYTHON_GPU") != "real", reason="needs a GPU"),
]

ROUNDS = int(os.environ.get("GPU_ROUNDS", "500"))
LIMIT = 60 + ROUNDS  # seconds after which a hang is shown and ends the run; several tests may share the GPU
WARM = 4  # frames until all kernels are loaded: loading one waits for the kernels that run


HANGS = open(os.environ.get("GPU_HANGS", os.devnull), "a", buffering=1)
atexit.register(HANGS.close)


@pytest.fixture(autouse=True)
def show_hangs(request):
    print(request.node.nodeid, file=HANGS)
    faulthandler.dump_traceback_later(LIMIT, exit=True, file=HANGS)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture(autouse=True)
def after_the_reaper():
    """What the tests before let go of is freed by calls that wait for the GPU, behind the closes. With a
    kernel that is parked for a whole test they would hold up everything else."""
    gc.collect()
    before, calm = None, 0
    while calm < 5:
        now = (len(os.listdir("/proc/self/fd")), Path("/proc/self/maps").read_bytes().count(b"\n"))
        calm = calm + 1 if now == before else 0
        before = now
        time.sleep(0.05)


@pytest.fixture(scope="session")
def sides():
    made = {}

    def get(name):
        if name not in made:
            made[name] = SIDES[name]()
        return made[name]

    return get


def open_pair(name, *, slots=3, **options):
    exporter = cuda_link.open_exporter(
        name, shape=SHAPE, dtype="uint8", kind="vmm", slots=slots, max_slots=slots
    )
    return exporter, cuda_link.open_importer(name, timeout=10, **options)


@pytest.mark.parametrize("consumer", SIDES)
@pytest.mark.parametrize("producer", SIDES)
@pytest.mark.parametrize("gpu_wait", [False, True], ids=["host_waits", "gpu_waits"])
def test_stream_order(sides, producer, consumer, gpu_wait):
    """Every frame is behind slow kernels on both ends, and three slots go round: a frame that is shown too
    early, or a slot that is given back too early, has wrong pixels. The legacy stream is blocked
    throughout, so nothing may wait for it."""
    if gpu_wait and consumer == "jax":
        pytest.skip("jax names no stream")
    exporting, importing = sides(producer), sides(consumer)
    exporter, importer = open_pair("order", gpu_wait=gpu_wait)
    before = importing.wrong_so_far()

    def hand_over(n):
        value = 1 + n % 250
        with exporting.on():
            exporter.send(exporting.filled(value), timeout=10)
        with importing.on(), importer.acquire(10, stream=importing.stream if gpu_wait else None) as frame:
            importing.wrong(frame, value)

    with exporter, importer:
        for n in range(WARM):
            hand_over(n)
        with Parked():
            for n in range(WARM, WARM + ROUNDS):
                hand_over(n)
    assert importing.wrong_so_far() == before


@pytest.mark.parametrize("name", SIDES)
def test_frames_in_place(sides, name):
    """What is rendered into a lent slot arrives, without a copy."""
    if name == "jax":
        pytest.skip("jax arrays can't be written to")
    side = sides(name)
    exporter, importer = open_pair("place")
    take = {"torch": lambda x: side.torch.from_dlpack(x), "cupy": lambda x: side.cupy.from_dlpack(x)}[name]
    before = side.wrong_so_far()

    def hand_over(n):
        with side.on():
            with exporter.frame(stream=side.stream, timeout=10) as slot:
                array = take(slot)
                side.slow()
                array[...] = n % 250
                del array
            with importer.acquire(10) as frame:
                side.wrong(frame, n % 250)

    with exporter, importer:
        for n in range(WARM):
            hand_over(n)
        with Parked():
            for n in range(WARM, WARM + min(ROUNDS, 100)):
                hand_over(n)
        assert exporter.statistics().copies == 0
    assert side.wrong_so_far() == before


@pytest.mark.skipif("torch" not in SIDES, reason="needs torch")
class TestTorch:
    def test_a_graph_renders_into_one_slot_after_another(self, sides):
        """publish right after a graph launch is the way; inside of a capture everything is refused."""
        torch = sides("torch").torch
        side = sides("torch")
        exporter, importer = open_pair("graph")
        with exporter, importer:
            source = torch.zeros(SHAPE, dtype=torch.uint8, device="cuda")
            graph = torch.cuda.CUDAGraph()
            with side.on():
                source.add_(1)
            torch.cuda.synchronize()
            with torch.cuda.graph(graph):
                source.add_(1)
                with pytest.raises(cuda_link.CudaLinkError):
                    exporter.send(source)
            with side.on():
                source.fill_(0)
                for n in range(1000):
                    graph.replay()
                    exporter.send(source, timeout=10)
                    with importer.acquire(10) as frame:
                        side.wrong(frame, (n + 1) % 256)
            assert side.wrong_so_far() == 0

    def test_a_tensor_stays_whole(self, sides):
        torch = sides("torch").torch
        exporter, importer = open_pair("whole", slots=4)
        with exporter, importer:
            exporter.send(torch.full(SHAPE, 9, dtype=torch.uint8, device="cuda"))
            kept = importer.acquire(10).torch()
            for n in range(1000):
                exporter.send(torch.full(SHAPE, n % 200, dtype=torch.uint8, device="cuda"), timeout=10)
                importer.acquire(10).release()
            exporter.send(torch.zeros((2048, 2048, 4), dtype=torch.uint8, device="cuda"), timeout=10)
            importer.acquire(10).release()
        gc.collect()
        assert bool((kept == 9).all())

    def test_in_place_changes_are_seen(self, sides):
        torch = sides("torch").torch
        exporter, importer = open_pair("inplace")
        with exporter, importer:
            exporter.send(torch.full(SHAPE, 200, dtype=torch.uint8, device="cuda"))
            frame = importer.acquire(10)
            frame.torch().floor_divide_(100)
            assert bool((torch.from_dlpack(frame) == 2).all())

    def test_any_dtype_and_strides(self, sides):
        torch = sides("torch").torch
        exporter, importer = open_pair("dtypes")
        with exporter, importer:
            for dtype in (
                torch.float16,
                torch.bfloat16,
                torch.float32,
                torch.float64,
                torch.int64,
                torch.bool,
                torch.complex64,
            ):
                sent = (torch.arange(2 * 3 * 5 * 7, device="cuda") % 2).reshape(2, 3, 5, 7).to(dtype)
                for view in (
                    sent,
                    sent[:, :, 1:4, ::2],
                    sent.permute(3, 1, 0, 2),
                    sent[0, 0, 0, 0],
                    sent[:0],
                ):
                    exporter.send(view, timeout=10)
                    with importer.acquire(10) as frame:
                        got = frame.torch()
                        assert got.dtype == dtype and torch.equal(got, view)
                        del got

    def test_a_killed_producer(self):
        script = textwrap.dedent(
            """
            import cuda_link, torch
            exporter = cuda_link.open_exporter("killed", shape=(256, 256), dtype="float32", kind="vmm")
            n = 0
            while True:
                n += 1
                exporter.send(torch.full((256, 256), float(n), device="cuda"), timeout=10)
                torch.cuda.current_stream().synchronize()
            """
        )
        with subprocess.Popen([sys.executable, "-c", script]) as child:
            with cuda_link.open_importer("killed", timeout=60) as importer:
                frame = importer.acquire(60)
                kept, number = frame.torch(), frame.sequence
                child.send_signal(signal.SIGKILL)
                child.wait()
                with pytest.raises((cuda_link.PeerLostError, cuda_link.EndedError)):
                    for _ in range(20):
                        importer.acquire(10).release()
                assert bool((kept == float(number)).all())


@pytest.mark.skipif("cupy" not in SIDES, reason="needs cupy")
class TestCupy:
    def test_the_cuda_array_interface(self, sides):
        side = sides("cupy")
        exporter, importer = open_pair("interface")
        with exporter, importer:
            exporter.send(side.cupy.full(SHAPE, 5, dtype=side.cupy.uint8))
            frame = importer.acquire(10)
            assert bool((side.cupy.asarray(frame) == 5).all())

    def test_a_capsule_of_ours_twice(self, sides):
        cupy = sides("cupy").cupy
        exporter, importer = open_pair("twice")
        with exporter, importer:
            exporter.send(cupy.full(SHAPE, 6, dtype=cupy.uint8))
            frame = importer.acquire(10)
            assert bool((cupy.from_dlpack(frame) == 6).all()) and bool((cupy.from_dlpack(frame) == 6).all())


@pytest.mark.skipif("jax" not in SIDES, reason="needs jax")
def test_jax_with_no_adapter(sides):
    jax = sides("jax").jax
    exporter, importer = open_pair("jax")
    with exporter, importer:
        exporter.send(jax.numpy.full(SHAPE, 3, jax.numpy.uint8))
        frame = importer.acquire(10)
        assert bool((frame.jax() == 3).all()) and bool((frame.jax(copy=True) == 3).all())
        assert bool((jax.dlpack.from_dlpack(frame) == 3).all())
        copy = frame.copy(stream=None)
        frame.release()
        x = jax.dlpack.from_dlpack(copy)
        assert copy.tensor().device == "cuda:0" and x.device.platform == "gpu" and bool((x == 3).all())


def test_to_the_host():
    exporter, importer = open_pair("host")
    picture = np.random.default_rng(1).integers(0, 255, SHAPE, np.uint8)
    with exporter, importer:
        exporter.send(picture)
        np.testing.assert_array_equal(importer.acquire(10).numpy(), picture)
