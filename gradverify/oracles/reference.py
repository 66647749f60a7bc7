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
from torch import Tensor

from gradverify.numerics.exact import add_exact
from gradverify.numerics.function.coordinates import UNITS, numbers, one_hot, rms
from gradverify.numerics.function.point import Point
from gradverify.numerics.pairs.pair import Outcome, Pair, Tally
from gradverify.numerics.rungs import U32, Array, Z
from gradverify.numerics.sixteen_bit import TensorResult
from gradverify.numerics.survey import survey
from gradverify.numerics.tolerance import FLOOR
from gradverify.oracles.convergence import beside_largest
from gradverify.oracles.finite_difference import WORST, Filled, Gives
from gradverify.oracles.implementation import Implementation
from gradverify.oracles.kinks import Kinks
from gradverify.oracles.legs import Kernel, as_reference
from gradverify.oracles.oracle import Checked
from gradverify.oracles.reference_gradients import reference_gradients
from gradverify.oracles.rounding import beside_rounding
from gradverify.subject.differentiable import Differentiable
from gradverify.subject.failure import UserCodeError
from gradverify.subject.subject import Subject
from gradverify.subject.target import Target
from gradverify.subject.wide import InDouble, widened


# ---- A float32 function on two legs: its values against the reference's in float64, and against
# its own there, each beside what float32 costs
def off_both(
    subject: Subject, checked: Sequence[int]
) -> Sequence[tuple[TensorResult, TensorResult] | None]:
    """Of each checked output, how far it is from the reference and from the function itself in
    float64, where both are more than float32 explains.

    None of all where nothing tells whose noise it is: where a differentiable input is not float32,
    where one of the two refuses float64, and where the function computes out of torch's sight.
    """
    nothing = [None] * len(checked)
    if any(argument.parameter for argument in subject.arguments) or any(
        x.dtype != torch.float32 for x in subject.inputs
    ):
        return nothing
    alone, other = (widened(subject, InDouble(lifts=True)) for _ in range(2))
    alone.case = replace(alone.case, oracles=replace(alone.case.oracles, reference=None))
    kernel = Kernel(alone, subject, checked)
    try:
        if not (any(each.miss for each in kernel.outputs) and kernel.rounds):
            return nothing
        reference = Kernel(as_reference(other), subject, checked).outputs
    except UserCodeError:
        return nothing
    return [
        (a, b) if a.miss and b.miss else None
        for a, b in zip(reference, kernel.outputs, strict=True)
    ]


# ---- Another implementation, called with the same arguments in the same order: its values, and
# autograd through it
class AgainstReference:
    """Backward and forward of what is checked against those of the function or module under
    `reference`, both within rounding."""

    def __init__(self, checked: Checked) -> None:
        self._checked = checked

    @cached_property
    def reference(self) -> Implementation:
        """At the point of the check. Raises UserCodeError (GV001)."""
        seen = self._checked
        return Implementation(
            seen.subject,
            "reference",
            str(seen.subject.case.oracles.reference),
            seen.forward.checked,
        )

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
        """Forward values per checked output, within bars: a Pair, or the sentence that says how the
        shapes differ."""
        seen = self._checked

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

    def _values(self, function: Differentiable, outputs: Sequence[Tensor]) -> dict[int, Pair | str]:
        """The noise of both is measured where they differ."""
        result: dict[int, Pair | str] = {}
        noise: list[Array] | None = None
        for place, (mine, theirs) in enumerate(zip(outputs, self.outputs, strict=True)):
            if mine.shape != theirs.shape:
                result[place] = (
                    f"the function returns shape {list(mine.shape)}, the reference "
                    f"{list(theirs.shape)}"
                )
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
        """Z standard deviations of the noise of both, per output [M]; of the function alone where
        the reference has another shape."""
        seen = self._checked
        points = [
            Point(Filled(each), seen.wishes.columns(function.inputs), seed=seen.wishes.seed)
            for each in (function, self.reference)
        ]
        with np.errstate(all="ignore"):
            one, other = (survey(point).sigma for point in points)
        return [
            Z * (one[a] + (other[b] if len(one[a]) == len(other[b]) else 0.0))
            for a, b in zip(points[0].parts, points[1].parts, strict=True)
        ]

    def _compared(self, place: int, mine: Tensor, theirs: Tensor, noise: Array | float) -> Pair:
        """One output [M]. The floor is the rounding of the tensor's typical size; two equal
        infinities agree."""
        a, v, unit = numbers(mine), numbers(theirs), UNITS.get(mine.dtype, U32)
        tally, (atol, rtol) = (
            Tally(0, place, (len(a), 1), WORST),
            self._checked.settings.tolerances(),
        )
        with np.errstate(all="ignore"):
            add_exact(
                tally,
                a[:, None],
                v[:, None],
                FLOOR * unit * rms(np.abs(v)),
                atol=atol,
                rtol=rtol,
                unit=unit,
                rows=np.arange(len(a)),
                first=0,
                broken=Outcome.MISMATCH,
                noise=noise,
            )
        return tally.result(unit, False)

    @cached_property
    def beyond_float32(self) -> Sequence[tuple[TensorResult, TensorResult] | None]:
        """Of each checked output in float32, how far it is off this and itself in float64, where
        float32 explains neither."""
        return off_both(self._checked.subject, self._checked.forward.checked)

    @cached_property
    def rows(self) -> Mapping[tuple[int, int], Pair]:
        """The two Jacobians, without mismatches that either of the two rounds inside, and at kinks
        where both give a subgradient."""
        seen = self._checked

        def compared(function: Differentiable) -> dict[tuple[int, int], Pair]:
            return reference_gradients(
                Filled(function),
                Filled(self.reference),
                seen.settings,
                lambda: seen.jacobian,
                Kinks(seen).beside,
                seen.spending.short_of,
            )

        def again(key: tuple[int, int], function: Differentiable) -> Pair:
            return compared(function)[key]

        return {
            key: self._unrounded(beside_largest(pair, seen, partial(again, key)), key[1])
            for key, pair in compared(seen.function).items()
        }

    def _unrounded(self, pair: Pair, output: int) -> Pair:
        y, count = self._checked.outputs[output], len(self._checked.outputs)

        def row_of(function: Gives, inputs: Sequence[Tensor], row: int) -> Sequence[Tensor | None]:
            one = one_hot(y.shape, y.dtype, y.device, row)
            return function.vjp_at(
                inputs, [one if place == output else None for place in range(count)]
            )

        return beside_rounding(
            pair,
            self._checked.subject,
            [partial(row_of, each) for each in (self._checked.function, self.reference)],
        )
