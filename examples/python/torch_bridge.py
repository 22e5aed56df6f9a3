# SPDX-License-Identifier: MIT
"""A bridge between two torch programs: one sends tensors, the other runs a model on them and sends its
results back. Several named tensors travel in one frame."""

import cuda_link
import demo
import numpy as np


def serve(requests: str, replies: str, kind: str) -> None:
    """The model's process."""
    try:
        import torch
    except ImportError:
        torch = None
    with cuda_link.open_exporter(replies, planes={"scores": ((10,), "float32")}, kind=kind) as exporter:
        exporter.wait_consumers(1, demo.PATIENCE)
        for frame in cuda_link.open_importer(requests, policy="every", once=True, timeout=demo.PATIENCE):
            if torch:
                picture, weights = frame.torch("picture"), frame.torch("weights")  # no copy
                scores = torch.softmax(weights @ picture.float().mean(dim=(0, 1)), 0)
            else:
                picture, weights = frame.numpy("picture"), frame.numpy("weights")
                scores = np.exp(weights @ picture.mean(axis=(0, 1))).astype(np.float32)
                scores /= scores.sum()
            exporter.send({"scores": scores}, pts=frame.pts, timeout=demo.PATIENCE)
        exporter.wait_taken(demo.PATIENCE)


def main() -> None:
    wanted = demo.options(__doc__)
    has_torch = demo.torch_here("the bridge carries NumPy arrays")
    kind = demo.kind_for_torch()
    requests, replies = wanted.channel + "-requests", wanted.channel + "-replies"
    weights = np.linspace(-0.01, 0.01, 40, dtype=np.float32).reshape(10, 4)
    shape = (wanted.height, wanted.width, 4)
    with demo.beside(serve, requests, replies, kind):
        planes = {"picture": (shape, "uint8"), "weights": (weights.shape, "float32")}
        exporter = cuda_link.open_exporter(requests, planes=planes, kind=kind)
        answers = cuda_link.open_importer(replies, policy="every", timeout=demo.PATIENCE)
        exporter.wait_consumers(1, demo.PATIENCE)
        for number in range(wanted.frames):
            image = demo.picture(number, *shape[:2])
            data = {"picture": image, "weights": weights}
            if has_torch:
                import torch

                device = "cuda" if kind == "auto" else "cpu"
                data = {name: torch.from_numpy(array).to(device) for name, array in data.items()}
            exporter.send(data, pts=number, timeout=demo.PATIENCE)
            with answers.acquire(demo.PATIENCE) as answer:
                expected = np.exp(weights @ image.mean(axis=(0, 1)))
                np.testing.assert_allclose(answer.numpy("scores"), expected / expected.sum(), rtol=1e-3)
                assert answer.pts == number
        kind = exporter.statistics().kind
        exporter.close()
    print(f"{wanted.frames} requests of two tensors, answered on kind {kind}; every score as computed here")


if __name__ == "__main__":
    main()
