# SPDX-License-Identifier: MIT
"""A consumer that runs for ever: it outlives producers that close, that are killed, that come back. The
loop is a template: copy it."""

import threading

import cuda_link
import demo


def produce_until_killed(name: str, height: int, width: int) -> None:
    """A producer that will not say goodbye."""
    with cuda_link.open_exporter(name, shape=(height, width, 4)) as exporter:
        number = 0
        while True:
            exporter.wait_consumers(1, demo.PATIENCE)
            exporter.send(demo.picture(number, height, width), timeout=demo.PATIENCE)
            number += 1


def consume(importer: cuda_link.ChannelImporter, events: list[str], changed: threading.Condition) -> None:
    """The template."""

    def note(text: str) -> None:
        with changed:
            events.append(text)
            changed.notify_all()

    session = 0
    while True:
        try:
            frame = importer.acquire()  # waits for a frame, and for a producer
        except cuda_link.EndedError:
            note("the producer closed")
        except cuda_link.PeerLostError:
            note("the producer died")
        except cuda_link.ClosedError:
            return  # importer.close(), below
        else:
            with frame:
                if frame.session != session:
                    session = frame.session
                    note(f"producer {session}: {frame.shape}")


def main() -> None:
    wanted = demo.options(__doc__)
    importer = cuda_link.open_importer(wanted.channel)  # before there is any producer
    events: list[str] = []
    changed = threading.Condition()
    thread = threading.Thread(target=consume, args=(importer, events, changed))
    thread.start()

    def wait_for(count: int) -> None:
        with changed:
            if not changed.wait_for(lambda: len(events) >= count, demo.PATIENCE):
                raise TimeoutError(events)

    size = (wanted.height, wanted.width)
    with demo.beside(produce_until_killed, wanted.channel, *size) as producer:
        wait_for(1)
        producer.kill()
        wait_for(2)
    larger = (2 * wanted.height, 2 * wanted.width)
    with demo.beside(demo.produce, wanted.channel, wanted.frames, *larger):
        wait_for(4)
    importer.close()  # wakes the loop
    thread.join()
    for event in events:
        print(event)
    print(f"{importer.name}: done")


if __name__ == "__main__":
    main()
