"""Kinds of tensors whose elements cannot be moved and compared one by one: told in a sentence where they enter, as inputs, parameters or outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.masked import MaskedTensor
from torch.nn.parameter import is_lazy

from gradverify.numerics.function.coordinates import DTYPES
from gradverify.subject.failure import UserCodeError, type_name
from gradverify.torch_private import MKLDNN, FakeTensor

LAYOUTS = {
    torch.sparse_coo: "a sparse COO tensor", torch.sparse_csr: "a sparse CSR tensor", torch.sparse_csc: "a sparse CSC tensor",
    torch.sparse_bsr: "a sparse BSR tensor", torch.sparse_bsc: "a sparse BSC tensor",
    MKLDNN: "an MKLDNN tensor"}
PLAIN = (*DTYPES.values(), torch.uint16, torch.uint32, torch.uint64)
DENSE = "make it dense: `.to_dense()`"
_OWN = Tensor.__torch_dispatch__


def odd_kind(tensor: Tensor) -> tuple[str, str] | None:
    """What kind of tensor it is ("a sparse COO tensor") and what to do instead; None for a dense one of numbers. Parameters, buffers and other
    subclasses that keep their numbers in the usual way are such."""
    return of_type(tensor) or _of_layout(tensor) or _of_dtype(tensor)


def of_type(tensor: Tensor) -> tuple[str, str] | None:
    """What is odd about its class, whatever its layout and dtype. (A sparse gradient is in order, a nested one is not.)"""
    if isinstance(tensor, MaskedTensor):
        return "a masked tensor", "use the plain numbers and the mask: `.get_data()`, `.get_mask()`"
    if isinstance(tensor, FakeTensor):
        return "a fake tensor, which has a shape and no numbers", "leave the fake mode (FakeTensorMode) before"
    if tensor.is_nested:
        return "a nested tensor, of several shapes at once", "use its components (`.unbind()`), or pad them (`.to_padded_tensor(0.0)`)"
    if type(tensor).__torch_dispatch__ is not _OWN:
        return f"a {type_name(tensor)}, a tensor subclass that computes in its own way (__torch_dispatch__)", "use the plain tensor inside it"
    return None


def _of_layout(tensor: Tensor) -> tuple[str, str] | None:
    if tensor.layout != torch.strided:
        return LAYOUTS.get(tensor.layout, f"a {tensor.layout} tensor"), DENSE
    if tensor.is_meta:
        return "a meta tensor, which has a shape and no numbers", "make it on the CPU or a GPU"
    if tensor.is_quantized:
        return "a quantized tensor", "use `.dequantize()`"
    if any(name is not None for name in getattr(tensor, "names", ())):      # torch before 2.13
        return "a tensor with named dimensions", "take the names off: `.rename(None)`"
    return None


def _of_dtype(tensor: Tensor) -> tuple[str, str] | None:
    if tensor.dtype in PLAIN:
        return None
    wider = "complex64" if tensor.dtype.is_complex else "float32" if tensor.dtype.is_floating_point else "int64"
    return f"a {str(tensor.dtype).removeprefix('torch.')} tensor", f"use {wider} or wider, and cast inside what takes it narrow"


def is_plain(tensor: Tensor) -> bool:
    """Can its numbers be read, copied and compared?"""
    return odd_kind(tensor) is None


def admitted(value: Any, said: str) -> Any:
    """The input itself. Raises UserCodeError (GV001) for a tensor whose elements cannot be moved; `said` is how its sentence begins: "x is"."""
    found = odd_kind(value) if isinstance(value, Tensor) and not is_lazy(value) else None
    if found is None:
        return value
    raise UserCodeError("GV001", f"{said} {found[0]}, whose elements cannot be moved one by one",
                        hint=f"let it be a dense tensor of numbers, and make the other kind of it inside the function; or {found[1]}")


def comparable(output: Any) -> bool:
    """Is it a tensor whose elements are floating or complex numbers to be compared?"""
    return isinstance(output, Tensor) and odd_kind(output) is None and (output.is_floating_point() or output.is_complex())


def admit_outputs(outputs: Sequence[Any], names: Sequence[str], wanted: Sequence[int] | None = None) -> None:
    """Raises UserCodeError (GV008) where the first output to be compared is of another kind: one that has a graph, or that the spec names, or any
    where no plain one has a graph."""
    odd = {place: found for place, y in enumerate(outputs) if isinstance(y, Tensor) and (found := odd_kind(y)) is not None}
    some = any(comparable(y) and y.requires_grad for y in outputs)
    asked = [place for place in odd if (wanted is None or place in wanted) and (outputs[place].requires_grad or not some)]
    if asked:
        name, (kind, remedy) = names[asked[0]] if asked[0] < len(names) else f"y{asked[0]}", odd[asked[0]]
        raise UserCodeError("GV008", f"{name} is {kind}, whose elements cannot be compared", hint=f"in a function around it, {remedy}")
