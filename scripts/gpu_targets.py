# SPDX-License-Identifier: MIT
"""The targets of what tests/gpu/measure*.c measure: gpu-verdicts judges by them, results-table shows them.

A rule is the most that a number may be, in microseconds: of itself, or beside the raw driver calls of the
same run (`factor` x raw + `plus`). `of` says which number is judged."""

HANDOVER = "kernel end to kernel start, two processes"
QUEUED = (HANDOVER, "raw: a queued wait for a word")
SPIN = (HANDOVER, "raw: the CPU spins on a word, then launches")
WAITING = " that wait on the GPU"
PUBLISH_1, PUBLISH_32 = "publish, 1 consumers", "publish, 32 consumers"
PUBLISHED = "cudalink_exporter_publish"
SEND = ("send 1080p RGBA8", "cudalink_exporter_send")
ACQUIRE = ("acquire of a ready frame", "with COMPLETE")
NEXT = (HANDOVER, "wait_next")
COPY = "1080p frame to pinned host memory"
TO_HOST = (COPY, "cudalink_frame_to_host")
PRODUCER_OPENS = ("open to first frame, producer", "published")
CONSUMER_OPENS = ("open to first frame, consumer", "acquired")
LAUNCH = "launching a kernel meanwhile"
PHASES = ("attach", "leave", "death", "resize")


def rule(plus=0.0, raw=None, factor=1.0, of="p50"):
    return {"plus": plus, "raw": raw, "factor": factor if raw else 0.0, "of": of}


TARGETS = {
    (case, PUBLISHED): rule(0.4, (case, "raw writes"))
    for case in (PUBLISH_1, PUBLISH_32, PUBLISH_1 + WAITING, PUBLISH_32 + WAITING)
}
TARGETS |= {
    SEND: rule(3),
    ACQUIRE: rule(0.3),
    ("acquire of a ready frame", "with a stream"): rule(0.3),
    (HANDOVER, "acquire with COMPLETE"): rule(0, SPIN, 1.03),
    (HANDOVER, "acquire with a stream and gpu_wait"): rule(0, QUEUED, 1.03),
    NEXT: rule(0, QUEUED, 1.03),
    TO_HOST: rule(0, (COPY, "raw copy"), 1 / 0.98),
    PRODUCER_OPENS: rule(5000),
    CONSUMER_OPENS: rule(5000),
}
TARGETS |= {(LAUNCH, phase): rule(1000, of="most") for phase in PHASES}
MPS_TARGETS = {NEXT: rule(2, QUEUED)}


def limit(wanted, raw=0.0):
    """`raw`: what the rule's raw calls took."""
    return round(wanted["factor"] * raw + wanted["plus"], 3)


def text(wanted):
    """As people say it."""
    if not wanted["raw"]:
        return f"{wanted['plus']:g} us" if wanted["plus"] < 1000 else f"{wanted['plus'] / 1000:g} ms"
    times = "raw" if wanted["factor"] == 1 else f"{wanted['factor']:g} x raw"
    return f"{times} + {wanted['plus']:g}" if wanted["plus"] else times


def share(wanted):
    """Of a rule that is a multiple of the raw calls: the part of their speed that has to be reached, in percent."""
    return f"{100 / wanted['factor']:.0f} %"
