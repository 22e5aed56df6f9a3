# SPDX-License-Identifier: MIT
"""The rows of python_bench.py for frames in GPU memory (kind vmm), with torch. Pixels are complete before a
call that takes them is timed: what the GPU itself takes is the business of `cudalink bench`."""
import os

import cuda_link
from python_timing import PICTURE, LeftOut, Nothing, need, peer, timed, within

KIND = "vmm"
SLOTS, QUEUED = 8, 4  # so many sends until the GPU is waited for: one more copy always has a free slot
PEER_LIMIT = 40


def cuda_torch():
    torch = need("torch")
    if not torch.cuda.is_available():
        raise LeftOut("needs a GPU, and a torch that has CUDA")
    return torch


class Stage:
    """Both ends of a channel in this process, and a frame that is held."""

    def __init__(self, shape):
        self.torch = cuda_torch()
        self.name = f"bench-{os.getpid()}-{id(self)}"
        self.picture = self.torch.full(shape, 17, dtype=self.torch.uint8, device="cuda")
        self.exporter = cuda_link.open_exporter(self.name, shape=shape, kind=KIND, slots=SLOTS)
        self.importer = cuda_link.open_importer(self.name, timeout=10, hold=4)
        self.publish()
        self.frame = self.importer.acquire(10)

    def publish(self):
        """A frame that is complete."""
        if not self.exporter.send(self.picture, timeout=10):
            raise RuntimeError("no slot was free in 10 s")
        self.torch.cuda.synchronize()

    def close(self):
        self.frame = None
        self.importer.close()
        self.exporter.close()


# ---- rows of one process: each returns (samples of the row, samples of its floor) ----------------------------


def acquire(stage, rounds):
    row = timed(stage.importer.acquire, rounds, before=stage.publish, after=lambda frame: frame.release())
    return row, timed(Nothing().method, rounds)


def torch_tensor(stage, rounds):
    return timed(stage.frame.torch, rounds), exchange_floor(stage, rounds)


def exchange_floor(stage, rounds):
    torch, tensor = stage.torch, stage.torch.zeros(16, device="cuda")
    return timed(lambda: torch.from_dlpack(tensor), rounds)


def torch_from_dlpack(stage, rounds):
    torch, frame = stage.torch, stage.frame
    return timed(lambda: torch.from_dlpack(frame), rounds), exchange_floor(stage, rounds)


def dlpack(stage, rounds):
    frame, stream = stage.frame, stage.torch.cuda.Stream()
    handle = stream.cuda_stream
    row = timed(lambda: frame.__dlpack__(stream=handle, max_version=(1, 0)), rounds)
    return row, timed(Nothing().method, rounds)


class Now:
    """Waits for the GPU now and then."""

    def __init__(self, torch):
        self.torch, self.calls = torch, 0

    def __call__(self):
        self.calls += 1
        if self.calls % QUEUED == 0:
            self.torch.cuda.synchronize()


def send(stage, rounds):
    """No consumer has to keep up: the policy is latest."""
    torch, target = stage.torch, stage.torch.empty_like(stage.picture)
    before = stage.exporter.statistics().dropped
    row = timed(lambda: stage.exporter.send(stage.picture), rounds, before=Now(torch))
    dropped = stage.exporter.statistics().dropped - before
    if dropped:
        raise RuntimeError(f"{dropped} of {rounds} frames were dropped")
    return row, timed(lambda: target.copy_(stage.picture), rounds, before=Now(torch))


def in_place(stage, rounds):
    nothing = Nothing()

    def lend():
        with stage.exporter.frame():
            pass

    def block():
        with nothing:
            pass

    return timed(lend, rounds), timed(block, rounds)


class KnownPair:
    """Exporter and Importer of the known face, as its scripts open them."""

    def __init__(self, stage):
        self.torch, self.picture = stage.torch, stage.picture
        height, width, channels = self.picture.shape
        name = f"{stage.name}-known"
        self.exporter = cuda_link.Exporter.open(cuda_link.FrameSpec(name, height, width, channels))
        self.importer = cuda_link.Importer.open(cuda_link.ImportSpec(name))
        self.last = None

    def publish(self):
        stream = self.torch.cuda.current_stream().cuda_stream
        frame = cuda_link.GpuFrame(self.picture.data_ptr(), self.picture.nbytes, stream)
        outcome = self.exporter.export(frame)
        if outcome is not cuda_link.FrameOutcome.PUBLISHED:
            raise RuntimeError(f"export: {outcome}")
        self.torch.cuda.synchronize()

    def keep(self, result):
        """As a loop does: the frame before is let go when the next one is there."""
        if result.outcome is not cuda_link.ImportOutcome.NEW_FRAME:
            raise RuntimeError(f"get: {result.outcome}")
        self.last = result

    def timed(self, get, rounds):
        self.publish()
        self.keep(get())  # the first one maps the memory
        return timed(get, rounds, before=self.publish, after=self.keep)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.last = None
        self.importer.close()
        self.exporter.close()


def get_frame(stage, rounds):
    with KnownPair(stage) as pair:
        row = pair.timed(pair.importer.get_frame, rounds)
        if pair.importer.get_stats()["copies_made"]:
            raise RuntimeError("get_frame returned copies: these frames are not lent")
    return row, exchange_floor(stage, rounds)


def get_frame_numpy(stage, rounds):
    torch, pinned = stage.torch, stage.torch.empty(stage.picture.shape, dtype=stage.torch.uint8, pin_memory=True)

    def raw():
        pinned.copy_(stage.picture, non_blocking=True)
        torch.cuda.synchronize()

    with KnownPair(stage) as pair:
        row = pair.timed(pair.importer.get_frame_numpy, rounds)
    return row, timed(raw, rounds)


# ---- rows of two processes ---------------------------------------------------------------------------


def raw(what, rounds):
    return peer(RAW, what, rounds, PEER_LIMIT)


def original(what, rounds):
    """The same script, in which cuda_link is the original; None where nobody has that."""
    return peer(LINK, what, rounds, PEER_LIMIT, ORIGINAL) if ORIGINAL else None


def pair_of(what, script, floor=None):
    def measure(stage, rounds):
        rounds = min(rounds, 300)
        return peer(script, what, rounds, PEER_LIMIT), floor and floor(what, rounds)

    return measure


SMALL = (16, 16, 4)
FLOOR = "torch.from_dlpack of a CUDA tensor"
LINK, TORCH, RAW = "cuda_link_gpu.py", "torch_gpu_queue.py", "raw_gpu.py"
ORIGINAL = os.environ.get("CUDALINK_ORIGINAL", "")
ITEM = "export of 1920x1080 RGBA8 until another process has read one pixel with .item()"
KERNEL = "export of 1920x1080 RGBA8 until a torch kernel over it is done in another process"
CALLS = "the driver's calls and a shared number"

ROWS = [
    # name, measure, shape of the frames, rounds, unit, target by floor, floor's name, what
    ("acquire", acquire, SMALL, 500, "us", within(1.0), "an empty method", "acquire of a frame that is there"),
    ("torch", torch_tensor, SMALL, 2000, "us", within(2.0), FLOOR, "frame.torch()"),
    ("torch_from_dlpack", torch_from_dlpack, SMALL, 2000, "us", lambda floor: floor + 0.5, FLOOR, "torch.from_dlpack(frame)"),
    ("dlpack", dlpack, SMALL, 2000, "us", within(0.4), "an empty method", "frame.__dlpack__(stream=h, max_version=(1, 0))"),
    ("get_frame", get_frame, SMALL, 500, "us", within(3.0), FLOOR, "Importer.get_frame()"),
    ("send_picture", send, PICTURE, 500, "us", within(8.0), "torch copy_", "exporter.send of 1920x1080 RGBA8, the call"),
    ("in_place", in_place, SMALL, 2000, "us", within(3.0), "an empty with-block", "with exporter.frame(): begin and publish"),
    (
        "get_frame_numpy",
        get_frame_numpy,
        PICTURE,
        200,
        "us",
        lambda floor: floor / 0.97,
        "torch copy_ to pinned memory, and synchronize",
        "Importer.get_frame_numpy() of 1920x1080 RGBA8",
    ),
    ("pixel", pair_of("pixel", LINK, original), SMALL, 300, "us", lambda floor: 0.6 * floor, "the original cuda-link", ITEM),
    ("pixel_raw", pair_of("pixel", RAW), SMALL, 300, "us", None, "", "the same: " + CALLS),
    ("pixel_torch", pair_of("pixel", TORCH), SMALL, 300, "us", None, "", "the same: torch.multiprocessing"),
    ("kernel", pair_of("kernel", LINK, raw), SMALL, 300, "us", lambda floor: 1.05 * floor, CALLS, KERNEL),
    ("kernel_torch", pair_of("kernel", TORCH), SMALL, 300, "us", None, "", "the same: torch.multiprocessing"),
]
