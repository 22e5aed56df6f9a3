# SPDX-License-Identifier: MIT
"""Frames as torch tensors without a copy, and how long such a tensor stays good."""

import cuda_link
import demo


def main() -> None:
    wanted = demo.options(__doc__, frames=20)
    has_torch = demo.torch_here("NumPy arrays take the tensors' place")
    with demo.beside(
        demo.produce,
        wanted.channel,
        wanted.frames,
        wanted.height,
        wanted.width,
        wanted.fps,
        demo.kind_for_torch(),
    ):
        importer = cuda_link.open_importer(
            wanted.channel, policy="every", once=True, hold=3, timeout=demo.PATIENCE
        )
        kept, address = None, 0
        for frame in importer:
            # The same memory. On a GPU torch's current stream waits for the pixels, the CPU does not.
            view = frame.torch() if has_torch else frame.numpy()
            if frame.sequence == 1:
                kept, address = view, view.data_ptr() if has_torch else view.ctypes.data
            mean = float(view[..., 2].float().mean() if has_torch else view[..., 2].mean())
            assert mean == frame.pts % 256, (mean, frame.pts)
            # The next step of the loop releases the frame; `kept` keeps its memory held all the same.
            del view
        assert kept is not None
        again = kept.data_ptr() if has_torch else kept.ctypes.data
        print(
            f"{wanted.frames} frames as {type(kept).__module__}.{type(kept).__name__}, no copy made: "
            f"{importer.statistics().copies} copies"
        )
        print(
            f"the first one, {wanted.frames - 1} frames later: blue is {int(kept[0, 0, 2])}, "
            f"address the same: {again == address}"
        )
        # What must be written to, or live without counting as held, is a copy.
        own = kept.clone() if has_torch else kept.copy()
        held = importer.held
        del kept
        own[...] = 0
        print(f"frames held: {held} with the tensor, {importer.held} without; a clone may be written")
        importer.close()


if __name__ == "__main__":
    main()
