# SPDX-License-Identifier: MIT
"""A round trip: each picture goes to another process, which inverts it and sends it back; every pixel of
the answer is checked."""

import time

import cuda_link
import demo
import numpy as np


def inverter(there: str, back: str) -> None:
    """The other process."""
    with cuda_link.open_exporter(back, shape=(16, 16, 4)) as exporter:  # larger frames may come: they do
        exporter.wait_consumers(1, demo.PATIENCE)
        # "every": the producer waits for this consumer; once: the loop ends with the producer.
        for frame in cuda_link.open_importer(there, policy="every", once=True, timeout=demo.PATIENCE):
            exporter.send(255 - frame.numpy(), pts=frame.pts, timeout=demo.PATIENCE)
        exporter.wait_taken(demo.PATIENCE)


def main() -> None:
    wanted = demo.options(__doc__)
    there, back = wanted.channel + "-there", wanted.channel + "-back"
    with demo.beside(inverter, there, back):
        exporter = cuda_link.open_exporter(there, shape=(wanted.height, wanted.width, 4))
        answers = cuda_link.open_importer(back, policy="every", timeout=demo.PATIENCE)
        exporter.wait_consumers(1, demo.PATIENCE)
        times = []
        for number in range(wanted.frames):
            image = demo.picture(number, wanted.height, wanted.width)
            began = time.perf_counter()
            exporter.send(image, pts=number, timeout=demo.PATIENCE)
            with answers.acquire(demo.PATIENCE) as answer:
                times.append(time.perf_counter() - began)
                assert answer.pts == number
                np.testing.assert_array_equal(answer.numpy(), 255 - image)
        kind = exporter.statistics().kind
        exporter.close()  # ends the other process's loop
    middle = sorted(times)[len(times) // 2] * 1e6
    print(f"{wanted.frames} pictures went there and back on kind {kind}, every pixel right")
    print(f"round trip, inverting included: {middle:.0f} µs at the median")


if __name__ == "__main__":
    main()
