# SPDX-License-Identifier: MIT
"""Arrays that can't be lent or sent as they are: something that belongs to them would be lost.

torch names none of the ways out, and lets a tensor with the neg bit pass although its memory then has the
wrong sign; NumPy exports a masked array without its mask, and Pillow a picture without its palette."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

# Flags and methods of torch.Tensor; libraries that imitate it have them too.
_FLAGS = (
    ("requires_grad", "a tensor that requires grad", "tensor.detach()"),
    ("is_sparse", "a sparse tensor", "tensor.to_dense()"),
    ("is_quantized", "a quantized tensor", "tensor.dequantize(), or tensor.int_repr() and its scale"),
    ("is_meta", "a tensor on the meta device has no data: it", "a tensor of a real device"),
)
_BITS = (("is_conj", "conj", "resolve_conj"), ("is_neg", "neg", "resolve_neg"))


def torch_of(array: Any) -> Any:
    """The module torch, when this is one of its tensors; else None. Imports nothing."""
    torch = sys.modules.get("torch")
    return torch if torch is not None and isinstance(array, getattr(torch, "Tensor", ())) else None


def _refuse(what: str, way_out: str) -> None:
    raise BufferError(f"{what} can't be lent or sent; use {way_out}")


def refuse_oddities(array: Any) -> None:
    """BufferError, with what to send instead."""
    for flag, what, way_out in _FLAGS:
        if getattr(array, flag, False) is True:
            _refuse(what, way_out)
    for method, bit, way_out in _BITS:
        ask = getattr(array, method, None)
        if callable(ask) and ask():
            _refuse(f"a tensor with the {bit} bit", f"tensor.{way_out}()")
    _refuse_mask(array)
    _refuse_palette(array)
    _refuse_layout(array)


def _refuse_mask(array: Any) -> None:
    """NumPy's masked arrays, and others that imitate them (astropy). Without a mask, too: the next one of the
    same program has one."""
    numpy = sys.modules.get("numpy")
    if numpy is None or type(array) is numpy.ndarray or not isinstance(array, numpy.ndarray):
        return
    if hasattr(type(array), "mask"):  # of the type: a record may have a field of that name
        _refuse("a masked array would lose its mask: it", "array.filled(value), or array.data and its mask")


def _refuse_palette(array: Any) -> None:
    if getattr(array, "mode", None) in ("P", "PA") and hasattr(array, "getpalette"):
        _refuse(
            "a picture with a palette would lose it: it",
            'image.convert("RGB"), or numpy.asarray(image), which is the numbers alone',
        )


def _refuse_layout(array: Any) -> None:
    """Layouts that have no flag: compressed rows, blocks, oneDNN's, nested tensors."""
    torch = torch_of(array)
    if torch is None:
        return
    if type(array).__name__ == "MaskedTensor":
        _refuse("a masked tensor would lose its mask: it", "tensor.to_tensor(value)")
    if array.is_nested:
        _refuse("a nested tensor", "its parts (tensor.unbind()), or tensor.to_padded_tensor(0)")
    if array.layout is not torch.strided:
        _refuse(f"a tensor of the layout {array.layout}", "tensor.to_dense()")


def detached(data: Any) -> Any:
    """For who said detach=True: a tensor that requires grad, or those of a dict, without their history."""
    if isinstance(data, Mapping):
        return {name: detached(array) for name, array in data.items()}
    return data.detach() if getattr(data, "requires_grad", False) is True else data


def bool_as_bytes(array: Any) -> Any:
    """A torch tensor of bool as one of uint8 over the same memory, else None. Old torch exports no bool."""
    torch = torch_of(array)
    if torch is None or array.dtype is not torch.bool:
        return None
    return array.view(torch.uint8)
