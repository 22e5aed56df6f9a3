# SPDX-License-Identifier: MIT
"""A memory pool of torch whose blocks are made by cuda-link: what lies in one is sent without a copy."""

from __future__ import annotations

from typing import Any

import torch

from .._backend import low
from .._errors import UnsupportedError

# What torch calls for as long as there is memory of it: kept for good.
_allocator: Any = None


def _the_allocator() -> Any:
    global _allocator
    if _allocator is None:
        _allocator = torch.cuda.memory.CUDAPluggableAllocator(
            low.library_path(), "cudalink_pool_alloc", "cudalink_pool_free"
        )
    return _allocator.allocator()


def torch_mempool() -> Any:
    """A new torch.cuda.MemPool. Tensors that are made inside of
    `with torch.cuda.use_mem_pool(pool)` lie in blocks that other processes can map, and
    `exporter.send(tensor)` of a dense one publishes it where it lies.

    The exporter keeps such a tensor until its slot is needed for another frame and nobody reads it any
    more; until then nobody may write to it. Everything else in its block can be read by the channel's
    consumers.

    Errors: UnsupportedError (torch before 2.5, or without CUDA).
    """
    if not hasattr(torch.cuda, "MemPool") or not torch.cuda.is_available():
        raise UnsupportedError(
            f"torch {torch.__version__} has no memory pools here: that takes torch 2.5 and a GPU"
        )
    return torch.cuda.MemPool(_the_allocator())
