"""Memory layouts of tensors. The gaps of a layout in memory hold numbers that are not the
tensor's."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from gradverify.model.case import Layout, TensorRecipe, dimension_complaint, is_cut
from gradverify.subject.failure import refuse
from gradverify.torch_private import is_transformed

# ---- Layouts of a spec
# Value of gaps in floating tensors, so that code that reads them computes something else; gaps in
# integer tensors hold 0, an index that always exists
GAP = 1
LAID = (None, "contiguous", "expanded")  # layouts that `laid` leaves unchanged


def settled(recipe: TensorRecipe, layout: Layout | None) -> TensorRecipe:
    """Return the recipe with the layout for all inputs, if it names none itself and can have that
    layout."""
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
    """Return the layout of an input: `wanted`, of its own recipe, or `others`, for all inputs that
    can have it. Raises UserCodeError that names its place, `inputs.x`, if it cannot have the
    layout of its own recipe."""
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
    """Return a tensor in a layout (None: its own): itself if it has the layout, else a copy, made
    differentiably, that is no view.

    `expanded` is not made here (a Jacobian is measured on separate elements, see `expanded`).
    Inside a transform of torch.func the tensor is returned unchanged.
    """
    if layout in LAID or is_transformed(tensor):
        return tensor
    place = _place(tensor, layout)
    if tensor.stride() == place.stride() and tensor.storage_offset() == place.storage_offset():
        return tensor
    return place.copy_(tensor)


def expanded(tensor: Tensor) -> Tensor:
    """Return the first slice repeated along the first dimension with stride 0, detached."""
    return tensor.detach()[:1].clone().expand(tensor.shape)


def _place(like: Tensor, layout: str) -> Tensor:
    """Return memory for a tensor of this shape in a layout, gaps filled. By `.data` it is no view
    for autograd, but a tensor as a user would pass it."""
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


# ---- Layouts for rules that vary the layout of a call (unlike `layout` in a spec)
SIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}
CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def sliced(x: Tensor) -> Tensor:
    """Return x as every second column of wider rows, from the second one on: no two dimensions can
    be merged."""
    x = x.detach()
    if not x.numel():
        return x.clone()
    rows = x.reshape(*x.shape[:-1], -1)
    others = reversed_along(rows, tuple(range(rows.dim())))
    wide = torch.stack([others, rows], -1).flatten(-2)
    wide = torch.cat([wide, others[..., :1]], -1)
    return wide[..., 1::2] if x.dim() else wide[1]


def reversed_along(x: Tensor, dims: tuple[int, ...]) -> Tensor:
    """Return `x.flip(dims)`, also for unsigned integers, which torch flips only as signed ones of
    their size."""
    signed = SIGNED.get(x.dtype)
    return x.flip(dims) if signed is None else x.view(signed).flip(dims).view(x.dtype)


def permuted(x: Tensor) -> Tensor:
    """Return x with its dimensions in another order in memory: channels last for four or five
    dimensions, else reversed."""
    x = x.detach()
    if x.dim() in CHANNELS_LAST:
        return x.contiguous(memory_format=CHANNELS_LAST[x.dim()])
    order = tuple(reversed(range(x.dim())))
    return x.permute(order).contiguous().permute(order)


def constant(x: Tensor, value: float) -> Tensor:
    """Return a tensor like x that is `value` throughout, with all strides 0, in a storage as large
    as x whose other numbers differ."""
    storage = torch.linspace(-1.0, -0.5, max(x.numel(), 1), dtype=torch.float64, device="cpu").to(x)
    storage[0] = value
    return storage.as_strided(x.shape, (0,) * x.dim())


def offset(x: Tensor) -> Tensor:
    """Return x, contiguous, at a storage offset of as many numbers as it has."""
    x = x.detach()
    if not x.dim():
        return sliced(x)
    return torch.cat([reversed_along(x, tuple(range(x.dim()))), x])[len(x) :]


def conjugated(x: Tensor) -> Tensor:
    """Return a complex x stored as its conjugate with the conjugate bit set."""
    return x.detach().conj().resolve_conj().conj()


def with_surroundings(x: Tensor) -> Tensor:
    """Return a copy with the same strides, without history, in a storage of its own that also has
    the surrounding numbers (for a contiguous slice up to as many before it as it has)."""
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
    """Return a differentiable copy, no view, with the same strides."""
    if x.layout != torch.strided or x.is_contiguous():
        return x.clone()
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device).copy_(x)
