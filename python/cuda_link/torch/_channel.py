# SPDX-License-Identifier: MIT
"""What the operators `send` and `receive` do."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ._ends import exporter_of, importer_of
from ._exchange import to_torch


def send(data: torch.Tensor, channel: str, timeout: float | None = 0.0) -> None:
    """Publishes a tensor as the next frame, with one copy, on torch's current stream. A frame for which
    nothing was free in time is dropped and counted (`exporter.statistics().dropped`)."""
    exporter_of(channel).send(data, timeout=timeout)


def send_in_graph(data: torch.Tensor, channel: str, timeout: float | None = 0.0) -> None:
    """The same in a compiled graph, which refuses tensors of its CUDA graphs that somebody keeps: torch's
    allocator is told that the copy still reads, instead. It knows that only of memory of its own."""
    exporter = exporter_of(channel)
    plan = exporter._planner.plan(data, None)
    if plan.device:
        data.record_stream(torch.cuda.current_stream(data.device))
        plan = plan._replace(device=tuple(part._replace(owner=None) for part in plan.device))
    exporter._send(plan, None, timeout)


def receive(
    channel: str,
    shape: Sequence[int],
    dtype: torch.dtype,
    device: torch.device,
    timeout: float | None = None,
) -> torch.Tensor:
    """The next frame, copied into a new tensor. Its type and shape have to be those that were named,
    because a compiled graph was made for them."""
    with importer_of(channel).acquire(timeout) as frame:
        wanted = (str(dtype).rpartition(".")[2], tuple(shape))
        if (frame.dtype, frame.shape) != wanted:
            raise ValueError(
                f"channel {channel!r}: frame {frame.sequence} is {frame.dtype} {frame.shape}, and "
                f"{wanted[0]} {wanted[1]} was asked for"
            )
        fresh = torch.empty(shape, dtype=dtype, device=device)
        return fresh.copy_(to_torch(frame))


def receive_fake(
    channel: str,
    shape: Sequence[int],
    dtype: torch.dtype,
    device: torch.device,
    timeout: float | None = None,
) -> torch.Tensor:
    """What `receive` gives, without data."""
    return torch.empty(shape, dtype=dtype, device=device)
