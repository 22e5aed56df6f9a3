# SPDX-License-Identifier: MIT
"""What both ends of a channel have in common: a name, and an end of their own."""

from __future__ import annotations

from typing import TypeVar

from ._only_one import refuse_copies

_Self = TypeVar("_Self", bound="End")


class End:
    """One end of a channel. Closed by hand, by the end of a with-block, or with the object."""

    def __init__(self, name: str, identifier: int) -> None:
        self.name = name
        """The channel."""
        self._id = identifier

    def _close(self, identifier: int) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Ends it. A second close does nothing."""
        identifier, self._id = self._id, 0
        if identifier:
            self._close(identifier)

    @property
    def closed(self) -> bool:
        """Was `close` called?"""
        return self._id == 0

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_id", 0):
            try:
                self.close()
            except Exception:  # a forked copy, or the end of the process
                pass

    __reduce_ex__ = refuse_copies

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.name!r}{' (closed)' if self.closed else ''}>"
