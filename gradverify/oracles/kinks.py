"""Two conventions at a kink: where backward and a reference differ, both are right between the
slopes.

Any value between the one-sided slopes is a subgradient (Clarke, Optimization and Nonsmooth
Analysis, 1983): of |x| at 0 any from −1 to 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gradverify.numerics.estimate.ladder import KINK
from gradverify.numerics.judging import lone_derivatives
from gradverify.numerics.pairs.pair import Entries, Outcome
from gradverify.numerics.prepare import prepare
from gradverify.numerics.rungs import AnyArray, Array, Index, Mask
from gradverify.numerics.verdict import Limit
from gradverify.oracles.finite_difference import Filled
from gradverify.oracles.oracle import Checked

Slopes = dict[tuple[int, int], tuple[float, float, float]]
"""By (output, input) at a kink: the slopes from the left and from the right, and their bar."""

ALONE = (
    8  # columns of a check moved by themselves, 48 forward calls each, where elements were not kept
)


class Kinks:
    """The kinks of forward that a comparison with a reference meets, each measured once."""

    def __init__(self, checked: Checked) -> None:
        self._checked, self._room = checked, ALONE
        self._kept = dict[tuple[int, int], Slopes]()

    def beside(self, tensor: int, output: int, elements: Entries) -> Entries:
        """Pass elements that differ from a reference where both values are subgradients.

        Where there are more of these than can be measured, the others are undecided.
        """
        wrong = np.flatnonzero(elements.outcome == np.int8(Outcome.MISMATCH))
        if not len(wrong):
            return elements
        values = np.array([elements.analytic[wrong], elements.numeric[wrong]])
        out, in_ = elements.output[wrong], elements.input[wrong]
        left, right, bar, known = self._slopes(tensor, output, out, in_, values)
        pad = bar + elements.tolerance[wrong]
        low, high = np.minimum(left, right) - pad, np.maximum(left, right) + pad
        both = ((low <= values) & (values <= high)).all(0)
        outcome, limit = elements.outcome.copy(), elements.limit.copy()
        outcome[wrong[both]] = Outcome.KINK
        if both.any():
            outcome[wrong[~known]], limit[wrong[~known]] = Outcome.UNDECIDED, Limit.KINK
        sides = [elements.left.copy(), elements.right.copy()]
        for side, slopes in zip(sides, (left, right), strict=True):
            side[wrong] = slopes
        return replace(elements, outcome=outcome, limit=limit, left=sides[0], right=sides[1])

    def _slopes(
        self, tensor: int, output: int, out: Index, in_: Index, values: Array
    ) -> tuple[Array, Array, Array, Mask]:
        """The one-sided slopes of elements [E] and their bar, NaN where f has no kink.

        And the elements that were looked at. `values` [2, E]: those of one kind are told by one.
        """
        jacobian, key = self._checked.jacobian, (tensor, output)
        seen = jacobian.pairs[key].entries
        if key not in self._kept:  # those that the comparison with finite differences kept
            self._kept[key] = {}
            if seen is not None:
                kinks = seen.take(np.flatnonzero(seen.outcome == np.int8(Outcome.KINK)))
                numbers = (kinks.output, kinks.input, kinks.left, kinks.right, kinks.bar)
                self._kept[key] = _by_place(numbers)
        kept, places = self._kept[key], list(zip(out.tolist(), in_.tolist(), strict=True))
        known = np.array([place in kept for place in places])
        if jacobian.choice is None or (seen and seen.complete):
            known[:] = True  # what is not kept has no kink, or nothing looks for one
        if not known.all() and self._room:
            rest = np.flatnonzero(~known)
            first = rest[np.unique(values[:, rest], axis=1, return_index=True)[1]]
            columns = list(dict.fromkeys([*in_[first].tolist(), *in_[rest].tolist()]))[: self._room]
            self._room -= len(columns)
            some = rest[np.isin(in_[rest], columns)]
            kept.update(self._alone(tensor, output, out[some], in_[some]))
            known[some] = True
        found = np.array([kept.get(place, (np.nan, np.nan, np.nan)) for place in places])
        return found[:, 0], found[:, 1], found[:, 2], known

    def _alone(self, tensor: int, output: int, out: Index, in_: Index) -> Slopes:
        """The kinks among elements, each column moved by itself."""
        wishes = self._checked.wishes
        prepared = prepare(
            Filled(self._checked.measured),
            domains=wishes.domains,
            symmetric=wishes.symmetric,
            specified=wishes.specified,
            grouped=False,
        )
        if prepared is None:
            return {}
        point = prepared.point
        column = np.searchsorted(point.columns.coordinate, int(point.starts[tensor]) + in_)
        with np.errstate(all="ignore"):
            run = prepared.fresh()
            d = lone_derivatives(run, column, out + point.parts[output].start)
        bar = np.maximum(d.left_bar, d.right_bar)
        kinks = np.flatnonzero(d.outcome == KINK)
        return _by_place([each[kinks] for each in (out, in_, d.left, d.right, bar)])


def _by_place(numbers: Sequence[AnyArray]) -> Slopes:
    out, in_, left, right, bar = (each.tolist() for each in numbers)
    return dict(zip(zip(out, in_, strict=True), zip(left, right, bar, strict=True), strict=True))
