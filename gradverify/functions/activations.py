"""Activations: elementwise (ReLU, Sigmoid), or along one dimension (Softmax)."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.autograd import Function


class ReLU(Function):
    """`max(input, 0)`, real. Saves the output; at 0 the gradient is 0, a valid subgradient."""

    @staticmethod
    def forward(input: Tensor) -> Tensor:
        return input.clamp(min=0)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        (output,) = ctx.saved_tensors
        return grad_output.masked_fill(output <= 0, 0)


class Sigmoid(Function):
    """`1 / (1 + exp(-input))`."""

    @staticmethod
    def forward(ctx: Any, input: Tensor) -> Tensor:
        ctx.save_for_backward(input)
        return input.sigmoid()

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        """Use the slope σ(x)σ(−x) rather than y(1 − y), which cancels where y is close to 1."""
        (input,) = ctx.saved_tensors
        slope: Tensor = Sigmoid.apply(input) * Sigmoid.apply(-input)  # type: ignore[no-untyped-call]
        return grad_output * slope.conj()


class Softmax(Function):
    """`exp(input) / sum(exp(input))` along `dim`, finite for inputs of any finite size. Saves the
    output."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, dim: int) -> Tensor:
        weights = below_largest(input, dim).exp()
        output = weights / weights.sum(dim, keepdim=True)
        ctx.dim = dim
        ctx.save_for_backward(output)
        return output

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None]:
        (output,) = ctx.saved_tensors
        mean = (grad_output * output).sum(ctx.dim, keepdim=True)
        return output * (grad_output - mean), None


def below_largest(input: Tensor, dim: int) -> Tensor:
    """Return `input` minus its largest element along `dim`, whose softmax is the same and whose
    exponential cannot overflow."""
    if input.numel() == 0:
        return input
    return input - input.amax(dim, keepdim=True)
