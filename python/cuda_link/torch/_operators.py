# SPDX-License-Identifier: MIT
"""The operators: registered with torch where it can be told that they have effects (2.10), else plain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from . import _channel, _linear

OPERATORS: bool = hasattr(getattr(getattr(torch, "library", None), "CustomOpDef", None), "register_effect")
"""Are `send`, `receive` and `linear` operators (`torch.ops.cuda_link`) that torch.compile takes?"""


def _refuse_grad(*tensors: torch.Tensor | None) -> None:
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors):
        raise RuntimeError(
            "linear has no gradient and a tensor requires one: pass tensor.detach(), or call it under "
            "torch.no_grad(); torch.nn.functional.linear has a gradient"
        )


def _keep_out_of_graphs(operator: str) -> None:
    """torch 2.11 does not see the tag cudagraph_unsafe of an operator with effects; it splits its CUDA
    graphs at those that are named here. To have fewer parts it then moves what it has split off to the
    front or the back, past the order of effects: receives came before the sends they wait for. Said when
    a graph is compiled, since only then the compiler is loaded."""
    import torch._inductor.config as config

    named: list[str] | None = getattr(config, "custom_should_partition_ops", None)
    if named is not None and operator not in named:
        config.custom_should_partition_ops = [*named, operator]
    if hasattr(config.triton, "reorder_for_reducing_graph_partitions"):
        config.triton.reorder_for_reducing_graph_partitions = False


def _register(name: str, schema: str, run: Any, fake: Any, effect: bool) -> Any:
    """An operator with a fake implementation. One with an effect is not left out, doubled or moved past
    another one, and is not captured in a CUDA graph, whose replay would not run it."""
    tags = (torch.Tag.cudagraph_unsafe,) if effect else ()
    operator = torch.library.custom_op(f"cuda_link::{name}", run, mutates_args=(), schema=schema, tags=tags)

    def run_fake(*arguments: Any, **named: Any) -> Any:
        if effect:
            _keep_out_of_graphs(f"cuda_link::{name}")
        return fake(*arguments, **named)

    operator.register_fake(run_fake)
    if effect:
        from torch._library.effects import EffectType

        operator.register_effect(EffectType.ORDERED)
    return operator


_send: Any = _channel.send
_receive: Any = _channel.receive
_linear_operator: Any = _linear.linear
if OPERATORS:
    _send = _register(
        "send",
        "(Tensor data, str channel, float? timeout=0.0) -> ()",
        _channel.send_in_graph,
        lambda data, channel, timeout=0.0: None,
        effect=True,
    )
    _receive = _register(
        "receive",
        "(str channel, SymInt[] shape, ScalarType dtype, Device device, float? timeout=None) -> Tensor",
        _channel.receive,
        _channel.receive_fake,
        effect=True,
    )
    _linear_operator = _register(
        "linear",
        "(Tensor x, Tensor weight, Tensor? bias=None) -> Tensor",
        _linear.linear,
        _linear.linear_fake,
        effect=False,
    )


def send(data: torch.Tensor, channel: str, timeout: float | None = 0.0) -> None:
    """Publishes a tensor as the next frame of an attached exporter, with one copy, on torch's current
    stream; in a compiled graph, too.

    channel: the name of an exporter that `attach` was given. timeout: seconds to wait for a free slot, 0 =
    none, None = no limit. A frame for which nothing was free in time is dropped and counted
    (`exporter.statistics().dropped`).

    Errors: LookupError (no such exporter), those of `exporter.send`.
    """
    if data.requires_grad:
        raise BufferError("a tensor that requires grad can't be lent or sent; use tensor.detach()")
    run = _send if OPERATORS and torch.compiler.is_compiling() else _channel.send
    run(data, channel, timeout)


def receive(
    channel: str,
    shape: Sequence[int],
    dtype: torch.dtype,
    device: torch.device | str = "cpu",
    timeout: float | None = None,
) -> torch.Tensor:
    """The next frame of an attached importer, copied into a new tensor; in a compiled graph, too.

    channel: the name of an importer that `attach` was given. shape, dtype: what the frame has to be, since a
    graph is compiled for them. device: where the new tensor is. timeout: seconds to wait for a frame, 0 =
    none, None = no limit.

    Errors: LookupError (no such importer), ValueError (a frame of another shape or type, which is given
    back), those of `importer.acquire`.
    """
    tensor: torch.Tensor = _receive(channel, list(shape), dtype, torch.device(device), timeout)
    return tensor


def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """x @ weight.T + bias, as torch.nn.functional.linear, in float32 and with no gradient; in a compiled
    graph, too. Always a new, contiguous tensor; computed by the BLAS that torch itself uses.

    x: (..., k), weight: (n, k), bias: (n,) or None, all float32 on one device.

    Errors: TypeError (another type), ValueError (shapes, devices), RuntimeError (a tensor requires grad while
    gradients are on; the sentence says what to do).
    """
    _refuse_grad(x, weight, bias)
    result: torch.Tensor = _linear_operator(x, weight, bias)
    return result
