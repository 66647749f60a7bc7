"""Faults planted in a gradient at places that are known, and what a comparison names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from gradverify.numerics.choose import Mode
from gradverify.numerics.compare import compare
from gradverify.numerics.pairs.pair import Outcome
from gradverify.numerics.seeds import Seed
from numerics.differentiable import Differentiable

Forward = Callable[[Tensor], Tensor]
Spoil = Callable[[Tensor, Tensor, Tensor], None]
Place = tuple[int, int]


def spoilt(forward, spoil=None, taught=None):
    """`forward` with the gradient of `taught` (its own, where None); `spoil` writes into that
    gradient and is given x and the cotangent."""

    class Spoilt(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return forward(x)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            with torch.enable_grad():
                again = x.detach().requires_grad_()
                (gradient,) = torch.autograd.grad((taught or forward)(again), again, g)
            gradient = gradient.clone()
            if spoil:
                spoil(gradient, x, g)
            return gradient

    return Spoilt.apply


@dataclass(frozen=True)
class Planted:
    """`places`: (output, input), flat, of every entry of the Jacobian that is wrong; `unseen`: the
    comparisons that do not claim to see it."""

    forward: Forward
    x: Tensor
    places: frozenset[Place]
    spoil: Spoil | None = None
    taught: Forward | None = None
    unseen: frozenset[Mode] = field(default_factory=frozenset)

    def compared(self, mode, seed=0):
        function = Differentiable(spoilt(self.forward, self.spoil, self.taught), self.x)
        return compare(function, mode=mode, seed=Seed(seed), keep=200)

    def right(self, mode):
        """The same without the fault."""
        return compare(Differentiable(spoilt(self.forward), self.x), mode=mode)

    def lines(self, mode):
        """How many entries or rows are faulty; no fewer than the blocks that are."""
        return len({j for j, _ in self.places} if mode is Mode.ROWS else self.places)


def named(compared):
    """The (output, input) that are called a mismatch, of the only pair."""
    (pair,) = compared.pairs
    return {
        (worst.output_index, worst.input_index)
        for worst in pair.worst
        if worst.outcome is Outcome.MISMATCH
    }
