"""Gradients that are known for one cotangent per checked output, compared with backward within the
tolerance; and the comparison that all oracles' numbers go through.

Rounding inside backward, or inside the oracle, may cause a difference although both formulas are
right, as with tanh(x) and 1 − 2 / (1 + exp(2x)) at 1e-10. It is measured by rounding every
operation of both at random in its own dtype (stochastic arithmetic: Vignes, CESTAC, 1978), and the
inputs by an ulp, which also affects code outside of torch. The resulting spread of the gradient is
its bar."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial

import numpy as np
from torch import Tensor

from gradverify.model.case import Settings
from gradverify.model.result import WORST
from gradverify.numerics.function.coordinates import columns_of, numbers
from gradverify.numerics.pairs.pair import (
    Entries,
    Outcome,
    Pair,
    Tally,
    mismatches,
    with_undecided,
    without_kinks,
)
from gradverify.numerics.rungs import Array, Index, Z, nonzero
from gradverify.numerics.tolerance import FLOOR, guarded
from gradverify.numerics.verdict import MISMATCH, PASS, Limit
from gradverify.oracles.convergence import small_leftovers_passed
from gradverify.oracles.finite_difference import rounded_anew
from gradverify.oracles.oracle import Checked
from gradverify.subject.differentiable import Differentiable, Gradients
from gradverify.subject.failure import tried
from gradverify.subject.subject import Cotangents, Subject, Tensors, filled
from gradverify.subject.target import Target

Row = Callable[[Tensors, int], Cotangents]
"""Returns the gradients at other inputs for one output element of the pair."""
# Rows of a pair with mismatches that are examined, and backwards of both sides for each
ROWS, WAYS = 64, 5


# Ulps by which two correct computations of one number may differ without a cancellation
ROUNDING = 8.0


def exact_elements(
    output: Index,
    input: Index,
    analytic: Array,
    value: Array,
    floor: Array,
    settings: Settings,
    unit: float,
    broken: Outcome = Outcome.NON_FINITE,
    noise: Array | float = 0.0,
) -> Entries:
    """Return the elements [E] of these outputs and inputs: analytic values against an oracle's,
    which have no truncation error.

    `broken`: the outcome of an element for which the oracle is not finite. `noise`: of both values,
    in addition to their rounding.
    """
    atol, rtol = settings.tolerances()
    largest = np.maximum(np.nan_to_num(np.abs(analytic), nan=0.0, posinf=0.0), np.abs(value))
    tolerance = atol + np.maximum(rtol * largest, floor)
    bar = ROUNDING * unit * np.abs(value) + noise
    verdict = guarded(np.abs(analytic - value), bar, tolerance)
    outcome = np.select(
        [~np.isfinite(value), verdict == PASS, (verdict == MISMATCH) | ~np.isfinite(analytic)],
        [broken, Outcome.PASS, Outcome.MISMATCH],
        Outcome.UNDECIDED,
    ).astype(np.int8)
    limited = without_kinks(outcome, {Outcome.UNDECIDED: Limit.NOISE})
    return Entries(output, input, analytic, value, bar, tolerance, floor, *limited)


def rounding_floor(
    unit: float, output: Index, analytic: Array, value: Array, scale: Array, size: Array
) -> Array:
    """Return the floor [E] of elements: 1e4 roundings of the reach of their rows, over S (method.md
    section 1). `scale`, `size` [E]: s and S."""
    reach = np.zeros(int(output.max(initial=-1)) + 1)
    largest = np.maximum(np.abs(analytic), np.abs(value)) * scale
    np.maximum.at(reach, output, np.nan_to_num(largest, nan=0.0, posinf=0.0))
    return np.asarray(FLOOR * unit * reach[output] / nonzero(size))


def apart(elements: Entries, tally: Tally) -> Entries:
    """Return the elements without infinities that both give, which `tally` counts as left out."""
    both = (elements.analytic == elements.numeric) & np.isinf(elements.numeric)
    tally.leave_out(int(np.count_nonzero(both)))
    return elements.take(np.flatnonzero(~both)) if both.any() else elements


def exactly(
    place: tuple[int, int],
    mine: Array,
    theirs: Array,
    floor: Array | float,
    settings: Settings,
    unit: float,
    noise: Array | float = 0.0,
) -> Pair:
    """Compare numbers [m, n] of an (input, output) pair with an oracle's."""
    tally, (rows, columns) = Tally(*place, mine.shape, WORST), np.indices(mine.shape)
    given = (np.broadcast_to(each, mine.shape).ravel() for each in (mine, theirs, floor, noise))
    analytic, value, floors, noisy = given
    with np.errstate(all="ignore"):
        broken = Outcome.MISMATCH
        elements = exact_elements(
            rows.ravel(), columns.ravel(), analytic, value, floors, settings, unit, broken, noisy
        )
        tally.add(apart(elements, tally))
    return tally.result(unit, False)


def rounding_left_open(pair: Pair, subject: Subject, sides: Sequence[Row]) -> Pair:
    """Return the pair with its mismatches undecided if rounding inside the `sides` explains all of
    them; rows with the largest errors are examined first."""
    wrong = mismatches(pair) if pair.count(Outcome.MISMATCH) else None
    if wrong is None:
        return pair
    off = np.abs(wrong.analytic - wrong.numeric)
    rows = list(dict.fromkeys(wrong.output[np.argsort(-off, kind="stable")].tolist()))

    def spread(side: Row, row: int) -> Array:
        """Return the standard deviation of a row of a gradient."""
        found = list[Array]()
        for number in range(WAYS):
            source = subject.generator(f"rounding {number}")
            row_of = rounded_anew(source, subject.inputs, lambda moved: side(moved, row))
            found.append(numbers(filled(row_of, subject.inputs)[pair.input]).copy())
        with np.errstate(invalid="ignore"):
            return np.asarray(np.nan_to_num(np.std(found, 0, ddof=1)))

    def explained(row: int) -> bool:
        own = np.flatnonzero(wrong.output == row)
        bar = Z * sum(spread(side, row)[wrong.input[own]] for side in sides)
        return bool((off[own] <= bar + wrong.tolerance[own]).all())

    if len(rows) <= ROWS and tried(lambda: all(map(explained, rows))):
        return with_undecided(pair, Outcome.MISMATCH, Limit.ANALYTIC_NOISE)
    return pair


class Given:
    """Base class of oracles that give gradients for one cotangent per output; subclasses define
    `gradients`. `name`: of the oracle in messages; `phrase`: what a finding says backward differs
    from.

    `everywhere`: whether gradients are known at other inputs too, so that the rounding inside the
    oracle can be measured.
    """

    everywhere = False

    def __init__(self, checked: Checked, name: str, phrase: str | None = None) -> None:
        self.checked, self.name, self.phrase = checked, name, phrase or name

    @property
    def target(self) -> Target | None:
        """The oracle's code, if it has any."""
        return None

    @property
    def cotangents(self) -> Tensors:
        """The cotangents of the backward that is compared: dense random ones, unless a subclass
        overrides this."""
        return self.checked.cotangents(self.name)

    def gradients(self, cotangents: Tensors, inputs: Tensors | None = None) -> Gradients:
        """Return one gradient per differentiable input, for one cotangent per checked output; None
        where the oracle gives none. `inputs`: used instead of the check's own."""
        raise NotImplementedError

    @cached_property
    def pairs(self) -> Mapping[int, Pair]:
        """The comparisons by input, for inputs whose gradient the oracle gives."""
        checked, cotangents, result = self.checked, self.cotangents, dict[int, Pair]()
        inputs, unit = checked.subject.inputs, checked.unit
        wanted = self.gradients(cotangents)

        def ours(function: Differentiable, moved: Tensors | None = None) -> list[Tensor]:
            given = [cotangent.clone() for cotangent in cotangents]
            return filled(function.vjp(given, moved), inputs)

        def compared(place: int, gradient: Tensor, theirs: Tensor) -> Pair:
            columns = columns_of([inputs[place]], [None], [False])
            a, v, row = numbers(gradient), numbers(theirs), np.zeros(len(columns), np.intp)
            with np.errstate(all="ignore"):
                floor = rounding_floor(unit, row, a, v, columns.scale, columns.size)
            return exactly((place, 0), a[None], v[None], floor, checked.settings, unit)

        def further(place: int, theirs: Tensor, function: Differentiable) -> Pair:
            return compared(place, ours(function)[place], theirs)

        sides: list[Row] = [lambda moved, _: ours(checked.function, moved)]
        if self.everywhere:
            sides.append(lambda moved, _: self.gradients(cotangents, moved))
        for place, (mine, theirs) in enumerate(zip(ours(checked.function), wanted, strict=True)):
            if theirs is not None:
                pair = small_leftovers_passed(
                    compared(place, mine, theirs), checked, partial(further, place, theirs)
                )
                result[place] = rounding_left_open(pair, checked.subject, sides)
        return result
