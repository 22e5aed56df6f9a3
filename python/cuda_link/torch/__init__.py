# SPDX-License-Identifier: MIT
"""cuda-link for torch: tensors in and out without a copy, and operators for torch.compile.

    import cuda_link.torch as ct

    array = ct.from_torch(tensor)      # the same memory, as an object that needs no framework
    tensor = ct.to_torch(frame)        # the same memory, as a tensor

`torch_mempool` makes a memory pool whose tensors `send` publishes with no copy.

Nothing else of the package imports torch. With torch 2.10 and later, `send`, `receive` and `linear` are
operators with fake implementations, which torch.compile(fullgraph=True) takes; `OPERATORS` says whether
they are. Before 2.10 (which can't be told that an operator has an effect, and would leave out a `send`
whose result nobody uses) they are plain functions, at which a graph breaks.
"""

from ._ends import attach
from ._exchange import from_torch, to_torch
from ._operators import OPERATORS, linear, receive, send
from ._pool import torch_mempool

__all__ = ["OPERATORS", "attach", "from_torch", "linear", "receive", "send", "to_torch", "torch_mempool"]
