"""Tensors from recipes: reproducible from (seed, check, input), the same numbers on every device and in every dtype."""

from __future__ import annotations

import math
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
from gradverify.subject import distinct
from gradverify.subject.containers import Apart, taken_apart
from gradverify.subject.failure import UserCodeError, blamed, type_name
from gradverify.subject.find import CODE
from gradverify.subject.guard import admitted
from gradverify.subject.kinds import structured
from gradverify.subject.target import callable_target

DIFFERENTIABLE = tuple(DTYPES[name] for name in RUN)      # what a differentiable input may be
GIVEN = ("values", "file", "make")      # draws whose numbers are taken as they are
ROUNDED = dict.fromkeys(SINGLE, 1e-2) | dict.fromkeys(SIXTEEN, 0.5)      # of a distance: what the cast may take from it
REDRAWS = 1000          # rounds of redrawing the elements nearer than `margin` to a value to avoid


def generator(seed: int, check: str, purpose: str) -> torch.Generator:
    """A CPU generator of its own for every (seed, check name, purpose), as `numerics.seeds.Seed` has for NumPy."""
    return torch.Generator().manual_seed(number(seed, check, purpose))


def signed(like: Tensor, source: torch.Generator) -> Tensor:
    """Random numbers ±[0.7, 1.4] of the shape, dtype and device of `like` (complex: both parts)."""
    values = signed_tensor(like.shape, source)
    values = torch.complex(values, signed_tensor(like.shape, source)) if like.is_complex() else values
    return values.to(dtype=like.dtype).to(device=like.device)


def draw(recipe: TensorRecipe, default: str, device: torch.device, source: torch.Generator, place: str) -> Any:
    """The tensor of a recipe: made in float64 (complex128, int64) on the CPU, then cast to its dtype and moved. Where `make` gives a container
    of tensors: that, taken apart. `place`: where it stands in the spec, `inputs.x`."""
    dtype = DTYPES[recipe.dtype or own_dtype(recipe.draw, str(recipe.arguments), default)]
    with blamed(CODE, f"{place}: making the tensor"):
        made = _repeated(recipe, dtype, source, place) if recipe.layout == "expanded" else _made(recipe, dtype, source, place)
        if not isinstance(made, Apart):
            return _finished(recipe, made, dtype, place).to(device=device)
        return Apart(tuple((path, _finished(recipe, each, dtype, f"{place}{path}").to(device=device) if isinstance(each, Tensor) else each)
                           for path, each in made.elements), made.built)


def _finished(recipe: TensorRecipe, made: Tensor, dtype: torch.dtype, place: str) -> Tensor:
    """In its dtype, as its structure is said to be."""
    if recipe.draw in ("file", "make") and recipe.dtype is None and not (made.is_floating_point() or made.is_complex()):
        dtype = made.dtype
    if made.is_complex() and not dtype.is_complex:
        raise UserCodeError(CODE, f"{place}: the numbers are complex, the input is {str(dtype).removeprefix('torch.')}")
    return _structured(recipe, made.to(dtype=dtype), place)


def _repeated(recipe: TensorRecipe, dtype: torch.dtype, source: torch.Generator, place: str) -> Any:
    """One slice along the first dimension, repeated: what an expanded tensor holds."""
    if recipe.shape is None or recipe.draw == "linspace":
        return _made(recipe, dtype, source, place)
    if not recipe.shape:
        raise UserCodeError(CODE, f"{place}: an expanded tensor has at least one dimension, and the shape is []")
    one = replace(recipe, shape=(min(recipe.shape[0], 1), *recipe.shape[1:]))
    made = _made(one, dtype, source, place)
    if isinstance(made, Apart):
        raise UserCodeError(CODE, f"{place}: `layout: expanded` is that of one tensor, and `make` gave several")
    return made.expand(recipe.shape).clone()


def _made(recipe: TensorRecipe, dtype: torch.dtype, source: torch.Generator, place: str) -> Any:
    if recipe.draw == "values":
        return torch.tensor(numbers(recipe.arguments), dtype=_wide(dtype))
    if recipe.draw == "file":
        return _load(str(recipe.arguments), place)
    if recipe.draw == "make":
        return _drawn_by_user(recipe, dtype, source, place)
    if recipe.draw == "kind":
        return structured(str(recipe.arguments), recipe.shape or (), _wide(dtype), source)
    if recipe.distinct is not None and recipe.draw in ("normal", "uniform", "integers", "choice"):
        return _distinct(recipe, dtype, source, place)
    return _redrawn(recipe, dtype, source, place)


def _drawn_by_user(recipe: TensorRecipe, dtype: torch.dtype, source: torch.Generator, place: str) -> Any:
    """What the spec's own function draws, like every draw in the wide dtype on the CPU, with the global generator seeded and restored; several
    tensors in a dict, list or the like are taken apart."""
    what = f"{place}.make: {recipe.arguments}"
    function = callable_target(str(recipe.arguments), f"{place}.make")
    with blamed(CODE, what), torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(source.initial_seed())
        made = function(recipe.shape, _wide(dtype), torch.device("cpu"), source)
    apart = taken_apart(made)
    if apart is not None:
        made = tuple((path, admitted(each, f"{what} returned, as its {path},")) for path, each in apart.elements)
        return Apart(tuple((path, each.detach() if isinstance(each, Tensor) else each) for path, each in made), apart.built)
    if not isinstance(made, Tensor):
        raise UserCodeError(CODE, f"{what} returned a {type_name(made)}, not a dense tensor")
    admitted(made, f"{what} returned")
    if tuple(made.shape) != recipe.shape:
        raise UserCodeError(CODE, f"{what} returned shape {list(made.shape)}, the spec says {list(recipe.shape or ())}")
    return made.detach()


def _distinct(recipe: TensorRecipe, dtype: torch.dtype, source: torch.Generator, place: str) -> Tensor:
    """Elements that keep their distance; of complex numbers the real parts do."""
    shape, apart = recipe.shape or (), float(recipe.distinct or 0)
    count, zones, arguments = math.prod(shape), distinct.merged(recipe.avoid, recipe.margin), recipe.arguments
    numbers: Tensor | None
    if recipe.draw == "normal":
        numbers = distinct.pushed_apart(_real(recipe, source), apart, zones)
    elif recipe.draw == "uniform":
        numbers = distinct.spaced(arguments[0], arguments[1], count, apart, zones, source)
    elif recipe.draw == "integers":
        numbers = distinct.spaced_integers(int(arguments[0]), int(arguments[1]), count, math.ceil(apart), source)
    else:
        numbers = _chosen_once(recipe, count, source)
    if numbers is None:
        raise UserCodeError(CODE, f"{place}: {count} elements {apart:g} apart do not fit; widen the range, or lower `distinct`")
    real = numbers.reshape(shape)
    return torch.complex(real, _real(replace(recipe, avoid=()), source)) if dtype.is_complex and recipe.draw in ("normal", "uniform") else real


def _chosen_once(recipe: TensorRecipe, count: int, source: torch.Generator) -> Tensor | None:
    """`count` of the numbers to choose from, each once."""
    numbers = torch.tensor(recipe.arguments, dtype=torch.float64)
    if recipe.avoid:
        numbers = numbers[torch.stack([(numbers - value).abs() >= recipe.margin for value in recipe.avoid]).all(0)]
    return numbers[torch.randperm(len(numbers), generator=source)[:count]] if len(numbers) >= count else None


def _redrawn(recipe: TensorRecipe, dtype: torch.dtype, source: torch.Generator, place: str) -> Tensor:
    """A draw whose elements nearer than `margin` to an avoided value are drawn again."""
    tensor = _sample(recipe, dtype, source)
    for _ in range(REDRAWS if recipe.avoid else 0):
        near = torch.stack([(tensor - value).abs() < recipe.margin for value in recipe.avoid]).any(0)
        if not near.any():
            return tensor
        tensor = torch.where(near, _sample(recipe, dtype, source), tensor)
    if recipe.avoid:
        raise UserCodeError(CODE, f"{place}: no draw keeps a margin of {recipe.margin:g} to {list(recipe.avoid)}; widen the range")
    return tensor


def _structured(recipe: TensorRecipe, tensor: Tensor, place: str) -> Tensor:
    """Symmetric where that is asked for (a draw is made so, given numbers must be), inside its domain, its elements apart."""
    if recipe.symmetric:
        if tensor.dim() < 2 or tensor.shape[-1] != tensor.shape[-2]:
            raise UserCodeError(CODE, f"{place}: a symmetric matrix is square, and the shape is {list(tensor.shape)}")
        if recipe.draw not in GIVEN:
            tensor = (tensor + tensor.mH) / 2
        elif not torch.equal(tensor, tensor.mH):
            raise UserCodeError(CODE, f"{place}: the numbers given are not symmetric, as `symmetric: true` says")
    if recipe.domain is not None and not bool(((tensor >= recipe.domain[0]) & (tensor <= recipe.domain[1])).all()):
        raise UserCodeError(CODE, f"{place}: not all elements lie in the domain {list(recipe.domain)}", hint="draw them inside: `uniform`")
    if recipe.distinct is not None and not distinct.keep_apart(tensor, recipe.distinct * (1 - ROUNDED.get(tensor.dtype, 0.0))):
        raise UserCodeError(CODE, f"{place}: two elements are {distinct.smallest_gap(tensor):.2g} apart, `distinct` says {recipe.distinct:g}")
    return tensor


def _wide(dtype: torch.dtype) -> torch.dtype:
    """The type in which numbers of a dtype are made."""
    if dtype.is_complex:
        return torch.complex128
    return torch.float64 if dtype.is_floating_point else dtype


def _sample(recipe: TensorRecipe, dtype: torch.dtype, source: torch.Generator) -> Tensor:
    """One draw of the whole tensor; complex numbers take their parts one after the other."""
    if dtype.is_complex and recipe.draw in ("normal", "uniform"):
        return torch.complex(_real(recipe, source), _real(recipe, source))
    return _real(recipe, source)


def _real(recipe: TensorRecipe, source: torch.Generator) -> Tensor:
    shape, arguments = recipe.shape or (), recipe.arguments
    tensor: Tensor
    if recipe.draw == "normal":
        tensor = torch.randn(shape, generator=source, dtype=torch.float64) * arguments[1] + arguments[0]
        return tensor
    if recipe.draw == "uniform":
        tensor = torch.rand(shape, generator=source, dtype=torch.float64) * (arguments[1] - arguments[0]) + arguments[0]
        return tensor
    if recipe.draw == "integers":
        return torch.randint(int(arguments[0]), int(arguments[1]), shape, generator=source)
    if recipe.draw == "linspace":
        count = int(np.prod(shape, dtype=np.int64))
        return torch.linspace(arguments[0], arguments[1], count, dtype=torch.float64).reshape(shape)
    if recipe.draw == "choice":
        return torch.tensor(arguments, dtype=torch.float64)[torch.randint(len(arguments), shape, generator=source)]
    value = numbers(arguments)
    return torch.full(shape, value, dtype=torch.complex128 if isinstance(value, complex) else torch.float64)


def numbers(data: Any) -> Any:
    """Nested lists of numbers; complex ones are written as text ("1+2j"), non-finite ones come as "nan" or "inf" from JSON."""
    if isinstance(data, (list, tuple)):
        return [numbers(item) for item in data]
    if isinstance(data, str):
        return float(data) if data in ("nan", "inf", "-inf") else complex(data.replace(" ", ""))
    return data


def _load(path: str, place: str) -> Tensor:
    """`.npy`, `.npz#key` and `.pt` files, without executing anything in them."""
    file, _, key = path.partition("#")
    if Path(file).suffix == ".pt":
        loaded = torch.load(file, weights_only=True, map_location="cpu")
        loaded = loaded[key] if key else loaded
        if not isinstance(loaded, Tensor):
            raise UserCodeError(CODE, f"{place}: {path} holds a {type_name(loaded)}, not a tensor")
        return Tensor.detach(admitted(loaded, f"{place}: {path} holds"))
    stored = np.load(file, allow_pickle=False)
    if isinstance(stored, np.ndarray):
        return torch.from_numpy(stored)
    keys = list(stored)
    if key not in keys and (key or len(keys) != 1):
        raise UserCodeError(CODE, f"{place}: {file} holds the arrays {keys}: name one as {Path(file).name}#{keys[0] if keys else 'key'}")
    return torch.from_numpy(stored[key or keys[0]])
