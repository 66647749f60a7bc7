"""The functions whose gradients are checked: small, smooth, with torch's own gradients, at any
scale and precision."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

# The magnitudes that "mixed scales" holds side by side
SPREAD = torch.logspace(-4, 4, 6, dtype=torch.float64)


@dataclass(frozen=True)
class Family:
    """A forward with the shapes of its inputs; `scale_free`: evaluated at inputs of any scale as it
    is, else at x / scale.

    positive: drawn above 0. complex: holomorphic, or at least differentiable in the real and the
    imaginary part, for complex inputs too.
    """

    name: str
    forward: Callable[..., Tensor]
    shapes: tuple[tuple[int, ...], ...] = ((6,),)
    scale_free: bool = False
    positive: bool = False
    complex: bool = False

    def inputs(self, seed: int, scale: float, dtype: torch.dtype) -> tuple[Tensor, ...]:
        """The same draw for every scale and precision."""
        generator = torch.Generator().manual_seed(zlib.crc32(f"{self.name} {seed}".encode()))
        draw = torch.complex128 if dtype.is_complex else torch.float64
        drawn = [torch.randn(shape, generator=generator, dtype=draw) for shape in self.shapes]
        return tuple((scale * (x.abs() + 0.1 if self.positive else x)).to(dtype) for x in drawn)

    def at(self, scale: float) -> Callable[..., Tensor]:
        """The forward whose own length is `scale`."""
        return (
            self.forward
            if self.scale_free
            else lambda *inputs: self.forward(*(x / scale for x in inputs))
        )


def rational(x: Tensor) -> Tensor:
    return x / (2 + x * x)


def mixed_scales(x: Tensor) -> Tensor:
    size = SPREAD.to(x.dtype)
    return (size * x).sin() / size


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q @ k.mT).softmax(-1) @ v


def layer_norm(x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:])


def sum_of_squares(x: Tensor) -> Tensor:
    return (x * x).sum()


def softmax(x: Tensor) -> Tensor:
    return x.softmax(-1)


def logsumexp(x: Tensor) -> Tensor:
    return x.logsumexp(-1)


def cumsum(x: Tensor) -> Tensor:
    return x.cumsum(0)


def power(x: Tensor) -> Tensor:
    return x**2.5


def square(x: Tensor) -> Tensor:
    return x * x


def cross_entropy(x: Tensor) -> Tensor:
    return F.cross_entropy(x, torch.arange(len(x)) % x.shape[-1])


FAMILIES = (
    Family("exp", torch.exp, complex=True),
    Family("log", torch.log, scale_free=True, positive=True),
    Family("sin", torch.sin, complex=True),
    Family("tanh", torch.tanh, complex=True),
    Family("sigmoid", torch.sigmoid, complex=True),
    Family("gelu", F.gelu),
    Family("power", power, scale_free=True, positive=True),
    Family("square", square, scale_free=True, complex=True),
    Family("rational", rational, complex=True),
    Family("mixed scales", mixed_scales),
    Family("softmax", softmax, ((2, 4),)),
    Family("logsumexp", logsumexp, ((2, 4),)),
    Family("cross_entropy", cross_entropy, ((2, 4),)),
    Family("layer_norm", layer_norm, ((2, 4),), scale_free=True),
    Family("normalize", F.normalize, ((2, 3),), scale_free=True),
    Family("norm", torch.linalg.vector_norm, scale_free=True, complex=True),
    Family("sum of squares", sum_of_squares, scale_free=True, complex=True),
    Family("cumsum", cumsum, scale_free=True, complex=True),
    Family("matmul", torch.matmul, ((2, 3), (3, 2)), scale_free=True, complex=True),
    Family("attention", attention, ((2, 3), (2, 3), (2, 3))),
)
