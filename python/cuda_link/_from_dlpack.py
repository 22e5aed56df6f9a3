# SPDX-License-Identifier: MIT
"""from_dlpack: anybody's array as one of ours, with no framework."""

from __future__ import annotations

from typing import Any

from . import _abi, _streams
from ._arguments import flag
from ._array import Array, take
from ._device_source import is_on_gpu, of_dlpack
from ._driver import synchronize
from ._exchange import unordered
from ._oddities import detached, refuse_oddities
from ._streams import Stream


def _taken(x: Any, after: Stream | None) -> tuple[Array, Stream | None]:
    refuse_oddities(x)
    if type(x).__name__ == "PyCapsule":
        taken = take(x)
        return taken, after if is_on_gpu(taken) else _streams.COMPLETE
    if hasattr(x, "__dlpack__") and hasattr(x, "__dlpack_device__"):
        return of_dlpack(x, after)
    raise TypeError(
        f"{type(x).__name__} has no __dlpack__: pass an array of a framework, a frame, or a DLPack capsule"
    )


def from_dlpack(x: Any, /, *, copy: bool | None = None, stream: Any = None, detach: bool = False) -> Array:
    """An array over the memory of `x`, which stays as long as any array of it lives.

    x: an object with `__dlpack__` (NumPy, torch, CuPy, JAX, frames, slots, Array), or a DLPack capsule, which
    is used up; in memory of the CPU, pinned or managed, or on any GPU of CUDA.
    copy: True = memory of its own, writable. False and None = shared: whatever can be taken at all is shared.
    stream: on a GPU, after what `x` is complete; None = its own ordering. A capsule has none: say it.
    detach: take a tensor that requires grad without its history; else it is refused.

    Errors: TypeError (no array), BufferError (can't be shared; a capsule that was used), ValueError.
    """
    flag("from_dlpack: copy", copy)
    taken, after = _taken(detached(x) if detach else x, None if stream is None else _streams.resolve(stream))
    if not is_on_gpu(taken) or not taken.address:
        return taken.copy() if copy else taken
    if after is None:
        raise unordered()
    if taken.__dlpack_device__()[0] == _abi.DLPACK_CUDA_MANAGED:
        synchronize(after, taken.__dlpack_device__()[1])  # from here on the CPU may look
        return taken.copy() if copy else taken
    if after != _streams.COMPLETE:
        taken._ready(*after)
    return taken._copy(*after) if copy else taken
