"""Sparse and jagged tensors as the dense ones that are perturbed and compared: what the function
gets is made of these in every call.

The numbers of a sparse input are a dense tensor of its whole shape, so that an element has its
dense index everywhere. The function gets what the pattern takes out of it; torch's own constructors
carry the gradient back, sparse or dense, to the elements that are specified.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from torch.masked import MaskedTensor
from torch.nn.parameter import is_lazy

from gradverify.model.case import Layout, Sparse
from gradverify.numerics.function.coordinates import DTYPES
from gradverify.subject.failure import UserCodeError, refuse, type_name
from gradverify.torch_private import MKLDNN, FakeTensor, has_holes

# ---- Kinds of tensors whose elements cannot be moved and compared one by one: told in a sentence
# where they enter, as inputs, parameters or outputs
PLAIN = (*DTYPES.values(), torch.uint16, torch.uint32, torch.uint64)
DENSE = "make it dense: `.to_dense()`"
_OWN = Tensor.__torch_dispatch__


def odd_kind(tensor: Tensor) -> tuple[str, str] | None:
    """What kind of tensor it is ("a sparse COO tensor") and what to do instead; None for a dense
    one of numbers. Parameters, buffers and other subclasses that keep their numbers in the usual
    way are such."""
    found = of_type(tensor)
    if found is not None:
        return found
    if tensor.layout != torch.strided:
        return {**NAMES, MKLDNN: "an MKLDNN tensor"}.get(
            tensor.layout, f"a {tensor.layout} tensor"
        ), DENSE
    if tensor.is_meta:
        return "a meta tensor, which has a shape and no numbers", "make it on the CPU or a GPU"
    if tensor.is_quantized:
        return "a quantized tensor", "use `.dequantize()`"
    if any(name is not None for name in getattr(tensor, "names", ())):  # torch before 2.13
        return "a tensor with named dimensions", "take the names off: `.rename(None)`"
    if tensor.dtype in PLAIN:
        return None
    wider = (
        "complex64"
        if tensor.dtype.is_complex
        else "float32"
        if tensor.dtype.is_floating_point
        else "int64"
    )
    return (
        f"a {dtype_name(tensor)} tensor",
        f"use {wider} or wider, and cast inside what takes it narrow",
    )


def dtype_name(of: Tensor | torch.dtype) -> str:
    """As a spec writes it."""
    return str(getattr(of, "dtype", of)).removeprefix("torch.")


def of_type(tensor: Tensor) -> tuple[str, str] | None:
    """What is odd about its class, whatever its layout and dtype. (A sparse gradient is in order, a
    nested one is not.)"""
    if isinstance(tensor, MaskedTensor):
        return "a masked tensor", "use the plain numbers and the mask: `.get_data()`, `.get_mask()`"
    if isinstance(tensor, FakeTensor):
        return (
            "a fake tensor, which has a shape and no numbers",
            "leave the fake mode (FakeTensorMode) before",
        )
    if tensor.is_nested:
        return (
            "a nested tensor, of several shapes at once",
            "use its components (`.unbind()`), or pad them (`.to_padded_tensor(0.0)`)",
        )
    if type(tensor).__torch_dispatch__ is not _OWN:
        return (
            f"a {type_name(tensor)}, a tensor subclass that computes in its own way "
            "(__torch_dispatch__)",
            "use the plain tensor inside it",
        )
    return None


def is_plain(tensor: Tensor) -> bool:
    """Can its numbers be read, copied and compared?"""
    return odd_kind(tensor) is None


def admitted(value: Any, said: str) -> Any:
    """The input itself. Raises UserCodeError (GV001) for a tensor whose elements cannot be moved;
    `said` is how its sentence begins: "x is"."""
    found = odd_kind(value) if isinstance(value, Tensor) and not is_lazy(value) else None
    if found is not None:
        refuse(
            f"{said} {found[0]}, whose elements cannot be moved one by one",
            "let it be a dense tensor of numbers, and make the other kind of it inside the "
            f"function; or {found[1]}",
        )
    return value


def comparable(output: Any) -> bool:
    """Is it a tensor whose elements are floating or complex numbers to be compared?"""
    return (
        isinstance(output, Tensor)
        and odd_kind(output) is None
        and (output.is_floating_point() or output.is_complex())
    )


def admit_outputs(
    outputs: Sequence[Any], name_of: Callable[[int], str], wanted: Sequence[int] | None = None
) -> None:
    """Raises UserCodeError (GV008) where the first output to be compared is of another kind: one
    that has a graph, or that the spec names, or any where no plain one has a graph."""
    odd = {
        place: found
        for place, y in enumerate(outputs)
        if isinstance(y, Tensor) and (found := odd_kind(y)) is not None
    }
    some = any(comparable(y) and y.requires_grad for y in outputs)
    asked = [
        place
        for place in odd
        if (wanted is None or place in wanted) and (outputs[place].requires_grad or not some)
    ]
    if asked:
        kind, remedy = odd[asked[0]]
        raise UserCodeError(
            "GV008",
            f"{name_of(asked[0])} is {kind}, whose elements cannot be compared",
            hint=f"in a function around it, {remedy}",
        )


# ---- Sparse and jagged tensors as the dense ones that are perturbed and compared: what the
# function gets is made of these in every call
SPARSE: Mapping[str, torch.layout] = MappingProxyType(
    {
        "coo": torch.sparse_coo,
        "csr": torch.sparse_csr,
        "csc": torch.sparse_csc,
        "bsr": torch.sparse_bsr,
        "bsc": torch.sparse_bsc,
    }
)
NAMES = MappingProxyType(
    {layout: f"a sparse {name.upper()} tensor" for name, layout in SPARSE.items()}
)
# Layouts that compress rows; the others compress columns
ROWS = (torch.sparse_csr, torch.sparse_bsr)
BLOCKED = (torch.sparse_bsr, torch.sparse_bsc)
JAGGED = "a jagged nested tensor"
DENSITY = 0.5
# Elements of the dense shape: 128 MiB in float64, of which several copies are held
LARGEST = 1 << 24


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """What the function gets in the place of a dense tensor: `kind` in words ("a sparse CSR
    tensor"), and `built` to make it, differentiably.

    `specified`: the elements that it has, of those of the dense shape (None: all); `masked`:
    gradients elsewhere do not count.
    `lengths`: of a jagged one that a spec describes.
    """

    kind: str
    built: Callable[[Tensor], Tensor]
    specified: Tensor | None = None
    masked: bool = True
    lengths: tuple[int, ...] | None = None

    @property
    def layout(self) -> str:
        """As in a spec: `csr`."""
        return next(
            (name for name, layout in SPARSE.items() if NAMES[layout] == self.kind), "jagged"
        )


# ---- sparse
def sparse_form(
    mask: Tensor,
    layout: torch.layout,
    blocksize: tuple[int, int] | None = None,
    dense_dims: int = 0,
    masked: bool = True,
) -> Form:
    """Of the elements where the mask is true (`masked` false: of all, as
    `torch.sparse.as_sparse_gradcheck` has it)."""
    mask = mask if masked else torch.ones_like(mask)
    # 0 where nothing is
    places = torch.arange(1, mask.numel() + 1, device=mask.device).reshape(mask.shape) * mask
    make: Callable[..., Tensor]
    if layout is torch.sparse_coo:
        held = places.to_sparse(mask.dim() - dense_dims).coalesce()
        make = partial(torch.sparse_coo_tensor, held.indices(), is_coalesced=True)
    else:
        held = places.to_sparse(layout=layout, blocksize=blocksize, dense_dim=dense_dims)
        make = partial(torch.sparse_compressed_tensor, *indices_of(held), layout=layout)
    size, at = held.shape, held.values() - 1

    def built(x: Tensor) -> Tensor:
        """A clone, as the constructor keeps what it makes, and the function may write into what it
        gets."""
        return make(x.reshape(-1)[at], size=size, check_invariants=False).clone()

    return Form(NAMES[layout], built, mask, masked)


def sparse(
    recipe: Sparse, dense: Tensor, given: bool, source: torch.Generator
) -> tuple[Tensor, Form]:
    """The tensor with zeros put where the pattern of a spec holds nothing; `given`: its numbers
    are, and those that are not 0 are the pattern."""
    if given:
        mask = dense != 0
    # A share of the elements (of the blocks), at least one, in random places; equally many in each
    # matrix of a batch
    else:
        shape, (rows, columns) = tuple(dense.shape), recipe.blocksize or (1, 1)
        batches = shape[:-2] if recipe.layout != "coo" else ()
        whole = shape
        if len(shape) > 1:
            whole = (*shape[len(batches) : -2], shape[-2] // rows, shape[-1] // columns)
        count = math.prod(whole)
        share = max(1, round((recipe.density or DENSITY) * count))
        flat = torch.zeros(math.prod(batches), count, dtype=torch.bool)
        for matrix in flat:
            matrix[torch.randperm(count, generator=source)[:share]] = True
        mask = flat.reshape((*batches, *whole)).to(device=dense.device)
        if recipe.blocksize is not None:
            mask = mask.repeat_interleave(rows, -2).repeat_interleave(columns, -1)
    dense = torch.where(mask, dense, torch.zeros_like(dense))
    if given and recipe.blocksize is not None:  # a block with a number in it is held as a whole
        mask = dense.ne(0).to_sparse(layout=SPARSE[recipe.layout], blocksize=recipe.blocksize)
        mask = sparse_like(mask).to_dense() != 0
    return dense, sparse_form(mask, SPARSE[recipe.layout], recipe.blocksize, masked=recipe.masked)


def indices_of(tensor: Tensor) -> tuple[Tensor, Tensor]:
    """Of a compressed tensor, those of the dimension that is compressed and those of the other."""
    return (
        (tensor.crow_indices(), tensor.col_indices())
        if tensor.layout in ROWS
        else (tensor.ccol_indices(), tensor.row_indices())
    )


def sparse_like(tensor: Tensor) -> Tensor:
    """A tensor of the same pattern that holds ones."""
    if tensor.layout is torch.sparse_coo:
        ones = torch.ones_like(tensor.values(), dtype=torch.int8)
        return torch.sparse_coo_tensor(
            tensor.indices(), ones, tensor.shape, is_coalesced=True, check_invariants=False
        )
    ones = torch.ones_like(tensor.values(), dtype=torch.float32)
    return torch.sparse_compressed_tensor(
        *indices_of(tensor), ones, tensor.shape, layout=tensor.layout, check_invariants=False
    )


# ---- jagged
def jagged_form(offsets: Tensor, lengths: tuple[int, ...] | None = None) -> Form:
    """Of rows that lie one after the other: component i holds those from offsets[i] to offsets[i +
    1]."""
    return Form(
        JAGGED, lambda x: torch.nested.nested_tensor_from_jagged(x, offsets), lengths=lengths
    )


def nested(lengths: tuple[int, ...], rows: Tensor) -> Form:
    """Of components that have so many rows each."""
    ends = torch.tensor(lengths, dtype=torch.int64).cumsum(0)
    return jagged_form(torch.cat([ends.new_zeros(1), ends]).to(device=rows.device), lengths)


def is_jagged(tensor: Tensor) -> bool:
    """Without holes between its components, in whose place numbers would be that are none of its
    own."""
    return tensor.is_nested and tensor.layout is torch.jagged and not has_holes(tensor)


# ---- any
def is_dense(value: Any) -> bool:
    """Is it a tensor with strides, or none at all?"""
    return not isinstance(value, Tensor) or (value.layout is torch.strided and not value.is_nested)


def named(tensor: Tensor) -> str:
    """What kind of tensor it is."""
    return NAMES.get(tensor.layout, JAGGED)


def taken(tensor: Tensor, said: str) -> tuple[Tensor, Form | None]:
    """The dense tensor whose numbers count, and what the function gets in its place; any other
    tensor as it is.

    Raises UserCodeError (GV001) for one that is too large when it is dense; `said` is how its
    sentence begins: "x is".
    """
    if is_jagged(tensor):
        return tensor.detach().values(), jagged_form(tensor.offsets())  # type: ignore[attr-defined]
    if tensor.layout not in NAMES or of_type(tensor) is not None:
        return tensor, None
    if tensor.numel() > LARGEST:
        refuse(
            f"{said} {NAMES[tensor.layout]} of shape {list(tensor.shape)}, which is too large to "
            "be made dense",
            f"check it on a shape of at most {LARGEST:,} elements",
        )
    tensor, blocksize = tensor.detach(), None
    if tensor.layout is torch.sparse_coo:  # duplicate elements are added up
        tensor = tensor.coalesce()
    elif tensor.layout in BLOCKED:
        values, first = tensor.values(), indices_of(tensor)[0].dim()
        blocksize = values.shape[first], values.shape[first + 1]
    mask = sparse_like(tensor).to_dense() != 0
    return tensor.to_dense(), sparse_form(mask, tensor.layout, blocksize, tensor.dense_dim())


def compared(output: Any, masked: bool = True) -> Any:
    """What of an output is compared: the dense tensor of a sparse one, the values of a jagged one;
    all else as it is.

    `masked`: backward gets a gradient at the output's own elements only.
    """
    if is_dense(output):
        return output
    if is_jagged(output):
        return output.values()
    if output.layout not in NAMES or output.numel() > LARGEST or of_type(output) is not None:
        return output
    return output.to_dense(masked_grad=masked)


# ---- What the function of a check is called with: tensors and plain values, those inside lists,
# dicts and the like one by one
@dataclass(frozen=True, slots=True, eq=False)
class Whole:
    """An argument that was taken apart: `built` puts its elements together to what the function
    takes."""

    name: str
    built: Callable[[Sequence[Any]], Any] = list


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument at the point of the check. Tensors are detached; `parameter`: it is a module's
    parameter; `keyword`: it is passed by name.

    `domain`: where the function is defined in it; `symmetric`: it is read as a symmetric
    (Hermitian) matrix. `layout`: how it lies in memory in every call (of an expanded one `value` is
    a contiguous copy, see `expanded`), None: as `value` does. `of`: the argument, a list of tensors
    or another container, that it is an element of. `form`: the function gets another kind of tensor
    with the numbers of `value` (a sparse one, say).
    """

    name: str
    value: Any
    differentiable: bool = False
    parameter: bool = False
    domain: tuple[float, float] | None = None
    symmetric: bool = False
    layout: Layout | None = "contiguous"
    of: Whole | None = None
    keyword: bool = False
    form: Form | None = None
    invented: bool = False

    @property
    def is_tensor(self) -> bool:
        return isinstance(self.value, Tensor)

    @property
    def whole(self) -> str:
        """The name of what the function takes: itself, or what it is an element of."""
        return self.of.name if self.of else self.name


Members = tuple[Argument, ...]
"""What makes one argument of the function: itself, or its elements."""


def where_held(argument: Argument, gradient: Tensor) -> Tensor:
    """A dense gradient, with zeros where a sparse input holds nothing: what stands there does not
    count."""
    held = None if argument.form is None else argument.form.specified
    return (
        gradient
        if held is None
        else torch.where(held.to(device=gradient.device), gradient, torch.zeros_like(gradient))
    )


def specified(inputs: Sequence[Argument]) -> tuple[Tensor | None, ...]:
    """The elements that each of them has; None: every one."""
    return tuple(None if argument.form is None else argument.form.specified for argument in inputs)
