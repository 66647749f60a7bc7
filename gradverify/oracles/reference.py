"""Another implementation, called with the same arguments: its values, and its gradients by autograd, each within bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, partial

import numpy as np
from torch import Tensor

from gradverify.numerics.exact import add_exact
from gradverify.numerics.function.coordinates import UNITS, numbers, one_hot, rms
from gradverify.numerics.function.point import Point
from gradverify.numerics.pairs.pair import Outcome, Pair
from gradverify.numerics.pairs.tally import Tally
from gradverify.numerics.rungs import U32, Array, Z
from gradverify.numerics.survey import survey
from gradverify.numerics.tolerance import FLOOR
from gradverify.oracles.convergence import beside_largest
from gradverify.oracles.finite_difference import WORST, Filled, Gives
from gradverify.oracles.implementation import Implementation
from gradverify.oracles.kinks import Kinks
from gradverify.oracles.oracle import Checked
from gradverify.oracles.reference_gradients import reference_gradients
from gradverify.oracles.rounding import beside_rounding
from gradverify.subject.differentiable import Differentiable
from gradverify.subject.target import Target


# ---- Another implementation, called with the same arguments in the same order: its values, and autograd through it
class AgainstReference:
    """Backward and forward of what is checked against those of the function or module under `reference`, both within rounding."""

    def __init__(self, checked: Checked) -> None:
        self._checked = checked

    @cached_property
    def reference(self) -> Implementation:
        """At the point of the check. Raises UserCodeError (GV001)."""
        seen = self._checked
        return Implementation(seen.subject, "reference", str(seen.subject.case.oracles.reference), seen.forward.checked)

    @property
    def name(self) -> str:
        return self.reference.name

    @property
    def target(self) -> Target | None:
        return self.reference.target

    @property
    def outputs(self) -> Sequence[Tensor]:
        """Of the reference, at the places of the checked ones."""
        return self.reference.outputs

    @cached_property
    def values(self) -> Mapping[int, Pair | str]:
        """Forward values per checked output, within bars: a Pair, or the sentence that says how the shapes differ."""
        seen = self._checked

        def again(place: int, function: Differentiable) -> Pair:
            found = self._values(function, function.values(function.inputs))[place]
            assert isinstance(found, Pair)
            return found

        return {place: each if isinstance(each, str) else beside_largest(each, seen, partial(again, place))
                for place, each in self._values(seen.function, seen.outputs).items()}

    def _values(self, function: Differentiable, outputs: Sequence[Tensor]) -> dict[int, Pair | str]:
        """The noise of both is measured where they differ."""
        result: dict[int, Pair | str] = {}
        noise: list[Array] | None = None
        for place, (mine, theirs) in enumerate(zip(outputs, self.outputs, strict=True)):
            if mine.shape != theirs.shape:
                result[place] = f"the function returns shape {list(mine.shape)}, the reference {list(theirs.shape)}"
            elif mine.is_complex() != theirs.is_complex():
                result[place] = f"the function returns {mine.dtype}, the reference {theirs.dtype}"
            else:
                pair = self._compared(place, mine, theirs, 0.0)
                if pair.count(Outcome.MISMATCH, Outcome.UNDECIDED):
                    noise = noise or self._noise(function)
                    pair = self._compared(place, mine, theirs, noise[place][:, None])
                result[place] = pair
        return result

    def _noise(self, function: Differentiable) -> list[Array]:
        """Z standard deviations of the noise of both, per output [M]; of the function alone where the reference has another shape."""
        seen = self._checked
        points = [Point(Filled(each), seen.wishes.columns(function.inputs), seed=seen.wishes.seed) for each in (function, self.reference)]
        with np.errstate(all="ignore"):
            one, other = (survey(point).sigma for point in points)
        return [Z * (one[a] + (other[b] if len(one[a]) == len(other[b]) else 0.0)) for a, b in zip(points[0].parts, points[1].parts, strict=True)]

    def _compared(self, place: int, mine: Tensor, theirs: Tensor, noise: Array | float) -> Pair:
        """One output [M]. The floor is the rounding of the tensor's typical size; two equal infinities agree."""
        a, v, unit = numbers(mine), numbers(theirs), UNITS.get(mine.dtype, U32)
        tally, (atol, rtol) = Tally(0, place, (len(a), 1), WORST), self._checked.settings.tolerances()
        with np.errstate(all="ignore"):
            add_exact(tally, a[:, None], v[:, None], FLOOR * unit * rms(np.abs(v)), atol=atol, rtol=rtol, unit=unit, rows=np.arange(len(a)), first=0,
                      broken=Outcome.MISMATCH, noise=noise)
        return tally.result(unit, False)

    @cached_property
    def rows(self) -> Mapping[tuple[int, int], Pair]:
        """The two Jacobians, without mismatches that either of the two rounds inside, and at kinks where both give a subgradient."""
        seen = self._checked

        def compared(function: Differentiable) -> dict[tuple[int, int], Pair]:
            return reference_gradients(Filled(function), Filled(self.reference), seen.settings,
                                       lambda: seen.jacobian, Kinks(seen).beside, seen.spending.short_of)

        def again(key: tuple[int, int], function: Differentiable) -> Pair:
            return compared(function)[key]

        return {key: self._unrounded(beside_largest(pair, seen, partial(again, key)), key[1]) for key, pair in compared(seen.function).items()}

    def _unrounded(self, pair: Pair, output: int) -> Pair:
        y, count = self._checked.outputs[output], len(self._checked.outputs)

        def row_of(function: Gives, inputs: Sequence[Tensor], row: int) -> Sequence[Tensor | None]:
            one = one_hot(y.shape, y.dtype, y.device, row)
            return function.vjp_at(inputs, [one if place == output else None for place in range(count)])

        return beside_rounding(pair, self._checked.subject, [partial(row_of, each) for each in (self._checked.function, self.reference)])
