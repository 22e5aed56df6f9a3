#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The known face of the package in GPU memory, as its scripts use it: each export is got in another process.

cuda_link_gpu.py pixel|kernel ROUNDS prints one number per line: microseconds from the export of a picture
until the other process has read one pixel of it, or until a kernel of torch has run over it there.
"""
import multiprocessing
import os
import sys
import time

import cuda_link
from stamps import SHAPE, WARM_UP, Watched, collected, show, used_on_gpu


def consume(name, what, seen, rounds):
    import torch

    used = used_on_gpu(what, torch)
    with cuda_link.Importer.open(cuda_link.ImportSpec(name, timeout_ms=60_000)) as importer:
        seen.put(0)
        for _ in range(rounds):
            result = importer.get_frame()
            while result.outcome is not cuda_link.ImportOutcome.NEW_FRAME:
                result = importer.get_frame()
            used(result.frame)
            seen.put(time.perf_counter_ns())
            del result


def produce(exporter, seen, rounds):
    import torch

    picture = torch.full(SHAPE, 17, dtype=torch.uint8, device="cuda")
    stream = torch.cuda.current_stream().cuda_stream
    torch.cuda.synchronize()
    seen.get()

    def send():
        start = time.perf_counter_ns()
        outcome = exporter.export(cuda_link.GpuFrame(picture.data_ptr(), picture.nbytes, stream))
        if outcome is not cuda_link.FrameOutcome.PUBLISHED:
            raise RuntimeError(f"export: {outcome}")
        return start

    return collected(send, seen, rounds, True)


def main():
    what, rounds = sys.argv[1], int(sys.argv[2]) + WARM_UP
    context = multiprocessing.get_context("spawn")
    seen, name = context.Queue(), f"bench-{os.getpid()}"
    consumer = context.Process(target=consume, args=(name, what, seen, rounds), daemon=True)
    consumer.start()
    with cuda_link.Exporter.open(cuda_link.FrameSpec(name, *SHAPE)) as exporter:
        stamps = produce(exporter, Watched(seen, consumer), rounds)
        consumer.join()
    show("latency", stamps)


if __name__ == "__main__":
    main()
