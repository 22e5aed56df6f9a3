# SPDX-License-Identifier: MIT
"""Variables of the environment, by their known names and rules: a switch is on only with "1"; a number that
can't be read, or a word that is not in the list, counts as not set, and is told by the log."""

from __future__ import annotations

import logging
import os

PREFIX = "CUDALINK_"
log = logging.getLogger("cuda_link")


def switch(name: str, default: bool) -> bool:
    """On only with "1"; not set = default."""
    value = os.environ.get(PREFIX + name)
    return default if value is None else value == "1"


def _warn(name: str, value: str, default: object) -> None:
    log.warning("%s%s=%r is no value for it; it counts as %s", PREFIX, name, value, default)


def number(name: str, default: int) -> int:
    """The number; default when it is not set, can't be read, or is negative."""
    value = os.environ.get(PREFIX + name)
    if value is None:
        return default
    if value.isascii() and value.isdigit():
        return int(value)
    _warn(name, value, default)
    return default


def word(name: str, words: tuple[str, ...], default: str) -> str:
    """One of the words; default when it is not set or is another."""
    value = os.environ.get(PREFIX + name, default)
    if value in words:
        return value
    _warn(name, value, default)
    return default
