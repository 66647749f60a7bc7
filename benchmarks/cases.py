"""What the benchmark of speed checks: operators with torch's own gradients, and one forward in
NumPy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

INDEX = torch.tensor([1, 3, 3, 7, 1, 0, 19, 3])


@dataclass(frozen=True)
class Case:
    """A forward and the shapes of its inputs, all drawn from a normal distribution in float64;
    `too_long`: modes that are not asked of it."""

    name: str
    forward: Callable[..., Tensor]
    shapes: tuple[tuple[int, ...], ...]
    too_long: tuple[str, ...] = ()

    def inputs(self) -> tuple[Tensor, ...]:
        generator = torch.Generator().manual_seed(0)
        return tuple(
            torch.randn(shape, generator=generator, dtype=torch.float64) for shape in self.shapes
        )

    @property
    def size(self) -> tuple[int, int]:
        """Elements of all inputs, and of the output."""
        inputs = self.inputs()
        with torch.no_grad():
            return sum(x.numel() for x in inputs), self.forward(*inputs).numel()


class NumpySwish(torch.autograd.Function):
    """x · sigmoid(x), both ways in NumPy."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        a = x.detach().numpy()
        return torch.from_numpy(a / (1 + np.exp(-a)))

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> Tensor:
        a = ctx.saved_tensors[0].detach().numpy()
        s = 1 / (1 + np.exp(-a))
        return cotangent * torch.from_numpy(s * (1 + a * (1 - s)))


def numpy_swish(x: Tensor) -> Tensor:
    result: Tensor = NumpySwish.apply(x)  # type: ignore[no-untyped-call]
    return result


def softmax(x: Tensor) -> Tensor:
    return x.softmax(-1)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], weight, bias)


def convolution(x: Tensor, weight: Tensor) -> Tensor:
    return F.conv2d(x, weight, padding=1)


def embedding(table: Tensor) -> Tensor:
    return F.embedding(INDEX, table)


def cumsum(x: Tensor) -> Tensor:
    return x.cumsum(-1)


def mlp(x: Tensor, first: Tensor, second: Tensor) -> Tensor:
    return torch.tanh(x @ first / 8) @ second / 8


def max_pool(x: Tensor) -> Tensor:
    return F.max_pool2d(x, 2)


def ordered(x: Tensor) -> Tensor:
    return x.sort(-1).values


def dense(inputs: int, outputs: int) -> Case:
    weight = (
        torch.randn(
            outputs, inputs, generator=torch.Generator().manual_seed(1), dtype=torch.float64
        )
        / inputs**0.5
    )
    return Case(f"tanh(Wx) {inputs}→{outputs}", lambda x: torch.tanh(weight @ x), ((inputs,),))


CASES = (
    Case("gelu 64×64", F.gelu, ((64, 64),)),
    Case("softmax 128×16", softmax, ((128, 16),)),
    Case("layer_norm 64×32, weight, bias", layer_norm, ((64, 32), (32,), (32,))),
    Case("linear (32,128)·(128,10)", torch.matmul, ((32, 128), (128, 10))),
    Case("conv1d (4,4,64)·(4,4,3)", F.conv1d, ((4, 4, 64), (4, 4, 3))),
    Case("conv2d (2,3,8,8)·(4,3,3,3)", convolution, ((2, 3, 8, 8), (4, 3, 3, 3))),
    Case("attention 2 heads, 32×16", F.scaled_dot_product_attention, ((1, 2, 32, 16),) * 3),
    Case("embedding 20×8, repeated indices", embedding, ((20, 8),)),
    Case("cumsum 16×32", cumsum, ((16, 32),)),
    Case("MLP 64→64→64, batch 4", mlp, ((4, 64), (64, 64), (64, 64))),
    Case("max_pool2d (2,3,16,16)", max_pool, ((2, 3, 16, 16),)),
    Case("sort 16×16", ordered, ((16, 16),)),
    Case("swish 32×32 in NumPy", numpy_swish, ((32, 32),)),
    dense(400, 400),
    dense(400, 50),
    dense(50, 400),
    Case("gelu 1000×1000", F.gelu, ((1000, 1000),)),
    Case("softmax 1000×1000", softmax, ((1000, 1000),), ("entries", "rows")),
    Case(
        "layer_norm 1024×1024, weight, bias",
        layer_norm,
        ((1024, 1024), (1024,), (1024,)),
        ("entries", "rows"),
    ),
)
