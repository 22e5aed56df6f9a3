# SPDX-License-Identifier: MIT
"""y = x @ weight.T + bias in float32, by torch's own BLAS."""

from __future__ import annotations

from math import prod

import torch


def _check(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
    given = {"x": x, "weight": weight} if bias is None else {"x": x, "weight": weight, "bias": bias}
    for name, tensor in given.items():
        if tensor.dtype != torch.float32:
            raise TypeError(f"linear: {name} is {tensor.dtype}; it takes float32: {name}.float()")
        if tensor.device != x.device:
            raise ValueError(f"linear: {name} is on {tensor.device} and x on {x.device}: move one of them")
    if weight.dim() != 2 or x.dim() < 1 or x.shape[-1] != weight.shape[1]:
        raise ValueError(
            f"linear: x is (..., k) and weight (n, k); not {tuple(x.shape)} and {tuple(weight.shape)}"
        )
    if bias is not None and tuple(bias.shape) != (weight.shape[0],):
        raise ValueError(f"linear: bias is (n,) = ({weight.shape[0]},); not {tuple(bias.shape)}")


def _fresh(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x.new_empty((*x.shape[:-1], weight.shape[0]))


def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """x (..., k) times weight (n, k) transposed, plus bias (n,); always a new, contiguous tensor."""
    _check(x, weight, bias)
    rows = prod(x.shape[:-1])
    result = _fresh(x, weight)
    flat, target = x.reshape(rows, x.shape[-1]), result.view(rows, weight.shape[0])
    if bias is None:
        torch.mm(flat, weight.t(), out=target)
    else:
        torch.addmm(bias, flat, weight.t(), out=target)
    return result


def linear_fake(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """What `linear` gives, without data."""
    _check(x, weight, bias)
    return _fresh(x, weight)
