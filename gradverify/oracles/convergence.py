"""Convergence errors, which an iteration leaves in a gradient when it stops: small relative to the
row, however large relative to the element.

A solver's tolerance holds for a whole vector, so the remaining error is a share of the output's
reach and not of the element. Two kinds are distinguished from wrong gradients: an input whose
gradient is zero throughout and which moves the output by less than FORGOTTEN of the row (an initial
guess), and an error that vanishes where the same function iterates to a tighter tolerance
(`subject.iterating`), which a mistake does not. An error of more than `rtol` of the largest row of
the output is never excused."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from torch import Tensor

from gradverify.numerics.pairs.pair import OPEN, Entries, Outcome, Pair, mismatches, with_undecided
from gradverify.numerics.rungs import RESOLVED, AnyArray, Array, Index
from gradverify.numerics.verdict import Limit
from gradverify.oracles.along import parts
from gradverify.oracles.finite_difference import Constraints, Filled, Jacobian, WithBackward
from gradverify.oracles.oracle import Checked
from gradverify.subject.differentiable import Differentiable

# With a tolerance tighter by 2⁻¹⁰ a convergence error shrinks to at most this part; a mistake
# stays
SHRINKS = 2.0**-5
FEW_BARS = 16.0  # by which noise may move an element, where it moves others of its pair
CAST_STEP = 2.0**-13  # of |x|: without casts f is smooth to about 1e-8 of that
# Share of the row by which an initial guess may still move the output (measured: 4e-13 to 8e-10
# with Newton's method, at tolerances of 1e-6 and below)
FORGOTTEN = 1e-9


ByPlace = dict[tuple[int, int], tuple[float, ...]]
"""Numbers of elements by (output, input)."""


def without_leftovers(
    found: Jacobian,
    inputs: Sequence[Tensor],
    constraints: Constraints,
    leftover: Callable[[], float],
    tighter: Callable[[], Jacobian],
) -> Jacobian:
    """Return the comparison with pairs passed whose mismatches are convergence errors; the original
    pairs are under `left`. `leftover`: the largest such error, as a share of the largest row, 0
    where the function does not iterate; `tighter`: the comparison with tighter tolerances. Both are
    evaluated only if needed."""
    wrong = {key: pair for key, pair in found.pairs.items() if pair.count(Outcome.MISMATCH)}
    if not wrong or found.choice is None:
        return found
    # The reach of each row of each output, and the size of each input's elements
    columns, places = constraints.columns(inputs), parts(inputs)
    scale, sizes = np.ones((2, places[-1].stop))
    scale[columns.coordinate], sizes[columns.coordinate] = columns.scale, columns.size
    kept = [(pair, pair.entries) for pair in found.pairs.values() if pair.entries is not None]
    count = 1 + max((int(seen.output.max(initial=-1)) for _, seen in kept), default=-1)
    reaches = defaultdict[int, Array](lambda: np.zeros(count))
    for pair, seen in kept:
        known = np.where(np.abs(seen.numeric) > RESOLVED * seen.bar, np.abs(seen.numeric), 0.0)
        reach = np.maximum(np.abs(seen.analytic), known) * scale[places[pair.input]][seen.input]
        np.maximum.at(reaches[pair.output], seen.output, np.nan_to_num(reach, nan=0.0, posinf=0.0))

    def hold(pair: Pair, of_row: float, of_largest: float) -> bool:
        """Return whether every mismatch of the pair is within its tolerance plus these shares of
        its row and of the largest row."""
        off, rows = mismatches(pair), reaches[pair.output]
        if off is None or not len(rows) or not of_row + of_largest:
            return False
        row = np.where(off.output < len(rows), rows[np.minimum(off.output, len(rows) - 1)], 0.0)
        allowed = (of_row * row + of_largest * rows.max()) / sizes[places[pair.input]][off.input]
        return bool((off.off <= off.tolerance + allowed).all())

    def silent(pair: Pair) -> bool:
        """Return whether the analytic gradient of the pair is zero throughout."""
        return all(each.analytic == 0 for each in pair.worst) and (
            pair.entries is None or not pair.entries.analytic.any()
        )

    left = {key: pair for key, pair in wrong.items() if silent(pair) and hold(pair, FORGOTTEN, 0.0)}
    small = {
        key: pair for key, pair in wrong.items() if key not in left and hold(pair, 0.0, leftover())
    }
    further = tighter().pairs if small else {}
    open_ = dict[tuple[int, int], Pair]()
    for key, pair in small.items():
        if key in further and _shrinks(pair, further[key]):
            if further[key].count(*OPEN):
                open_[key] = further[key]
            else:
                left[key] = pair
    passed = {key: _passed(pair) for key, pair in left.items()}
    return replace(found, pairs={**found.pairs, **passed, **open_}, left=left)


def left_open(found: Jacobian, why: Limit, where: Callable[[Pair], bool] | None = None) -> Jacobian:
    """Return the comparison with the mismatches of pairs undecided, for pairs that meet
    `where`."""
    wrong = Outcome.MISMATCH
    return replace(
        found,
        pairs={
            key: with_undecided(pair, wrong, why)
            if pair.count(wrong) and (where is None or where(pair))
            else pair
            for key, pair in found.pairs.items()
        },
    )


def noise_left_open(found: Jacobian) -> Jacobian:
    """Return the comparison with mismatches undecided in pairs that have elements undecided because
    of noise, if all mismatches are within a few bars: noise varies from point to point, and was
    measured at others."""

    def few(pair: Pair) -> bool:
        wrong = mismatches(pair) if Limit.NOISE in dict(pair.limits) else None
        return wrong is not None and bool((wrong.off <= (FEW_BARS - 1) * wrong.bar).all())

    return left_open(found, Limit.NOISE, few)


def zeros_left_open(
    found: Jacobian, constraints: Constraints, uncast: Callable[[], WithBackward | None]
) -> Jacobian:
    """Return the comparison with passes of an all-zero gradient undecided where f without its casts
    to fewer bits is not constant: the casts alone may make f flat at all steps. `uncast`: makes f
    without casts, None if it has none; evaluated only if there is such a gradient, and called three
    times."""

    def is_zero(pair: Pair) -> bool:
        seen = pair.entries
        passed = pair.count(Outcome.PASS) and not pair.count(Outcome.MISMATCH)
        return bool(passed) and (
            not seen.analytic.any() if seen is not None and seen.complete else pair.largest == 0
        )

    zero = [key for key, pair in found.pairs.items() if is_zero(pair)]
    function = uncast() if zero and found.choice is not None else None
    if function is None:
        return found
    point, moved = constraints.point(Filled(function)), dict[tuple[int, int], Pair]()
    with np.errstate(all="ignore"):
        for tensor, output in zero:
            own, part = point.columns.of(tensor), point.parts[output]
            x, size = point.columns.x[own], point.columns.size[own]
            by = CAST_STEP * np.where(size > 0, size, 1.0) * (-1.0) ** np.arange(len(own))
            change = np.abs(point.values_at(own, x + by) - point.values_at(own, x - by))[part]
            if (
                change
                > CAST_STEP**2 * np.nan_to_num(np.abs(point.f0[part]), posinf=0.0).max(initial=0.0)
            ).any():
                moved[tensor, output] = with_undecided(
                    found.pairs[tensor, output], Outcome.PASS, Limit.STAIRCASE
                )
    return replace(found, pairs={**found.pairs, **moved})


def small_leftovers_passed(
    pair: Pair, checked: Checked, again: Callable[[Differentiable], Pair]
) -> Pair:
    """Return a comparison with an oracle's numbers, passed if its mismatches are convergence
    errors: small relative to the largest of these numbers, and shrinking when the function with
    tighter tolerances is compared `again`."""
    wrong, seen = mismatches(pair), pair.entries
    if not pair.count(Outcome.MISMATCH) or wrong is None or seen is None:
        return pair
    size = float(np.abs(seen.numeric[np.isfinite(seen.numeric)]).max(initial=0.0))
    share = checked.leftover
    small = share > 0 and bool((wrong.off <= wrong.tolerance + share * size).all())
    if small and _shrinks(pair, checked.tighter(again)):
        return _passed(pair)
    return pair


def _shrinks(pair: Pair, further: Pair) -> bool:
    """Return whether every error shrinks to a small part in `further`, the comparison with tighter
    tolerances, and every element that was wrong changes accordingly. An element that does not
    change has no convergence error, even if `further` does not decide it."""
    before, after, seen = mismatches(pair), mismatches(further), further.entries
    if before is None or after is None:
        return False

    def numbers(e: Entries) -> ByPlace:
        """Return the errors of elements, their two numbers and the bar."""
        off = np.abs(e.analytic - e.numeric)
        return by_place(e.output, e.input, off, e.analytic, e.numeric, e.bar)

    was, now = numbers(before), {} if seen is None else numbers(seen)
    shrink = all(
        off - bar <= SHRINKS * was[place][0] if place in was else off <= bar
        for place, (off, _, _, bar) in numbers(after).items()
    )
    return shrink and not any(
        abs(now[place][1] - a) + abs(now[place][2] - value) < (1 - SHRINKS) * off
        for place, (off, a, value, _) in was.items()
        if place in now
    )


def by_place(output: Index, input: Index, *numbers: AnyArray) -> ByPlace:
    """Return several numbers of each element by (output, input)."""
    places = zip(output.tolist(), input.tolist(), strict=True)
    return dict(zip(places, zip(*(each.tolist() for each in numbers), strict=True), strict=True))


def _passed(pair: Pair) -> Pair:
    """Return the pair with its mismatches passed; its resolution, the smallest error that would be
    detected, grows by their errors."""
    counts = list(pair.counts)
    counts[Outcome.PASS] += counts[Outcome.MISMATCH]
    counts[Outcome.MISMATCH] = 0
    rest = tuple(each for each in pair.worst if each.outcome is not Outcome.MISMATCH)
    worst = rest or (pair.worst[0]._replace(outcome=Outcome.PASS, tolerance=pair.worst[0].error),)
    seen = max(
        [
            pair.resolution,
            *(each.error + each.bar for each in pair.worst if each.outcome is Outcome.MISMATCH),
        ]
    )
    relabelled = pair.relabelled(Outcome.MISMATCH, Outcome.PASS, Limit.NONE)
    return replace(
        relabelled, counts=tuple(counts), worst=worst, resolution=seen, ratios=None, entries=None
    )
