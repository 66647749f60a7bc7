"""Tensors from recipes: reproducible from (seed, check, input), the same numbers on every device and in every dtype."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gradverify.model.case import TensorRecipe
from gradverify.subject.failure import UserCodeError, blamed
from gradverify.subject.find import CODE

DTYPES = {name: getattr(torch, name) for name in (
    "float64", "float32", "bfloat16", "float16", "complex128", "complex64", "int64", "int32", "int16", "int8", "uint8", "bool")}
DIFFERENTIABLE = (torch.float64, torch.float32, torch.complex128, torch.complex64)      # what a differentiable input may be
LOW, HIGH = 0.7, 1.4    # magnitudes of random cotangents and directions: continuous and signed (method.md 3.1)
REDRAWS = 1000          # rounds of redrawing the elements nearer than `margin` to a value to avoid


def generator(seed: int, check: str, name: str) -> torch.Generator:
    """A CPU generator of its own for every (seed, check name, input name)."""
    digest = hashlib.sha256(f"{seed}\0{check}\0{name}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))


def signed(like: Tensor, source: torch.Generator) -> Tensor:
    """Random numbers ±[0.7, 1.4] of the shape, dtype and device of `like` (complex: both parts)."""
    def real() -> Tensor:
        sign = torch.randint(0, 2, like.shape, generator=source, dtype=torch.float64) * 2 - 1
        return sign * (LOW + (HIGH - LOW) * torch.rand(like.shape, generator=source, dtype=torch.float64))

    values = torch.complex(real(), real()) if like.is_complex() else real()
    return values.to(dtype=like.dtype).to(device=like.device)


def draw(recipe: TensorRecipe, default: str, device: torch.device, source: torch.Generator, name: str) -> Tensor:
    """The tensor of a recipe: made in float64 (complex128, int64) on the CPU, then cast to its dtype and moved."""
    dtype = DTYPES[recipe.dtype or ("int64" if recipe.draw == "integers" else default)]
    with blamed(CODE, f"inputs.{name}: making the tensor"):
        made = _made(recipe, dtype, source, name)
        if recipe.draw == "file" and recipe.dtype is None and not (made.is_floating_point() or made.is_complex()):
            dtype = made.dtype
        if made.is_complex() and not dtype.is_complex:
            raise UserCodeError(CODE, f"inputs.{name}: the numbers are complex, the input is {str(dtype).removeprefix('torch.')}")
        return _structured(recipe, made.to(dtype=dtype), name).to(device=device)


def _made(recipe: TensorRecipe, dtype: torch.dtype, source: torch.Generator, name: str) -> Tensor:
    if recipe.draw == "values":
        return torch.tensor(numbers(recipe.arguments), dtype=_wide(dtype))
    if recipe.draw == "file":
        return _load(str(recipe.arguments), name)
    tensor = _sample(recipe, dtype, source)
    for _ in range(REDRAWS if recipe.avoid else 0):
        near = torch.stack([(tensor - value).abs() < recipe.margin for value in recipe.avoid]).any(0)
        if not near.any():
            return tensor
        tensor = torch.where(near, _sample(recipe, dtype, source), tensor)
    if recipe.avoid:
        raise UserCodeError(CODE, f"inputs.{name}: no draw keeps a margin of {recipe.margin:g} to {list(recipe.avoid)}; widen the range")
    return tensor


def _structured(recipe: TensorRecipe, tensor: Tensor, name: str) -> Tensor:
    """Symmetric where that is asked for (a draw is made so, given numbers must be), and inside its domain."""
    if recipe.symmetric:
        if tensor.dim() < 2 or tensor.shape[-1] != tensor.shape[-2]:
            raise UserCodeError(CODE, f"inputs.{name}: a symmetric matrix is square, and the shape is {list(tensor.shape)}")
        if recipe.draw not in ("values", "file"):
            tensor = (tensor + tensor.mH) / 2
        elif not torch.equal(tensor, tensor.mH):
            raise UserCodeError(CODE, f"inputs.{name}: the numbers given are not symmetric, as `symmetric: true` says")
    if recipe.domain is not None and not bool(((tensor >= recipe.domain[0]) & (tensor <= recipe.domain[1])).all()):
        raise UserCodeError(CODE, f"inputs.{name}: not all elements lie in the domain {list(recipe.domain)}", hint="draw them inside: `uniform`")
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
    value = numbers(arguments)
    return torch.full(shape, value, dtype=torch.complex128 if isinstance(value, complex) else torch.float64)


def numbers(data: Any) -> Any:
    """Nested lists of numbers; complex ones are written as text ("1+2j"), non-finite ones come as "nan" or "inf" from JSON."""
    if isinstance(data, (list, tuple)):
        return [numbers(item) for item in data]
    if isinstance(data, str):
        return float(data) if data in ("nan", "inf", "-inf") else complex(data.replace(" ", ""))
    return data


def _load(path: str, name: str) -> Tensor:
    """`.npy`, `.npz#key` and `.pt` files, without executing anything in them."""
    file, _, key = path.partition("#")
    if Path(file).suffix == ".pt":
        loaded = torch.load(file, weights_only=True, map_location="cpu")
        loaded = loaded[key] if key else loaded
        if not isinstance(loaded, Tensor):
            raise UserCodeError(CODE, f"inputs.{name}: {path} holds a {type(loaded).__name__}, not a tensor")
        return loaded.detach()
    stored = np.load(file, allow_pickle=False)
    if isinstance(stored, np.ndarray):
        return torch.from_numpy(stored)
    keys = list(stored)
    if key not in keys and (key or len(keys) != 1):
        raise UserCodeError(CODE, f"inputs.{name}: {file} holds the arrays {keys}: name one as {Path(file).name}#{keys[0] if keys else 'key'}")
    return torch.from_numpy(stored[key or keys[0]])
