"""⟨v, J u⟩ = ⟨Jᵀ v, u⟩: two exact ways to one number, compared without a step size, and the element at which they part."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gradverify.numerics.halving import most_off
from gradverify.numerics.rungs import Array, Index, Mask
from gradverify.rules.differ import DUST


@dataclass(frozen=True, slots=True)
class Identity:
    """The terms of both sums: v·(J u) over the outputs [M], (Jᵀ v)·u over the inputs [N]. `dust`: the rounding of their natural size."""

    forward: Array
    reverse: Array
    tolerance: float
    unit: float
    dust: float

    @property
    def off(self) -> float:
        """By how much the sums differ; inf where one of them is no number."""
        difference = float(np.sum(self.forward)) - float(np.sum(self.reverse))
        return difference if np.isfinite(difference) else np.inf

    @property
    def allowed(self) -> float:
        """Relative to the terms in quadrature: one wrong term among many right ones stays visible."""
        sides = [np.where(np.isfinite(terms), terms, 0.0) for terms in (self.forward, self.reverse)]
        rounding = DUST * self.unit * sum(float(np.abs(terms).sum()) for terms in sides)
        return max(self.tolerance * max(float(np.linalg.norm(terms)) for terms in sides), rounding) + self.dust

    def holds(self, noise: float = 0.0) -> bool:
        """Do the two agree? Where the reverse side, which is known to be right, has no number, nothing is compared."""
        return not np.isfinite(self.reverse).all() or abs(self.off) <= self.allowed + DUST * noise


def bisect(members: Mask, deviation: Callable[[Mask], float], total: float) -> int:
    """The member at which a deviation that adds up to `total` sits, or most of it: one call of `deviation` a halving.

    `members`: places that may be at fault; `deviation` takes a mask over all places. A deviation that is no number is the largest.
    """

    def of(places: Index) -> float:
        mask = np.zeros(len(members), bool)
        mask[places] = True
        return deviation(mask)

    return most_off(np.flatnonzero(members), of, total)
