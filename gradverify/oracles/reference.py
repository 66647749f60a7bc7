"""Another implementation, called with the same arguments in the same order: its values, and autograd through it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from gradverify.model.case import Settings
from gradverify.numerics.entries.sweep import TILE_LIMIT
from gradverify.numerics.estimate.noise import POINTS
from gradverify.numerics.exact import add_exact, rounding_floor
from gradverify.numerics.function.coordinates import columns_of
from gradverify.numerics.function.flat import numbers
from gradverify.numerics.function.point import Function, Point
from gradverify.numerics.pairs.pair import Outcome, Pair
from gradverify.numerics.pairs.tally import Tally
from gradverify.numerics.rungs import U64, Array
from gradverify.numerics.sixteen_bit import TensorResult
from gradverify.oracles.convergence import beside_largest
from gradverify.oracles.finite_difference import WORST, Filled
from gradverify.oracles.implementation import Implementation
from gradverify.oracles.legs import as_reference
from gradverify.oracles.lost import beside_lost_by_both
from gradverify.oracles.oracle import Checked, Key
from gradverify.oracles.rounding import Route, beside_rounding, row_of
from gradverify.oracles.single import off_both
from gradverify.oracles.values import reference_values
from gradverify.subject.differentiable import Differentiable
from gradverify.subject.failure import UserCodeError
from gradverify.subject.lowered import rounded_at_random
from gradverify.subject.subject import Subject
from gradverify.subject.target import Target
from gradverify.subject.wide import InDouble, widened

ARRAYS = 12  # of a tile's size that a comparison holds at once


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
        found = reference_values(seen.outputs, self.outputs, Filled(seen.function), Filled(self.reference), seen.settings, seen.wishes)
        return {place: each if isinstance(each, str) else beside_largest(each, lambda: seen.leftover) for place, each in found.items()}

    @cached_property
    def beyond_float32(self) -> list[tuple[TensorResult, TensorResult] | None]:
        """Of each checked output in float32, how far it is off this and itself in float64, where float32 explains neither."""
        return off_both(self._checked.subject, self._checked.forward.checked)

    @property
    def pairs(self) -> Mapping[Key, Pair]:
        return {(place, output): pair for (place, output), pair in self.rows.items()}

    @cached_property
    def rows(self) -> Mapping[tuple[int, int], Pair]:
        """Every row of the two Jacobians, without mismatches that either of the two rounds inside."""
        seen = self._checked
        found = reference_gradients(Filled(seen.function), Filled(self.reference), seen.settings)
        return {key: self._unrounded(beside_largest(pair, lambda: seen.leftover), *key) for key, pair in found.items()}

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


def reference_gradients(function: Function, reference: Function, settings: Settings) -> dict[tuple[int, int], Pair]:
    """Every row of the Jacobian by one-hot cotangents through both, in tiles of inputs: {(input, output): Pair}."""
    n = len(function.inputs)
    columns = columns_of(function.inputs, [None] * n, [False] * n)
    ours, theirs = Point(function, columns), Point(reference, columns)
    atol, rtol = settings.tolerances()
    unit, rows = float(ours.unit.max(initial=U64)), np.arange(len(ours.f0))
    room = max(1, TILE_LIMIT // (8 * ARRAYS * max(len(rows), 1)))
    tallies = {(t, o): Tally(t, o, (part.stop - part.start, int(size)), WORST)
               for t, size in enumerate(np.diff(ours.starts)) for o, part in enumerate(ours.parts)}
    with np.errstate(all="ignore"):
        for tensor, first, last in _runs(ours.starts.tolist(), room):
            mine, other = (np.array([point.row(j)[first:last] for j in rows.tolist()]).reshape(len(rows), last - first) for point in (ours, theirs))
            for output, part in enumerate(ours.parts):
                floor = rounding_floor(unit, mine[part], other[part], columns.scale[first:last], columns.size[first:last])
                add_exact(tallies[tensor, output], mine[part], other[part], floor, atol=atol, rtol=rtol, unit=unit,
                          rows=rows[part] - part.start, first=first - int(ours.starts[tensor]))
    return {key: tally.result(unit, False) for key, tally in tallies.items()}


def _runs(starts: Sequence[int], room: int) -> Iterator[tuple[int, int, int]]:
    """(input, first column, last + 1), at most `room` columns of one input at a time."""
    for tensor, (begin, end) in enumerate(pairwise(starts)):
        for first in range(begin, end, room):
            yield tensor, first, min(first + room, end)
