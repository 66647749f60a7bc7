"""Whether a tensor's keys make sense together: what no single key can know."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path as FilePath

from gradverify.model.case import own_dtype
from gradverify.model.dtypes import COMPLEX
from gradverify.model.paths import is_file
from gradverify.spec.fault import Fault, Path, shown
from gradverify.spec.form_sense import form_faults
from gradverify.spec.names import missing
from gradverify.spec.numbers import INTEGER_RANGES, number_faults, scalar_complaint, shape_of
from gradverify.spec.schema_inputs import DRAWS, GIVEN, Tensor
from gradverify.spec.structure_sense import structure_faults

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
