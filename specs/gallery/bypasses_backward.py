"""A Function whose `apply` takes plain torch operations for small inputs.

Every test runs on small inputs, is right, and tests autograd: the backward that production runs has
never been executed. Repair: let the Function be what runs at every size, or check the size at which
it does.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.autograd import Function


class Right(Function):
    """`x * sigmoid(x)`, always through its own backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x.sigmoid()

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        x: Tensor = ctx.saved_tensors[0]
        gate = x.sigmoid()
        return grad_output * gate * (1 + x * (1 - gate))


class Faulty(Right):
    """The same, except for small inputs."""

    SMALL = 4096

    @classmethod
    def apply(cls, x: Tensor) -> Any:
        if x.numel() < cls.SMALL:
            return x * x.sigmoid()
        return super().apply(x)  # type: ignore[no-untyped-call]
