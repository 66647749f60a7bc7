"""A surrogate: finite differences of another function, for a backward that is meant to differ from
its forward.

Straight-through estimators, gradient reversal, spiking neurons: the forward is flat, or the sign is
turned, on purpose. The function that such a backward is the gradient of can be written down; its
finite differences are what backward must agree with.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from gradverify.oracles.finite_difference import Split
from gradverify.oracles.implementation import Implementation
from gradverify.subject.differentiable import Differentiable
from gradverify.subject.failure import UserCodeError
from gradverify.subject.graph import function_nodes
from gradverify.subject.subject import Subject, filled

# Of the largest number of a gradient: float32's rounding is less, and a factor is more
ALIKE = 1e-4


class Surrogate(Split):
    """The values of the surrogate beside the backward of the function. Raises UserCodeError (GV002)
    where their outputs do not fit."""

    def __init__(
        self,
        subject: Subject,
        function: Differentiable,
        checked: Sequence[int],
        outputs: Sequence[Tensor],
    ) -> None:
        self._soft = Implementation(
            subject, "surrogate", str(subject.case.oracles.surrogate), checked
        )
        super().__init__(self._soft, function, outputs)
        self.name = self._soft.name
        for mine, theirs in zip(self._outputs, self.values(subject.leaves()), strict=True):
            if mine.shape != theirs.shape or mine.is_complex() != theirs.is_complex():
                raise UserCodeError(
                    "GV002",
                    f"{self.name} returned shape {list(theirs.shape)} ({theirs.dtype}), the "
                    f"function {list(mine.shape)} "
                    f"({mine.dtype}): its finite differences cannot be compared",
                )

    def differentiates_to(self, cotangents: Sequence[Tensor]) -> bool:
        """Does torch differentiate the surrogate to what backward gives? Where its finite
        differences are others, it detaches on the way."""
        try:
            pulled = [y for y in self._soft.outputs if y.requires_grad]
            if not pulled or function_nodes(pulled):
                return False
            theirs = self._soft.vjp(
                [v.to(y.dtype) for y, v in zip(self._soft.outputs, cotangents, strict=True)]
            )
            sides = [filled(found, self.inputs) for found in (self.vjp(cotangents), theirs)]
        except (UserCodeError, RuntimeError):
            return False
        return all(
            torch.allclose(a, b, rtol=ALIKE, atol=ALIKE * float(b.abs().max()))
            for a, b in zip(*sides, strict=True)
            if a.numel()
        )
