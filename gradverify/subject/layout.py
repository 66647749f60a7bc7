"""The same numbers in another memory layout. The gaps that a layout leaves in memory hold numbers
that are not the tensor's."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from gradverify.model.case import Layout, TensorRecipe, dimension_complaint, is_cut
from gradverify.subject.failure import refuse
from gradverify.torch_private import is_transformed

# ---- The same numbers in another memory layout
# In floating gaps, so that code which reads them computes something else; integer gaps hold 0, an
# index that always exists
GAP = 1
LAID = (None, "contiguous", "expanded")  # what `laid` leaves as it lies


def settled(recipe: TensorRecipe, layout: Layout | None) -> TensorRecipe:
    """The recipe with the layout that is meant for every input, if it names none itself and can
    have it."""
    if (
        recipe.layout is not None
        or layout is None
        or recipe.shape is None
        or recipe.sparse is not None
        or recipe.nested is not None
    ):
        return recipe
    kind = str(recipe.arguments) if recipe.draw == "kind" else None
    repeats = layout == "expanded" and (
        recipe.distinct is not None
        or recipe.draw == "linspace"
        or is_cut(kind, recipe.symmetric, recipe.shape)
    )
    if dimension_complaint(layout, recipe.shape) or repeats:
        return recipe
    return replace(recipe, layout=layout)


def layout_of(tensor: Tensor, wanted: Layout | None, others: Layout | None, place: str) -> Layout:
    """The layout of an input: as its own recipe says (UserCodeError that names its place,
    `inputs.x`, where it cannot have that), else as is meant for all that can."""
    layout = wanted or others or "contiguous"
    complaint = dimension_complaint(layout, tuple(tensor.shape))
    if layout == "expanded" and tensor.dim() and not bool((tensor == tensor[:1]).all()):
        complaint = (
            "an expanded tensor repeats one slice along its first dimension, and the slices given "
            "differ"
        )
    if complaint and wanted:
        refuse(f"{place}.layout: {complaint}")
    return "contiguous" if complaint else layout


def laid(tensor: Tensor, layout: str | None) -> Tensor:
    """The tensor itself where it lies so already (None: as it lies), else a copy that does;
    differentiable, and no view.

    `expanded` is not made here (a Jacobian is measured on separate elements, see `expanded`).
    Inside a transform of torch.func the layout is the transform's own matter.
    """
    if layout in LAID or is_transformed(tensor):
        return tensor
    place = _place(tensor, layout)
    if tensor.stride() == place.stride() and tensor.storage_offset() == place.storage_offset():
        return tensor
    return place.copy_(tensor)


def expanded(tensor: Tensor) -> Tensor:
    """One slice repeated along the first dimension with stride 0, detached."""
    return tensor.detach()[:1].clone().expand(tensor.shape)


def _place(like: Tensor, layout: str) -> Tensor:
    """Room for a tensor of this shape, filled with what is not its own. `.data` makes it no view:
    autograd sees a tensor, as from a user."""
    shape = like.shape
    if layout == "transposed":
        return _blank(like, (*shape[:-2], shape[-1], shape[-2])).mT.data
    if layout == "strided":
        return _blank(like, (*shape, 2)).select(-1, 0).data
    if layout == "offset":
        return _blank(like, (like.numel() + 1,))[1:].view(shape).data
    channels = CHANNELS_LAST[like.dim()]
    return torch.empty(shape, dtype=like.dtype, device=like.device, memory_format=channels)


def _blank(like: Tensor, shape: tuple[int, ...]) -> Tensor:
    gap = GAP if like.is_floating_point() or like.is_complex() else 0
    return torch.full(shape, gap, dtype=like.dtype, device=like.device)


# ---- The same numbers laid out differently in memory, for rules that vary the layout of a call
# (what a spec asks for is `layout`)
SIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}
CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def sliced(x: Tensor) -> Tensor:
    """x as every second column of wider rows, from the second one on: no two dimensions can be seen
    as one."""
    x = x.detach()
    if not x.numel():
        return x.clone()
    rows = x.reshape(*x.shape[:-1], -1)
    others = reversed_along(rows, tuple(range(rows.dim())))
    wide = torch.stack([others, rows], -1).flatten(-2)
    wide = torch.cat([wide, others[..., :1]], -1)
    return wide[..., 1::2] if x.dim() else wide[1]


def reversed_along(x: Tensor, dims: tuple[int, ...]) -> Tensor:
    """`x.flip`, for unsigned integers too, which torch reverses only as signed ones of their
    size."""
    signed = SIGNED.get(x.dtype)
    return x.flip(dims) if signed is None else x.view(signed).flip(dims).view(x.dtype)


def permuted(x: Tensor) -> Tensor:
    """x with its dimensions in another order in memory: channels last where there are four or five,
    else reversed."""
    x = x.detach()
    if x.dim() in CHANNELS_LAST:
        return x.contiguous(memory_format=CHANNELS_LAST[x.dim()])
    order = tuple(reversed(range(x.dim())))
    return x.permute(order).contiguous().permute(order)


def constant(x: Tensor, value: float) -> Tensor:
    """A tensor like x that is `value` throughout, with all strides 0, in a storage as large as x
    whose other numbers differ."""
    storage = torch.linspace(-1.0, -0.5, max(x.numel(), 1), dtype=torch.float64, device="cpu").to(x)
    storage[0] = value
    return storage.as_strided(x.shape, (0,) * x.dim())


def offset(x: Tensor) -> Tensor:
    """x, contiguous, behind as many numbers as it has."""
    x = x.detach()
    if not x.dim():
        return sliced(x)
    return torch.cat([reversed_along(x, tuple(range(x.dim()))), x])[len(x) :]


def conjugated(x: Tensor) -> Tensor:
    """x, complex, stored as its conjugate with the conjugate bit set."""
    return x.detach().conj().resolve_conj().conj()


def with_surroundings(x: Tensor) -> Tensor:
    """A copy with the same strides in a storage of its own that has the same surroundings (of a
    contiguous slice up to as many numbers before it as it has); without history."""
    x = x.detach()
    if x.layout != torch.strided or x.is_conj() or x.is_neg():
        return x.clone()
    if x.is_contiguous():
        if before := min(int(x.storage_offset()), x.numel()):
            wide = x.as_strided((before + x.numel(),), (1,), x.storage_offset() - before)
            return wide.clone()[before:].view(x.shape)
        return x.clone()
    storage = torch.empty(0, dtype=x.dtype, device=x.device).set_(x.untyped_storage().clone())  # type: ignore[no-untyped-call]
    return storage.as_strided(x.shape, x.stride(), x.storage_offset())


def relaid(x: Tensor) -> Tensor:
    """A differentiable copy, no view, with the same strides."""
    if x.layout != torch.strided or x.is_contiguous():
        return x.clone()
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device).copy_(x)
