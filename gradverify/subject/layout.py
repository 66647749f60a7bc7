"""The same numbers in another memory layout. The gaps that a layout leaves in memory hold numbers that are not the tensor's."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from gradverify.model.case import Layout, TensorRecipe, dimension_complaint, is_cut
from gradverify.subject.failure import UserCodeError
from gradverify.subject.find import CODE
from gradverify.torch_private import is_transformed

GAP = 1  # in floating gaps, so that code which reads them computes something else; integer gaps hold 0, an index that always exists
LAID = (None, "contiguous", "expanded")     # what `laid` leaves as it lies


def settled(recipe: TensorRecipe, layout: Layout | None) -> TensorRecipe:
    """The recipe with the layout that is meant for every input, if it names none itself and can have it."""
    if recipe.layout is not None or layout is None or recipe.shape is None or recipe.sparse is not None or recipe.nested is not None:
        return recipe
    kind = str(recipe.arguments) if recipe.draw == "kind" else None
    repeats = layout == "expanded" and (recipe.distinct is not None or recipe.draw == "linspace" or is_cut(kind, recipe.symmetric, recipe.shape))
    return recipe if dimension_complaint(layout, recipe.shape) or repeats else replace(recipe, layout=layout)


def layout_of(tensor: Tensor, wanted: Layout | None, others: Layout | None, place: str) -> Layout:
    """The layout of an input: as its own recipe says (UserCodeError that names its place, `inputs.x`, where it cannot have that), else as
    is meant for all that can."""
    complaint = _complaint(tensor, wanted or others or "contiguous")
    if complaint and wanted:
        raise UserCodeError(CODE, f"{place}.layout: {complaint}")
    return "contiguous" if complaint else wanted or others or "contiguous"


def _complaint(tensor: Tensor, layout: Layout) -> str | None:
    if layout == "expanded" and tensor.dim() and not bool((tensor == tensor[:1]).all()):
        return "an expanded tensor repeats one slice along its first dimension, and the slices given differ"
    return dimension_complaint(layout, tuple(tensor.shape))


def laid(tensor: Tensor, layout: str | None) -> Tensor:
    """The tensor itself where it lies so already (None: as it lies), else a copy that does; differentiable, and no view.

    `expanded` is not made here (a Jacobian is measured on separate elements, see `expanded`). Inside a transform of torch.func the layout
    is the transform's own matter.
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
    """Room for a tensor of this shape, filled with what is not its own. `.data` makes it no view: autograd sees a tensor, as from a user."""
    shape = like.shape
    if layout == "transposed":
        return _blank(like, (*shape[:-2], shape[-1], shape[-2])).mT.data
    if layout == "strided":
        return _blank(like, (*shape, 2)).select(-1, 0).data
    if layout == "offset":
        return _blank(like, (like.numel() + 1,))[1:].view(shape).data
    channels = torch.channels_last if like.dim() == 4 else torch.channels_last_3d
    return torch.empty(shape, dtype=like.dtype, device=like.device, memory_format=channels)


def _blank(like: Tensor, shape: tuple[int, ...]) -> Tensor:
    gap = GAP if like.is_floating_point() or like.is_complex() else 0
    return torch.full(shape, gap, dtype=like.dtype, device=like.device)
