# SPDX-License-Identifier: MIT
"""Format and IPCConnection: the values in which scripts for cuda-link 1.x look at the old wire, and hand a
connection over (Importer.from_connection)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .layout import DtypeCodec, Metadata, SHMLayout


@dataclass(frozen=True)
class Format:
    """What frames are. kind, bits and flags are 0 when it was made of overrides."""

    width: int
    height: int
    num_comps: int
    kind: int
    bits: int
    flags: int
    dtype_str: str

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width, channels."""
        return self.height, self.width, self.num_comps

    @property
    def numpy_dtype(self) -> Any:
        """NumPy's type. Errors: ImportError, TypeError (bfloat16 without ml_dtypes)."""
        from .. import _dtypes

        return _dtypes.to_numpy(_dtypes.parse(self.dtype_str))

    @property
    def frame_nbytes(self) -> int:
        """Bytes of one frame."""
        return self.height * self.width * self.num_comps * DtypeCodec.itemsize(self.dtype_str)

    @classmethod
    def from_metadata(cls, metadata: Metadata) -> Format:
        """As the producer says. Errors: ValueError (no such type; the sizes do not fit together; all zero:
        there is no format yet, and none is guessed)."""
        name = DtypeCodec.decode(metadata.format_kind, metadata.bits_per_comp, metadata.flags)
        if not metadata.expected_size or metadata.expected_size != metadata.data_size:
            raise ValueError(
                f"{metadata.width}x{metadata.height}x{metadata.num_comps} of {name} is "
                f"{metadata.expected_size} bytes, and data_size says {metadata.data_size}"
            )
        extents = (metadata.width, metadata.height, metadata.num_comps)
        return cls(*extents, metadata.format_kind, metadata.bits_per_comp, metadata.flags, name)

    @classmethod
    def from_shm(cls, buffer: Any, layout: SHMLayout) -> Format:
        """From a segment. Errors: as from_metadata."""
        return cls.from_metadata(Metadata.read_from(buffer, layout.metadata_offset))

    @classmethod
    def from_overrides(cls, shape: tuple[int, int, int], dtype: str) -> Format:
        """As a script says. Errors: ValueError."""
        height, width, channels = shape
        DtypeCodec.itemsize(dtype)
        return cls(width, height, channels, 0, 0, 0, dtype)

    def layout_differs_from(self, other: Format) -> bool:
        """Is the shape or the type another? Formats of overrides have no kind and bits to compare."""
        return (self.shape, self.dtype_str) != (other.shape, other.dtype_str)


@dataclass
class IPCConnection:
    """What a script has opened of an old segment by a `CudaPort` of its own. shm_handle is an object with
    .buf and .close()."""

    cuda: Any = None
    shm_handle: Any = None
    ipc_version: int = 0
    num_slots: int = 0
    ipc_handles: list[Any] = field(default_factory=list)
    dev_ptrs: list[Any] = field(default_factory=list)
    ipc_events: list[Any] = field(default_factory=list)
    layout: SHMLayout | None = None
    shutdown_offset: int = 0
    timestamp_offset: int = 0
    doorbell_handle: Any = None

    def close_ipc_handles(self) -> None:
        """Closes what was mapped and the events, through `cuda`. May be called again."""
        pointers, events = self.dev_ptrs, self.ipc_events
        self.dev_ptrs, self.ipc_events, self.ipc_handles, self.doorbell_handle = [], [], [], None
        for pointer in filter(None, pointers):
            self.cuda.ipc_close_mem_handle(pointer)
        for event in filter(None, events):
            self.cuda.destroy_event(event)

    def close(self) -> None:
        """The same, and the segment. May be called again."""
        self.close_ipc_handles()
        handle, self.shm_handle = self.shm_handle, None
        if handle is not None:
            handle.close()
