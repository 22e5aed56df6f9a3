# SPDX-License-Identifier: MIT
"""What can't be doubled: ends of channels, and memory whose holders are counted."""

from __future__ import annotations

from typing import NoReturn


def refuse_copies(thing: object, protocol: object) -> NoReturn:
    """As `__reduce_ex__`, which pickle, copy.copy and copy.deepcopy ask. A second object would close the
    same end, or give back the same memory, once more."""
    raise TypeError(
        f"{type(thing).__name__} objects can't be pickled or copied: open the channel by its name where it "
        "is needed; what is in memory is copied by .copy(), and by numpy.array(...) for pickle"
    )
