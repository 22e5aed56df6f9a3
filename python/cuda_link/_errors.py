# SPDX-License-Identifier: MIT
"""The exceptions, one per error of the C library.

All of them are `CudaLinkError`; most are also the built-in exception that fits, so that
``except TimeoutError`` works. `code` is the C library's number (0 when the error is Python's own).
"""

from __future__ import annotations

import re


class CudaLinkError(RuntimeError):
    """Something that cuda_link could not do; the text says what, on which channel, and what to do."""

    code: int = 0


class InvalidArgumentError(CudaLinkError, ValueError):
    """An argument is not valid."""


class NoMemoryError(CudaLinkError, MemoryError):
    """The process has no memory left."""


class TimedOutError(CudaLinkError, TimeoutError):
    """Nothing happened in time."""


class BusyError(CudaLinkError):
    """Nothing is free right now: every slot is held, or this importer holds as many as it may."""


class TooManyFramesError(BusyError):
    """This importer already holds as many frames as it said that it would."""


class ClosedError(CudaLinkError, ValueError):
    """The exporter or importer was closed."""


class PeerLostError(CudaLinkError, ConnectionError):
    """The producer died."""


class EndedError(CudaLinkError, EOFError):
    """The producer closed the channel."""


class ChannelNotFoundError(CudaLinkError, FileNotFoundError):
    """There is no such channel."""


class NameInUseError(CudaLinkError, FileExistsError):
    """Another producer owns the name."""


class RefusedError(CudaLinkError, PermissionError):
    """Not allowed."""


class ProtocolError(CudaLinkError, ValueError):
    """The peer broke the protocol."""


class VersionError(ProtocolError):
    """The peer speaks another version."""


class TooLargeError(CudaLinkError, ValueError):
    """The size does not fit."""


class NoSpaceError(CudaLinkError, MemoryError):
    """There is no room for the memory asked for."""


class SystemRefusedError(CudaLinkError, OSError):
    """The operating system refused."""


class ForkedError(CudaLinkError):
    """This process was forked after the library was used; open again in a process of its own."""


class StreamError(CudaLinkError, ValueError):
    """The stream is not usable here."""


class CapturingError(StreamError):
    """The stream is capturing a graph."""


class UnsupportedError(CudaLinkError, NotImplementedError):
    """Not supported here."""


class ExchangeError(UnsupportedError, BufferError):
    """This array can't be lent to, or taken from, another library as it is."""


class GpuError(CudaLinkError):
    """The CUDA driver refused."""


class GpuLostError(GpuError):
    """The CUDA context is dead."""


class OverwrittenError(CudaLinkError):
    """The frame was overwritten while it was used."""


class SkippedError(CudaLinkError):
    """The announced frame was not published."""


class EvictedError(CudaLinkError):
    """The producer took the frames back, because they were held too long."""


_CLASSES = {
    -1: InvalidArgumentError,
    -2: NoMemoryError,
    -3: TimedOutError,
    -4: BusyError,
    -5: ClosedError,
    -6: PeerLostError,
    -7: EndedError,
    -8: ChannelNotFoundError,
    -9: NameInUseError,
    -10: RefusedError,
    -11: ProtocolError,
    -12: VersionError,
    -13: TooLargeError,
    -14: NoSpaceError,
    -15: SystemRefusedError,
    -16: ForkedError,
    -17: StreamError,
    -18: CapturingError,
    -19: UnsupportedError,
    -20: GpuError,
    -21: GpuLostError,
    -22: OverwrittenError,
    -23: SkippedError,
    -24: EvictedError,
}


_C_NAME = re.compile(r"^cudalink_\w+: ")  # of a function that nobody here has called
_CLOSED = {
    "the exporter is closed": "this exporter was closed, by close() or by the end of its with-block; "
    "open another one: open_exporter(name), or Exporter.open(spec)",
    "the importer is closed": "this importer was closed, by close() or by the end of its with-block; "
    "frames that it gave stay good; open another one: open_importer(name), or Importer.open(spec)",
}

# What a sentence of the library calls by its name in C, and what it is called here.
_C_WORDS = {
    "use CUDALINK_STREAM_COMPLETE or a cudalink_host_stream": "leave stream= out, or say -1",
    "is not a living cudalink_host_stream, and these frames are in host memory": "was named, but these "
    "frames are in host memory, which has no streams: leave stream= out, or say -1",
    "CUDALINK_STREAM_COMPLETE": "stream=-1",
    "COMPLETE makes": "-1 makes",
    "policy SHARED": 'policy "shared"',
    "policy LATEST": 'policy "latest"',
    "with `writable`": 'with access="write"',
}
_C_WORD = re.compile("|".join(map(re.escape, _C_WORDS)))
_HAVE_C_WORDS = (-1, -17, -19)  # not those that a loop meets at every turn


def error_for(status: int, sentence: str) -> CudaLinkError:
    """The exception for a status of the C library, to be raised."""
    sentence = _C_NAME.sub("", sentence)
    if status in _HAVE_C_WORDS:
        sentence = _C_WORD.sub(lambda found: _C_WORDS[found[0]], sentence)
    error = _CLASSES.get(status, CudaLinkError)(_CLOSED.get(sentence, sentence))
    error.code = status
    return error


def refusal_for(status: int, sentence: str) -> CudaLinkError:
    """The same where an array could not be lent or taken: a BufferError, as DLPack wants it."""
    error = error_for(status, sentence)
    if not isinstance(error, (UnsupportedError, VersionError)):
        return error
    refusal = ExchangeError(*error.args)
    refusal.code = status
    return refusal
