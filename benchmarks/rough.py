"""Functions on which the numbers of the engine are about to be wrong: kinks and jumps beside x,
ends of domains, fast oscillation, cancellation, saturation, noise, arithmetic in fewer bits, sparse
and dense Jacobians. Each with torch's own gradient, right, 1 % off, and with a leak."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
import torch.nn.functional as F
from checkers import noisy
from torch import Tensor

Forward = Callable[..., Tensor]
LEAK = 1e-3  # of every cotangent, into one element of the first input's gradient


class Damage(Enum):
    """What is done to the gradient."""

    NONE = "right"
    PERCENT = "1 % off"
    LEAK = "a leak"
    DOUBLE = "doubled"


class Damaged(torch.autograd.Function):
    """A forward with relative noise, and torch's own gradient of a clean or smooth one, damaged."""

    @staticmethod
    def forward(
        ctx: Any, forward: Forward, clean: Forward, noise: float, damage: Damage, *inputs: Tensor
    ) -> Tensor:
        ctx.clean, ctx.damage = clean, damage
        ctx.save_for_backward(*inputs)
        y = forward(*inputs)
        return noisy(y, noise) if noise else y  # the noise is that of float64 numbers

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Any, ...]:
        leaves = [x.detach().requires_grad_() for x in ctx.saved_tensors]
        with torch.enable_grad():
            first, *rest = torch.autograd.grad(ctx.clean(*leaves), leaves, cotangent)
        if ctx.damage is Damage.PERCENT:
            first, rest = 1.01 * first, [1.01 * each for each in rest]
        elif ctx.damage is Damage.LEAK:
            first = first.clone()
            first.view(-1)[-1] += LEAK * cotangent.sum()
        elif ctx.damage is Damage.DOUBLE:
            first, rest = 2 * first, [2 * each for each in rest]
        return None, None, None, None, first, *rest


@dataclass(frozen=True)
class Rough:
    """A forward at numbers of one precision. `noise`: relative, added to what it returns. `smooth`:
    what the gradient is of, where not of it."""

    name: str
    forward: Forward
    numbers: tuple[Any, ...]
    dtype: torch.dtype = torch.float64
    noise: float = 0.0
    smooth: Forward | None = None

    def inputs(self) -> list[Tensor]:
        return [torch.as_tensor(each, dtype=torch.float64).to(self.dtype) for each in self.numbers]

    def with_damage(self, damage: Damage) -> Forward:
        return lambda *inputs: Damaged.apply(
            self.forward, self.smooth or self.forward, self.noise, damage, *inputs
        )  # type: ignore[no-untyped-call]


def spaced(count: int, low: float = -1.0, high: float = 1.5) -> Tensor:
    """Numbers without a pattern, none of them round."""
    return low + (high - low) * (
        (0.137 + 0.618033988749895 * torch.arange(count, dtype=torch.float64)) % 1
    )


def in_float32(x: Tensor) -> Tensor:
    return x.float().sin().to(x.dtype)


def in_bfloat16(x: Tensor) -> Tensor:
    return x.bfloat16().tanh().to(x.dtype)


def hilbert(x: Tensor) -> Tensor:
    i = torch.arange(4, dtype=x.dtype)
    return torch.linalg.inv(1 / (1 + i + i[:, None]) + torch.diag(x))


def by_newton(x: Tensor) -> Tensor:
    root = x
    for _ in range(8):
        root = 0.5 * (root + x / root)
    return root


def sixfold(x: Tensor) -> Tensor:
    return torch.stack([x.diff().sin().sum(), *(x[k] * x[-k - 1].cos() for k in range(5))])


SINGLE = torch.float32
ROUGH = (
    Rough("relu, one at 0", F.relu, ([-0.7, 0.0, 0.4, 1.3],)),
    Rough("abs near 0", torch.abs, ([1e-7, -1e-5, 2e-3, 0.5],)),
    Rough(
        "kinks at all distances",
        lambda x: (x - torch.tensor([1 + 1e-2, 1 + 1e-3, 1 + 1e-4, 1 + 1e-6], dtype=x.dtype)).abs(),
        ([1.0] * 4,),
    ),
    Rough("floor plus x", lambda x: x.floor() + x, ([0.3, 1.001, -0.52, 2.0001],)),
    Rough("clamp near its bounds", lambda x: x.clamp(-1, 1) ** 2, ([0.99, 1.01, -0.9999, 0.2],)),
    Rough(
        "sorted, near ties",
        lambda x: x.sort().values * torch.arange(1, 6, dtype=x.dtype),
        ([0.3, 0.301, -0.5, 0.30100001, 2.0],),
    ),
    Rough("sqrt near 0", torch.sqrt, ([1e-9, 1e-4, 0.2, 3.0],)),
    Rough("x^1.5 from 0", lambda x: x**1.5, ([0.0, 1e-4, 0.3],)),
    Rough("log near 0", torch.log, ([1e-8, 1e-3, 0.4],)),
    Rough("1/x near 0", torch.reciprocal, ([1e-3, -2e-2, 0.7],)),
    Rough("sin(1e3 x)", lambda x: (1e3 * x).sin(), ([0.31, -0.72, 1.1],)),
    Rough("sin(1e5 x) + x", lambda x: (1e5 * x).sin() + x, ([0.31, -0.72],)),
    Rough("x and a fast ripple", lambda x: x + 1e-6 * (1e4 * x).sin(), ([0.31, -0.72, 1.1],)),
    Rough("narrow bump", lambda x: (-((x / 1e-2) ** 2)).exp(), ([4e-3, -1.1e-2, 3e-2],)),
    Rough("x^12", lambda x: x**12, ([0.4, 1.1, -2.3],)),
    Rough("tanh, saturated", torch.tanh, ([9.0, -17.0, 0.1],)),
    Rough("tanh, saturated, in float32", torch.tanh, ([5.0, -9.0, 0.1],), SINGLE),
    Rough("gelu in float32", F.gelu, ([-5.0, -2.0, 0.3],), SINGLE),
    Rough("1 - cos", lambda x: 1 - x.cos(), ([1e-9, 1e-4, 0.2],)),
    Rough("(x + 1e4) - 1e4", lambda x: (x + 1e4) - 1e4, ([1e-13, 1e-6, 0.3],)),
    Rough("two, one rounded inside", lambda x: x[:1] + ((x[1:] + 1e4) - 1e4), ([1e-13, 2e-13],)),
    Rough("variance beside a mean of 1e4", lambda x: (x + 1e4).var() + 0 * x.sum(), (spaced(4),)),
    Rough("variance in float32", lambda x: (x + 30).var().reshape(1), (spaced(4),), SINGLE),
    Rough("inverse of Hilbert's matrix", hilbert, ([1e-3, 2e-3, 1e-4, 5e-3],)),
    Rough(
        "entries from 1 to 1e-10",
        lambda x: (torch.logspace(0, -10, 6, dtype=x.dtype) * x).cumsum(0).sin(),
        (spaced(6),),
    ),
    Rough("noise of 1e-13", torch.sin, (spaced(4),), noise=1e-13),
    Rough("noise of 1e-10", lambda x: x.exp() * x, (spaced(4),), noise=1e-10),
    Rough("noise of 1e-7", lambda x: x.softmax(0), (spaced(4),), noise=1e-7),
    Rough("rounded to float32 inside", in_float32, (spaced(4),)),
    Rough("rounded to bfloat16 inside", in_bfloat16, (spaced(4),)),
    Rough("a root by Newton", by_newton, ([0.2, 1.7, 30.0],)),
    Rough("linear", lambda x: 3 * x.cumsum(0) - x, (spaced(12),)),
    Rough("elementwise, 40", lambda x: (x * x.exp()).tanh(), (spaced(40),)),
    Rough(
        "convolution",
        lambda x: (
            F.conv1d(x[None, None], torch.tensor([[[0.3, -1.1, 0.7]]], dtype=x.dtype))[0, 0] ** 3
        ),
        (spaced(24),),
    ),
    Rough(
        "matrix product",
        lambda a, b: (a.reshape(4, 5) @ b.reshape(5, 3)).sin(),
        (spaced(20), spaced(15, 0.2, 2.0)),
    ),
    Rough("some dense rows", sixfold, (spaced(16),)),
    Rough("product of scales", lambda x, y: x * y.exp(), ([1e-8, 3.0, 1e6], [0.2, -3.0, 5.0])),
)
