"""A square whose forward keeps its input in bfloat16 when it runs inside autocast.

Meant to save memory in mixed-precision training, it does so for float64 inputs too, which autocast
itself leaves alone: eight bits are left of the gradient. Without autocast nothing shows. Repair:
leave casting to autocast, or use `torch.amp.custom_fwd`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function


class Faulty(Function):
    """`x ** 2`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x.bfloat16() if torch.is_autocast_enabled(x.device.type) else x)
        return x * x

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        x: Tensor = ctx.saved_tensors[0]
        return grad_output * 2 * x


class Right(Faulty):
    """The input is kept as it is."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x
