"""Tensors drawn by recipes, reproducible from (seed, check, input), with the same numbers on every
device and in every dtype."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gradverify.model.case import TensorRecipe, own_dtype
from gradverify.model.dtypes import RUN
from gradverify.numerics.function.coordinates import DTYPES as DTYPES
from gradverify.numerics.function.coordinates import SINGLE, SIXTEEN
from gradverify.numerics.seed_vectors import signed_tensor
from gradverify.numerics.seeds import number
from gradverify.subject.failure import CODE, UserCodeError, blamed, refuse, type_name
from gradverify.subject.forms import Apart, admitted, dtype_name, taken_apart
from gradverify.subject.target import callable_target

# ---- Numbers with a minimal distance from each other, and from values to avoid
SLACK = 1e-9  # share of a distance allowed for the rounding of its two numbers


def smallest_gap(tensor: Tensor) -> float:
    """Return the smallest distance of two elements; inf for fewer than two."""
    flat = tensor.reshape(-1)
    if flat.numel() < 2:
        return float("inf")
    if flat.is_complex():
        return float(torch.pdist(torch.view_as_real(flat)).min())
    ordered = flat.sort().values
    return float((ordered[1:] - ordered[:-1]).min())


def spaced(
    low: float,
    high: float,
    count: int,
    distance: float,
    zones: Sequence[tuple[float, float]],
    source: torch.Generator,
    whole: bool = False,
) -> Tensor | None:
    """Draw `count` uniform numbers of [low, high] with at least `distance` between each other, and
    outside of the zones, in random order [count]; None where they do not fit.

    Numbers are drawn from the interval shortened by all distances and zones, and sorted; then the
    distances between neighbours and the zones are put in again. The dtype is float64, or for
    `whole` numbers, the integers from `low` to below `high`, int64.
    """
    inside = [(max(a, low), min(b, high)) for a, b in zones if b > low and a < high]
    free = (high - low) - sum(b - a for a, b in inside) - max(count - 1, 0) * distance
    if free < whole:
        return None
    drawn = (
        torch.randint(int(low), int(low + free), (count,), generator=source)
        if whole
        else low + free * _uniform((count,), source)
    )
    apart = (int(distance) if whole else distance) * torch.arange(count, dtype=drawn.dtype)
    numbers = drawn.sort().values + apart
    for a, b in inside:
        numbers = torch.where(numbers > a, numbers + (b - a), numbers)
    return numbers[torch.randperm(count, generator=source)]


def pushed_apart(tensor: Tensor, distance: float, zones: Sequence[tuple[float, float]]) -> Tensor:
    """Return the numbers moved away from the median, in the same order of size, by no more than the
    distance (and the zones) requires."""
    ordered, order = tensor.reshape(-1).sort()
    numbers = ordered.tolist()
    middle = len(numbers) // 2
    mirrored = sorted((-b, -a) for a, b in zones)
    above = _climb(numbers[middle:], distance, zones)
    below = (
        _climb([-above[0], *(-x for x in reversed(numbers[:middle]))], distance, mirrored)[1:]
        if above
        else []
    )
    result = torch.empty_like(ordered)
    result[order] = torch.tensor([*(-x for x in reversed(below)), *above], dtype=ordered.dtype)
    return result.reshape(tensor.shape)


def _climb(
    numbers: Sequence[float], distance: float, zones: Sequence[tuple[float, float]]
) -> list[float]:
    """Return the ascending numbers raised so that each is at least `distance` above the one before,
    and outside of the (ascending, separate) zones."""
    result: list[float] = []
    for x in numbers:
        x = max(x, result[-1] + distance) if result else x
        for a, b in zones:
            x = b if a < x < b else x
        result.append(x)
    return result


def merged(centres: Sequence[float], margin: float) -> list[tuple[float, float]]:
    """Return the open neighbourhoods of the centres as ascending, separate intervals."""
    zones: list[tuple[float, float]] = []
    for centre in sorted(centres):
        if zones and centre - margin < zones[-1][1]:
            zones[-1] = (zones[-1][0], centre + margin)
        else:
            zones.append((centre - margin, centre + margin))
    return zones


# ---- Structured draws: matrices, rows and masks with a property, made in float64 (complex128,
# int64) from one generator
# Added to the eigenvalues of an spd matrix and to the diagonal of a triangular one: solves and
# roots stay well conditioned
LIFT = 0.5
Shape = Sequence[int]


def _uniform(shape: Shape, source: torch.Generator) -> Tensor:
    return torch.rand(tuple(shape), generator=source, dtype=torch.float64)


def _normal(shape: Shape, source: torch.Generator, dtype: torch.dtype = torch.float64) -> Tensor:
    real = torch.randn(tuple(shape), generator=source, dtype=torch.float64)
    return torch.complex(real, _normal(shape, source)) if dtype.is_complex else real


def _spd(shape: Shape, dtype: torch.dtype, source: torch.Generator) -> Tensor:
    """Draw A Aᴴ/n + I/2 with A normal: symmetric (Hermitian), with eigenvalues between 1/2 and
    about 5."""
    n = shape[-1]
    a = _normal(shape, source, dtype)
    product = a @ a.mH / max(n, 1)
    return (product + product.mH) / 2 + LIFT * torch.eye(n, dtype=dtype)


def _orthogonal(shape: Shape, dtype: torch.dtype, source: torch.Generator) -> Tensor:
    """Draw orthonormal columns, or rows where there are more columns than rows, uniformly (Haar):
    Mezzadri, Notices AMS 54 (2007)."""
    wide = shape[-1] > shape[-2]
    a = _normal(shape, source, dtype)
    q, r = torch.linalg.qr(a.mT if wide else a)
    turned: Tensor = q * torch.sgn(torch.diagonal(r, dim1=-2, dim2=-1)).unsqueeze(-2)
    return turned.mT if wide else turned


def _lower_triangular(shape: Shape, dtype: torch.dtype, source: torch.Generator) -> Tensor:
    """Draw a lower triangular matrix with a real diagonal of at least 1/2, as of a Cholesky
    factor."""
    a = _normal(shape, source, dtype).tril(-1)
    diagonal = _normal((*shape[:-2], min(shape[-2:])), source).abs() + LIFT
    a.diagonal(dim1=-2, dim2=-1).copy_(diagonal)
    return a


def _one_hot(shape: Shape, dtype: torch.dtype, source: torch.Generator) -> Tensor:
    """Draw rows with a single one each (int64)."""
    a = torch.zeros(tuple(shape), dtype=torch.int64)
    if a.numel():
        a.scatter_(-1, torch.randint(shape[-1], (*shape[:-1], 1), generator=source), 1)
    return a


KINDS: Mapping[str, Callable[[Shape, torch.dtype, torch.Generator], Tensor]] = {
    "spd": _spd,
    "orthogonal": _orthogonal,
    "lower_triangular": _lower_triangular,
    # Rows of length one
    "unit_vector": lambda shape, dtype, source: torch.nn.functional.normalize(
        _normal(shape, source, dtype), dim=-1
    ),
    # Positive rows that add up to one
    "simplex": lambda shape, dtype, source: torch.softmax(_normal(shape, source), -1),
    # Each row holds 0 … n − 1 in a random order (int64)
    "permutation": lambda shape, dtype, source: torch.argsort(_uniform(shape, source), dim=-1),
    "one_hot": _one_hot,
    # True or false with equal probability, at least one true in each row, so that a softmax over
    # the rest is finite
    "mask": lambda shape, dtype, source: (
        (_uniform(shape, source) < 0.5)
        | (_one_hot(shape, dtype, source).bool() if shape else False)
    ),
}
"""Functions that draw a tensor of each kind; the dtype (float64 or complex128) applies to kinds
that are not of whole numbers."""


# ---- Tensors from recipes
DIFFERENTIABLE = tuple(DTYPES[name] for name in RUN)  # dtypes of differentiable inputs
GIVEN = ("values", "file", "make")  # draws whose numbers are used unchanged
# Share of a distance by which the cast may reduce it
ROUNDED = dict.fromkeys(SINGLE, 1e-2) | dict.fromkeys(SIXTEEN, 0.5)
REDRAWS = 1000  # rounds of redrawing the elements nearer than `margin` to a value to avoid


def generator(seed: int, check: str, purpose: str) -> torch.Generator:
    """Return a separate CPU generator for every (seed, check name, purpose), as
    `numerics.seeds.Seed` does for NumPy."""
    return torch.Generator().manual_seed(number(seed, check, purpose))


def signed(like: Tensor, source: torch.Generator) -> Tensor:
    """Draw numbers ±[0.7, 1.4] of the shape, dtype and device of `like` (complex: both parts)."""
    values = signed_tensor(like.shape, source)
    if like.is_complex():
        values = torch.complex(values, signed_tensor(like.shape, source))
    return values.to(dtype=like.dtype).to(device=like.device)


def shifted(inputs: Iterable[Tensor], share: float, source: torch.Generator) -> list[Tensor]:
    """Return leaves with every element moved, to a random side, by about this share of its size."""
    return [(x + share * x.abs() * signed(x, source)).requires_grad_() for x in inputs]


def draw(
    recipe: TensorRecipe, default: str, device: torch.device, source: torch.Generator, place: str
) -> Any:
    """Make the tensor of a recipe, in float64 (complex128, int64) on the CPU, then cast and move
    it. Where `make` returns a container of tensors, return that, taken apart. `place`: its key in
    the spec, such as `inputs.x`."""
    dtype = DTYPES[recipe.dtype or own_dtype(recipe.draw, str(recipe.arguments), default)]
    with blamed(CODE, f"{place}: making the tensor"):
        # An expanded tensor is drawn as one slice along the first dimension
        repeated = (
            recipe.layout == "expanded" and recipe.shape is not None and recipe.draw != "linspace"
        )
        shape = recipe.shape or ()
        one = replace(recipe, shape=(min(shape[0], 1), *shape[1:])) if repeated else recipe
        made = _made(one, dtype, source, place)
        if repeated and isinstance(made, Apart):
            refuse(f"{place}: `layout: expanded` is that of one tensor, and `make` gave several")
        made = made.expand(shape).clone() if repeated else made

        def finished(path: str, each: Any) -> Any:
            if not isinstance(each, Tensor):
                return each
            return _finished(recipe, each, dtype, f"{place}{path}").to(device=device)

        return made.of(finished) if isinstance(made, Apart) else finished("", made)


def _finished(recipe: TensorRecipe, made: Tensor, dtype: torch.dtype, place: str) -> Tensor:
    """Return a tensor in its dtype, made symmetric if the recipe requires it. Given numbers must be
    symmetric already; the domain and minimal distance of the elements are verified too."""
    if (
        recipe.draw in ("file", "make")
        and recipe.dtype is None
        and not (made.is_floating_point() or made.is_complex())
    ):
        dtype = made.dtype
    if made.is_complex() and not dtype.is_complex:
        refuse(f"{place}: the numbers are complex, the input is {dtype_name(dtype)}")
    tensor = made.to(dtype=dtype)
    if recipe.symmetric:
        if tensor.dim() < 2 or tensor.shape[-1] != tensor.shape[-2]:
            refuse(f"{place}: a symmetric matrix is square, and the shape is {list(tensor.shape)}")
        if recipe.draw not in GIVEN:
            tensor = (tensor + tensor.mH) / 2
        elif not torch.equal(tensor, tensor.mH):
            refuse(f"{place}: the numbers given are not symmetric, as `symmetric: true` says")
    if recipe.domain is not None and not bool(
        ((tensor >= recipe.domain[0]) & (tensor <= recipe.domain[1])).all()
    ):
        refuse(
            f"{place}: not all elements lie in the domain {list(recipe.domain)}",
            "draw them inside: `uniform`",
        )
    if recipe.distinct is not None and (gap := smallest_gap(tensor)) < recipe.distinct * (
        1 - ROUNDED.get(tensor.dtype, 0.0)
    ) * (1 - SLACK):
        refuse(f"{place}: two elements are {gap:.2g} apart, `distinct` says {recipe.distinct:g}")
    return tensor


def _made(recipe: TensorRecipe, dtype: torch.dtype, source: torch.Generator, place: str) -> Any:
    if recipe.draw == "values":
        return torch.tensor(numbers(recipe.arguments), dtype=_wide(dtype))
    if recipe.draw == "file":
        return _load(str(recipe.arguments), place)
    if recipe.draw == "make":
        # The spec's own function gets the wide dtype and the CPU, like all draws, and the global
        # generator is seeded and restored
        what = f"{place}.make: {recipe.arguments}"
        function = callable_target(str(recipe.arguments), f"{place}.make")
        with blamed(CODE, what), torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(source.initial_seed())
            made = function(recipe.shape, _wide(dtype), torch.device("cpu"), source)
        if (apart := taken_apart(made)) is not None:
            return apart.of(lambda path, each: admitted(each, f"{what} returned, as its {path},"))
        if not isinstance(made, Tensor):
            refuse(f"{what} returned a {type_name(made)}, not a dense tensor")
        admitted(made, f"{what} returned")
        if tuple(made.shape) != recipe.shape:
            refuse(
                f"{what} returned shape {list(made.shape)}, the spec says "
                f"{list(recipe.shape or ())}"
            )
        return made
    if recipe.draw == "kind":
        return KINDS[str(recipe.arguments)](tuple(recipe.shape or ()), _wide(dtype), source)
    if recipe.distinct is not None and recipe.draw in ("normal", "uniform", "integers", "choice"):
        return _distinct(recipe, dtype, source, place)
    tensor = _sample(recipe, dtype, source)
    # Elements nearer than `margin` to an avoided value are drawn again
    for _ in range(REDRAWS):
        near = [(tensor - value).abs() < recipe.margin for value in recipe.avoid]
        again = torch.stack(near).any(0) if near else torch.zeros(())
        if not again.any():
            return tensor
        tensor = torch.where(again, _sample(recipe, dtype, source), tensor)
    raise UserCodeError(
        CODE,
        f"{place}: no draw keeps a margin of {recipe.margin:g} to {list(recipe.avoid)}; widen "
        "the range",
    )


def _distinct(
    recipe: TensorRecipe, dtype: torch.dtype, source: torch.Generator, place: str
) -> Tensor:
    """Draw elements with a minimal distance, for complex numbers between the real parts."""
    shape, apart, arguments = recipe.shape or (), float(recipe.distinct or 0), recipe.arguments
    count, zones = math.prod(shape), merged(recipe.avoid, recipe.margin)
    numbers: Tensor | None
    if recipe.draw == "normal":
        numbers = pushed_apart(_real(recipe, source), apart, zones)
    elif recipe.draw == "uniform":
        numbers = spaced(arguments[0], arguments[1], count, apart, zones, source)
    elif recipe.draw == "integers":
        whole = math.ceil(apart)
        numbers = spaced(arguments[0], arguments[1], count, whole, (), source, whole=True)
    else:  # each of the numbers to choose from once
        free = torch.tensor(arguments, dtype=torch.float64)
        far = [(free - value).abs() >= recipe.margin for value in recipe.avoid]
        free = free[torch.stack(far).all(0)] if far else free
        order = torch.randperm(len(free), generator=source)[:count] if len(free) >= count else None
        numbers = None if order is None else free[order]
    if numbers is None:
        refuse(
            f"{place}: {count} elements {apart:g} apart do not fit; widen the range, or lower "
            "`distinct`"
        )
    real = numbers.reshape(shape)
    is_complex = dtype.is_complex and recipe.draw in ("normal", "uniform")
    return torch.complex(real, _real(recipe, source)) if is_complex else real


def _wide(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype in which numbers of a dtype are drawn."""
    if dtype.is_complex:
        return torch.complex128
    return torch.float64 if dtype.is_floating_point else dtype


def _sample(recipe: TensorRecipe, dtype: torch.dtype, source: torch.Generator) -> Tensor:
    """Draw the whole tensor once; of complex numbers first the real parts, then the imaginary."""
    if dtype.is_complex and recipe.draw in ("normal", "uniform"):
        return torch.complex(_real(recipe, source), _real(recipe, source))
    return _real(recipe, source)


def _real(recipe: TensorRecipe, source: torch.Generator) -> Tensor:
    shape, arguments = recipe.shape or (), recipe.arguments
    if recipe.draw == "normal":
        return _normal(shape, source).mul(arguments[1]).add(arguments[0])
    if recipe.draw == "uniform":
        return _uniform(shape, source).mul(arguments[1] - arguments[0]).add(arguments[0])
    if recipe.draw == "integers":
        return torch.randint(int(arguments[0]), int(arguments[1]), shape, generator=source)
    if recipe.draw == "linspace":
        first, last = arguments
        return torch.linspace(first, last, math.prod(shape), dtype=torch.float64).reshape(shape)
    if recipe.draw == "choice":
        places = torch.randint(len(arguments), shape, generator=source)
        return torch.tensor(arguments, dtype=torch.float64)[places]
    value = numbers(arguments)
    dtype = torch.complex128 if isinstance(value, complex) else torch.float64
    return torch.full(shape, value, dtype=dtype)


def numbers(data: Any) -> Any:
    """Convert nested lists of numbers in which complex numbers are written as text ("1+2j"), and
    non-finite ones, from JSON, as "nan" or "inf"."""
    if isinstance(data, (list, tuple)):
        return [numbers(item) for item in data]
    if isinstance(data, str):
        return float(data) if data in ("nan", "inf", "-inf") else complex(data.replace(" ", ""))
    return data


def _load(path: str, place: str) -> Tensor:
    """Load a `.npy`, `.npz#key` or `.pt` file, without executing code in it."""
    file, _, key = path.partition("#")
    if Path(file).suffix == ".pt":
        loaded = torch.load(file, weights_only=True, map_location="cpu")
        loaded = loaded[key] if key else loaded
        if not isinstance(loaded, Tensor):
            refuse(f"{place}: {path} holds a {type_name(loaded)}, not a tensor")
        admitted(loaded, f"{place}: {path} holds")
        return loaded
    stored = np.load(file, allow_pickle=False)
    if isinstance(stored, np.ndarray):
        return torch.from_numpy(stored)
    keys = list(stored)
    if key not in keys and (key or len(keys) != 1):
        refuse(
            f"{place}: {file} holds the arrays {keys}: name one as "
            f"{Path(file).name}#{keys[0] if keys else 'key'}"
        )
    return torch.from_numpy(stored[key or keys[0]])
