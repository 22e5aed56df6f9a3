# SPDX-License-Identifier: MIT
"""A viewer for the terminal, in asyncio: frames are awaited while other tasks run, with no thread and no
polling."""

import asyncio

import cuda_link
import demo
import numpy as np

SHADES = np.array(list(" .:-=+*#%@"))


def row(image: np.ndarray, columns: int = 60) -> str:
    """The middle row of the picture as characters."""
    red = image[image.shape[0] // 2, :, 0].astype(int)
    places = np.linspace(0, red.size - 1, columns).astype(int)
    return "".join(SHADES[red[places] * len(SHADES) // 256])


async def view(importer: cuda_link.ChannelImporter) -> int:
    """Shows frame after frame; only ever the newest one."""
    shown = 0
    try:
        async for frame in importer:
            with frame:
                print(f"|{row(frame.numpy())}| {frame.sequence}")
            shown += 1
    except cuda_link.EndedError:
        return shown


async def tick(ticks: list[float]) -> None:
    """Another task of the same loop."""
    while True:
        await asyncio.sleep(0.01)
        ticks.append(asyncio.get_running_loop().time())


async def main() -> None:
    wanted = demo.options(__doc__, frames=20)
    size = (wanted.height, wanted.width)
    with demo.beside(demo.produce, wanted.channel, wanted.frames, *size, wanted.fps or 60):
        importer = cuda_link.open_importer(wanted.channel, once=True, timeout=demo.PATIENCE)
        ticks: list[float] = []
        ticker = asyncio.create_task(tick(ticks))
        shown = await view(importer)
        ticker.cancel()
        importer.close()
    print(f"{shown} of {wanted.frames} frames shown; the other task ran {len(ticks)} times meanwhile")


if __name__ == "__main__":
    asyncio.run(main())
