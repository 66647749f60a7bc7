"""The linear layer, as one Function, as a matrix product plus an addition, and as a module."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function

from gradverify.functions.arithmetic import Add


class LinearFunction(Function):
    """`input @ weight.T + bias`: input (..., in), weight (out, in), bias (out) or None, result
    (..., out).

    Raises ValueError for a bias of another shape or dtype, which would broadcast or promote and so
    change what the backward must do.
    """

    @staticmethod
    def forward(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        if bias is None:
            return input @ weight.T
        if bias.shape != weight.shape[:1] or bias.dtype != weight.dtype:
            raise ValueError(
                f"linear: bias must be {weight.dtype} of shape {list(weight.shape[:1])}, one "
                f"number per row of weight, not {bias.dtype} of shape {list(bias.shape)}"
            )
        return input @ weight.T + bias

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        input, weight = inputs[:2]
        ctx.save_for_backward(
            input if ctx.needs_input_grad[1] else None, weight if ctx.needs_input_grad[0] else None
        )

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        input, weight = ctx.saved_tensors
        needs = ctx.needs_input_grad
        grad_input = grad_output @ weight.conj() if needs[0] else None
        grad_weight = torch.einsum("...o,...i->oi", grad_output, input.conj()) if needs[1] else None
        grad_bias = (
            grad_output.sum_to_size(grad_output.shape[-1:]) if len(needs) > 2 and needs[2] else None
        )
        return (grad_input, grad_weight, grad_bias)[: len(needs)]


class MatMul(Function):
    """`x @ w` of two matrices: x (n, k), w (k, m), result (n, m)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        ctx.save_for_backward(
            x if ctx.needs_input_grad[1] else None, w if ctx.needs_input_grad[0] else None
        )
        return torch.mm(x, w)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, w = ctx.saved_tensors
        grad_x = grad_output @ w.mH if ctx.needs_input_grad[0] else None
        grad_w = x.mH @ grad_output if ctx.needs_input_grad[1] else None
        return grad_x, grad_w


def affine(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """`x @ w + b` by composing MatMul and Add: x (n, k), w (k, m), b broadcast to (n, m)."""
    product: Tensor = MatMul.apply(x, w)  # type: ignore[no-untyped-call]
    result: Tensor = Add.apply(product, b)  # type: ignore[no-untyped-call]
    return result


class Linear(nn.Module):
    """Holds weight (out_features, in_features) and bias (out_features), or None with `bias=False`,
    and calls LinearFunction.

    Both start uniform within ±1/√in_features, as `torch.nn.Linear` does.
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        super().__init__()
        bound = 1 / math.sqrt(max(in_features, 1))
        self.weight = nn.Parameter(torch.empty(out_features, in_features).uniform_(-bound, bound))
        self.bias = (
            nn.Parameter(torch.empty(out_features).uniform_(-bound, bound)) if bias else None
        )

    def forward(self, input: Tensor) -> Tensor:
        """input: (..., in_features); returns (..., out_features)."""
        result: Tensor = LinearFunction.apply(input, self.weight, self.bias)  # type: ignore[no-untyped-call]
        return result
