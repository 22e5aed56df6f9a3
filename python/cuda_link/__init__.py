# SPDX-License-Identifier: MIT
"""Frames and tensors from one process to others, with no copy through the CPU.

One program owns a channel and publishes frames; others take them:

    exporter = cuda_link.open_exporter("camera", shape=(480, 640, 4), dtype="uint8")
    exporter.send(array)

    for frame in cuda_link.open_importer("camera"):
        print(frame.sequence, frame.numpy().mean())

Works with no GPU (frames are then in shared memory) and without NumPy or any framework.
After fork() the child must not use what the parent opened: every call raises ForkedError.
"""

from ._array import Array
from ._backend import Backend, backend
from ._backend import low as _low
from ._channels import Channel, Consumer, channels, clean
from ._copy import FrameCopy
from ._description import Plane, Timing, formats
from ._dtypes import Dtype
from ._errors import (
    BusyError,
    CapturingError,
    ChannelNotFoundError,
    ClosedError,
    CudaLinkError,
    EndedError,
    EvictedError,
    ExchangeError,
    ForkedError,
    GpuError,
    GpuLostError,
    InvalidArgumentError,
    NameInUseError,
    NoMemoryError,
    NoSpaceError,
    OverwrittenError,
    PeerLostError,
    ProtocolError,
    RefusedError,
    SkippedError,
    StreamError,
    SystemRefusedError,
    TimedOutError,
    TooLargeError,
    TooManyFramesError,
    UnsupportedError,
    VersionError,
)
from ._exporter import ChannelExporter, open_exporter
from ._frame import Frame
from ._from_dlpack import from_dlpack
from ._importer import ChannelImporter, open_importer
from ._known.availability import CUPY_AVAILABLE, NUMPY_AVAILABLE, TORCH_AVAILABLE
from ._known.connection import Format, IPCConnection
from ._known.exporter import Exporter
from ._known.importer import Importer
from ._known.layout import (
    AcquireResult,
    DtypeCodec,
    Metadata,
    SHMLayout,
    SlotState,
    acquire_slot,
    publish_frame,
)
from ._known.nvml import NVMLObserver
from ._known.policies import ExportPolicy, ImportPolicy
from ._known.ports import CudaPort, ImporterCudaPort
from ._known.values import (
    CudaIpcError,
    FrameOutcome,
    FrameSpec,
    GpuFrame,
    ImportOutcome,
    ImportResult,
    ImportSpec,
    ProducerTimeoutError,
)
from ._picture import Picture, PictureFields
from ._queue import Queue
from ._slot import LentSlot
from ._statistics import ExporterStatistics, ImporterStatistics

__version__ = "0.1.0"

NVML_AVAILABLE: bool  # by __getattr__: looking loads a library of the driver


def now() -> int:
    """CLOCK_MONOTONIC in nanoseconds, the clock of every timestamp here."""
    time: int = _low.now()
    return time


def __getattr__(name: str) -> object:
    from ._known.gone import refuse

    if name == "NVML_AVAILABLE":
        from ._known.nvml import available

        return available()

    refuse(name)
    raise AttributeError(f"module 'cuda_link' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__all__ = [
    "CUPY_AVAILABLE",
    "NUMPY_AVAILABLE",
    "NVML_AVAILABLE",
    "TORCH_AVAILABLE",
    "AcquireResult",
    "CudaIpcError",
    "CudaPort",
    "DtypeCodec",
    "ExportPolicy",
    "Exporter",
    "Format",
    "FrameOutcome",
    "FrameSpec",
    "GpuFrame",
    "IPCConnection",
    "ImportOutcome",
    "ImportPolicy",
    "ImportResult",
    "ImportSpec",
    "Importer",
    "ImporterCudaPort",
    "Metadata",
    "NVMLObserver",
    "ProducerTimeoutError",
    "SHMLayout",
    "SlotState",
    "acquire_slot",
    "publish_frame",
    "Array",
    "Backend",
    "BusyError",
    "CapturingError",
    "Channel",
    "ChannelExporter",
    "ChannelImporter",
    "ChannelNotFoundError",
    "ClosedError",
    "Consumer",
    "CudaLinkError",
    "Dtype",
    "EndedError",
    "EvictedError",
    "ExchangeError",
    "ExporterStatistics",
    "ForkedError",
    "Frame",
    "FrameCopy",
    "GpuError",
    "GpuLostError",
    "ImporterStatistics",
    "InvalidArgumentError",
    "LentSlot",
    "NameInUseError",
    "NoMemoryError",
    "NoSpaceError",
    "OverwrittenError",
    "PeerLostError",
    "Picture",
    "PictureFields",
    "Plane",
    "ProtocolError",
    "Queue",
    "RefusedError",
    "SkippedError",
    "StreamError",
    "SystemRefusedError",
    "TimedOutError",
    "Timing",
    "TooLargeError",
    "TooManyFramesError",
    "UnsupportedError",
    "VersionError",
    "backend",
    "channels",
    "clean",
    "formats",
    "from_dlpack",
    "now",
    "open_exporter",
    "open_importer",
]
