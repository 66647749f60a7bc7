"""Another implementation, called with the same arguments in the same order: its values, and autograd through it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, partial

import numpy as np
import torch
from torch import Tensor

from gradverify.numerics.estimate.noise import POINTS
from gradverify.numerics.function.flat import numbers
from gradverify.numerics.pairs.pair import Outcome, Pair
from gradverify.numerics.rungs import Array
from gradverify.numerics.sixteen_bit import TensorResult
from gradverify.oracles.convergence import beside_largest
from gradverify.oracles.finite_difference import Filled
from gradverify.oracles.implementation import Implementation
from gradverify.oracles.kinks import Kinks
from gradverify.oracles.legs import as_reference
from gradverify.oracles.lost import beside_lost_by_both
from gradverify.oracles.oracle import Checked, Key
from gradverify.oracles.reference_gradients import Layout, reference_gradients
from gradverify.oracles.rounding import Route, beside_rounding, row_of
from gradverify.oracles.single import off_both
from gradverify.oracles.values import reference_values
from gradverify.subject.differentiable import Differentiable
from gradverify.subject.failure import UserCodeError
from gradverify.subject.lowered import rounded_at_random
from gradverify.subject.subject import Subject
from gradverify.subject.target import Target
from gradverify.subject.wide import InDouble, widened


class Reference:
    """The reference at the point of the check, as a function of the same differentiable inputs."""

    def __init__(self, subject: Subject, checked: Sequence[int]) -> None:
        self._subject = subject
        self._other = Implementation(subject, "reference", str(subject.case.oracles.reference), checked)
        self.name, self.target = self._other.name, self._other.target
        self._leaves = subject.leaves()
        self._outputs, self._lent = self._other.graph(self._leaves)

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return self._subject.inputs

    @property
    def outputs(self) -> list[Tensor]:
        return self._outputs

    def values(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """The reference's outputs at the places of the checked ones. Raises UserCodeError (GV002) that names the reference."""
        return self._other.values(inputs)

    def vjp(self, cotangents: Sequence[Tensor | None]) -> tuple[Tensor | None, ...]:
        """Autograd through the reference. Raises UserCodeError (GV003) that names it."""
        return self._other.gradients(self._leaves, self._outputs, self._lent, cotangents)

    def vjp_at(self, inputs: Sequence[Tensor], cotangents: Sequence[Tensor | None]) -> tuple[Tensor | None, ...]:
        """The same at other inputs."""
        leaves = [x.detach().clone().requires_grad_() for x in inputs]
        return self._other.gradients(leaves, *self._other.graph(leaves), cotangents)


def oracle(checked: Checked) -> AgainstReference | None:
    """The function or module under `reference`."""
    return AgainstReference(checked) if checked.subject.case.oracles.reference else None


class AgainstReference:
    """Backward and forward of what is checked against the reference's, both within rounding."""

    def __init__(self, checked: Checked) -> None:
        self._checked = checked

    @cached_property
    def reference(self) -> Reference:
        """Called at the point. Raises UserCodeError (GV001, GV002)."""
        return Reference(self._checked.subject, self._checked.forward.checked)

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

    @cached_property
    def beyond_float32(self) -> list[tuple[TensorResult, TensorResult] | None]:
        """Of each checked output in float32, how far it is off this and itself in float64, where float32 explains neither."""
        return off_both(self._checked.subject, self._checked.forward.checked)

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
        single = all(x.dtype == torch.float32 for x in seen.subject.inputs)
        found = beside_rounding(pair, seen.subject, routes, seen.precision, spread=partial(self._spread, tensor, output) if single else None)
        if not single or not found.count(Outcome.MISMATCH):
            return found
        try:
            return beside_lost_by_both(found, seen.measured, seen.wishes, seen.settings.rtol, self._in_float64(tensor, output))
        except UserCodeError:
            return found

    def _in_float64(self, tensor: int, output: int) -> Route:
        """Rows of the reference's gradient in float64. Raises UserCodeError where it refuses that."""
        wide = Differentiable(as_reference(widened(self._checked.subject, InDouble(lifts=True))), self._checked.forward.checked)
        route = row_of(wide, wide.values(wide.inputs), tensor, output)
        return lambda _, row: route(wide.inputs, row)

    def _spread(self, tensor: int, output: int, row: int) -> Array:
        """What the reference in float64 shows of a row of its gradient, its operations rounded at random as in float32; 0 where it refuses that."""
        seen = self._checked
        try:
            route = self._in_float64(tensor, output)
            rows = rounded_at_random(lambda: route((), row), POINTS, "reference", "rounding")
        except UserCodeError:
            return np.zeros(numbers(seen.subject.inputs[tensor]).shape)
        return np.asarray(np.nan_to_num(np.std(rows, 0, ddof=1)))
