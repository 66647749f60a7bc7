"""Another implementation that the checked function is compared with, a `reference`: its forward
values, and autograd through it.

Where a float32 forward is so noisy that its values do not decide, the noise is either float32's own
(numbers that cancel, in that way to compute it) or the kernel's (fewer bits inside). Run in float32
under `Disguised`, the function shows the first and not the second."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial

import numpy as np
import torch

from gradverify.numerics.estimate.kinks import KINK
from gradverify.numerics.function.coordinates import UNITS, numbers, one_hot, rms
from gradverify.numerics.function.point import Point
from gradverify.numerics.judging.quick_samples import LoneLadders
from gradverify.numerics.pairs.pair import Entries, Outcome, Pair
from gradverify.numerics.prepare import prepare
from gradverify.numerics.rungs import U32, Array, Index, Z
from gradverify.numerics.sixteen_bit import TensorResult
from gradverify.numerics.survey import survey
from gradverify.numerics.tolerance import FLOOR
from gradverify.numerics.verdict import Limit
from gradverify.oracles.convergence import ByPlace, beside_largest, by_place
from gradverify.oracles.finite_difference import Filled, Gives
from gradverify.oracles.given import beside_rounding, exactly
from gradverify.oracles.implementation import Implementation
from gradverify.oracles.legs import Kernel, as_reference
from gradverify.oracles.oracle import Checked
from gradverify.oracles.reference_gradients import Revised, reference_gradients
from gradverify.subject.differentiable import Differentiable
from gradverify.subject.failure import tried
from gradverify.subject.subject import Cotangents, Tensors
from gradverify.subject.wide import InDouble, widened

# ---- Two conventions at a kink: where backward and a reference differ, both are right between the
# slopes. Any value between the one-sided slopes is a subgradient (Clarke, Optimization and
# Nonsmooth Analysis, 1983): of |x| at 0 any from −1 to 1
# Columns of a check moved by themselves, 48 forward calls each, where elements were not kept
ALONE = 8


def at_kinks(checked: Checked) -> Revised:
    """Pass elements that differ from a reference where both values are subgradients. The kinks of
    forward that the comparison meets are measured once each.

    Where there are more of these than can be measured, the others are undecided.
    """
    room = ALONE
    # By (input, output), then by element: the slopes from the left and from the right, their bar
    kept = dict[tuple[int, int], ByPlace]()

    def alone(tensor: int, output: int, out: Index, in_: Index) -> ByPlace:
        """The kinks among elements, each column moved by itself."""
        wishes = checked.wishes
        prepared = prepare(
            Filled(checked.measured),
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
            d = LoneLadders(run, column, out + point.parts[output].start).derivative()
        bar = np.maximum(d.left_bar, d.right_bar)
        kinks = np.flatnonzero(d.outcome == KINK)
        return by_place(out[kinks], in_[kinks], d.left[kinks], d.right[kinks], bar[kinks])

    def revised(tensor: int, output: int, elements: Entries) -> Entries:
        nonlocal room
        wrong = np.flatnonzero(elements.outcome == np.int8(Outcome.MISMATCH))
        if not len(wrong):
            return elements
        values = np.array([elements.analytic[wrong], elements.numeric[wrong]])
        out, in_ = elements.output[wrong], elements.input[wrong]
        jacobian, key = checked.jacobian, (tensor, output)
        seen = jacobian.pairs[key].entries
        if key not in kept:  # those that the comparison with finite differences kept
            kept[key] = {}
            if seen is not None:
                e = seen.take(np.flatnonzero(seen.outcome == np.int8(Outcome.KINK)))
                kept[key] = by_place(e.output, e.input, e.left, e.right, e.bar)
        slopes, places = kept[key], list(zip(out.tolist(), in_.tolist(), strict=True))
        known = np.array([place in slopes for place in places])
        if jacobian.choice is None or (seen and seen.complete):
            known[:] = True  # what is not kept has no kink, or nothing looks for one
        if not known.all() and room:
            rest = np.flatnonzero(~known)
            # Those of one kind are decided by one
            first = rest[np.unique(values[:, rest], axis=1, return_index=True)[1]]
            columns = list(dict.fromkeys([*in_[first].tolist(), *in_[rest].tolist()]))[:room]
            room -= len(columns)
            some = rest[np.isin(in_[rest], columns)]
            slopes.update(alone(tensor, output, out[some], in_[some]))
            known[some] = True
        left, right, bar = np.array([slopes.get(place, (np.nan,) * 3) for place in places]).T
        pad = bar + elements.tolerance[wrong]
        low, high = np.minimum(left, right) - pad, np.maximum(left, right) + pad
        both = ((low <= values) & (values <= high)).all(0)
        outcome, limit = elements.outcome.copy(), elements.limit.copy()
        outcome[wrong[both]] = Outcome.KINK
        if both.any():
            outcome[wrong[~known]], limit[wrong[~known]] = Outcome.UNDECIDED, Limit.KINK
        sides = [elements.left.copy(), elements.right.copy()]
        for side, slope in zip(sides, (left, right), strict=True):
            side[wrong] = slope
        return replace(elements, outcome=outcome, limit=limit, left=sides[0], right=sides[1])

    return revised


# ---- Another implementation, called with the same arguments in the same order: its values, and
# autograd through it
class AgainstReference(Implementation):
    """Backward and forward of what is checked against those of the function or module under
    `reference`, both within rounding."""

    def __init__(self, checked: Checked) -> None:
        """Raises UserCodeError (GV001)."""
        self._seen = checked
        super().__init__(
            checked.subject,
            "reference",
            str(checked.subject.case.oracles.reference),
            checked.forward.checked,
        )

    @cached_property
    def value_pairs(self) -> Mapping[int, Pair | str]:
        """Forward values per checked output, within bars: a Pair, or the sentence that says how the
        shapes differ."""
        seen = self._seen

        def again(place: int, function: Differentiable) -> Pair:
            found = self._values(function, function.values(function.inputs))[place]
            assert isinstance(found, Pair)
            return found

        return {
            place: each
            if isinstance(each, str)
            else beside_largest(each, seen, partial(again, place))
            for place, each in self._values(seen.function, seen.outputs).items()
        }

    def _values(self, function: Differentiable, outputs: Tensors) -> dict[int, Pair | str]:
        """The noise of both is measured where they differ."""
        result, noise = dict[int, Pair | str](), list[Array]()

        def compared(noise: Array | float) -> Pair:
            """The floor is the rounding of the tensor's typical size; two equal infinities
            agree."""
            a, v, unit = numbers(mine), numbers(theirs), UNITS.get(mine.dtype, U32)
            with np.errstate(all="ignore"):
                floor = FLOOR * unit * rms(np.abs(v))
            settings = self._seen.settings
            return exactly((0, place), a[:, None], v[:, None], floor, settings, unit, noise)

        for place, (mine, theirs) in enumerate(zip(outputs, self.outputs, strict=True)):
            if mine.shape != theirs.shape:
                result[place] = (
                    f"the function returns shape {list(mine.shape)}, the reference "
                    f"{list(theirs.shape)}"
                )
            elif mine.is_complex() != theirs.is_complex():
                result[place] = f"the function returns {mine.dtype}, the reference {theirs.dtype}"
            else:
                result[place] = pair = compared(0.0)
                if not pair.count(Outcome.MISMATCH, Outcome.UNDECIDED):
                    continue
                if not noise:
                    # Z standard deviations of both, per output [M]; of the function alone where
                    # the reference has another shape
                    wishes = self._seen.wishes
                    columns = wishes.columns(function.inputs)
                    points = [
                        Point(Filled(each), columns, seed=wishes.seed) for each in (function, self)
                    ]
                    with np.errstate(all="ignore"):
                        one, other = (survey(point).sigma for point in points)
                    noise = [
                        Z * (one[a] + (other[b] if len(one[a]) == len(other[b]) else 0.0))
                        for a, b in zip(points[0].parts, points[1].parts, strict=True)
                    ]
                result[place] = compared(noise[place][:, None])
        return result

    @cached_property
    def beyond_float32(self) -> Sequence[tuple[TensorResult, TensorResult] | None]:
        """Of each checked output, how far it is from the reference and from the function itself in
        float64, where both are more than float32 explains.

        None of all where nothing tells whose noise it is: where a differentiable input is not
        float32, where one of the two refuses float64, and where the function computes out of
        torch's sight.
        """
        subject, checked = self._seen.subject, self._seen.forward.checked

        def measured() -> list[tuple[TensorResult, TensorResult] | None] | None:
            alone, other = (widened(subject, InDouble(lifts=True)) for _ in range(2))
            alone.case = replace(alone.case, oracles=replace(alone.case.oracles, reference=None))
            kernel = Kernel(alone, subject, checked)
            if not (any(each.miss for each in kernel.outputs) and kernel.rounds):
                return None
            reference = Kernel(as_reference(other), subject, checked).outputs
            pairs = zip(reference, kernel.outputs, strict=True)
            return [(a, b) if a.miss and b.miss else None for a, b in pairs]

        asked = not subject.parameter_names and all(
            x.dtype == torch.float32 for x in subject.inputs
        )
        return (tried(measured) if asked else None) or [None] * len(checked)

    @cached_property
    def rows(self) -> Mapping[tuple[int, int], Pair]:
        """The two Jacobians, without mismatches that either of the two rounds inside, and at kinks
        where both give a subgradient."""
        seen = self._seen

        def compared(function: Differentiable) -> dict[tuple[int, int], Pair]:
            return reference_gradients(
                Filled(function),
                Filled(self),
                seen.settings,
                lambda: seen.jacobian,
                at_kinks(seen),
                seen.spending.short_of,
            )

        def row_of(output: int, function: Gives, inputs: Tensors, row: int) -> Cotangents:
            y = seen.outputs[output]
            one = one_hot(y.shape, y.dtype, y.device, row)
            every = range(len(seen.outputs))
            return function.vjp([one if place == output else None for place in every], inputs)

        def again(key: tuple[int, int], function: Differentiable) -> Pair:
            return compared(function)[key]

        return {
            key: beside_rounding(
                beside_largest(pair, seen, partial(again, key)),
                seen.subject,
                [partial(row_of, key[1], each) for each in (seen.function, self)],
            )
            for key, pair in compared(seen.function).items()
        }
