# SPDX-License-Identifier: MIT
"""The shape of a live image-to-image loop, as with StreamDiffusion: camera -> model -> screen, each in a
process of its own. The model is a stand-in that blends and blurs; put yours into `Model`."""

import time

import cuda_link
import demo
import numpy as np


class Model:
    """Takes a batch of pictures of 3 channels from 0 to 1, returns one of the same shape. Its state is the
    picture before, as a diffusion model's latent would be."""

    def __init__(self) -> None:
        self.before = None

    def __call__(self, batch):
        if self.before is None or self.before.shape != batch.shape:
            self.before = batch
        mixed = 0.7 * batch + 0.3 * self.before
        blurred = (mixed[..., 1:-1] + mixed[..., :-2] + mixed[..., 2:]) / 3
        mixed[..., 1:-1] = blurred
        self.before = mixed
        return mixed


def to_batch(frame: cuda_link.Frame, torch):
    """(height, width, 4) uint8 -> (1, 3, height, width) float."""
    if torch:
        return frame.torch()[..., :3].permute(2, 0, 1).unsqueeze(0).float() / 255
    return np.moveaxis(frame.numpy()[..., :3], 2, 0)[None].astype(np.float32) / 255


def to_picture(batch, torch):
    """And back, with an alpha channel."""
    if torch:
        rgb = (batch[0].permute(1, 2, 0) * 255).clamp(0, 255).to(torch.uint8)
        return torch.nn.functional.pad(rgb, (0, 1), value=255)
    rgb = np.clip(np.moveaxis(batch[0], 0, 2) * 255, 0, 255).astype(np.uint8)
    return np.pad(rgb, ((0, 0), (0, 0), (0, 1)), constant_values=255)


def screen(name: str) -> None:
    """Shows what comes out."""
    ages, shape = [], None
    for frame in cuda_link.open_importer(name, policy="every", once=True, timeout=demo.PATIENCE):
        frame.numpy()
        ages.append(cuda_link.now() - frame.pts)  # pts: when the camera took it
        shape = frame.shape
    middle = sorted(ages)[len(ages) // 2] / 1e6
    print(f"screen: {len(ages)} pictures {shape}, {middle:.1f} ms from camera to screen", flush=True)


def camera(name: str, frames: int, height: int, width: int, kind: str) -> None:
    """Sends at its own pace; the model takes the newest picture whenever it is ready."""
    with cuda_link.open_exporter(name, shape=(height, width, 4), kind=kind) as exporter:
        exporter.wait_consumers(1, demo.PATIENCE)
        for number in range(frames):
            exporter.send(demo.picture(number, height, width), pts=cuda_link.now())
            time.sleep(0.005)


def main() -> None:
    wanted = demo.options(__doc__)
    torch = None
    if demo.torch_here("the stand-in model runs on NumPy arrays"):
        import torch
    kind = demo.kind_for_torch()
    source, result = wanted.channel + "-camera", wanted.channel + "-screen"
    size = (wanted.height, wanted.width)
    with demo.beside(camera, source, wanted.frames, *size, kind), demo.beside(screen, result):
        model, done, skipped = Model(), 0, 0
        with cuda_link.open_exporter(result, shape=(*size, 4), kind=kind) as exporter:
            exporter.wait_consumers(1, demo.PATIENCE)
            for frame in cuda_link.open_importer(source, once=True, timeout=demo.PATIENCE):
                picture = to_picture(model(to_batch(frame, torch)), torch)
                exporter.send(picture, pts=frame.pts, timeout=demo.PATIENCE)
                done, skipped = done + 1, skipped + frame.missed
            exporter.wait_taken(demo.PATIENCE)
            kind = exporter.statistics().kind
    print(f"model: {done} pictures on kind {kind}, {skipped} of the camera's skipped, all in order")


if __name__ == "__main__":
    main()
