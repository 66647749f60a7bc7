"""A moving average with repeated borders whose backward pads with zeros.

Everything inside is right; only the first and last column lose the share that the repeated border
adds. A network learns around it and shows artefacts at the edges of its images. Repair: what
forward repeats, backward must add up.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function


class Faulty(Function):
    """Mean of each element and its two neighbours along the last dimension; outside the border the
    border is repeated, forward only."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        padded = torch.cat([x[..., :1], x, x[..., -1:]], -1)
        return three_taps(padded)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        nothing = torch.zeros_like(grad_output[..., :1])
        return three_taps(torch.cat([nothing, grad_output, nothing], -1))


class Right(Faulty):
    """The first output reads the first element twice, the last output the last one."""

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        return three_taps(torch.cat([grad_output[..., :1], grad_output, grad_output[..., -1:]], -1))


def three_taps(padded: Tensor) -> Tensor:
    """The mean of every three neighbours; two columns fewer than `padded`. With equal taps it is
    its own adjoint."""
    return (padded[..., :-2] + padded[..., 1:-1] + padded[..., 2:]) / 3
