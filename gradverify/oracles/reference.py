"""Another implementation, called with the same arguments: its values, and its gradients by autograd, each within bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, partial

import numpy as np
import torch
from torch import Tensor

from gradverify.model.case import Settings
from gradverify.numerics.exact import add_exact
from gradverify.numerics.function.coordinates import UNITS, numbers, rms
from gradverify.numerics.function.point import Function, Point
from gradverify.numerics.pairs.pair import Outcome, Pair
from gradverify.numerics.pairs.tally import Tally
from gradverify.numerics.rungs import U32, Array, Z
from gradverify.numerics.survey import survey
from gradverify.numerics.tolerance import FLOOR
from gradverify.oracles.convergence import beside_largest
from gradverify.oracles.finite_difference import WORST, Filled, Wishes
from gradverify.oracles.implementation import Implementation
from gradverify.oracles.kinks import Kinks
from gradverify.oracles.legs import as_reference
from gradverify.oracles.oracle import Checked, Key
from gradverify.oracles.reference_gradients import Layout, reference_gradients
from gradverify.oracles.rounding import InFloat64, beside_rounding, row_of
from gradverify.subject.differentiable import Differentiable
from gradverify.subject.failure import UserCodeError
from gradverify.subject.target import Target
from gradverify.subject.wide import InDouble, widened


# ---- Forward values against a reference's, within bars: the noise of both, measured where they differ
def reference_values(mine: Sequence[Tensor], theirs: Sequence[Tensor], ours: Function, reference: Function, settings: Settings,
                     wishes: Wishes) -> dict[int, Pair | str]:
    """Forward values per output: a Pair, or the sentence that says how the shapes differ."""
    result: dict[int, Pair | str] = {}
    noise: list[Array] | None = None
    for place, (a, b) in enumerate(zip(mine, theirs, strict=True)):
        seen = _complaint(a, b) or _values(place, a, b, np.zeros(numbers(a).shape), settings)
        if not isinstance(seen, str) and seen.count(Outcome.MISMATCH, Outcome.UNDECIDED):
            noise = noise or _noise(ours, reference, settings, wishes)
            seen = _values(place, a, b, noise[place], settings)
        result[place] = seen
    return result


def _complaint(mine: Tensor, theirs: Tensor) -> str | None:
    if mine.shape != theirs.shape:
        return f"the function returns shape {list(mine.shape)}, the reference {list(theirs.shape)}"
    if mine.is_complex() != theirs.is_complex():
        return f"the function returns {mine.dtype}, the reference {theirs.dtype}"
    return None


def _noise(ours: Function, reference: Function, settings: Settings, wishes: Wishes) -> list[Array]:
    """Z standard deviations of the noise of both, per output [M]; nothing where one of them has none to measure (a shape that differs)."""
    columns = wishes.columns(ours.inputs)
    (one, parts), (other, others) = (_sigma(Point(function, columns, seed=wishes.seed)) for function in (ours, reference))
    same = [a.stop - a.start for a in parts] == [b.stop - b.start for b in others]
    return [Z * (one[part] + (other[part] if same else 0.0)) for part in parts]


def _sigma(point: Point) -> tuple[Array, list[slice]]:
    with np.errstate(all="ignore"):
        return survey(point).sigma, point.parts


def _values(place: int, mine: Tensor, theirs: Tensor, noise: Array, settings: Settings) -> Pair:
    """One output [M]. The floor is the rounding of the tensor's typical size; two equal infinities agree."""
    a, v, unit = numbers(mine), numbers(theirs), UNITS.get(mine.dtype, U32)
    tally, (atol, rtol) = Tally(0, place, (len(a), 1), WORST), settings.tolerances()
    with np.errstate(all="ignore"):
        add_exact(tally, a[:, None], v[:, None], FLOOR * unit * rms(np.abs(v)), atol=atol, rtol=rtol, unit=unit, rows=np.arange(len(a)), first=0,
                  broken=Outcome.MISMATCH, noise=noise[:, None])
    return tally.result(unit, False)


# ---- Another implementation, called with the same arguments in the same order: its values, and autograd through it
def oracle(checked: Checked) -> AgainstReference | None:
    """The function or module under `reference`."""
    return AgainstReference(checked) if checked.subject.case.oracles.reference else None


class AgainstReference:
    """Backward and forward of what is checked against the reference's, both within rounding."""

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
        """Forward values per checked output: a Pair, or the sentence that says how the shapes differ."""
        seen = self._checked

        def compared(function: Differentiable, outputs: Sequence[Tensor]) -> Mapping[int, Pair | str]:
            return reference_values(outputs, self.outputs, Filled(function), Filled(self.reference), seen.settings, seen.wishes)

        def tighter(place: int) -> Pair:
            found = seen.tighter(seen.subject, lambda function: compared(function, function.values(function.inputs)))[place]
            assert isinstance(found, Pair)
            return found

        return {place: each if isinstance(each, str) else beside_largest(each, lambda: seen.leftover, partial(tighter, place))
                for place, each in compared(seen.function, seen.outputs).items()}

    @property
    def pairs(self) -> Mapping[Key, Pair]:
        return {(place, output): pair for (place, output), pair in self.rows.items()}

    @cached_property
    def rows(self) -> Mapping[tuple[int, int], Pair]:
        """The two Jacobians, without mismatches that either of the two rounds inside, and at kinks where both give a subgradient."""
        seen = self._checked

        def compared(function: Differentiable) -> dict[tuple[int, int], Pair]:
            return reference_gradients(Filled(function), Filled(self.reference), seen.settings,
                                       lambda: Layout(seen.jacobian.structure, seen.jacobian.choice), Kinks(seen).beside, seen.spending.short_of)

        def tighter(key: tuple[int, int]) -> Pair:
            return seen.tighter(seen.subject, compared)[key]

        return {key: self._unrounded(beside_largest(pair, lambda: seen.leftover, partial(tighter, key)), *key)
                for key, pair in compared(seen.function).items()}

    def _unrounded(self, pair: Pair, tensor: int, output: int) -> Pair:
        seen = self._checked
        routes = [row_of(each, seen.outputs, tensor, output) for each in (seen.function, self.reference)]

        def in_float64() -> InFloat64 | None:
            if not all(x.dtype == torch.float32 for x in seen.subject.inputs):
                return None
            try:
                wide = widened(seen.subject, InDouble(lifts=True))
                sides = [Differentiable(each, seen.forward.checked) for each in (wide, as_reference(wide))]
                mine, theirs = (row_of(each, each.values(each.inputs), tensor, output) for each in sides)
            except UserCodeError:
                return None
            return wide.inputs, mine, theirs

        return beside_rounding(pair, seen.subject, routes, in_float64, seen.settings.tolerances()[1])
