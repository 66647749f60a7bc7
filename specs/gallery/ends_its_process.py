"""A forward that ends its process, and one that does not come back; there are no right twins of
these."""

from __future__ import annotations

import os
import time
from typing import Any

from torch import Tensor
from torch.autograd import Function


class Aborts(Function):
    """x²; forward gives up as an assertion in native code does."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        os.abort()

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        return grad_output


class Hangs(Function):
    """x²; backward waits for what never comes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        while True:
            time.sleep(1)
