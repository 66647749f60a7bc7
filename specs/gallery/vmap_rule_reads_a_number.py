"""A scaling by the largest magnitude that says it can be vmapped, and takes that magnitude out of
torch.

Alone it works. Under vmap there is one magnitude per example, and `.item()` of all of them is
refused: the generated rule raises. Repair: keep the number a tensor.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.autograd import Function


class Faulty(Function):
    """`x / max |scale|`; scale is not differentiated."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, scale: Tensor) -> Tensor:
        return x / scale.abs().amax().item()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None]:
        (scale,) = ctx.saved_tensors
        return grad_output / scale.abs().amax(), None


class Right(Faulty):
    """The magnitude as a tensor."""

    @staticmethod
    def forward(x: Tensor, scale: Tensor) -> Tensor:
        return x / scale.abs().amax()
