# SPDX-License-Identifier: MIT
"""What the tests of queues share."""

from __future__ import annotations

import os

import numpy as np
from cuda_link import _queue

BIG = 100_000  # bytes; far too large for a pipe or for the table


def array(number: int) -> np.ndarray:
    return np.full(BIG // 8, number)


class Passed:
    """Rebuilds a queue in the same process: as if it were another one's."""

    def __init__(self, queue):
        self.descriptors = tuple(os.dup(descriptor) for descriptor in queue._descriptors.all)

    def __reduce__(self):
        return _queue._rebuild, tuple(Handle(descriptor) for descriptor in self.descriptors)


class Handle:
    def __init__(self, descriptor):
        self.descriptor = descriptor

    def detach(self):
        return self.descriptor
