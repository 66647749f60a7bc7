"""Functions about which the last questions before "wrong" are asked, a few for each: treads of a
grid, inputs that f rounds away, saturation in float32, noise, and backwards that differ in
float32."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from rough import SINGLE, Rough, spaced
from torch import Tensor
from torch.autograd import Function

SMALL_ONE = [0.02243327798230821, 0.7, -1.2, 0.31]  # the first rests on one tread of a grid of 1e-3


def to(grid: float, smooth: Callable[..., Tensor], x: Any = SMALL_ONE) -> Rough:
    """A function rounded to a grid, with the gradient of the smooth one."""
    return Rough(
        f"a grid of {grid:g}, {len(x)}",
        lambda *x: torch.round(smooth(*x) / grid) * grid,
        (x,),
        smooth=smooth,
    )


EXCUSED: Mapping[str, tuple[Rough, ...]] = {
    "treads": (
        to(1e-3, torch.square),
        to(1e-2, lambda x: x.sin() * x),
        to(1e-4, lambda x: x**3, [1e-3, 0.7, -0.2]),
        to(1e-3, lambda x: x.cumsum(0) * x, [0.003, 1e-3, 0.5]),
        to(2.0**-6, torch.square, [0.11, 0.93]),
        to(0.1, torch.square, [0.31, 1.27]),
        Rough("clamped between steps", lambda x: x.clamp(0.1, 0.1001), ([-0.9, 0.7, -1.2],)),
        Rough(
            "a grid of relu",
            lambda x: torch.round(x.relu() * 1e3) / 1e3,
            ([-0.9, 0.7, -1.2],),
            smooth=torch.relu,
        ),
        Rough("round", torch.round, ([0.2, 0.7, 3.1],)),
    ),
    "tiny": (
        Rough("tiny beside 1e4", lambda x: x[:1] + ((x[1:] + 1e4) - 1e4), ([1e-13, 2e-13],)),
        Rough("tiny beside 1e8", lambda x: ((x + 1e8) - 1e8).sin(), ([3e-7, 1e-6],)),
        Rough("tiny beside 1", lambda x: (x + 1).log(), ([1e-14, 2e-13],)),
        Rough("1e-6 beside 1e4", lambda x: x[:1].exp() + ((x[1:] + 1e4) - 1e4), ([1e-6, 2e-6],)),
        Rough("tiny, of 1e5", lambda x: (1e5 * x).sin(), ([1e-9, 3e-8],)),
        Rough("tiny and smooth", lambda x: x.exp() * x.sum(), ([1e-6, 1e-9, 3e-7],)),
        Rough("a lone tiny one", lambda x: (x + 1e4) - 1e4, ([1e-11, 0.3],)),
        Rough("an output of 1", lambda x: 1 + x.prod().reshape(1), ([1e-6, 2e-6],)),
    ),
    "saturated": (
        Rough("tanh from 4 to 12", torch.tanh, ([4.0, 6.0, 9.0, -12.0],), SINGLE),
        Rough("gelu from -3 to -7", F.gelu, ([-3.0, -5.0, -6.0, -7.0],), SINGLE),
        Rough("sigmoid from 6 to 20", torch.sigmoid, ([6.0, 12.0, 17.0, -20.0],), SINGLE),
        Rough("erf", torch.erf, ([2.0, 3.5, -4.0],), SINGLE),
        Rough("1 + erf", lambda x: 1 + x.erf(), ([-2.0, -3.5, -4.0],), SINGLE),
        Rough("softplus", F.softplus, ([-12.0, -18.0, 18.0],), SINGLE),
        Rough("silu", F.silu, ([-12.0, -17.0, 3.0],), SINGLE),
        Rough("1 - cos", lambda x: 1 - x.cos(), ([1e-3, 1e-2, 0.2],), SINGLE),
    ),
    "noise": (
        Rough("sine, 1e-9", torch.sin, (spaced(2),), noise=1e-9),
        Rough("exp, 1e-7", torch.exp, (spaced(2),), noise=1e-7),
        Rough("tanh, 1e-6", torch.tanh, ([0.4, 2.0],), noise=1e-6),
        Rough("a pole beside it, 1e-9", torch.reciprocal, ([0.3, -1.1],), noise=1e-9),
        Rough("a kink beside it, 1e-9", lambda x: (x - 0.5).abs() * x, ([0.45, 1.2],), noise=1e-9),
        Rough("waves, 1e-9", lambda x: (9 * x).sin(), (spaced(2),), noise=1e-9),
    ),
}


@dataclass(frozen=True)
class Narrow:
    """A function whose backward is off by a share in float32 alone."""

    name: str
    forward: Callable[[Tensor], Tensor]
    x: Any
    off: float

    @property
    def function(self) -> type[Function]:
        forward, off = self.forward, self.off

        class OffInFloat32(Function):
            @staticmethod
            def forward(ctx: Any, x: Tensor) -> Tensor:
                ctx.save_for_backward(x)
                return forward(x)

            @staticmethod
            def backward(ctx: Any, cotangent: Tensor) -> Tensor:
                (saved,) = ctx.saved_tensors
                leaf = saved.detach().requires_grad_()
                with torch.enable_grad():
                    (gradient,) = torch.autograd.grad(forward(leaf), leaf, cotangent)
                return gradient * (1 + off) if leaf.dtype is torch.float32 else gradient

        return OffInFloat32

    def inputs(self) -> list[Tensor]:
        return [torch.as_tensor(self.x, dtype=torch.float64)]


SHAPES = (
    ("square", torch.square, spaced(5)),
    ("tanh from 3 to 9", torch.tanh, [3.0, 6.0, 9.0]),
    ("variance beside 1e3", lambda x: (x + 1e3).var().reshape(1), spaced(5)),
    ("softmax of 3", lambda x: (3 * x).softmax(0), spaced(5)),
    ("1 - cos", lambda x: 1 - x.cos(), [1e-3, 0.01, 0.4]),
    ("log of a sum", lambda x: x.exp().sum(0, keepdim=True).log(), spaced(5)),
)
NARROW = tuple(
    Narrow(name, forward, x, off) for name, forward, x in SHAPES for off in (0.0, 2e-3, 0.02, 1.0)
)
