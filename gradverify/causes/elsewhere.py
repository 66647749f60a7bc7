"""The second point, at which a cause must hold too: the same function at other arguments, measured when the first cause asks for it."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np

from gradverify.evidence import Evidence
from gradverify.numerics.function.coordinates import UNITS, numbers
from gradverify.numerics.pairs.pair import Entries, Outcome, Pair
from gradverify.numerics.rungs import U64
from gradverify.oracles.literal import weights
from gradverify.subject.another import other_points
from gradverify.subject.failure import Spent, UserCodeError


class Elsewhere:
    """Of one check. It costs a comparison more, and stays within what the budget affords."""

    def __init__(self, evidence: Evidence) -> None:
        self._here = evidence
        self.afforded = True

    @cached_property
    def evidence(self) -> Evidence | None:
        """None where the function is defined at no other point, or where that is not afforded."""
        choice = self._here.choice
        forward, backward = (choice.cost.forward, choice.cost.backward) if choice else (0, 0)
        try:
            with self._here.spending.bound(forward, backward):
                return self._measured()
        except Spent:
            self.afforded = False
            return None

    def _measured(self) -> Evidence | None:
        for arguments in other_points(self._here.subject):
            there = self._here.at(arguments)
            try:
                if there.infinite == self._here.infinite and there.forward.checked == self._here.forward.checked and there.jacobian.pairs:
                    return there
            except UserCodeError:
                continue
        return None


def summed(there: Evidence, place: int) -> Pair | None:
    """The gradient of the weighted sum by backward against that by finite differences, as the spec's numbers are of the first point only.

    None where not all elements were told. Raises UserCodeError.
    """
    cotangents = weights(there.subject.case.oracles.grad_output, there.outputs)
    x = there.inputs[place].value
    n = len(numbers(x))
    gradient = there.function.vjp([cotangent.clone() for cotangent in cotangents])[place]
    analytic = np.zeros(n) if gradient is None else numbers(gradient)
    numeric, bar = np.zeros(n), np.zeros(n)
    for output, cotangent in enumerate(cotangents):
        e = there.jacobian.pairs[place, output].entries
        if e is None or not e.complete or not np.isin(e.outcome, (Outcome.PASS, Outcome.MISMATCH)).all():
            return None
        weight = numbers(cotangent)[e.output]
        numeric += np.bincount(e.input, weight * e.numeric, n)
        bar += np.bincount(e.input, np.abs(weight) * e.bar, n)
    rtol = there.settings.tolerances()[1]
    wrong = np.abs(analytic - numeric) > bar + rtol * np.abs(numeric)
    told = np.flatnonzero((analytic != 0) | (numeric != 0))
    outcome = np.where(wrong, Outcome.MISMATCH, Outcome.PASS).astype(np.int8)[told]
    nothing = np.zeros(len(told))
    entries = Entries.without_kinks(np.zeros(len(told), np.intp), told, analytic[told], numeric[told], bar[told], nothing, nothing, outcome, {})
    return Pair(place, 0, len(told), unit=UNITS.get(x.dtype, U64), entries=replace(entries, complete=True))
