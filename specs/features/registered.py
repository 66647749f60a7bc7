"""An operator that registers itself when this module is imported."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


@torch.library.custom_op("gradverify_features::scaled_sin", mutates_args=())
def scaled_sin(x: Tensor, scale: float) -> Tensor:
    return scale * torch.sin(x)


def _remember(ctx: Any, inputs: tuple[Tensor, float], output: Tensor) -> None:
    ctx.save_for_backward(inputs[0])
    ctx.scale = inputs[1]


def _backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None]:
    (x,) = ctx.saved_tensors
    return grad_output * ctx.scale * torch.cos(x), None


scaled_sin.register_autograd(_backward, setup_context=_remember)
