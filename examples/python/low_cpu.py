# SPDX-License-Identifier: MIT
"""Waiting without burning a core: three ways to wait for frames, and what each costs."""

import select
import time
from collections.abc import Callable

import cuda_link
import demo


def asleep(importer: cuda_link.ChannelImporter) -> cuda_link.Frame:
    """Sleeps in the kernel until the producer rings. The one to take."""
    return importer.acquire(demo.PATIENCE)


def polled(importer: cuda_link.ChannelImporter) -> cuda_link.Frame:
    """With a descriptor, for programs that wait for other things too (select, poll, epoll, asyncio)."""
    descriptor = importer.fileno()
    while True:
        try:
            return importer.acquire(0)
        except TimeoutError:
            if importer.arm():  # False: a frame came meanwhile
                select.select([descriptor], [], [], demo.PATIENCE)


def spinning(importer: cuda_link.ChannelImporter) -> cuda_link.Frame:
    """Asks again and again: the least latency for a whole core."""
    while True:
        try:
            return importer.acquire(0)
        except TimeoutError:
            pass


def measure(wait: Callable[[cuda_link.ChannelImporter], cuda_link.Frame], wanted: object) -> str:
    """Takes all frames of a producer."""
    name = f"{wanted.channel}-{wait.__name__}"
    size = (wanted.height, wanted.width)
    with demo.beside(demo.produce, name, wanted.frames, *size, wanted.fps or 60):
        importer = cuda_link.open_importer(name, policy="every", once=True, timeout=demo.PATIENCE)
        began, used, count = time.perf_counter(), time.process_time(), 0
        while True:
            try:
                with wait(importer):
                    count += 1
            except EOFError:
                break
        share = 100 * (time.process_time() - used) / (time.perf_counter() - began)
        importer.close()
    return f"{wait.__name__:>9}: {count} frames, {share:5.1f} % of a core"


def main() -> None:
    wanted = demo.options(__doc__)
    for wait in (asleep, polled, spinning):
        print(measure(wait, wanted))


if __name__ == "__main__":
    main()
