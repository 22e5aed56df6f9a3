# SPDX-License-Identifier: MIT
"""What an Importer counts between gets: attempts to find a producer, and waits for pixels."""

from __future__ import annotations

import logging
from math import inf

_ENDLESS = 1e15  # ms; longer than any program runs
log = logging.getLogger("cuda_link")


def seconds(timeout_ms: float) -> float:
    """Of a timeout_ms. Errors: TypeError, ValueError."""
    try:
        if timeout_ms >= 0:
            return timeout_ms / 1e3 if timeout_ms < _ENDLESS else inf
    except TypeError:
        raise TypeError(f"timeout_ms={timeout_ms!r}: it is a number of milliseconds") from None
    raise ValueError(f"timeout_ms={timeout_ms}: it is 0 or more")


class Backoff:
    """How many gets pass until the next one looks for a producer."""

    __slots__ = ("_attempts", "_logged", "_schedule", "left")

    def __init__(self, schedule: tuple[int, ...], logged: int) -> None:
        self._schedule = schedule
        self._logged = logged
        self._attempts = 0
        self.left = 0
        """Gets that do not look."""

    def passes(self) -> bool:
        """Is this get one of them? Another thread may hurry meanwhile: never below none."""
        left = self.left
        if left > 0:
            self.left = left - 1
        return left > 0

    def failed(self, reason: object) -> None:
        """An attempt has found none."""
        if self._attempts < self._logged:
            log.debug("looking for a producer, attempt %d: %s", self._attempts + 1, reason)
        if self._schedule:
            step = self._schedule[min(self._attempts, len(self._schedule) - 1)]
            self.left = max(step, 1) - 1
        self._attempts += 1

    def hurry(self) -> None:
        """The next get looks."""
        self.left = 0

    def reset(self) -> None:
        """There is one: the next outage begins anew."""
        self.left = self._attempts = 0


class Waits:
    """Waits of the CPU for pixels, and when to leave them to the GPU."""

    __slots__ = ("_begun", "_percent", "_slept", "_window", "latched", "sleep", "spin", "spin_us")

    def __init__(self, spin_us: int, adaptive: bool, window: int, percent: int) -> None:
        self.spin_us = spin_us
        self.spin = [0, 0.0]
        """Waits of up to spin_us: how many, and how long together in µs."""
        self.sleep = [0, 0.0]
        """Longer ones."""
        self.latched: int | None = None
        """From which get on the GPU waits."""
        self._window = max(window, 1) if adaptive else 0
        self._percent = percent
        self._begun = 0
        self._slept = 0

    def note(self, waited_us: float, frame_count: int) -> None:
        """One wait is over."""
        slept = waited_us > self.spin_us
        place = self.sleep if slept else self.spin
        place[0] += 1
        place[1] += waited_us
        if slept and self._window and self.latched is None:
            self._note_sleep(frame_count)

    def _note_sleep(self, frame_count: int) -> None:
        begun = frame_count // self._window
        if begun != self._begun:
            self._begun, self._slept = begun, 0
        self._slept += 1
        if self._slept * 100 >= self._window * self._percent:
            self.latched = frame_count

    @staticmethod
    def average(place: list[float]) -> float:
        """µs per wait."""
        return place[1] / place[0] if place[0] else 0.0
