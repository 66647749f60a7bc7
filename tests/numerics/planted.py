"""Faults planted in a gradient at places that are known, and what a comparison names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from gradverify.numerics.choose import Mode
from gradverify.numerics.compare import Compared, compare
from gradverify.numerics.pairs.pair import Outcome
from gradverify.numerics.seeds import Seed
from numerics.differentiable import Differentiable

Forward = Callable[[Tensor], Tensor]
Spoil = Callable[[Tensor, Tensor, Tensor], None]
Place = tuple[int, int]


def spoilt(forward: Forward, spoil: Spoil | None = None, taught: Forward | None = None) -> Forward:
    """`forward` with the gradient of `taught` (its own, where None); `spoil` writes into that gradient and is given x and the cotangent."""

    class Spoilt(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):  # type: ignore[no-untyped-def]
            ctx.save_for_backward(x)
            return forward(x)

        @staticmethod
        def backward(ctx, g):  # type: ignore[no-untyped-def]
            x, = ctx.saved_tensors
            with torch.enable_grad():
                again = x.detach().requires_grad_()
                gradient, = torch.autograd.grad((taught or forward)(again), again, g)
            gradient = gradient.clone()
            if spoil:
                spoil(gradient, x, g)
            return gradient

    return Spoilt.apply  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Planted:
    """`places`: (output, input), flat, of every entry of the Jacobian that is wrong; `unseen`: the comparisons that do not claim to see it."""

    forward: Forward
    x: Tensor
    places: frozenset[Place]
    spoil: Spoil | None = None
    taught: Forward | None = None
    unseen: frozenset[Mode] = field(default_factory=frozenset)

    def compared(self, mode: Mode, seed: int = 0) -> Compared:
        function = Differentiable(spoilt(self.forward, self.spoil, self.taught), self.x)
        return compare(function, mode=mode, seed=Seed(seed), keep=200)

    def right(self, mode: Mode) -> Compared:
        """The same without the fault."""
        return compare(Differentiable(spoilt(self.forward), self.x), mode=mode)

    def lines(self, mode: Mode) -> int:
        """How many entries or rows are faulty; no fewer than the blocks that are."""
        return len({j for j, _ in self.places} if mode is Mode.ROWS else self.places)


def named(compared: Compared) -> set[Place]:
    """The (output, input) that are called a mismatch, of the only pair."""
    pair, = compared.pairs
    return {(worst.output_index, worst.input_index) for worst in pair.worst if worst.outcome is Outcome.MISMATCH}
