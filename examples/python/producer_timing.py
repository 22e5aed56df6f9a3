# SPDX-License-Identifier: MIT
"""A producer in the order of its own stream, and how long its calls take: p50, p95, p99. With torch and a
GPU the picture is drawn by kernels and nobody waits for them on the CPU; else NumPy draws."""

import time

import cuda_link
import demo


def consume(name: str) -> None:
    """The other end: from published to here, for each frame."""
    ages = []
    for frame in cuda_link.open_importer(name, policy="every", once=True, timeout=demo.PATIENCE):
        ages.append((cuda_link.now() - frame.timestamp) / 1000)
    print(report("published -> taken by the consumer", ages), flush=True)


def report(what: str, times: list[float]) -> str:
    """Percentiles in microseconds."""
    ordered = sorted(times)
    values = [ordered[min(int(len(ordered) * p / 100), len(ordered) - 1)] for p in (50, 95, 99)]
    return f"{what}: p50 {values[0]:.1f}, p95 {values[1]:.1f}, p99 {values[2]:.1f} µs"


def main() -> None:
    wanted = demo.options(__doc__, frames=200)
    shape = (wanted.height, wanted.width, 4)
    on_gpu = demo.kind_for_torch() == "auto"
    with demo.beside(consume, wanted.channel):
        kind = "auto" if on_gpu else "host"
        exporter = cuda_link.open_exporter(wanted.channel, shape=shape, kind=kind, hold_limit=demo.PATIENCE)
        exporter.wait_consumers(1, demo.PATIENCE)
        times = []
        if on_gpu:
            import torch

            stream = torch.cuda.Stream()
            image = torch.empty(shape, dtype=torch.uint8, device="cuda")
            for number in range(wanted.frames):
                with torch.cuda.stream(stream):
                    image.fill_(number % 256)  # a kernel, still running when send is called
                began = time.perf_counter()
                exporter.send(image, stream=stream, timeout=demo.PATIENCE)  # its copy comes behind it
                times.append((time.perf_counter() - began) * 1e6)
                # image may be overwritten at once by work of the same stream: that comes behind the copy.
        else:
            print("no torch with a GPU here: NumPy draws in memory of the CPU")
            image = demo.picture(0, wanted.height, wanted.width)
            for number in range(wanted.frames):
                image[:] = number % 256
                began = time.perf_counter()
                exporter.send(image, timeout=demo.PATIENCE)  # complete on return
                times.append((time.perf_counter() - began) * 1e6)
        exporter.wait_taken(demo.PATIENCE)
        print(f"{wanted.frames} frames of {image.nbytes} bytes on kind {exporter.statistics().kind}")
        print(report("send, as the producer's CPU sees it", times), flush=True)
        exporter.close()


if __name__ == "__main__":
    main()
