#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What people write with torch to hand pictures to another process: a queue of torch.multiprocessing, which
puts each tensor into shared memory of its own.

torch_queue.py latency|rate ROUNDS prints one number per line: microseconds from a picture in the producer's
buffer to a consumer that can read it, or pictures per second.
"""
import sys
import time

import torch
import torch.multiprocessing as multiprocessing
from stamps import WARM_UP, collected, show

SIZE = 1920 * 1080 * 4
PLACES = 4


def consume(pictures, seen, rounds, done):
    for _ in range(rounds):
        picture = pictures.get()
        seen.put(time.perf_counter_ns())
        del picture
    done.wait()


def produce(pictures, seen, rounds, one_by_one):
    picture = torch.full((SIZE,), 17, dtype=torch.uint8)

    def send():
        start = time.perf_counter_ns()
        pictures.put(picture.clone())  # the queue shares the tensor: the next picture needs another
        return start

    return collected(send, seen, rounds, one_by_one)


def main():
    what, rounds = sys.argv[1], int(sys.argv[2]) + WARM_UP
    context = multiprocessing.get_context("spawn")
    pictures, seen, done = context.Queue(PLACES), context.Queue(), context.Event()
    consumer = context.Process(target=consume, args=(pictures, seen, rounds, done))
    consumer.start()
    stamps = produce(pictures, seen, rounds, what == "latency")
    done.set()
    consumer.join()
    show(what, stamps)


if __name__ == "__main__":
    main()
