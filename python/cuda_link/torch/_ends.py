# SPDX-License-Identifier: MIT
"""The channels that operators know. An operator of torch takes numbers, strings and tensors: a channel is
named."""

from __future__ import annotations

from typing import Any, TypeVar
from weakref import WeakValueDictionary

from .._exporter import ChannelExporter
from .._importer import ChannelImporter

_exporters: WeakValueDictionary[str, ChannelExporter] = WeakValueDictionary()
_importers: WeakValueDictionary[str, ChannelImporter] = WeakValueDictionary()

_End = TypeVar("_End", ChannelExporter, ChannelImporter)


def attach(end: _End) -> _End:
    """Makes an exporter or importer known to `send` and `receive` by its channel's name, for as long as
    the caller keeps it; a later one of the same name takes its place. Returns it.

    Errors: TypeError.
    """
    if isinstance(end, ChannelExporter):
        _exporters[end.name] = end
    elif isinstance(end, ChannelImporter):
        _importers[end.name] = end
    else:
        raise TypeError(f"attach takes what open_exporter or open_importer gave, not {type(end).__name__}")
    return end


def _find(ends: Any, channel: str, what: str) -> Any:
    end = ends.get(channel)
    if end is None:
        raise LookupError(
            f"no {what} of channel {channel!r} is known: "
            f"keep one, attached = cuda_link.torch.attach(cuda_link.open_{what}({channel!r}, ...))"
        )
    return end


def exporter_of(channel: str) -> ChannelExporter:
    """The attached exporter. Errors: LookupError."""
    found: ChannelExporter = _find(_exporters, channel, "exporter")
    return found


def importer_of(channel: str) -> ChannelImporter:
    """The attached importer. Errors: LookupError."""
    found: ChannelImporter = _find(_importers, channel, "importer")
    return found
