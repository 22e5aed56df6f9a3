#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The package itself, measured as its peers are: a channel to another process, every picture received.

cuda_link_channel.py latency|rate ROUNDS prints one number per line: microseconds from a picture in the
producer's buffer to a consumer that can read it, or pictures per second.
"""
import multiprocessing
import os
import sys
import time

import cuda_link
from stamps import WARM_UP, collected, show

SIZE = 1920 * 1080 * 4


def consume(name, seen, rounds):
    with cuda_link.open_importer(name, policy="every", timeout=60) as importer:
        for _ in range(rounds):
            with importer.acquire(60):
                seen.put(time.perf_counter_ns())


def produce(exporter, seen, rounds, one_by_one):
    picture = bytes([17]) * SIZE

    def send():
        start = time.perf_counter_ns()
        exporter.send(picture, timeout=60)
        return start

    return collected(send, seen, rounds, one_by_one)


def main():
    what, rounds = sys.argv[1], int(sys.argv[2]) + WARM_UP
    context = multiprocessing.get_context("spawn")
    seen, name = context.Queue(), f"bench-{os.getpid()}"
    consumer = context.Process(target=consume, args=(name, seen, rounds))
    consumer.start()
    with cuda_link.open_exporter(name, shape=(SIZE,), kind="host") as exporter:
        exporter.wait_consumers(1, 60)
        stamps = produce(exporter, seen, rounds, what == "latency")
        consumer.join()
    show(what, stamps)


if __name__ == "__main__":
    main()
