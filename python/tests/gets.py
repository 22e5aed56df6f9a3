# SPDX-License-Identifier: MIT
"""What tests of get_frame_numpy share: gets until something is there."""

from __future__ import annotations

import time

from conftest import LIMIT
from cuda_link import ImportOutcome

_NOT_YET = (ImportOutcome.NO_FRAME, ImportOutcome.TIMEOUT)


def take(importer):
    """The get that takes a frame; those before find nothing."""
    end, received = time.monotonic() + LIMIT, importer._importer.statistics().received
    while True:
        result = importer.get_frame_numpy()
        if importer._importer.statistics().received > received:
            return result
        assert result.outcome in _NOT_YET and time.monotonic() < end, result
        importer.wait_for_doorbell(1000)


def frame_of(result, n):
    """Of a get that returned frame n."""
    assert result.outcome is ImportOutcome.NEW_FRAME and (result.frame == n).all(), result
    return result.frame


def until(importer, outcome):
    """The first get that says so."""
    end = time.monotonic() + LIMIT
    while (result := importer.get_frame_numpy()).outcome is not outcome:
        assert time.monotonic() < end, result
        importer.wait_for_doorbell(1000)
    return result
