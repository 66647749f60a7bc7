"""Finite differences of the function itself: the oracle that is always there."""

from __future__ import annotations

from gradverify.model.case import Settings
from gradverify.numerics.columns.dense import Tolerances, pairs
from gradverify.numerics.derivative import Function
from gradverify.numerics.tally import Tally


def jacobian(function: Function, settings: Settings) -> dict[tuple[int, int], Tally]:
    """Every element of every (input, output) pair against central differences: {(input, output): Tally}."""
    atol, rtol = settings.tolerances()
    return pairs(function, Tolerances(atol, rtol, None if settings.eps == "auto" else settings.eps))
