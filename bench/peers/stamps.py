# SPDX-License-Identifier: MIT
"""What the peers that run as scripts share: when each picture began and when it was seen, and the numbers
that are printed of that."""

WARM_UP = 5


def collected(send, seen, rounds, one_by_one):
    """send() returns when its picture began; `seen` has when each one arrived."""
    stamps = [(send(), seen.get() if one_by_one else 0) for _ in range(rounds)]
    if not one_by_one:
        stamps = [(start, seen.get()) for start, _ in stamps]
    return stamps[WARM_UP:]


def show(what, stamps):
    """latency: microseconds of each picture. rate: pictures per second."""
    if what == "latency":
        for start, end in stamps:
            print((end - start) / 1e3)
    else:
        print(len(stamps) * 1e9 / (stamps[-1][1] - stamps[0][0]))
