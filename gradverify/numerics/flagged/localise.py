"""From a flagged line to one suspicious entry: halve the inputs of its block by forward calls, then
the outputs of one input by backwards.

Both halves of what is wrong add up to it, so one of them is wrong by at least half as much: that
one is followed. What looks rough (a kink along the direction) is followed too. Nothing is judged
here: the lone column and the one-hot row say whether the suspect is at fault.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gradverify.numerics.halving import half_off
from gradverify.numerics.probing.seed_matrices import (
    LOW_START,
    ProbeDerivative,
    Stage,
    Sums,
    SurveyedPoint,
    random_cotangent,
)
from gradverify.numerics.rungs import Array, Index, Mask
from gradverify.numerics.seed_vectors import moves_along, pull_back, signed_weights
from gradverify.numerics.sparsity.pattern import Pattern, paired
from gradverify.numerics.survey import Directions
from gradverify.numerics.tolerance import guarded
from gradverify.numerics.verdict import Verdict

TRIES = 2  # probes: a fault may hide from one by chance
BRIEF, SILENT = (
    8,
    2.0**-40,
    # the only rung of a brief search, where f has no more noise: rounding and curvature are 1e-11
    # of a
    # derivative there
)
# of what is off along a random direction, over √n: so much each of n columns has where all of them
# are wrong alike
LIKELY = 0.5
# columns: of more, a brief search looks at the largest before it halves them, as often all are
# wrong
GUESSED = 8
ROUGH = 16  # outputs at most that a column with kinks names

Suspects = tuple[Index, Index]
"""A column (one or none) and the outputs to measure it with, by number (as `Point.columns`,
`Point.f0`)."""


@dataclass(frozen=True)
class _Probe:
    """Weights [outputs of the tensor], the gradient they pull back to and a move of each column
    [n], and the columns that may be blamed, of which the first ones, so many, are the block's
    `inside`."""

    weights: Array
    gradient: Array
    move: Array
    candidates: Index
    inside: int


class Search:
    """The search in one block of a pair, by probes: random cotangents of its outputs, and moves of
    columns.

    `row`: the output of the block that was flagged, where it is known: beside all others a small
    fault of it would drown. `brief`: by a single rung, which may miss what is not far off, and what
    is rough.
    """

    def __init__(
        self,
        surveyed: SurveyedPoint,
        tensor: int,
        output: int,
        pattern: Pattern,
        block: int,
        row: int | None = None,
        brief: bool = False,
    ) -> None:
        self.surveyed, self.point, self.tensor, self.output = (
            surveyed,
            surveyed.point,
            tensor,
            output,
        )
        self.pattern, self.block, self.row, self.brief = (
            paired(surveyed.point, tensor, [pattern])[0],
            block,
            row,
            brief,
        )
        self.which, self.part, self.columns = (
            (tensor, block, row),
            self.point.parts[output],
            self.point.columns.of(tensor),
        )
        schedule = surveyed.schedule(tensor)
        self.noise = surveyed.survey.noise(self.point)
        self.stages: tuple[Stage, ...] = (schedule.start, *schedule.finer)
        if brief:
            quiet = bool((self.noise <= SILENT * surveyed.survey.size).all())
            self.stages = (
                (BRIEF if quiet and schedule.start is not LOW_START else schedule.start[-1],),
            )

    @cached_property
    def outputs_inside(self) -> Mask:
        """Outputs [m] of the block, or the one that was flagged."""
        if self.row is not None:
            return np.asarray(np.arange(len(self.pattern)) == self.row - self.part.start)
        return np.asarray(self.pattern.block_of_outputs() == self.block)

    def entry(self) -> Suspects:
        """One suspicious (output, column), or no more than a few outputs of one column where f is
        rough along it.

        6 forward calls (2 if `brief`) for each halving of the columns (more where kinks are near),
        then one backward for each halving of the outputs. A block has two sides: its outputs may
        depend on columns outside (then these are searched), its columns be pulled back to from
        outputs outside.
        """
        for n in range(2 * TRIES):
            probe = self._probe(n, rows=n % 2 == 0)
            off = self._deviation(probe, probe.candidates) if len(probe.candidates) else None
            if off is not None:
                column = self._worst_column(probe, off)
                return self.columns[[column]], self._worst_outputs(probe, column)
        return np.zeros(0, np.intp), np.zeros(0, np.intp)

    def output_of(self, column: int, group: int) -> Suspects:
        """The output, of all those of the tensor, whose cotangent pulls back wrongly to a flagged
        column, by one backward for each halving.

        Finds also an output that the column has no business with, which one-hot rows of its own
        would not. `group`: of the stray that led here, as each is searched in another way.
        """
        local = int(np.searchsorted(self.columns, column))
        outputs = self._worst_outputs(self._probe(f"of {local} in {group}", rows=False), local)
        return np.full(min(len(outputs), 1), column), outputs

    def _probe(self, number: int | str, rows: bool) -> _Probe:
        """Of the block's outputs and all columns (the block's first), or of all outputs and the
        block's columns."""
        weights = random_cotangent(self.point, self.output, "search", *self.which, number)
        weights = np.where(self.outputs_inside, weights, 0.0) if rows else weights
        gradient = self._pulled(weights)
        source = self.point.seed.generator("search move", self.output, *self.which, number)
        move = moves_along(self.point, self.columns, signed_weights(len(self.columns), source))
        of_block = (
            self.pattern.block_of_inputs()[self.point.columns_of(self.tensor).coordinate]
            == self.block
        )
        inside, outside = (np.flatnonzero(some & (move != 0)) for some in (of_block, ~of_block))
        return _Probe(
            weights,
            gradient,
            move,
            np.concatenate([inside, outside]) if rows else inside,
            len(inside),
        )

    def _pulled(self, weights: Array) -> Array:
        return self.point.by_column(pull_back(self.point, self.output, weights))[self.columns]

    def _deviation(self, probe: _Probe, columns: Index) -> float | None:
        """Analytic less numeric Σ w_j (Jv)_j over these columns; inf where f is rough, None where
        both agree."""
        move, scale = np.zeros(len(self.columns)), self.point.columns.scale[self.columns[columns]]
        move[columns] = probe.move[columns]
        norm = np.full(1, float(np.sqrt(np.sum((probe.gradient[columns] * scale) ** 2))))
        noise = np.sqrt(np.sum((probe.weights * self.noise[self.part]) ** 2, keepdims=True))
        d = self._derivative(
            move,
            lambda change: probe.weights[None] @ change,
            self.surveyed.noise_along(self.tensor, noise, np.nan_to_num(norm)),
        )
        off = (probe.gradient[columns] * probe.move[columns]).sum() - d.value
        if not np.isfinite(off[0]) or not d.clear[0]:
            return float("inf")
        tolerance = self.surveyed.relative(self.tensor, self.output)[0] * np.maximum(
            norm, np.abs(np.nan_to_num(d.value))
        )
        passed = (guarded(np.abs(off), d.bar, tolerance) == Verdict.PASS) | (np.abs(off) <= d.bar)
        return None if passed[0] else float(off[0])

    def _derivative(
        self, move: Array, add_up: Callable[[Array], Array], sigma: Array
    ) -> ProbeDerivative:
        """Of sums of how the outputs of the tensor change along a move of the columns: finer rungs
        where the first are rough."""
        along, of = (
            Directions(self.point, self.tensor, [move]),
            Sums(self.output, lambda f: add_up(self.surveyed.changes(f, self.part)), sigma),
        )
        [best] = self.surveyed.read(along, 0, self.stages[0], [of])
        for stage in self.stages[1:]:
            i = np.flatnonzero(~best.clear)
            if not i.size:
                break
            finer = self.surveyed.read(along, 0, stage, [of])[0].take(i)
            best = best.replaced(i[finer.clear], finer.take(finer.clear))
        return best

    def _worst_column(self, probe: _Probe, off: float) -> int:
        """The column that is left when the half that is off by more is followed."""
        columns = probe.candidates
        if self.brief and len(columns) > GUESSED:
            likely = columns[
                [int(np.argmax(np.abs(np.nan_to_num(probe.gradient * probe.move)[columns])))]
            ]
            guess = self._deviation(probe, likely)
            if guess is not None and abs(guess) >= LIKELY * abs(off) / len(columns) ** 0.5:
                return int(likely[0])
        return half_off(
            columns, lambda half: self._deviation(probe, half) or 0.0, off, cut=probe.inside
        )

    def _worst_outputs(self, probe: _Probe, column: int) -> Index:
        """The output that the backward is off at, found by halving; all that are rough along the
        column, if any."""
        scale, move = self.point.columns.scale[self.columns[column]], np.zeros(len(self.columns))
        move[column] = scale
        d = self._derivative(move, lambda change: change, self.noise[self.part])
        used = probe.weights != 0
        rough = np.flatnonzero(used & ~d.clear)
        if rough.size:
            return rough[:ROUGH] + self.part.start
        outputs = np.concatenate(
            [
                np.flatnonzero(used & self.outputs_inside),
                np.flatnonzero(used & ~self.outputs_inside),
            ]
        )
        off = probe.gradient[column] * scale - float(probe.weights @ d.value)
        allowed = self.surveyed.relative(self.tensor, self.output)[0] * np.linalg.norm(
            probe.weights * d.value
        )
        if (
            not len(outputs)
            or abs(off) <= float(np.abs(probe.weights) @ np.where(used, d.bar, 0.0)) + allowed
        ):
            return np.zeros(0, np.intp)

        def deviation(half: Index) -> float:
            weights = np.zeros(len(probe.weights))
            weights[half] = probe.weights[half]
            return float(self._pulled(weights)[column] * scale - weights @ d.value)

        return np.array([half_off(outputs, deviation, off)]) + self.part.start
