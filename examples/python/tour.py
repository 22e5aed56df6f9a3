# SPDX-License-Identifier: MIT
"""A tour: send, receive, write in place, hold, copy, look at what there is. With a GPU or without."""

import cuda_link
import demo


def main() -> None:
    wanted = demo.options(__doc__, frames=5)
    print(f"back end: {cuda_link.backend.name}, because {cuda_link.backend.reason}")

    # One program owns the channel ...
    exporter = cuda_link.open_exporter(wanted.channel, shape=(wanted.height, wanted.width, 4))
    statistics = exporter.statistics()
    print(f"frames are of kind {statistics.kind} ({statistics.path}): {statistics.reason}")

    # ... others take its frames, here in the same process. They may start in any order.
    importer = cuda_link.open_importer(wanted.channel, timeout=demo.PATIENCE)

    for number in range(wanted.frames):
        exporter.send(demo.picture(number, wanted.height, wanted.width))  # exactly one copy
        with importer.acquire(timeout=demo.PATIENCE) as frame:  # none at all
            pixel = frame.numpy()[0, 0].tolist()
            print(f"frame {frame.sequence}: {frame.dtype} {frame.shape}, first pixel {pixel}")

    # What you hold stays as it is, whatever the producer does meanwhile.
    exporter.send(demo.picture(100, wanted.height, wanted.width))
    held = importer.acquire(timeout=demo.PATIENCE)
    for number in range(20):
        exporter.send(demo.picture(number, wanted.height, wanted.width))
    print(f"frame {held.sequence} after 20 more: blue is still {held.numpy()[0, 0, 2]}")
    copy = held.copy()  # memory of its own, writable
    held.release()

    # Without any copy: write into the slot itself.
    if exporter.statistics().kind == "host":
        with exporter.frame() as slot:
            slot.numpy()[:] = 7
        with importer.acquire(timeout=demo.PATIENCE) as frame:
            print(f"written in place: {frame.numpy().min()} to {frame.numpy().max()}; {copy}")

    # Any program can see which channels there are, and who holds what.
    for channel in cuda_link.channels():
        if channel.name == wanted.channel:
            consumers = [f"{c.program} ({c.pid}), holds {c.held} of {c.hold}" for c in channel.consumers]
            print(f"channel {channel.name}: {channel.published} published, consumers: {consumers}")

    importer.close()
    exporter.close()
    print("done")


if __name__ == "__main__":
    main()
