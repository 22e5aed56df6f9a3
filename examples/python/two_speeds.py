# SPDX-License-Identifier: MIT
"""One producer, two consumers: a recorder that needs every frame, and a slow display that wants the newest
one. Neither disturbs the other."""

import time

import cuda_link
import demo


def record(name: str) -> None:
    """Gets every frame: the producer waits for it, as long as its hold_limit says."""
    numbers = []
    for frame in cuda_link.open_importer(name, policy="every", once=True, timeout=demo.PATIENCE):
        numbers.append(int(frame.numpy()[0, 0, 2]))
    whole = numbers == [i % 256 for i in range(len(numbers))]
    print(f"recorder: {len(numbers)} frames, none left out: {whole}", flush=True)


def display(name: str) -> None:
    """Gets the newest one whenever it has time. While it looks at a frame nobody writes to it."""
    shown = missed = torn = 0
    importer = cuda_link.open_importer(name, policy="latest", once=True, timeout=demo.PATIENCE)
    for frame in importer:
        image = frame.numpy()
        before = int(image[0, 0, 2])
        time.sleep(0.02)  # a slow display
        torn += bool((image[..., 2] != before).any())
        shown, missed = shown + 1, missed + frame.missed
    print(f"display: {shown} frames shown, {missed} skipped, {torn} torn", flush=True)


def main() -> None:
    wanted = demo.options(__doc__, frames=60)
    with demo.beside(record, wanted.channel), demo.beside(display, wanted.channel):
        shape = (wanted.height, wanted.width, 4)
        with cuda_link.open_exporter(wanted.channel, shape=shape, hold_limit=demo.PATIENCE) as exporter:
            exporter.wait_consumers(2, demo.PATIENCE)
            for number in range(wanted.frames):
                exporter.send(demo.picture(number, *shape[:2]), timeout=demo.PATIENCE)
                time.sleep(1 / (wanted.fps or 200))
            exporter.wait_taken(demo.PATIENCE)
            print(
                f"producer: {exporter.statistics().published} sent, {exporter.statistics().dropped} dropped"
            )


if __name__ == "__main__":
    main()
