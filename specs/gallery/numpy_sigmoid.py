"""The tutorial's sigmoid: forward leaves torch for NumPy.

On the CPU it is right. A CUDA tensor has no NumPy view, so forward raises there, and `vmap` cannot
look inside; its backward can be differentiated again only because it happens to use torch. Repair:
compute in torch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import Function


class Faulty(Function):
    """`1 / (1 + exp(-x))`, computed by NumPy."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        output = torch.as_tensor(1 / (1 + np.exp(-x.detach().numpy())))
        ctx.save_for_backward(output)
        return output

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        output: Tensor = ctx.saved_tensors[0]
        return grad_output * output * (1 - output)


class Right(Faulty):
    """Computed by torch, on the device where the tensor is."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        output = 1 / (1 + (-x).exp())
        ctx.save_for_backward(output)
        return output
