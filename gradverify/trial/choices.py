"""Values for one argument, as a spec writes them: tensors by their recipe, plain values as they are."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from gradverify.model.case import InputRecipe, Json, TensorRecipe
from gradverify.trial.wanted import GOAL, Kind, Wanted, kinds

# ---- Shapes for tensors: of the first one, and of others beside it, by what they are called and
# by the sizes they could share
Shape = tuple[int, ...]

BASES: tuple[Shape, ...] = ((2, 3), (2, 3, 4), (2, 4, 5, 6), (3,), (2, 4, 4), (4, 4), (2, 8), (1, 4, 8, 8), (2, 6), (6,), (2, 2, 4, 4, 4), (1,), ())
"""Of the first tensor, in the order in which they are tried: sizes that differ first, so that no two dimensions can be mixed up; then equal
ones, and those that can be halved. Small, so that every element of the Jacobian is compared."""
OUT, FILTERS = 4, 3     # sizes that the first bases do not have there: rows of a weight, output channels of a convolution

WEIGHT = re.compile(r"^(w\d?|weights?|kernels?|filters?|mat2|wt?|.*_weight|codebook|prototypes|table)$")
BIAS = re.compile(r"^(b\d?|bias|.*_bias)$")
PER_FEATURE = re.compile(r"^(gamma|beta|running_mean|running_var|mean|var|invstd|inv_std|rstd|std|scale|shift|loc|slope|g)$")
ROTARY = re.compile(r"^(cos|sin|.*_(cos|sin)|(cos|sin)_.*|freqs.*|rotary.*)$")
SCALAR = re.compile(r"^(alpha|temperature|temp|tau|t|lam|lambda_?|eps|step_size|threshold|logit_scale|curvature|c|clip.*|factor|n|k)$")
KEY = re.compile(r"^(k|v|key|value|keys|values|memory|context)$")


def beside(name: str, first: Shape) -> list[Shape]:
    """Shapes of a tensor called so beside a first one, the likeliest first."""
    if WEIGHT.match(name):
        return _unique([*_weights(first), first])
    if BIAS.match(name):
        return _unique([*((FILTERS,) if len(first) > 3 else (OUT,), *_features(first), first)])
    if ROTARY.match(name):
        return _unique([*_rotary(first), first])
    if SCALAR.match(name):
        return _unique([(), (1,), *_features(first), first])
    if PER_FEATURE.match(name):
        return _unique([*_features(first), first, (1,), ()])
    return _unique([first, *_features(first)])


def _weights(first: Shape) -> Iterator[Shape]:
    if not first:
        return
    if len(first) >= 4:
        yield (FILTERS, first[1], *(3 for _ in first[2:]))
        yield (first[1],)
        yield (first[1], 1, *(3 for _ in first[2:]))
    yield OUT, first[-1]
    yield (first[-1],)
    yield first[-1], OUT
    if len(first) >= 3:
        yield FILTERS, first[1], 3
        yield (first[1],)
        yield first[0], first[-1], OUT


def _features(first: Shape) -> Iterator[Shape]:
    if first:
        yield (first[-1],)
    if len(first) > 1:
        yield (first[1],)
        yield (1,) * (len(first) - 1) + first[-1:]
        yield (1, first[1]) + (1,) * (len(first) - 2)
    if len(first) > 2:
        yield first[-2:]


def _rotary(first: Shape) -> Iterator[Shape]:
    half = first[-1] // 2 if first and first[-1] % 2 == 0 else None
    for length in ([first[-2]] if len(first) > 1 else []) + ([first[1]] if len(first) > 3 else []):
        yield length, first[-1]
        if half:
            yield length, half
    for rank in range(3, len(first) + 1):
        yield (1,) * (rank - 2) + first[-2:]
    if half:
        yield (*first[:-1], half)


def indices(first: Shape, one_each: bool = False) -> list[Shape]:
    """Shapes of a tensor of indices beside the tensor that they are of: one for each row, one for each element, a few; `one_each` of classes, of
    which a place has one: its dimension then has the size 1 rather than that of the classes."""
    column = [(*first[:1], 1, *first[2:])] if one_each and len(first) > 1 else []
    found: list[Shape] = [first[:1], *column, first, first[:-1], (5,), (*first[:1], 1), first[:1] + first[2:]]
    return _unique([shape for shape in found if shape] + [(2, 5), ()])


def related(shapes: Sequence[Shape]) -> list[Shape]:
    """Shapes that share sizes with others, then the usual ones."""
    found: list[Shape] = []
    for shape in shapes:
        found += [shape, *_features(shape), *_weights(shape), shape[:1], shape[:-1], shape[1:]]
        found += [(*shape, OUT), (*shape, 2), (*shape, 1), (OUT, *shape)]
        found += [(*shape[:place], size, *shape[place + 1:]) for place in range(len(shape)) for size in (1, 2, 3, OUT) if size != shape[place]]
        found += [(*shape[:-2], shape[-1], shape[-2]), (*shape[:-2], shape[-1], OUT), (*shape[:-2], shape[-2], shape[-2])] if len(shape) > 1 else []
    for one in shapes:
        for other in shapes:
            found += [(*one[:-1], *other[-1:]), (*one[-1:], *other[-1:]), one[:1] + other[:1]]
    return _unique([*found, *BASES])


def _unique(shapes: Sequence[Shape] | Iterator[Shape]) -> list[Shape]:
    return list(dict.fromkeys(shapes))


# ---- Values for one argument, as a spec writes them: tensors by their recipe, plain values as
# they are
Assignment = Mapping[str, InputRecipe]
"""Argument → what it is given; an argument that is not in it keeps its default."""

SMALLEST = 2        # of a range of indices: 0 and 1 are in every dimension that is not 1
POSITIVE = re.compile(
    r"^(p|probs?|probabilit.*|var|variance|sigma|std|rstd|inv_?std|scale|running_var|.*_(var|std|probs?|scale)|temperature|tau|softplus)$")
TRIANGULAR, DEFINITE = re.compile(r"(^|_)(chol\w*|tril|lower)(_|$)"), re.compile(r"(^|_)(covar\w*|cov|precision|gram|spd|psd|hessian)(_|$)")
WORDS = {"reduction": ("mean", "sum", "none"), "reduce": ("sum", "mean", "amax"), "mode": ("bilinear", "nearest"),
         "padding_mode": ("zeros", "border"), "approximate": ("none", "tanh"), "activation": ("relu", "gelu"), "act": ("relu", "silu")}
NUMBERS = {"eps": 1e-5, "epsilon": 1e-5, "tol": 1e-6, "p": 0.5, "prob": 0.5, "dropout": 0.5, "dropout_p": 0.5, "momentum": 0.9, "slope": 0.1,
           "negative_slope": 0.01, "min": -0.5, "max": 0.5, "low": -0.5, "high": 0.5, "lower": -0.5, "upper": 0.5}
PLAIN_NUMBERS, COUNTS = (0.5, 1.0, 2.0), (2, 1, 3, 4, 0, -1)
SIZES = {"dim": (-1, 1, 0), "axis": (-1, 1, 0), "stride": (1, 2), "padding": (0, 1), "pad": (1, 0), "dilation": (1, 2), "groups": (1, 2),
         "num_groups": (2, 1), "kernel_size": (3, 2), "num_heads": (2, 1), "heads": (2, 1), "n_heads": (2, 1), "world_size": (1,)}
PLACES = ("dim", "axis")     # of a constructor they are sizes
BUILT = (4, 3, 8, 2, 5, 6)      # sizes that modules are built with: those that the first bases have
LISTS: tuple[tuple[int, ...], ...] = ((2, 2), (1, 1), (3, 3), (2,), (1,), (3,), (0, 0), (4,), (2, 3), (4, 4), (6, 6), (2, 2, 2))


def tensor(shape: Shape, **said: Any) -> TensorRecipe:
    return TensorRecipe(tuple(shape), symmetric=said.get("arguments") == "spd", **said)


def first_choices(wanted: Wanted, first: Shape, is_first: bool) -> list[InputRecipe]:
    """The likeliest values of an argument, where the first tensor has this shape."""
    found: list[InputRecipe] = []
    if wanted.init and kinds(wanted)[0] == "int" and wanted.name not in set(SIZES) - set(PLACES):
        return [InputRecipe(wanted.name, value=size) for size in dict.fromkeys([*first[-1:], *first[1:2], *BUILT[:2]])]
    for kind in kinds(wanted)[: 1 if is_first else 2]:
        shapes = [first] if is_first and kind == "tensor" else _shapes(wanted, kind, first)
        found += list(_of_kind(wanted, kind, shapes, [first]))[: 3 if kind != "float" else 1]
    return found


def all_choices(wanted: Wanted, others: Sequence[Shape], own: Shape | None) -> Iterator[InputRecipe]:
    """Everything that an argument may be, where the other tensors have these shapes and it has the shape `own` now."""
    shapes = related([*others, *([] if own is None else [own])])
    fitting = [shape for shape in shapes if fits(wanted, shape)] or shapes
    if own is not None and "tensor" in kinds(wanted):
        yield from (InputRecipe(wanted.name, each) for each in _other_numbers(own))
    yield from _in_turn([list(_of_kind(wanted, kind, fitting, others or [own or (2, 3)])) for kind in kinds(wanted)])


def _other_numbers(shape: Shape) -> Iterator[TensorRecipe]:
    """Of the same shape: between 0 and 1, above 1, rows that add up to 1, complex, positive definite."""
    yield tensor(shape, draw="uniform", arguments=[0.1, 0.9])
    yield tensor(shape, draw="uniform", arguments=[1.1, 2.0])
    if shape:
        yield tensor(shape, draw="kind", arguments="simplex")
    yield tensor(shape, dtype="complex128")
    if len(shape) > 1 and shape[-1] == shape[-2]:
        yield tensor(shape, draw="kind", arguments="spd")


def _in_turn(kinds: Sequence[Sequence[InputRecipe]]) -> Iterator[InputRecipe]:
    """The first of each, the second of each, …; of the first kind two at a time."""
    rest = [iter(each) for each in kinds]
    while rest:
        for place, each in enumerate(list(rest)):
            given = list(islice(each, 2 if place == 0 else 1))
            yield from given
            if not given:
                rest.remove(each)


def fits(wanted: Wanted, shape: Shape) -> bool:
    """Has it the dimensions that the code asks for?"""
    clues = wanted.clues
    return len(shape) >= clues.least and (not clues.ranks or len(shape) in clues.ranks)


def _shapes(wanted: Wanted, kind: Kind, first: Shape) -> list[Shape]:
    found = indices(first, GOAL.search(wanted.name) is not None) if kind == "index" else beside(wanted.name, first)
    return [shape for shape in found if fits(wanted, shape)] or found


def _of_kind(wanted: Wanted, kind: Kind, shapes: Sequence[Shape], others: Sequence[Shape]) -> Iterator[InputRecipe]:
    if kind == "tensor":
        yield from (InputRecipe(wanted.name, tensor(shape, **_numbers(wanted.name, shape))) for shape in shapes)
    elif kind == "index":
        yield from (InputRecipe(wanted.name, tensor(shape, draw="integers", arguments=[0, high])) for shape in shapes for high in _ranges(others))
    elif kind == "mask":
        yield from (InputRecipe(wanted.name, tensor(shape, draw="kind", arguments="mask")) for shape in shapes)
    elif kind == "tensors":
        yield from (InputRecipe(wanted.name, tensors=(tensor(shape),) * count) for shape in shapes for count in (2, 3, 1))
    else:
        yield from (InputRecipe(wanted.name, value=value) for value in values(wanted, kind))


def _numbers(name: str, shape: Shape) -> dict[str, Any]:
    """How a tensor of this name is drawn: a factor is triangular, a covariance positive definite, a scale above 0."""
    square = len(shape) > 1 and shape[-1] == shape[-2]
    if square and TRIANGULAR.search(name):
        return {"draw": "kind", "arguments": "lower_triangular"}
    if square and DEFINITE.search(name):
        return {"draw": "kind", "arguments": "spd"}
    return {"draw": "uniform", "arguments": [0.5, 1.5]} if POSITIVE.match(name) else {}


def _ranges(others: Sequence[Shape]) -> list[int]:
    """What indices may go up to: the size of what they are likely to be of, the smallest size there is."""
    sizes = [size for shape in others[:1] for size in (shape[-1:] + shape[1:2] + shape[:1])]
    every = [size for shape in others for size in shape if size >= SMALLEST]
    return list(dict.fromkeys([*(size for size in sizes if size >= SMALLEST), min(every, default=SMALLEST)]))


def values(wanted: Wanted, kind: Kind) -> Sequence[Json]:
    """Plain values of an argument."""
    name, clues = wanted.name.lower(), wanted.clues
    if kind == "none":
        return [None]
    if kind == "bool":
        return [True, False] if name in ("training", "train") else [False, True]
    if kind == "word":
        said = re.findall(r"Literal\[(.*)\]", wanted.annotation)
        literal = re.findall(r"'([^']*)'", said[0]) if said else []
        return [*dict.fromkeys([*literal, *clues.words, *WORDS.get(name, ())])] or ["mean", "sum", "none"]
    if kind == "ints":
        return [list(each) for each in LISTS]
    if kind == "float":
        return list(dict.fromkeys([NUMBERS.get(name, PLAIN_NUMBERS[0]), *PLAIN_NUMBERS]))
    if kind == "int":
        return [*([] if wanted.init and name in PLACES else SIZES.get(name, ())), *(BUILT if wanted.init else COUNTS)]
    return []


def default_value(wanted: Wanted) -> tuple[bool, Json]:
    """Can a spec say the default, and what it says."""
    return _plain(wanted.default)


def _plain(value: Any) -> tuple[bool, Json]:
    if value is None or isinstance(value, (bool, str)) or (type(value) in (int, float) and math.isfinite(value)):
        return True, value
    if isinstance(value, (list, tuple)) and all(_plain(item)[0] for item in value):
        return True, [_plain(item)[1] for item in value]
    return False, None


def shape_of(recipe: InputRecipe) -> Shape | None:
    """Of a tensor, or of the first of a list; None of a plain value."""
    return next((each.shape for each in recipe.recipes if each.shape is not None), None)


def reshaped(recipe: InputRecipe, shape: Shape) -> InputRecipe:
    """The same draw in another shape."""
    if recipe.tensor is not None:
        return replace(recipe, tensor=replace(recipe.tensor, shape=shape))
    return replace(recipe, tensors=tuple(replace(each, shape=shape) for each in recipe.tensors))
