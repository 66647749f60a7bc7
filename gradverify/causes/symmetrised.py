"""A gradient that must be added to its own transpose, and is not: of a function of a symmetric matrix, or of x·xᵀ."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from gradverify.causes.pattern import Claim, Explanation, Pattern, Side
from gradverify.model.result import Cause
from gradverify.numerics.rungs import Index

ENOUGH = 4  # wrong elements
SIDES, SHARES = ("input", "output"), (0.5, 1.0)


def explain(pattern: Pattern) -> Iterator[Claim]:
    """numeric = (G + Gᵀ)/2 or G + Gᵀ of the analytic G, its last two axes exchanged."""
    for side in SIDES:
        for share in SHARES:
            if _fits(pattern, side, share):
                yield partial(_confirmed, pattern, side, share)


def _confirmed(here: Pattern, name: str, share: float, there: Pattern) -> Cause | None:
    if not _fits(there, name, share):
        return None
    what = f"the gradient of {here.input.name}" if name == "input" else "grad_output"
    sum_ = "(G + Gᵀ)/2" if share == 0.5 else "G + Gᵀ"
    return Cause("missing symmetrisation", f"numeric = {sum_} of the analytic G {here.everywhere}: {what} must be added to its own transpose")


def _fits(pattern: Pattern, name: str, share: float) -> bool:
    side = pattern.input if name == "input" else pattern.output
    if not side.name or len(side.shape) < 2 or side.shape[-1] != side.shape[-2] or side.shape[-1] < 2 or pattern.count < ENOUGH:
        return False
    e = pattern.entries
    turned = side.lifted(_turned(side))
    out, in_ = (e.output, turned[e.input]) if name == "input" else (turned[e.output], e.input)
    value, bar, found = pattern.numeric(out, in_)
    there = np.where(found < 0, 0.0, e.analytic[found])
    allowed = e.bar + pattern.dust + pattern.rounding + np.where(found < 0, 0.0, pattern.rounding[found])
    use = ~pattern.unknown & ~((found >= 0) & pattern.unknown[found])
    symmetric = np.abs(e.numeric - value) <= e.bar + bar + pattern.dust     # else the sum would not be either
    missed = use & (found < 0) & ~symmetric
    return bool((np.abs(share * (e.analytic + there) - e.numeric) <= allowed)[use].all() and symmetric[use].all() and not missed.any())


def _turned(side: Side) -> Index:
    return np.arange(side.elements).reshape(side.shape).swapaxes(-1, -2).reshape(-1)


EXPLANATIONS = (Explanation(100, explain),)
REMEDIES = {
    "missing symmetrisation": "forward reads the matrix and its transpose: add the gradient's transpose, (G + G.mT) / 2 for a symmetric input",
}
