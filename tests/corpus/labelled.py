"""Hand-written Functions, each labelled right, wrong or at a kink: what decorations are held
against."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd import Function

from corpus.functions import normal

Label = Literal["right", "wrong", "kink"]


@dataclass(frozen=True)
class Labelled:
    """`label`: of the gradient at these inputs; at a kink any subgradient is right, and the verdict
    may be that it cannot be said."""

    name: str
    label: Label
    function: type[Function]
    arguments: tuple[Any, ...]


def function(forward: Callable[..., Any], backward: Callable[..., Any]) -> type[Function]:
    """`backward(g, *inputs)`: the gradients."""

    class Written(Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Tensor) -> Any:
            ctx.save_for_backward(*inputs)
            return forward(*inputs)

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Any:
            return backward(g, *ctx.saved_tensors)

    return Written


def vector(*values: float, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.tensor(values, dtype=dtype)


def square(factor: Callable[[Tensor], Any]) -> type[Function]:
    return function(lambda x: x * x, lambda g, x: 2 * g * x * factor(x))


def near_zero(x: Tensor) -> Tensor:
    """A sign, where x is small."""
    return torch.where(x.abs() < 0.01, -1.0, 1.0).to(x.dtype)


def softmax_backward(g: Tensor, x: Tensor) -> Tensor:
    y = x.softmax(-1)
    return y * (g - (g * y).sum(-1, keepdim=True))


def product_backward(tail: float) -> Callable[..., Any]:
    """Of x @ w; `tail`: a factor of the last row of the gradient to w."""

    def backward(g: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        of_w = x.mT @ g
        return g @ w.mT, torch.cat([of_w[:-1], tail * of_w[-1:]])

    return backward


def largest_backward(g: Tensor, x: Tensor) -> Tensor:
    """The largest elements of a row share its gradient."""
    largest = x == x.amax(1, keepdim=True)
    return g[:, None] * largest / largest.sum(1, keepdim=True)


SINGLE = torch.float32
SPREAD = (100.0, 3.0, 0.005, -0.002)
ROWS = torch.tensor([[1.0, 1.0, -2.0], [0.3, -0.4, 0.3]], dtype=torch.float64)
X, W = normal(3, 4), normal(4, 2, seed=1)
SIMPLE = (
    Labelled("square", "right", square(lambda x: 1), (vector(*SPREAD),)),
    Labelled("square in float32", "right", square(lambda x: 1), (vector(*SPREAD, dtype=SINGLE),)),
    Labelled("softmax", "right", function(lambda x: x.softmax(-1), softmax_backward), (X,)),
    Labelled("product", "right", function(torch.matmul, product_backward(1.0)), (X, W)),
    Labelled(
        "sine of an exponential in float32",
        "right",
        function(lambda x: x.exp().sin(), lambda g, x: g * x.exp() * x.exp().cos()),
        (normal(2, 3).float(),),
    ),
    Labelled("sign near zero", "wrong", square(near_zero), (vector(*SPREAD),)),
    Labelled(
        "sign near zero in float32", "wrong", square(near_zero), (vector(*SPREAD, dtype=SINGLE),)
    ),
    Labelled(
        "softmax without its sum",
        "wrong",
        function(lambda x: x.softmax(-1), lambda g, x: g * x.softmax(-1)),
        (X,),
    ),
    Labelled(
        "product, a tail 1 % off", "wrong", function(torch.matmul, product_backward(1.01)), (X, W)
    ),
    Labelled(
        "product without its weight",
        "wrong",
        function(torch.matmul, lambda g, x, w: (g @ w.mT, None)),
        (X, W),
    ),
    Labelled(
        "relu at 0",
        "kink",
        function(torch.relu, lambda g, x: g * (x > 0)),
        (vector(-1.0, 0.0, 2.0),),
    ),
    Labelled(
        "relu at 0, half",
        "kink",
        function(torch.relu, lambda g, x: g * ((x > 0) + 0.5 * (x == 0))),
        (vector(-1.0, 0.0, 2.0),),
    ),
    Labelled(
        "abs at 0",
        "kink",
        function(torch.abs, lambda g, x: g * x.sign()),
        (vector(-1.0, 0.0, 2.0),),
    ),
    Labelled(
        "the largest of two alike", "kink", function(lambda x: x.amax(1), largest_backward), (ROWS,)
    ),
    Labelled(
        "clamp at its end",
        "kink",
        function(lambda x: x.clamp(0, 1), lambda g, x: g * ((x > 0) & (x < 1))),
        (vector(-1.0, 1.0, 0.5),),
    ),
    Labelled(
        "relu at 0, twice",
        "wrong",
        function(torch.relu, lambda g, x: g * ((x > 0) + 2.0 * (x == 0))),
        (vector(-1.0, 0.0, 2.0),),
    ),
    Labelled(
        "abs at 0, twice",
        "wrong",
        function(torch.abs, lambda g, x: g * (x.sign() + 2.0 * (x == 0))),
        (vector(-1.0, 0.0, 2.0),),
    ),
)
