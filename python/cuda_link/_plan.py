# SPDX-License-Identifier: MIT
"""How an object that was given to `send` becomes a frame: which description, which bytes from where."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Optional

from . import _abi, _description, _streams
from ._arguments import plane_name
from ._backend import low
from ._device_source import DeviceSource, framework_stream
from ._dtypes import Dtype
from ._source import AnySource, Source, source
from ._streams import Stream

_Key = tuple[tuple[Optional[str], Dtype, tuple[int, ...]], ...]


class Plan(NamedTuple):
    """One frame to be sent."""

    description: _abi.Description
    dense: Any
    """An object whose buffer is the whole frame as it will lie; None: something else is set."""
    device: tuple[DeviceSource, ...]
    """GPU memory, one array per plane."""
    parts: tuple[tuple[int, Source], ...]
    """Offsets in the frame, and what goes there."""

    def copy_to(self, address: int) -> None:
        """Copies all parts to a frame that begins there."""
        for offset, part in self.parts:
            low.copy_dense(address + offset, part.buffer)

    def gathered(self) -> bytearray:
        """The whole frame, in memory of its own."""
        whole = bytearray(low.description_bytes(self.description))
        for offset, part in self.parts:
            whole[offset : offset + part.nbytes] = part.buffer.tobytes()
        return whole


def _remember(known: dict[Any, _abi.Description], key: Any, description: _abi.Description) -> None:
    if len(known) >= 64:  # a producer of ever new shapes
        known.clear()
    known[key] = description


class Planner:
    """Plans of one exporter. Descriptions are kept: frames mostly look like those before them."""

    def __init__(self, description: _abi.Description, unnamed: Callable[[], Stream]) -> None:
        self._unnamed = unnamed
        self._opened = _description.layout(bytes(description))
        self._opened_description = description
        self._known: dict[_Key, _abi.Description] = {}
        self._dense: dict[Any, _abi.Description] = {}

    def plan(self, data: Any, stream: Stream | None) -> Plan:
        """Errors: TypeError, ValueError, BufferError."""
        try:
            whole = memoryview(data)
        except (TypeError, ValueError, BufferError):
            return self._plan(data, stream)
        if not whole.c_contiguous:
            return self._plan(data, stream)
        key = (type(data), whole.format, whole.shape)  # the type: masked arrays have a buffer, too
        description = self._dense.get(key)
        if description is not None:  # as one before it
            return Plan(description, whole, (), ())
        plan = self._plan(data, stream)
        if plan.dense is not None:
            _remember(self._dense, key, plan.description)
        return plan

    def _plan(self, data: Any, stream: Stream | None) -> Plan:
        if isinstance(data, Mapping):
            # Arrays of several frameworks: one stream.
            named = next(filter(None, map(framework_stream, data.values())), None)
            unnamed = self._unnamed if named is None else lambda: named
            found: list[tuple[str | None, AnySource]] = [
                (plane_name(name), source(array, stream, unnamed)) for name, array in data.items()
            ]
        else:
            found = [(None, source(data, stream, self._unnamed))]
        sources = [(name, part) for name, part in found if isinstance(part, Source)]
        if len(sources) < len(found):
            return self._device_plan(found)
        description = self._description_of(sources)
        if len(sources) == 1 and sources[0][1].is_dense and self._is_whole(sources[0][1], description):
            return Plan(description, sources[0][1].buffer, (), ())
        return Plan(description, None, (), tuple(self._placed(description, sources)))

    def _device_plan(self, found: list[tuple[str | None, AnySource]]) -> Plan:
        parts = {name: part for name, part in found if isinstance(part, DeviceSource)}
        if len(parts) < len(found):
            raise BufferError(
                "arrays of the CPU and of a GPU can't be sent as one frame: move them to one place"
            )
        if len({part.stream or _streams.LEGACY for part in parts.values()}) > 1:
            raise BufferError(
                "these arrays are complete on different streams: name one that comes after all, with stream="
            )
        described = [(name, Source(part.dtype, part.shape, None, True)) for name, part in parts.items()]
        description = self._description_of(described)
        if self._opened.picture is None or len(parts) == 1:
            return Plan(description, None, tuple(parts.values()), ())
        planes = _description.layout(bytes(description)).planes
        return Plan(description, None, tuple(parts[plane.name] for plane in planes), ())

    def _description_of(self, sources: list[tuple[str | None, Source]]) -> _abi.Description:
        key = tuple((name, part.dtype, part.shape) for name, part in sources)
        description = self._known.get(key)
        if description is None:
            description = self._describe(sources)
            _remember(self._known, key, description)
        return description

    @staticmethod
    def _is_whole(part: Source, description: _abi.Description) -> bool:
        return part.nbytes > 0 and part.nbytes == low.description_bytes(description)

    def _placed(
        self, description: _abi.Description, sources: list[tuple[str | None, Source]]
    ) -> list[tuple[int, Source]]:
        if self._opened.picture is None:
            return [(description.planes[i].offset, part) for i, (_, part) in enumerate(sources)]
        offsets = {plane.name: plane.offset for plane in _description.layout(bytes(description)).planes}
        return [(offsets.get(name or "", description.planes[0].offset), part) for name, part in sources]

    def _describe(self, sources: list[tuple[str | None, Source]]) -> _abi.Description:
        if self._opened.picture is not None:
            return self._describe_picture(sources)
        if not sources:
            raise ValueError("an empty dict is no frame")
        if len(sources) == 1 and sources[0][0] is None and len(self._opened.planes) > 1:
            raise ValueError(
                f"this channel has the planes {[p.name for p in self._opened.planes]}: send a dict"
            )
        description = _abi.Description()
        for name, part in sources:
            dtype = part.dtype
            low.describe_tensor(description, name, dtype.code, dtype.bits, dtype.lanes, part.shape)
        return _description.as_opened(description, self._opened_description)

    def _describe_picture(self, sources: list[tuple[str | None, Source]]) -> _abi.Description:
        """A picture of the format that the channel was opened with: all planes by name, or the first one
        of a format that has one, or everything packed."""
        opened = self._opened.picture
        assert opened is not None
        first = sources[0][1] if sources else None
        if len(sources) == 1 and sources[0][0] is None and first and self._is_packed(first):
            return self._opened_description
        for candidate in self._sizes(sources):
            description = _description.make(candidate, None, opened.format)
            planes = _description.layout(bytes(description)).planes
            wanted = {plane.name: (plane.dtype, plane.shape) for plane in planes}
            if (
                len(planes) == 1
                and first
                and (first.dtype, first.shape) == (planes[0].dtype, planes[0].shape)
            ):
                return _description.as_opened(description, self._opened_description)
            if {name: (part.dtype, part.shape) for name, part in sources} == wanted:
                return _description.as_opened(description, self._opened_description)
        given = {name or "array": f"{part.dtype.name} {part.shape}" for name, part in sources}
        expected = {plane.name: f"{plane.dtype.name} {plane.shape}" for plane in self._opened.planes}
        raise ValueError(
            f"this channel has {opened.format} pictures, {opened.width}x{opened.height} when it was opened: "
            f"planes {expected}, or {low.packed_bytes(self._opened_description)} packed bytes; not {given}"
        )

    def _is_packed(self, part: Source) -> bool:
        return (
            len(part.shape) == 1
            and part.dtype.size == 1
            and part.shape[0] == low.packed_bytes(self._opened_description)
            and len(self._opened.planes[0].shape) != 1
        )

    def _sizes(self, sources: list[tuple[str | None, Source]]) -> list[tuple[int, int]]:
        """Heights and widths that this could be."""
        opened = self._opened.picture
        assert opened is not None
        sizes = [(opened.height, opened.width)]
        shape = sources[0][1].shape if sources else ()
        for axes in ((0, 1), (1, 2)):  # rows first, or channels first
            if len(shape) > axes[1] and 0 < shape[axes[0]] < 65536 and 0 < shape[axes[1]] < 65536:
                sizes.append((shape[axes[0]], shape[axes[1]]))
        return sizes
