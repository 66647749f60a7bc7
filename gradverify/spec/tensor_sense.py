"""Whether a tensor's keys make sense together: what no single key can know."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path as FilePath

from gradverify.model.case import Json, core, dimension_complaint, is_cut, own_dtype
from gradverify.model.dtypes import COMPLEX, TABLE
from gradverify.model.paths import is_file
from gradverify.spec.fault import Fault, Path, shown
from gradverify.spec.names import missing
from gradverify.spec.schema import COMPLEX_NUMBER, DRAWS, GIVEN, Sparse, Tensor
from gradverify.spec.wording import number_hint

INTEGER_RANGES: Mapping[str, tuple[int, int]] = {name: held.integers for name, held in TABLE.items() if held.integers}
"""dtype → the integers it holds, high excluded."""


def shape_of(value: Json) -> tuple[int, ...]:
    """The shape that the first elements suggest."""
    if not isinstance(value, list):
        return ()
    return (len(value), *(shape_of(value[0]) if value else ()))


def number_faults(value: Json, path: Path, dtype: str) -> Iterator[Fault]:
    """What keeps nested numbers from being a tensor of `dtype`."""
    yield from _faults(value, path, dtype, shape_of(value))


def _faults(value: Json, path: Path, dtype: str, shape: tuple[int, ...]) -> Iterator[Fault]:
    if not shape:
        complaint = f"expected a number, got {shown(value)}: the rows are ragged" if isinstance(value, list) else scalar_complaint(value, dtype)
        if complaint:
            yield Fault(path, complaint)
    elif not isinstance(value, list):
        yield Fault(path, f"expected a list of {shape[0]}, got {shown(value)}: the rows are ragged")
    elif len(value) != shape[0]:
        yield Fault(path, f"expected a row of {shape[0]} like the first, got {len(value)}: the rows are ragged")
    else:
        for index, item in enumerate(value):
            yield from _faults(item, (*path, index), dtype, shape[1:])


def scalar_complaint(value: Json, dtype: str) -> str | None:
    """Why a value cannot be an element of a tensor of `dtype`, or None."""
    if isinstance(value, bool):
        return None if dtype == "bool" else f"expected a number, got {shown(value)}; booleans need `dtype: bool`"
    if isinstance(value, str):
        return _text_complaint(value, dtype)
    if not isinstance(value, (int, float)):
        return f"expected a number, got {shown(value)}"
    if dtype in INTEGER_RANGES:
        low, high = INTEGER_RANGES[dtype]
        return None if value == value and low <= value < high and int(value) == value else f"{shown(value)} is no {dtype}"
    return None


def _text_complaint(value: str, dtype: str) -> str | None:
    if not COMPLEX_NUMBER.fullmatch(value):
        hint = number_hint(value, finite=False)
        return f"expected a number, got {shown(value)}" + (f"; {hint}" if hint else "")
    return None if dtype in COMPLEX else f"the complex number {value} needs `dtype: complex128`, the dtype here is {dtype}"


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


BLOCKED = ("bsr", "bsc")
LARGEST = 1 << 24       # elements of the dense shape, which the numbers are kept in


def form_faults(tensor: Tensor, draw: str, path: Path) -> Iterator[Fault]:
    """What is wrong with `sparse` and `nested`."""
    form = "sparse" if tensor.sparse is not None else "nested" if tensor.nested is not None else None
    if form is None:
        return
    others = [key for key in ("nested", "layout") if key in tensor.model_fields_set and key != form] + ["symmetric"] * _is_symmetric(tensor)
    for key in others:
        if key in tensor.model_fields_set:
            yield Fault((*path, key), f"a {form} tensor has no `{key}`: remove one of the two", key=True)
    if draw == "make" or (draw == "kind" and _is_symmetric(tensor)):
        yield Fault((*path, form), f"`{form}` and `{tensor.kind or draw}` do not go together", key=True)
    shape = known_shape(tensor, draw)
    if tensor.sparse is not None:
        yield from _sparse_faults(tensor.sparse, draw, shape, (*path, "sparse"))
        if tensor.domain is not None and not tensor.sparse.masked and not tensor.domain[0] <= 0 <= tensor.domain[1]:
            yield Fault((*path, "domain"), "under `masked: false` the tensor holds zeros, which lie outside this domain")
    elif shape is not None:
        yield from _nested_faults(tensor.nested.lengths, shape, (*path, "nested", "lengths"))


def _is_symmetric(tensor: Tensor) -> bool:
    return tensor.symmetric or tensor.kind == "spd"


def _sparse_faults(sparse: Sparse, draw: str, shape: tuple[int, ...] | None, path: Path) -> Iterator[Fault]:
    if draw in GIVEN and sparse.density is not None:
        yield Fault((*path, "density"), f"`{draw}` gives the elements, those that are not 0: remove `density`", key=True)
    if sparse.layout in BLOCKED and sparse.blocksize is None:
        yield Fault(path, f"the key 'blocksize' is missing: `{sparse.layout}` holds blocks")
    elif sparse.layout not in BLOCKED and sparse.blocksize is not None:
        yield Fault((*path, "blocksize"), f"`{sparse.layout}` holds no blocks: remove `blocksize`", key=True)
    if shape is None:
        return
    if sparse.layout == "coo" and not shape:
        yield Fault((*path, "layout"), "a sparse tensor has at least one dimension, and the shape is []")
    elif sparse.layout != "coo" and len(shape) != 2:
        yield Fault((*path, "layout"), f"a `{sparse.layout}` tensor has two dimensions, and the shape is {list(shape)}")
    elif sparse.layout in BLOCKED and sparse.blocksize is not None and any(n % b for n, b in zip(shape, sparse.blocksize, strict=True)):
        yield Fault((*path, "blocksize"), f"blocks of {sparse.blocksize} do not divide the shape {list(shape)}")
    if math.prod(shape) > LARGEST:
        yield Fault(path, f"its shape {list(shape)} has more than {LARGEST:,} elements, which are kept as a dense tensor")


def _nested_faults(lengths: list[int], shape: tuple[int, ...], path: Path) -> Iterator[Fault]:
    if len(shape) < 2:
        yield Fault(path, f"a nested tensor needs rows, so at least two dimensions, and the shape is {list(shape)}")
    elif sum(lengths) != shape[0]:
        yield Fault(path, f"the lengths add up to {sum(lengths)}, and the shape {list(shape)} has {shape[0]} rows")


FILE_KINDS = (".npy", ".npz", ".pt")
REDRAWN = ("normal", "uniform", "integers", "choice")
INTEGER_DRAWS = ("integers", "fill", "values", "file", "choice", "kind", "make")


def draw_of(tensor: Tensor) -> str:
    """The key that says how it is drawn; `normal` where none does."""
    return next((name for name in DRAWS if name in tensor.model_fields_set), "normal")


def dtype_of(tensor: Tensor, check: str) -> str:
    """Its dtype in a check of dtype `check`."""
    return tensor.dtype or own_dtype(draw_of(tensor), tensor.kind, check)


def tensor_faults(tensor: Tensor, path: Path, check_dtype: str, folder: FilePath) -> Iterator[Fault]:
    """Everything that is wrong with one tensor beyond its keys' own types."""
    named = [name for name in DRAWS if name in tensor.model_fields_set]
    for other in named[1:]:
        yield Fault((*path, other), f"`{named[0]}` and `{other}` both say how it is drawn: keep one", key=True)
    if len(named) > 1:
        return
    draw, dtype = draw_of(tensor), dtype_of(tensor, check_dtype)
    yield from _shape_faults(tensor, draw, path)
    yield from _dtype_faults(tensor, draw, dtype, path)
    yield from _number_faults(tensor, draw, dtype, path)
    yield from _avoid_faults(tensor, draw, path)
    yield from _structure_faults(tensor, dtype, path)
    yield from structure_faults(tensor, draw, dtype, path)
    yield from form_faults(tensor, draw, path)
    if draw == "file":
        yield from _file_faults(tensor.file, (*path, "file"), folder)


def _shape_faults(tensor: Tensor, draw: str, path: Path) -> Iterator[Fault]:
    if draw not in GIVEN and tensor.shape is None:
        yield Fault(path, f"the key 'shape' is missing: `{draw}` numbers need one")
    elif draw == "file" and tensor.shape is not None:
        yield Fault((*path, "shape"), "`file` brings its own shape: remove `shape`", key=True)
    elif draw == "values" and tensor.shape is not None and tuple(tensor.shape) != shape_of(tensor.values):
        yield Fault((*path, "shape"), f"`values` has the shape {list(shape_of(tensor.values))}, `shape` says {tensor.shape}: remove `shape`")
    elif draw == "linspace" and tensor.shape is not None and len(tensor.shape) != 1:
        yield Fault((*path, "shape"), f"`linspace` has one dimension, `shape` says {tensor.shape}")


def _structure_faults(tensor: Tensor, dtype: str, path: Path) -> Iterator[Fault]:
    """`domain` and `symmetric`."""
    if tensor.domain is not None:
        low, high = tensor.domain
        if not low < high:      # NaN included
            yield Fault((*path, "domain"), f"expected [low, high] with low < high, got {shown(tensor.domain)}")
        elif dtype in COMPLEX:
            yield Fault((*path, "domain"), f"a `domain` is an interval of real numbers, and the tensor is {dtype}")
    shape = tensor.shape if tensor.shape is not None else shape_of(tensor.values) if draw_of(tensor) == "values" else None
    if tensor.symmetric and shape is not None and (len(shape) < 2 or shape[-1] != shape[-2]):
        yield Fault((*path, "symmetric"), f"a symmetric matrix is square, and the shape is {list(shape)}")


def _dtype_faults(tensor: Tensor, draw: str, dtype: str, path: Path) -> Iterator[Fault]:
    if dtype not in INTEGER_RANGES:
        return
    if tensor.requires_grad:
        advice = "say a floating `dtype`, or remove `requires_grad`"
        yield Fault((*path, "requires_grad"), f"a tensor of dtype {dtype} cannot require gradients: {advice}")
    if draw not in INTEGER_DRAWS:
        key = "dtype" if tensor.dtype else draw
        yield Fault((*path, key), f"`{draw}` does not draw {dtype}; use `integers`, `fill` or `values`")


def _number_faults(tensor: Tensor, draw: str, dtype: str, path: Path) -> Iterator[Fault]:
    place = (*path, draw)
    if draw == "values":
        yield from number_faults(tensor.values, place, dtype)
    elif draw == "fill":
        complaint = scalar_complaint(tensor.fill, dtype)
        if complaint:
            yield Fault(place, complaint)
    elif draw == "choice":
        for index, number in enumerate(tensor.choice):
            complaint = scalar_complaint(number, dtype)
            if complaint:
                yield Fault((*place, index), complaint)
    elif draw == "normal" and tensor.normal[1] < 0:
        yield Fault((*place, 1), f"a standard deviation must be at least 0, got {shown(tensor.normal[1])}")
    elif draw == "uniform" and tensor.uniform[0] > tensor.uniform[1]:
        yield Fault(place, f"low {shown(tensor.uniform[0])} is above high {shown(tensor.uniform[1])}")
    elif draw == "integers":
        yield from _integer_faults(tensor.integers, place, dtype)


def _integer_faults(bounds: list[int], place: Path, dtype: str) -> Iterator[Fault]:
    low, high = bounds
    if low >= high:
        yield Fault(place, f"no integer lies from {low} to {high}: high is excluded")
    elif dtype in INTEGER_RANGES and not (INTEGER_RANGES[dtype][0] <= low and high <= INTEGER_RANGES[dtype][1]):
        yield Fault(place, f"{low} to {high} does not fit into {dtype}")


def _avoid_faults(tensor: Tensor, draw: str, path: Path) -> Iterator[Fault]:
    said = tensor.model_fields_set
    if "avoid" not in said:
        if "margin" in said and tensor.margin != Tensor.model_fields["margin"].default:
            yield Fault((*path, "margin"), "`margin` acts only together with `avoid`", key=True)
    elif draw not in REDRAWN:
        yield Fault((*path, "avoid"), f"`{draw}` gives the numbers, nothing can be redrawn: remove `avoid`", key=True)
    elif _is_empty(tensor, draw):
        yield Fault((*path, "avoid"), f"every number that `{draw}` can draw is nearer than {tensor.margin:g} to an avoided one")


def avoided(tensor: Tensor) -> tuple[float, ...]:
    """The numbers to keep away from, one or many written."""
    if tensor.avoid is None:
        return ()
    return tuple(tensor.avoid) if isinstance(tensor.avoid, list) else (float(tensor.avoid),)


def _is_empty(tensor: Tensor, draw: str) -> bool:
    """Whether `avoid` leaves nothing to draw."""
    if draw == "integers":
        first, end = tensor.integers
        few = end - first <= 2 * len(avoided(tensor)) * (tensor.margin + 1)  # more than the neighbourhoods can hold need no look
        return few and all(_near(x, tensor) for x in range(first, end))
    if draw == "choice":
        return all(_near(x, tensor) for x in tensor.choice)
    if draw == "normal":
        return tensor.normal[1] == 0 and _near(tensor.normal[0], tensor)
    low, high = tensor.uniform if draw == "uniform" else (0.0, 0.0)
    return draw == "uniform" and low <= high and _covered(low, high, tensor)


def _near(x: float, tensor: Tensor) -> bool:
    return any(abs(x - centre) < tensor.margin for centre in avoided(tensor))


def _covered(low: float, high: float, tensor: Tensor) -> bool:
    """Whether the forbidden neighbourhoods cover [low, high]: its ends and no gap between two of them."""
    centres = sorted(avoided(tensor))
    gaps = [(a, b) for a, b in pairwise(centres) if b - a >= 2 * tensor.margin and a + tensor.margin <= high and b - tensor.margin >= low]
    return _near(low, tensor) and _near(high, tensor) and not gaps


def _file_faults(text: str, place: Path, folder: FilePath) -> Iterator[Fault]:
    name, key = split_key(text)
    suffix = FilePath(name).suffix
    if suffix not in FILE_KINDS:
        yield Fault(place, f"unknown kind of file {suffix!r}; allowed: .npy, .npz#key, .pt")
    elif suffix == ".npz" and not key:
        yield Fault(place, f"which array of the .npz? write {name}#key")
    elif not is_file(folder / name):
        yield Fault(place, missing(name, folder))


def split_key(text: str) -> tuple[str, str]:
    """`data.npz#key` → (`data.npz`, `key`); other files have no key, a `#` belongs to their name."""
    name, mark, key = text.rpartition("#")
    return (name, key) if mark and name.endswith(".npz") else (text, "")
