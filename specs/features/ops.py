"""Functions that the specs of this folder check, and the Python that they name: draws, oracles,
operators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd import Function

ALPHA = 4.0


# ---- draws
def chain(
    shape: list[int], dtype: torch.dtype, device: torch.device, generator: torch.Generator
) -> Tensor:
    """The adjacency matrix of a chain with random positive weights: what no list of distributions
    offers."""
    n = shape[-1]
    weights = torch.rand(n - 1, generator=generator, dtype=dtype, device=device) + 0.5
    return torch.diag(weights, 1) + torch.diag(weights, -1)


def edges(
    shape: list[int], dtype: torch.dtype, device: torch.device, generator: torch.Generator
) -> Tensor:
    """Random edges [2, n] among four nodes, as integers."""
    return torch.randint(4, tuple(shape), generator=generator, device=device)


def propagate(x: Tensor, edges: Tensor) -> Tensor:
    """Sums the features of the source nodes into the target nodes."""
    return torch.zeros_like(x).index_add(0, edges[1], x[edges[0]])


def two_layers(seed: int, dtype: torch.dtype, device: torch.device) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(seed)
    return {
        "tensors": [
            torch.randn(2, n, generator=generator, dtype=torch.float64).to(device, dtype)
            for n in (1, 3)
        ],
        "dim": 1,
    }


# ---- structured outputs
@dataclass
class Loss:
    total: Tensor
    parts: list[Tensor]


class Moments(NamedTuple):
    mean: Tensor
    variance: Tensor


def losses(x: Tensor) -> dict[str, Any]:
    return {
        "loss": Loss(x.square().sum(), [x.exp(), x.sin()]),
        "moments": Moments(x.mean(), x.var()),
        "count": x.numel(),
    }


def polar(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return torch.hypot(x, y), torch.atan2(y, x)


def polar_gradient(x: Any, y: Any, grad_radius: Any, grad_angle: Any) -> tuple[Any, Any]:
    r = np.hypot(x, y)
    return grad_radius * x / r - grad_angle * y / r**2, grad_radius * y / r + grad_angle * x / r**2


# ---- gradients that are meant to differ from the forward's own
class RoundThrough(Function):
    """Rounds; backward lets the gradient through (a straight-through estimator)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.round()

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        return grad_output.clone()


class Reverse(Function):
    """The identity; backward turns the gradient round and scales it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: float) -> Tensor:
        ctx.scale = scale
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None]:
        return -ctx.scale * grad_output, None


class Spike(Function):
    """A neuron that fires above 0; backward is that of a sigmoid."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return (x > 0).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(ALPHA * x)
        return grad_output * ALPHA * s * (1 - s)


def through(x: Tensor) -> Tensor:
    return x * 1.0


def reversed_identity(x: Tensor, scale: float) -> Tensor:
    return -scale * x


def soft_spike(x: Tensor) -> Tensor:
    return torch.sigmoid(ALPHA * x)


# ---- modules and their references
class Affine(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.rand(width))
        self.shift = nn.Parameter(torch.rand(width))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale + self.shift


class FusedAffine(Affine):
    def forward(self, x: Tensor) -> Tensor:
        return torch.addcmul(self.shift.expand_as(x), x, self.scale)


def affine(x: Tensor, *, shift: Tensor, scale: Tensor) -> Tensor:
    return torch.add(shift, x * scale)


class FusedLinear(torch.autograd.Function):
    """Its backward adds the weight's gradient to `weight.main_grad`, as fused kernels do."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight.t()

    @staticmethod
    def backward(ctx, grad_output):
        x, weight = ctx.saved_tensors
        weight.main_grad += grad_output.t() @ x
        return grad_output @ weight, None
