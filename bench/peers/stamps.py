# SPDX-License-Identifier: MIT
"""What the peers that run as scripts share: when each picture began and when it was seen, and the numbers
that are printed of that."""

import queue

WARM_UP = 5
SHAPE = (1080, 1920, 4)


class Watched:
    """The queue of a consumer, which says when that has died instead of filling it."""

    def __init__(self, seen, consumer):
        self.seen, self.consumer = seen, consumer

    def get(self):
        while True:
            try:
                return self.seen.get(timeout=1)
            except queue.Empty:
                if not self.consumer.is_alive():
                    raise RuntimeError(f"the consumer ended with {self.consumer.exitcode}") from None


def used_on_gpu(what, torch):
    """pixel: a function that reads one of a picture. kernel: one that runs a kernel over it, and waits."""

    def pixel(picture):
        return picture[0, 0, 0].item()

    def kernel(picture):
        picture.add_(1)
        torch.cuda.current_stream().synchronize()

    return {"pixel": pixel, "kernel": kernel}[what]


def collected(send, seen, rounds, one_by_one):
    """send() returns when its picture began; `seen` has when each one arrived."""
    stamps = [(send(), seen.get() if one_by_one else 0) for _ in range(rounds)]
    if not one_by_one:
        stamps = [(start, seen.get()) for start, _ in stamps]
    return stamps[WARM_UP:]


def show(what, stamps):
    """latency: microseconds of each picture. rate: pictures per second."""
    if what == "latency":
        for start, end in stamps:
            print((end - start) / 1e3)
    else:
        print(len(stamps) * 1e9 / (stamps[-1][1] - stamps[0][0]))
