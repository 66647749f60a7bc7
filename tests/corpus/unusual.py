"""Right Functions that do what a simple check of contracts trips over: every rule must leave them alone."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from corpus.functions import Sample, normal


class ReturnsIndices(Function):
    """Row maxima and, not differentiable, where they are."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        values, places = x.max(1)
        ctx.mark_non_differentiable(places)
        ctx.save_for_backward(places)
        ctx.shape = x.shape
        return values, places

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> Tensor:
        places, = ctx.saved_tensors
        return grad.new_zeros(ctx.shape).scatter(1, places[:, None], grad[:, None])


class LeavesGradientsUndefined(Function):
    """Sum and product under set_materialize_grads(False), with None where nothing came."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, y)
        return x + y, x * y

    @staticmethod
    def backward(ctx: Any, of_sum: Tensor | None, of_product: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
        x, y = ctx.saved_tensors
        if of_product is None:
            return of_sum, of_sum
        if of_sum is None:
            return of_product * y, of_product * x
        return of_sum + of_product * y, of_sum + of_product * x


class SetsUpContext(Function):
    @staticmethod
    def forward(x: Tensor, factor: float) -> Tensor:
        return x.exp() * factor

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        output, = ctx.saved_tensors
        return grad * output, None


class WritesItsInput(Function):
    """x tripled in place."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.mark_dirty(x)
        return x.mul_(3)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return 3 * grad


class RefusesWhatIsNotContiguous(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        if not x.is_contiguous():
            raise ValueError("x must be contiguous")
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        x, = ctx.saved_tensors
        return grad * x.cos()


class RefusesFloat32(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        if x.dtype != torch.float64:
            raise TypeError("x must be float64")
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        x, = ctx.saved_tensors
        return grad * x.cos()


class RefusesASecondBackward(Function):
    """Frees what it holds in its first backward, as reversible nets do."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.held = x.detach().clone()
        return x.tanh()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        if ctx.held is None:
            raise RuntimeError("this graph was used already")
        x, ctx.held = ctx.held, None
        return grad * (1 - x.tanh() ** 2)


class ReturnsAView(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.t()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad.t()


class KeepsScratchOnCtx(Function):
    """A buffer on ctx that every backward writes anew."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        ctx.scratch = torch.empty_like(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        x, = ctx.saved_tensors
        torch.mul(x, grad, out=ctx.scratch)
        return 2 * ctx.scratch


class DrawsAMask(Function):
    """Dropout."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        mask = (torch.rand_like(x) < 0.5).to(x.dtype) * 2
        ctx.save_for_backward(mask)
        return x * mask

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        mask, = ctx.saved_tensors
        return grad * mask


class LooksUp(Function):
    """table[index], added up where an index repeats."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, index: Tensor) -> Tensor:
        ctx.save_for_backward(index)
        ctx.shape = table.shape
        return table[index]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        index, = ctx.saved_tensors
        return grad.new_zeros(ctx.shape).index_add(0, index, grad), None


class RefusesRepeatedIndices(LooksUp):
    @staticmethod
    def forward(ctx: Any, table: Tensor, index: Tensor) -> Tensor:
        if len(index.unique()) < len(index):
            raise ValueError("an index repeats")
        return LooksUp.forward(ctx, table, index)


def _index() -> Tensor:
    return torch.tensor([3, 0, 1])


UNUSUAL = (
    Sample("mark_non_differentiable", ReturnsIndices.apply, lambda: (normal(),)),
    Sample("set_materialize_grads(False)", LeavesGradientsUndefined.apply, lambda: (normal(), normal(seed=1))),
    Sample("setup_context", lambda x: SetsUpContext.apply(x, 0.5), lambda: (normal(),)),
    Sample("mark_dirty", WritesItsInput.apply, lambda: (normal(),)),
    Sample("refuses what is not contiguous", RefusesWhatIsNotContiguous.apply, lambda: (normal(),)),
    Sample("refuses float32", RefusesFloat32.apply, lambda: (normal(),)),
    Sample("refuses a second backward", RefusesASecondBackward.apply, lambda: (normal(),)),
    Sample("only leaf .backward()", lambda x: checkpoint(lambda t: t.sin() * t, x, use_reentrant=True), lambda: (normal(),)),
    Sample("returns a view", ReturnsAView.apply, lambda: (normal(),)),
    Sample("scratch on ctx", KeepsScratchOnCtx.apply, lambda: (normal(),)),
    Sample("draws a mask", DrawsAMask.apply, lambda: (normal(),)),
    Sample("looks up", LooksUp.apply, lambda: (normal(4, 2), _index())),
    Sample("refuses repeated indices", RefusesRepeatedIndices.apply, lambda: (normal(4, 2), _index())),
)
