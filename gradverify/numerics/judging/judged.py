"""Elements of the Jacobian with their analytic values, finite differences, tolerances and verdicts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from gradverify.numerics.estimate.kinks import JUMP, KINK, NON_FINITE
from gradverify.numerics.estimate.ladder import Derivative
from gradverify.numerics.pairs.pair import Outcome, PairElements
from gradverify.numerics.records import Record
from gradverify.numerics.rungs import AnyArray, Array, Codes, Index, Mask, repeated
from gradverify.numerics.tolerance import Tolerances, limits, verdicts
from gradverify.numerics.verdict import Limit, Verdict


@dataclass(frozen=True)
class Judged(Record):
    """Elements with their verdicts [E]; `column` counts through all inputs, `out` through all outputs; `lines` as in `Cells`.

    `border_column` [E]: columns along which f ends at x (None: none but what the derivatives say).
    `backward_noise`: outputs whose backward is itself noisy, and its relative noise.
    """

    column: Index
    out: Index
    analytic: Array
    derivative: Derivative
    tolerances: Tolerances
    verdict: Codes
    limit: AnyArray
    lines: int = 0
    border_column: Mask | None = None
    backward_noise: Mapping[int, float] = field(default_factory=dict)

    def take(self, i: AnyArray | slice) -> Judged:
        """Elements i; where these are all, in order."""
        return self if not isinstance(i, slice) and len(i) == len(self.out) else replace(super().take(i), lines=0)

    def verdicts_with(self, extra: Array | float = 0.0, derivative: Derivative | None = None) -> Codes:
        """The verdicts [E] that bars wider by so much would give, or other derivatives."""
        return verdicts(self.analytic, derivative or self.derivative, self.tolerances, extra=extra, border_column=self.border_column)

    def worst_first(self) -> Index:
        """The elements [E] by how many tolerances they are off, those first that are no number."""
        value = self.derivative.value
        miss = np.abs(self.analytic - value) / (self.tolerances.tolerance(self.analytic, value) + 1e-300)
        return np.argsort(-np.nan_to_num(miss, nan=np.inf), kind="stable")

    def with_limits(self) -> Judged:
        """With what limits the undecided elements."""
        open_ = np.flatnonzero(self.verdict == Verdict.UNDECIDED)
        if not open_.size:
            return self
        limit = self.limit.copy()
        limit[open_] = limits(self.derivative.take(open_))
        return replace(self, limit=limit)

    def passed(self, i: AnyArray) -> Judged:
        """With elements i taken as right."""
        verdict, limit = self.verdict.copy(), self.limit.copy()
        verdict[i], limit[i] = Verdict.PASS, Limit.NONE
        return replace(self, verdict=verdict, limit=limit)

    def undecided(self, i: AnyArray, why: Limit) -> Judged:
        """With elements i left open."""
        verdict, limit = self.verdict.copy(), self.limit.copy()
        verdict[i], limit[i] = Verdict.UNDECIDED, why
        return replace(self, verdict=verdict, limit=limit)

    @property
    def is_zero(self) -> Mask:
        """Elements [E] whose derivative is zero, or too small to be told from it."""
        d, nothing = self.derivative, np.zeros(len(self.analytic))
        return np.asarray(d.unchanged | (np.abs(d.value) <= self.tolerances.tolerance(nothing, nothing) + d.bar))

    def pair_elements(self, top: int, coordinate: Index) -> PairElements:
        """These elements, all of one pair; `top` is the first row of its output, `coordinate` [E] their place within the input."""
        d = self.derivative
        left = right = repeated(np.nan, len(self.analytic))
        outcome, bar = self.outcome, d.bar
        if d.rough:
            kink = d.outcome == KINK
            left, right = np.where(kink, d.left, np.nan), np.where(kink, d.right, np.nan)
            bar = np.where(outcome == Outcome.KINK, np.maximum(d.left_bar, d.right_bar), bar)   # that of the slopes
        tolerance, floor = self.tolerances.tolerance(self.analytic, d.value), self.tolerances.floor
        return PairElements(self.out - top, coordinate, self.analytic, d.value, bar, tolerance, floor, outcome, self.limit, left, right)

    @property
    def outcome(self) -> Codes:
        """`Outcome` codes [E]."""
        d = self.derivative
        if not (self.verdict.any() or d.rough):
            return np.full(len(self.analytic), Outcome.PASS, np.int8)
        kink = d.outcome == KINK
        undecided = np.select(
            [np.isfinite(d.second) & ~d.far, d.outcome == JUMP, (d.outcome == NON_FINITE) | ~np.isfinite(self.analytic)],
            [Outcome.STAIRCASE, Outcome.JUMP, Outcome.NON_FINITE], Outcome.UNDECIDED)
        passed = np.where(kink, Outcome.KINK, Outcome.PASS)
        return np.select([self.verdict == Verdict.PASS, self.verdict == Verdict.MISMATCH], [passed, Outcome.MISMATCH], undecided).astype(np.int8)


def no_limits(n: int) -> AnyArray:
    """Of n elements that nothing keeps from a verdict."""
    return np.broadcast_to(np.array(Limit.NONE, object), n)
