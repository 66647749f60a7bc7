"""Operators of the kind people write by hand, at small sizes of realistic shapes, with inputs by
recipe: what damage is done to in `faults.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from live import tensor
from torch import Tensor
from torch.nn import functional as F

from gradverify.model.case import InputRecipe


@dataclass(frozen=True)
class Operator:
    """`f` of all inputs, in the order of the recipes."""

    f: Callable[..., Tensor]
    recipes: tuple[InputRecipe, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(str(recipe.name) for recipe in self.recipes)


def op(f: Callable[..., Tensor], **inputs: Any) -> Operator:
    """Inputs by name: a shape, or (shape, how it is drawn)."""
    recipes = []
    for name, given in inputs.items():
        shape, how = given if isinstance(given[-1], dict) else (given, {})
        recipes.append(tensor(*shape, name=name, **how))
    return Operator(f, tuple(recipes))


def integers(*shape: int, below: int) -> Any:
    return shape, {"draw": "integers", "arguments": (0, below), "dtype": "int64"}


def mask(*shape: int) -> Any:
    return shape, {"draw": "choice", "arguments": (0.0, 1.0), "requires_grad": False}


def positive(*shape: int) -> Any:
    return shape, {"draw": "uniform", "arguments": (0.5, 2.0)}


def constant(*shape: int) -> Any:
    return shape, {"requires_grad": False}


# ---- formulas
def rms_norm(x: Tensor, w: Tensor) -> Tensor:
    return x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * w


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q @ k.mT * q.shape[-1] ** -0.5).softmax(-1) @ v


def causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    keep = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril()
    return (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(~keep, -torch.inf).softmax(-1) @ v


def angles(n: int, d: int) -> Tensor:
    return torch.outer(
        torch.arange(n, dtype=torch.float64), 100.0 ** -(torch.arange(d, dtype=torch.float64) / d)
    )


def rope(x: Tensor, turn: float = 1.0) -> Tensor:
    """Rotates the two halves of the last axis by angles of the second to last."""
    a, b = x.chunk(2, -1)
    cos = angles(x.shape[-2], x.shape[-1] // 2).cos()
    sin = turn * angles(x.shape[-2], x.shape[-1] // 2).sin()
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


def rope_of_neighbours(x: Tensor, turn: float = 1.0) -> Tensor:
    a, b = x[..., ::2], x[..., 1::2]
    cos = angles(x.shape[-2], x.shape[-1] // 2).cos()
    sin = turn * angles(x.shape[-2], x.shape[-1] // 2).sin()
    return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)


def solve(a: Tensor, b: Tensor) -> Tensor:
    """By the lower triangle of a, whose diagonal is at least 1."""
    return torch.linalg.solve_triangular(
        a.tril(-1) + torch.diag(1 + a.diagonal() ** 2), b, upper=False
    )


def moving_average(x: Tensor) -> Tensor:
    padded = torch.cat([x[..., :1], x, x[..., -1:]], -1)
    return (padded[..., :-2] + padded[..., 1:-1] + padded[..., 2:]) / 3


def interpolated(x: Tensor) -> Tensor:
    return F.interpolate(x, scale_factor=2, mode="linear", align_corners=False)


OPERATORS: Mapping[str, Operator] = {
    "matmul": op(torch.matmul, x=(4, 6), w=(6, 5)),
    "square matmul": op(torch.matmul, x=(4, 5), w=(5, 5)),
    "batched matmul": op(torch.matmul, x=(2, 3, 4), w=(2, 4, 3)),
    "linear": op(F.linear, x=(6, 5), w=(4, 5), b=(4,)),
    "softmax": op(lambda x: x.softmax(-1), x=(2, 3, 6)),
    "layer norm": op(lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b), x=(4, 8), w=(8,), b=(8,)),
    "attention": op(attention, q=(2, 5, 4), k=(2, 5, 4), v=(2, 5, 4)),
    "causal attention": op(causal, q=(2, 5, 4), k=(2, 5, 4), v=(2, 5, 4)),
    "conv1d": op(lambda x, w, b: F.conv1d(x, w, b, padding=1), x=(2, 3, 8), w=(4, 3, 3), b=(4,)),
    "conv2d": op(F.conv2d, x=(1, 2, 6, 6), w=(3, 2, 3, 3), b=(3,)),
    "moving average": op(moving_average, x=(3, 9)),
    "interpolate": op(interpolated, x=(2, 2, 7)),
    "gelu": op(F.gelu, x=(4, 16)),
    "relu": op(F.relu, x=(4, 12)),
    "tanh": op(torch.tanh, x=(4, 8)),
    "cube": op(lambda x: x**3, x=(4, 8)),
    "softplus": op(F.softplus, x=(4, 12)),
    "rope": op(rope, x=(1, 2, 5, 6)),
    "embedding": op(
        lambda table, index: F.embedding(index, table), table=(5, 4), index=integers(9, below=5)
    ),
    "embedding of sequences": op(
        lambda table, index: F.embedding(index, table), table=(6, 3), index=integers(2, 5, below=6)
    ),
    "gather": op(lambda x, index: x.gather(1, index), x=(4, 5), index=integers(4, 6, below=5)),
    "complex multiply": op(lambda x, y: x * y, x=(4, 5), y=(4, 5)),
    "complex matmul": op(torch.matmul, x=(3, 4), y=(4, 3)),
    "complex square": op(lambda x: x * x, x=(4, 5)),
    "complex divide": op(lambda x, y: x / y, x=(4, 5), y=(4, 5)),
    "cross entropy": op(
        lambda x, target: F.cross_entropy(x, target), x=(6, 5), target=integers(6, below=5)
    ),
    "mse": op(lambda x, y: F.mse_loss(x, y), x=(4, 6), y=(4, 6)),
    "triangular solve": op(solve, a=(5, 5), b=(5, 3)),
    "swiglu": op(lambda a, b: F.silu(a) * b, a=(4, 8), b=(4, 8)),
    "multiply": op(torch.mul, x=(4, 6), y=(4, 6)),
    "divide": op(torch.div, x=(4, 6), y=positive(4, 6)),
    "masked softplus": op(lambda x, m: F.softplus(x) * m, x=(3, 5, 4), m=mask(3, 5, 1)),
    "masked loss": op(
        lambda x, y, m: (x - y).square() * m, x=(5, 6), y=constant(5, 6), m=mask(5, 6)
    ),
    "gram": op(lambda x: x @ x.mT, x=(5, 4)),
    "bias of channels": op(lambda x, b: x.square() + b[:, None], x=(3, 4, 5), b=(4,)),
    "batch of bias": op(lambda x, b: (x + b).sin(), x=(4, 3, 2), b=(3, 2)),
}
COMPLEX = frozenset(name for name in OPERATORS if name.startswith("complex"))
