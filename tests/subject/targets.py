"""Things that a spec's `function` may or may not name."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable


class Old(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float = 2.0) -> Tensor:
        ctx.factor = factor
        return x * factor

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None]:
        return grad_output * ctx.factor, None


class Once(Old):
    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None]:
        return grad_output * ctx.factor, None


class New(Function):
    @staticmethod
    def forward(x: Tensor, factor: float) -> Tensor:
        return x * factor

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.factor = inputs[1]

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None]:
        return grad_output * ctx.factor, None


class Inherits(Old):
    pass


class WithVjp(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 3

    @staticmethod
    def vjp(ctx: Any, grad_output: Tensor) -> Tensor:
        return grad_output * 3


class TakesAll(Function):
    @staticmethod
    def forward(*args: Any) -> Tensor:
        return args[1] * 2

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        return grad_output * 2


class OwnApply(Old):
    @staticmethod
    def apply(y: Tensor) -> Tensor:
        return Old.apply(y, 2.0)


class Layer(nn.Module):
    def __init__(self, width: int, bias: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((width,), 1 / 3))
        self.bias = nn.Parameter(torch.zeros(width)) if bias else None
        self.frozen = nn.Parameter(torch.ones(width), requires_grad=False)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: Tensor, scale: float = 1.0) -> Tensor:
        self.seen += 1
        y = x * self.weight * scale * self.frozen
        return y if self.bias is None else y + self.bias


class Nothing:
    pass


LAYER = Layer(2).float()
NUMBER = 3


def plain(x: Tensor, y: Tensor, scale: float = 2.0, *, shift: float = 0.0) -> Tensor:
    return x - y * scale + shift


def many(*tensors: Tensor) -> Tensor:
    return sum(tensors)  # type: ignore[return-value]


def made(seed: int, dtype: torch.dtype, device: torch.device) -> tuple[Any, ...]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, generator=generator, dtype=dtype).to(device), torch.rand(2, dtype=dtype)


def made_in_quarter(seed: int, dtype: torch.dtype, device: torch.device) -> tuple[Any, ...]:
    return (torch.ones(2).to(torch.float8_e5m2),) * 2


def made_badly(seed: int, dtype: torch.dtype, device: torch.device) -> int:
    return 3


def made_not_at_all(seed: int, dtype: torch.dtype, device: torch.device) -> None:
    raise OSError("no data")


def marked(*_, **__):
    return lambda found: found


@marked(1)
@marked(
    key="def",
)
def decorated(x):
    return x.sin()


brief = lambda x: x.sin()  # noqa: E731


@marked()
async def waiting(x):
    return x


def below(x):
    return x


@marked()
class Decorated(torch.nn.Module):
    def forward(self, x):
        return x.sin()
