"""Functions that set parts of a tensor to zero."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.autograd import Function


class KillHead(Function):
    """A copy of `input` (..., columns) with its first n columns set to zero; n is a plain integer,
    0 ≤ n ≤ columns.

    Raises ValueError for any other n. Saves no tensor: the map is its own adjoint.
    """

    @staticmethod
    def forward(ctx: Any, input: Tensor, n: int) -> Tensor:
        ctx.n = checked(n, input)
        output = input.clone()
        output[..., :n] = 0
        return output

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None]:
        grad_input: Tensor = KillHead.apply(grad_output, ctx.n)  # type: ignore[no-untyped-call]
        return grad_input, None


def checked(n: int, input: Tensor) -> int:
    """Return n if `input` has so many columns. Raises ValueError otherwise."""
    if input.ndim == 0:
        raise ValueError("kill_head: input must have columns, and a 0-dim tensor has none")
    if not isinstance(n, int) or isinstance(n, bool):
        raise ValueError(
            f"kill_head: n must be a plain integer, the number of columns to clear, not {n!r}"
        )
    if not 0 <= n <= input.shape[-1]:
        raise ValueError(
            f"kill_head: n must be between 0 and {input.shape[-1]}, the columns of input, not {n}"
        )
    return n
