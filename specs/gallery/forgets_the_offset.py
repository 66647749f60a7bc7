"""log(cosh(x)) without its constant −log 2.

The derivative of a constant is zero: backward fits its own forward, finite differences agree, and
training goes the same way. Only the value is wrong, and with it every loss that is reported,
compared or stopped by. Repair: subtract log 2. Only another implementation can tell.
"""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor
from torch.autograd import Function


class Faulty(Function):
    """`|x| + log(1 + exp(-2|x|))`, which is log(cosh(x)) + log 2."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return log_of_twice_cosh(x)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        x: Tensor = ctx.saved_tensors[0]
        return grad_output * x.tanh()


class Right(Faulty):
    """With the constant."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return log_of_twice_cosh(x) - math.log(2)


def log_of_twice_cosh(x: Tensor) -> Tensor:
    """log(2·cosh(x)) without overflow."""
    return x.abs() + (-2 * x.abs()).exp().log1p()


def reference(x: Tensor) -> Tensor:
    """log(cosh(x)) as it is written; for |x| below about 700."""
    return x.cosh().log()
