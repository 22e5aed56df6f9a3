# SPDX-License-Identifier: MIT
"""OpenCV at both ends. OpenCV's order of channels is blue, green, red; the channel says which it has by its
format, so nobody has to guess."""

import cuda_link
import demo
import numpy as np

try:
    import cv2
except ImportError:
    cv2 = None


def to_bgr(image: np.ndarray, order: str) -> np.ndarray:
    """As OpenCV wants it."""
    if order == "BGRA8":
        return np.ascontiguousarray(image[..., :3])
    return cv2.cvtColor(image, cv2.COLOR_RGBA2BGR) if cv2 else np.ascontiguousarray(image[..., 2::-1])


def edges(bgr: np.ndarray) -> np.ndarray:
    """Something that OpenCV is good at; without it, something like it."""
    if cv2:
        return cv2.Canny(cv2.cvtColor(bgr, cv2.COLOR_BGR2GRAY), 50, 150)
    return np.abs(np.diff(bgr.mean(axis=2), axis=1)).astype(np.uint8)


def produce(name: str, order: str, frames: int, height: int, width: int) -> None:
    """A camera that draws with OpenCV, or with NumPy."""
    with cuda_link.open_exporter(
        name, format=order, shape=(height, width), hold_limit=demo.PATIENCE
    ) as exporter:
        exporter.wait_consumers(1, demo.PATIENCE)
        for number in range(frames):
            image = np.zeros((height, width, 4), np.uint8)
            red = 2 if order == "BGRA8" else 0
            image[height // 4 : height // 2, number : number + width // 4, red] = 255
            exporter.send(image, timeout=demo.PATIENCE)
        exporter.wait_taken(demo.PATIENCE)


def main() -> None:
    wanted = demo.options(__doc__, frames=10)
    if cv2 is None:
        print(
            "This example is about OpenCV (pip install opencv-python), which is not installed: NumPy does it."
        )
    for order in ("RGBA8", "BGRA8"):
        name = f"{wanted.channel}-{order}"
        with demo.beside(produce, name, order, wanted.frames, wanted.height, wanted.width):
            importer = cuda_link.open_importer(name, policy="every", once=True, timeout=demo.PATIENCE)
            found = 0
            for frame in importer:
                bgr = to_bgr(frame.numpy(), frame.picture.format)
                blue, green, red = bgr.reshape(-1, 3).max(axis=0)
                assert (blue, green, red) == (0, 0, 255)
                found += int((edges(bgr) > 0).sum())
            print(
                f"{order}: {wanted.frames} frames, the square is red in OpenCV's order, {found} edge pixels"
            )
            importer.close()


if __name__ == "__main__":
    main()
