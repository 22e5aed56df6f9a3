# SPDX-License-Identifier: MIT
"""What the examples share: options, a demo producer, a process beside this one."""

from __future__ import annotations

import argparse
import importlib.util
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import cuda_link
import numpy as np

PATIENCE = 30  # seconds; whoever waits longer waits for something that will not come


def options(text: str | None, frames: int = 30) -> argparse.Namespace:
    """The options that all examples have."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=frames, help="ends after so many (%(default)s)")
    parser.add_argument("--width", type=int, default=320)
    parser.add_argument("--height", type=int, default=240)
    parser.add_argument("--fps", type=float, default=0, help="of the demo producer; 0 = as fast as it goes")
    name = f"example-{os.getpid()}"
    parser.add_argument("--channel", default=name, help="the name of the channel (one of its own)")
    return parser.parse_args()


def torch_here(without: str) -> bool:
    """Is torch installed? Says so when it is not, and what the example does then."""
    found = importlib.util.find_spec("torch") is not None
    if not found:
        print(f"This example is about torch (pip install torch), which is not installed: {without}.")
    return found


def kind_for_torch() -> str:
    """A GPU's memory only where torch can use it."""
    try:
        import torch
    except ImportError:
        return "host"
    return "auto" if torch.cuda.is_available() else "host"


def picture(number: int, height: int, width: int) -> np.ndarray:
    """A moving gradient, red, green, blue, alpha; the blue is the frame's number."""
    image = np.empty((height, width, 4), np.uint8)
    image[..., 0] = (np.arange(width) + number) % 256
    image[..., 1] = (np.arange(height) % 256)[:, None]
    image[..., 2] = number % 256
    image[..., 3] = 255
    return image


def produce(name: str, frames: int, height: int, width: int, fps: float = 0, kind: str = "auto") -> None:
    """The demo producer: waits for a consumer, sends pictures, loses none that somebody wants. hold_limit:
    also not when that one is busy for a while, with importing torch, say."""
    shape = (height, width, 4)
    with cuda_link.open_exporter(name, shape=shape, kind=kind, hold_limit=PATIENCE) as exporter:
        exporter.wait_consumers(1, PATIENCE)
        for number in range(frames):
            exporter.send(picture(number, height, width), timeout=PATIENCE, pts=number)
            if fps:
                time.sleep(1 / fps)
        exporter.wait_taken(PATIENCE)


@contextmanager
def beside(target: Callable[..., None], *arguments: Any) -> Iterator[multiprocessing.process.BaseProcess]:
    """Runs target(*arguments) in a process of its own; at the end waits for it."""
    process = multiprocessing.get_context("spawn").Process(target=target, args=arguments)
    process.start()
    try:
        yield process
        process.join(PATIENCE)
    finally:
        if process.is_alive():
            process.kill()
        process.join()
