"""Whether a tensor's structure can be had: a kind in this shape and dtype, elements so far apart, a memory layout of so many dimensions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

from gradverify.model.case import Json, core, dimension_complaint, is_cut
from gradverify.model.dtypes import COMPLEX
from gradverify.spec.fault import Fault, Path
from gradverify.spec.numbers import INTEGER_RANGES, shape_of
from gradverify.spec.schema_inputs import Tensor

WHOLE = ("permutation", "one_hot", "mask")  # kinds whose numbers integers can hold
SLACK = 1e-9  # of a distance: what the rounding of two written numbers may take from it


def structure_faults(tensor: Tensor, draw: str, dtype: str, path: Path) -> Iterator[Fault]:
    """What is wrong with `kind`, `distinct` and `layout`."""
    if draw == "kind":
        yield from _kind_faults(tensor, dtype, path)
    if tensor.distinct is not None:
        yield from _distinct_faults(tensor, draw, dtype, (*path, "distinct"))
    shape = known_shape(tensor, draw)
    if "layout" in tensor.model_fields_set and shape is not None:
        complaint = layout_complaint(tensor, draw, tensor.layout, shape)
        if complaint:
            yield Fault((*path, "layout"), complaint)


def known_shape(tensor: Tensor, draw: str) -> tuple[int, ...] | None:
    """None where only a file's content could tell."""
    if draw == "values":
        return shape_of(tensor.values)
    return None if tensor.shape is None else tuple(tensor.shape)


# ---- kinds
def _kind_faults(tensor: Tensor, dtype: str, path: Path) -> Iterator[Fault]:
    kind, shape = tensor.kind, tensor.shape
    if dtype in INTEGER_RANGES and kind not in WHOLE:
        yield Fault((*path, "kind"), f"the numbers of `{kind}` are no {dtype}: leave out `dtype`, or say a floating one")
    elif kind == "simplex" and dtype in COMPLEX:
        yield Fault((*path, "kind"), f"a simplex is a set of real numbers, and the tensor is {dtype}")
    if shape is None:
        return
    least = core(kind, False)
    if len(shape) < least and kind != "mask":
        yield Fault((*path, "kind"), f"`{kind}` needs at least {least} dimension{'s' * (least > 1)}, and the shape is {list(shape)}")
    elif kind == "spd" and shape[-1] != shape[-2]:
        yield Fault((*path, "kind"), f"a positive definite matrix is square, and the shape is {list(shape)}")
    elif kind == "permutation" and dtype in INTEGER_RANGES and shape[-1] > INTEGER_RANGES[dtype][1]:
        yield Fault((*path, "kind"), f"the numbers 0 to {shape[-1] - 1} do not fit into {dtype}")


# ---- distinct
def _distinct_faults(tensor: Tensor, draw: str, dtype: str, place: Path) -> Iterator[Fault]:
    apart, count = tensor.distinct, math.prod(tensor.shape or ())
    complaint = None
    if draw in ("kind", "fill"):
        complaint = f"`{draw}` gives equal numbers, or numbers that belong together: remove `distinct`"
    elif tensor.symmetric:
        complaint = "a symmetric matrix holds its elements twice: remove `distinct`"
    elif draw == "integers" and "avoid" in tensor.model_fields_set:
        complaint = "`avoid` and `distinct` together are for `normal` and `uniform`: choose the integers another way"
    elif dtype == "bool":
        complaint = "booleans are not that far apart: remove `distinct`"
    elif draw in ("uniform", "integers"):
        complaint = _room_complaint(tensor, draw, count, apart)
    elif draw in ("values", "choice", "linspace"):
        complaint = _written_complaint(_written(tensor, draw), draw, count, apart)
    if complaint:
        yield Fault(place, complaint)


def _room_complaint(tensor: Tensor, draw: str, count: int, apart: float) -> str | None:
    low, high = tensor.uniform if draw == "uniform" else (tensor.integers[0], tensor.integers[1] - 1)
    step = apart if draw == "uniform" else math.ceil(apart)
    if (count - 1) * step <= (high - low) * (1 + SLACK):
        return None
    return f"{count} numbers {apart:g} apart do not fit between {low:g} and {high:g}"


def _written(tensor: Tensor, draw: str) -> list[float]:
    """The numbers that stand in the spec, those that are real."""
    if draw == "linspace":
        (a, b), count = tensor.linspace, math.prod(tensor.shape or ())
        return [a + (b - a) * n / max(count - 1, 1) for n in range(count)]
    return list(_leaves(tensor.choice if draw == "choice" else tensor.values))


def _leaves(value: Json) -> Iterator[float]:
    if isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    elif isinstance(value, (int, float)):
        yield float(value)


def _written_complaint(numbers: Sequence[float], draw: str, count: int, apart: float) -> str | None:
    if draw == "choice" and count > len(numbers):
        return f"{count} distinct elements cannot be chosen from {len(numbers)} numbers"
    near = next(((a, b) for a, b in pairwise(sorted(numbers)) if b - a < apart * (1 - SLACK)), None)
    return f"`{draw}` holds {near[0]:g} and {near[1]:g}, which are nearer than {apart:g}" if near else None


# ---- layouts
def layout_complaint(tensor: Tensor, draw: str, layout: str, shape: tuple[int, ...]) -> str | None:
    """Why a tensor of this shape cannot lie so in memory, or None."""
    return dimension_complaint(layout, shape) or (_repeat_complaint(tensor, draw, shape) if layout == "expanded" else None)


def _repeat_complaint(tensor: Tensor, draw: str, shape: tuple[int, ...]) -> str | None:
    """Why its slices along the first dimension cannot be one slice repeated."""
    if shape[0] <= 1:
        return None
    if tensor.distinct is not None:
        return "an expanded tensor repeats one slice, so its elements are not `distinct`"
    if draw == "linspace" or (draw == "values" and any(item != tensor.values[0] for item in tensor.values)):
        return f"an expanded tensor repeats one slice along its first dimension, and the slices of `{draw}` differ"
    if is_cut(tensor.kind, tensor.symmetric, shape):
        what = f"`{tensor.kind}`" if tensor.kind is not None else "a symmetric matrix"
        return f"an expanded tensor repeats one slice along its first dimension, which would cut {what}: give the shape a dimension before"
    return None
