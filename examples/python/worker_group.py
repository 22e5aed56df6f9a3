# SPDX-License-Identifier: MIT
"""A group of workers: each frame goes to exactly one of them, to whoever is free; the frame of a worker that
is killed goes to another one."""

import os
import signal
import time
from contextlib import ExitStack

import cuda_link
import demo

WORKERS = 3


def work(name: str, results: cuda_link.Queue, clumsy: bool) -> None:
    """One worker. hold=1: while it has a frame it is offered no other."""
    importer = cuda_link.open_importer(name, group="workers", hold=1, once=True, timeout=demo.PATIENCE)
    for frame in importer:
        if clumsy:
            os.kill(os.getpid(), signal.SIGKILL)  # with the frame in its hands
        mean = float(frame.numpy().mean())  # what a worker would do
        results.put((os.getpid(), frame.pts, mean, frame.redelivered))
    results.put(None)


def main() -> None:
    wanted = demo.options(__doc__)
    results = cuda_link.Queue()
    shape = (wanted.height, wanted.width, 4)
    with ExitStack() as stack:
        for index in range(WORKERS):
            stack.enter_context(demo.beside(work, wanted.channel, results, index == 0))
        # hold_limit: who works for longer on a frame than two seconds is not taken for stuck
        with cuda_link.open_exporter(wanted.channel, shape=shape, hold_limit=demo.PATIENCE) as exporter:
            exporter.wait_consumers(WORKERS, demo.PATIENCE)
            for number in range(wanted.frames):
                exporter.send(demo.picture(number, *shape[:2]), pts=number, timeout=demo.PATIENCE)
            while exporter.statistics().redelivered == 0:  # the dead one is noticed
                time.sleep(0.001)
            exporter.wait_taken(demo.PATIENCE)
        answers, ended = [], 0
        while ended < WORKERS - 1:
            answer = results.get(timeout=demo.PATIENCE)
            ended += answer is None
            answers += [answer] if answer else []
    numbers = sorted(number for _, number, _, _ in answers)
    shares = [sum(1 for a in answers if a[0] == pid) for pid in sorted({a[0] for a in answers})]
    again = [number for _, number, _, redelivered in answers if redelivered]
    print(f"{wanted.frames} frames, each worked on once: {numbers == list(range(wanted.frames))}")
    print(f"shares of the workers: {shares}")
    print(f"one worker was killed; its frame went to another one: number {again}")


if __name__ == "__main__":
    main()
