"""Operators of the kind people write by hand, at small sizes of realistic shapes, with inputs by recipe: what damage is done to in `faults.py`."""

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
    return torch.outer(torch.arange(n, dtype=torch.float64), 100.0 ** -(torch.arange(d, dtype=torch.float64) / d))


def rope(x: Tensor, turn: float = 1.0) -> Tensor:
    """Rotates the two halves of the last axis by angles of the second to last."""
    a, b = x.chunk(2, -1)
    cos, sin = angles(x.shape[-2], x.shape[-1] // 2).cos(), turn * angles(x.shape[-2], x.shape[-1] // 2).sin()
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


def rope_of_neighbours(x: Tensor, turn: float = 1.0) -> Tensor:
    a, b = x[..., ::2], x[..., 1::2]
    cos, sin = angles(x.shape[-2], x.shape[-1] // 2).cos(), turn * angles(x.shape[-2], x.shape[-1] // 2).sin()
    return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)


def solve(a: Tensor, b: Tensor) -> Tensor:
    """By the lower triangle of a, whose diagonal is at least 1."""
    return torch.linalg.solve_triangular(a.tril(-1) + torch.diag(1 + a.diagonal() ** 2), b, upper=False)


def moving_average(x: Tensor) -> Tensor:
    padded = torch.cat([x[..., :1], x, x[..., -1:]], -1)
    return (padded[..., :-2] + padded[..., 1:-1] + padded[..., 2:]) / 3


def edge_padded(x: Tensor, w: Tensor) -> Tensor:
    return F.conv2d(F.pad(x, (1, 1, 1, 1), mode="replicate"), w)


def interpolated(x: Tensor) -> Tensor:
    return F.interpolate(x, scale_factor=2, mode="linear", align_corners=False)


def selu_like(x: Tensor) -> Tensor:
    return torch.where(x > 0, 1.05 * x, 1.76 * (x.exp() - 1))


def unit(x: Tensor) -> Tensor:
    return x / x.norm(dim=-1, keepdim=True)


def scattered(base: Tensor, index: Tensor, src: Tensor) -> Tensor:
    return base.scatter_add(1, index, src.sin())


OPERATORS: Mapping[str, Operator] = {
    "matmul": op(torch.matmul, x=(4, 6), w=(6, 5)), "square matmul": op(torch.matmul, x=(4, 5), w=(5, 5)),
    "batched matmul": op(torch.matmul, x=(2, 3, 4), w=(2, 4, 3)),
    "linear": op(F.linear, x=(6, 5), w=(4, 5), b=(4,)), "square linear": op(F.linear, x=(4, 5), w=(5, 5), b=(5,)),
    "softmax": op(lambda x: x.softmax(-1), x=(2, 3, 6)), "log softmax": op(lambda x: x.log_softmax(-1), x=(4, 7)),
    "layer norm": op(lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b), x=(4, 8), w=(8,), b=(8,)),
    "rms norm": op(rms_norm, x=(4, 8), w=(8,)), "unit vectors": op(unit, x=(5, 6)),
    "group norm": op(lambda x: F.group_norm(x, 2), x=(2, 4, 5)),
    "attention": op(attention, q=(2, 5, 4), k=(2, 5, 4), v=(2, 5, 4)), "causal attention": op(causal, q=(2, 5, 4), k=(2, 5, 4), v=(2, 5, 4)),
    "conv1d": op(lambda x, w, b: F.conv1d(x, w, b, padding=1), x=(2, 3, 8), w=(4, 3, 3), b=(4,)),
    "conv2d": op(F.conv2d, x=(1, 2, 6, 6), w=(3, 2, 3, 3), b=(3,)), "edge conv2d": op(edge_padded, x=(1, 2, 5, 5), w=(2, 2, 3, 3)),
    "moving average": op(moving_average, x=(3, 9)), "interpolate": op(interpolated, x=(2, 2, 7)),
    "gelu": op(F.gelu, x=(4, 16)), "silu": op(F.silu, x=(4, 16)), "relu": op(F.relu, x=(4, 12)),
    "gated relu": op(lambda x, b: F.relu(x) * b, x=(4, 8), b=(4, 8)), "leaky relu": op(lambda x: F.leaky_relu(x, 0.1), x=(4, 12)),
    "elu": op(F.elu, x=(4, 12)), "selu": op(selu_like, x=(4, 12)), "tanh": op(torch.tanh, x=(4, 8)), "exp": op(torch.exp, x=(4, 8)),
    "cube": op(lambda x: x**3, x=(4, 8)), "softplus": op(F.softplus, x=(4, 12)), "power of two": op(lambda x: 2**x, x=(4, 8)),
    "sine of degrees": op(lambda x: (x * (torch.pi / 180) * 50).sin(), x=(4, 8)), "decibel": op(lambda x: 10 * x.log10(), x=positive(4, 8)),
    "rope": op(rope, x=(1, 2, 5, 6)), "rope of neighbours": op(rope_of_neighbours, x=(2, 4, 8)),
    "embedding": op(lambda table, index: F.embedding(index, table), table=(5, 4), index=integers(9, below=5)),
    "embedding of sequences": op(lambda table, index: F.embedding(index, table), table=(6, 3), index=integers(2, 5, below=6)),
    "index select": op(lambda x, index: x.index_select(1, index), x=(3, 5), index=integers(8, below=5)),
    "gather": op(lambda x, index: x.gather(1, index), x=(4, 5), index=integers(4, 6, below=5)),
    "scatter add": op(scattered, base=(3, 6), index=integers(3, 5, below=6), src=(3, 5)),
    "scaled rows": op(lambda table, index, s: table[index] * s[:, None], table=(5, 4), index=integers(8, below=5), s=(8,)),
    "cumsum": op(lambda x: x.cumsum(-1), x=(3, 8)), "cumsum of squares": op(lambda x: x.square().cumsum(-1), x=(3, 8)),
    "logsumexp": op(lambda x: x.logsumexp(-1), x=(4, 8)), "norm": op(lambda x: x.norm(dim=-1), x=(4, 8)),
    "bilinear": op(F.bilinear, x=(4, 3), y=(4, 3), w=(5, 3, 3)), "outer": op(lambda x, y: x[:, :, None] * y[:, None, :], x=(2, 5), y=(2, 4)),
    "outer of alike": op(lambda x, y: torch.outer(x, y.exp()), x=(5,), y=(5,)),
    "complex multiply": op(lambda x, y: x * y, x=(4, 5), y=(4, 5)), "complex matmul": op(torch.matmul, x=(3, 4), y=(4, 3)),
    "complex exp": op(torch.exp, x=(4, 5)), "complex square": op(lambda x: x * x, x=(4, 5)), "complex sine": op(torch.sin, x=(4, 5)),
    "complex reciprocal": op(torch.reciprocal, x=(4, 5)), "complex divide": op(lambda x, y: x / y, x=(4, 5), y=(4, 5)),
    "complex rotated": op(lambda x: x * (0.6 + 0.8j) * x.abs(), x=(4, 5)), "complex tanh": op(torch.tanh, x=(4, 5)),
    "complex cubic": op(lambda x: x**3 - x, x=(4, 5)),
    "cross entropy": op(lambda x, target: F.cross_entropy(x, target), x=(6, 5), target=integers(6, below=5)),
    "cross entropy of each": op(lambda x, target: F.cross_entropy(x, target, reduction="none"), x=(6, 5), target=integers(6, below=5)),
    "mse": op(lambda x, y: F.mse_loss(x, y), x=(4, 6), y=(4, 6)), "kl": op(lambda x, y: (y.exp() * (y - x)).sum(-1).mean(), x=(4, 6), y=(4, 6)),
    "average pool": op(lambda x: F.avg_pool2d(x, 2), x=(2, 2, 4, 6)), "max pool": op(lambda x: F.max_pool1d(x, 2), x=(2, 3, 8)),
    "mean over tokens": op(lambda x: x.exp().mean(1), x=(2, 6, 4)), "variance": op(lambda x: x.var(-1, unbiased=False), x=(4, 7)),
    "triangular solve": op(solve, a=(5, 5), b=(5, 3)), "square solve": op(solve, a=(5, 5), b=(5, 5)),
    "swiglu": op(lambda a, b: F.silu(a) * b, a=(4, 8), b=(4, 8)), "geglu": op(lambda a, b: F.gelu(a) * b, a=(4, 8), b=(4, 8)),
    "multiply": op(torch.mul, x=(4, 6), y=(4, 6)), "divide": op(torch.div, x=(4, 6), y=positive(4, 6)),
    "hypotenuse": op(torch.hypot, x=(4, 6), y=(4, 6)),
    "scaled by rows": op(lambda x, s: x.sin() * s, x=(4, 6), s=positive(4, 1)), "scaled by columns": op(lambda x, s: x.exp() * s, x=(4, 6), s=(6,)),
    "dropout": op(lambda x, m: x.sin() * m / 0.5, x=(4, 8), m=mask(4, 8)),
    "masked fill": op(lambda x, m: torch.where(m > 0, x.exp(), 0.0), x=(4, 8), m=mask(4, 8)),
    "masked softplus": op(lambda x, m: F.softplus(x) * m, x=(3, 5, 4), m=mask(3, 5, 1)),
    "masked tokens": op(lambda x, m: x.square() * m, x=(5, 6), m=mask(5, 1)),
    "masked loss": op(lambda x, y, m: (x - y).square() * m, x=(5, 6), y=constant(5, 6), m=mask(5, 6)),
    "gram": op(lambda x: x @ x.mT, x=(5, 4)), "quadratic form": op(lambda x, a: torch.einsum("bi,ij,bj->b", x, a, x), x=(4, 5), a=(5, 5)),
    "add": op(lambda x, b: x.tanh() + b, x=(5, 6), b=(6,)), "bias of channels": op(lambda x, b: x.square() + b[:, None], x=(3, 4, 5), b=(4,)),
    "multiply by row": op(torch.mul, x=(5, 6), y=(6,)), "add of column": op(lambda x, b: x.exp() * b, x=(5, 6), b=(5, 1)),
    "batch of bias": op(lambda x, b: (x + b).sin(), x=(4, 3, 2), b=(3, 2)), "affine": op(lambda x, w, b: x * w + b, x=(6, 5), w=(5,), b=(5,)),
    "sum of squares": op(lambda x: x.square().sum(), x=(4, 6)), "flipped": op(lambda x: x.sin().flip(-1), x=(4, 6)),
    "transposed": op(lambda x: x.exp().mT.contiguous(), x=(4, 5)), "permuted": op(lambda x: x.square().permute(2, 0, 1).contiguous(), x=(2, 3, 4)),
}
COMPLEX = frozenset(name for name in OPERATORS if name.startswith("complex"))
