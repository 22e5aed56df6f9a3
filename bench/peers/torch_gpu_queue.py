#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What people write with torch to hand pictures in GPU memory to another process: a queue of
torch.multiprocessing, which shares each tensor by CUDA IPC.

torch_gpu_queue.py pixel|kernel ROUNDS prints one number per line: microseconds from a picture in the
producer's memory until the other process has read one pixel of it, or until a kernel has run over it there.
"""
import multiprocessing
import sys
import time

from stamps import SHAPE, WARM_UP, Watched, collected, show, used_on_gpu


def consume(what, pictures, seen, rounds):
    import torch
    import torch.multiprocessing  # noqa: F401 (from here on, queues carry tensors)

    used = used_on_gpu(what, torch)
    torch.zeros(1, device="cuda")
    seen.put(0)
    for _ in range(rounds):
        picture = pictures.get()
        used(picture)
        seen.put(time.perf_counter_ns())
        del picture


def produce(pictures, seen, rounds):
    import torch
    import torch.multiprocessing  # noqa: F401

    picture = torch.full(SHAPE, 17, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    seen.get()

    def send():
        start = time.perf_counter_ns()
        pictures.put(picture.clone())  # the queue shares the tensor: the next picture needs another
        return start

    return collected(send, seen, rounds, True)


def main():
    what, rounds = sys.argv[1], int(sys.argv[2]) + WARM_UP
    context = multiprocessing.get_context("spawn")
    pictures, seen = context.Queue(), context.Queue()
    consumer = context.Process(target=consume, args=(what, pictures, seen, rounds), daemon=True)
    consumer.start()
    stamps = produce(pictures, Watched(seen, consumer), rounds)
    consumer.join()
    show("latency", stamps)


if __name__ == "__main__":
    main()
