"""Losses."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from gradverify.functions.activations import Softmax, below_largest


class CrossEntropy(Function):
    """Mean over N of −log softmax(input)[n, target[n]]: input (N, C) floating, target (N) int64 in
    [0, C), result 0-dim.

    Raises ValueError where the two do not fit. The mean over no examples is NaN, as it is for
    `torch.nn.functional.cross_entropy`.
    """

    @staticmethod
    def forward(input: Tensor, target: Tensor) -> Tensor:
        if input.ndim != 2 or target.shape != input.shape[:1] or target.dtype != torch.int64:
            raise ValueError(
                "cross_entropy: input must be (N, C) and target int64 of shape (N), "
                f"not {list(input.shape)} and {target.dtype} of {list(target.shape)}"
            )
        logits = below_largest(input, 1)
        chosen = logits.gather(1, target[:, None])
        return (logits.exp().sum(1, keepdim=True).log() - chosen).mean()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None]:
        input, target = ctx.saved_tensors
        probabilities: Tensor = Softmax.apply(input, 1)  # type: ignore[no-untyped-call]
        truth = torch.zeros_like(input).scatter(1, target[:, None], 1)
        return (probabilities - truth) * (grad_output / target.numel()), None
