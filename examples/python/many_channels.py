# SPDX-License-Identifier: MIT
"""Several channels in one loop, and one that changes its resolution while it runs."""

import selectors

import cuda_link
import demo


def produce(names: list[str], frames: int, height: int, width: int) -> None:
    """One process may own many channels."""
    shape = (height, width, 4)
    exporters = [cuda_link.open_exporter(name, shape=shape, hold_limit=demo.PATIENCE) for name in names]
    for exporter in exporters:
        exporter.wait_consumers(1, demo.PATIENCE)
    for number in range(frames):
        for i, exporter in enumerate(exporters):
            # The last channel doubles its size in the middle. Consumers just see the new shape.
            scale = 2 if i == len(exporters) - 1 and number >= frames // 2 else 1
            exporter.send(demo.picture(number, scale * height, scale * width), timeout=demo.PATIENCE)
    for exporter in exporters:
        exporter.wait_taken(demo.PATIENCE)
        exporter.close()


def main() -> None:
    wanted = demo.options(__doc__)
    names = [f"{wanted.channel}-{place}" for place in ("left", "right", "depth")]
    with demo.beside(produce, names, wanted.frames, wanted.height, wanted.width):
        selector = selectors.DefaultSelector()
        counts, sizes = {}, {}
        for name in names:
            importer = cuda_link.open_importer(name, policy="every", once=True, timeout=demo.PATIENCE)
            selector.register(importer.fileno(), selectors.EVENT_READ, importer)
            counts[name], sizes[name] = 0, []

        def take_all(importer: cuda_link.ChannelImporter) -> bool:
            """Every frame that is there now. False: the channel has ended."""
            while True:
                try:
                    with importer.acquire(0) as frame:
                        counts[importer.name] += 1
                        if frame.shape not in sizes[importer.name]:
                            sizes[importer.name].append(frame.shape)
                except TimeoutError:
                    if importer.arm():  # from now on its descriptor tells; False: a frame came meanwhile
                        return True
                except EOFError:
                    return False

        ready = [key.data for key in selector.get_map().values()]
        while ready or selector.get_map():
            for importer in ready:
                if not take_all(importer):
                    selector.unregister(importer.fileno())
                    importer.close()
            ready = [key.data for key, _ in selector.select(demo.PATIENCE)] if selector.get_map() else []
    for name in names:
        print(f"{name}: {counts[name]} frames, sizes {sizes[name]}")


if __name__ == "__main__":
    main()
