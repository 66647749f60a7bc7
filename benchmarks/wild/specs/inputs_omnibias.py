"""What the gradients of omnibias-binary are said to be the derivatives of."""

from __future__ import annotations

import torch
from torch import Tensor


def binary(z: Tensor, beta: Tensor) -> Tensor:
    return torch.tanh(beta * z)


def zero_or_one(z: Tensor, beta: Tensor) -> Tensor:
    return torch.sigmoid(beta * z)


def ternary(z: Tensor, beta: Tensor, delta: float) -> Tensor:
    return (torch.tanh(beta * (z - delta)) + torch.tanh(beta * (z + delta))) / 2
