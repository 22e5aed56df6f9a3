#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What people write in Python to hand pictures to another process: a block of shared memory with a
few places, and two queues that say which place is filled and which is free.

shared_memory_queue.py latency|rate ROUNDS prints one number per line: microseconds from a picture in
the producer's buffer to a consumer that can read it, or pictures per second.
"""
import multiprocessing
import sys
import time
from multiprocessing import shared_memory

SIZE = 1920 * 1080 * 4
PLACES = 4
WARM_UP = 5


def consume(name, filled, free, seen, rounds):
    memory = shared_memory.SharedMemory(name=name)
    for _ in range(rounds):
        place = filled.get()
        picture = memory.buf[place * SIZE : (place + 1) * SIZE]
        seen.put(time.perf_counter_ns())
        picture.release()
        free.put(place)
    memory.close()


def produce(memory, filled, free, seen, rounds, one_by_one):
    picture = bytes([17]) * SIZE
    stamps = []
    for _ in range(rounds):
        start = time.perf_counter_ns()
        place = free.get()
        memory.buf[place * SIZE : (place + 1) * SIZE] = picture
        filled.put(place)
        if one_by_one:
            stamps.append((start, seen.get()))
        else:
            stamps.append((start, 0))
    if not one_by_one:
        stamps = [(start, seen.get()) for start, _ in stamps]
    return stamps[WARM_UP:]


def main():
    what, rounds = sys.argv[1], int(sys.argv[2]) + WARM_UP
    context = multiprocessing.get_context("fork")  # as Linux did for long; the script may be a pipe
    filled, free, seen = context.Queue(), context.Queue(), context.Queue()
    memory = shared_memory.SharedMemory(create=True, size=PLACES * SIZE)
    try:
        for place in range(PLACES):
            free.put(place)
        consumer = context.Process(target=consume, args=(memory.name, filled, free, seen, rounds))
        consumer.start()
        stamps = produce(memory, filled, free, seen, rounds, what == "latency")
        consumer.join()
    finally:
        memory.close()
        memory.unlink()
    if what == "latency":
        for start, end in stamps:
            print((end - start) / 1e3)
    else:
        print(len(stamps) * 1e9 / (stamps[-1][1] - stamps[0][0]))


main()
