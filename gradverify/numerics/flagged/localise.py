"""From a flagged line to one suspicious entry: halve the inputs of its block by forward calls, then the outputs of one input by backwards.

Both halves of what is wrong add up to it, so one of them is wrong by at least half as much: that one is followed. What looks rough (a kink
along the direction) is followed too. Nothing is judged here: the lone column and the one-hot row say whether the suspect is at fault.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gradverify.numerics.estimate.samples import Samples
from gradverify.numerics.halving import half_off
from gradverify.numerics.probing.seed_matrices import LOW_START, Directions, ProbeDerivative, Stage, SurveyedPoint, probe_derivative, random_cotangent
from gradverify.numerics.records import joined
from gradverify.numerics.rungs import Array, Index, Mask, pieces
from gradverify.numerics.seed_vectors import moves_along, pull_back, signed_weights
from gradverify.numerics.sparsity.pattern import Pattern, paired
from gradverify.numerics.tolerance import guarded
from gradverify.numerics.verdict import Verdict

TRIES = 2  # probes: a fault may hide from one by chance
BRIEF, SILENT = 8, 2.0**-40  # the only rung of a brief search, where f has no more noise: rounding and curvature are 1e-11 of a derivative there
LIKELY = 0.5  # of what is off along a random direction, over √n: so much each of n columns has where all of them are wrong alike
GUESSED = 8  # columns: of more, a brief search looks at the largest before it halves them, as often all are wrong
ROUGH = 16  # outputs at most that a column with kinks names


@dataclass(frozen=True)
class Suspects:
    """Columns and outputs to measure alone, by number (as `Point.columns`, `Point.f0`); both empty where nothing was found."""

    columns: Index
    outputs: Index


@dataclass(frozen=True)
class Place:
    """Where to look: an (input tensor, output tensor) pair and its sparsity pattern, as its columns move (`paired`)."""

    surveyed: SurveyedPoint
    tensor: int
    output: int
    pattern: Pattern

    @classmethod
    def of(cls, surveyed: SurveyedPoint, tensor: int, output: int, pattern: Pattern) -> Place:
        return cls(surveyed, tensor, output, paired(surveyed.point, tensor, [pattern])[0])


def localise(place: Place, block: int, *, row: int | None = None, brief: bool = False) -> Suspects:
    """One suspicious (output, column) of a flagged block, or no more than a few outputs of one column where f is rough along it.

    `row`: the output of the block that was flagged, where it is known: beside all others a small fault of it would drown. `brief`: by a single rung,
    which may miss what is not far off, and what is rough.

    6 forward calls (2 if `brief`) for each halving of the columns (more where kinks are near), then one backward for each halving of the outputs. A
    block has two sides: its outputs may depend on columns outside (then these are searched), its columns be pulled back to from outputs outside.
    """
    return Suspects(*_Search(place, block, row, brief).found())


def localise_column(place: Place, column: int, group: int) -> Suspects:
    """The output, of all those of the tensor, whose cotangent pulls back wrongly to a flagged column; nothing where none does.

    One backward for each halving: finds also an output that the column has no business with, which one-hot rows of its own would not. `group`: of
    the stray that led here, as each is searched in another way.
    """
    point = place.surveyed.point
    local = int(np.searchsorted(point.columns.of(place.tensor), column))
    block = int(place.pattern.block_of_inputs()[point.columns_of(place.tensor).coordinate[local]])
    outputs = _Search(place, block).outputs_of(local, group)
    return Suspects(np.full(min(len(outputs), 1), column), outputs)


@dataclass(frozen=True)
class _Probe:
    """Weights [outputs of the tensor], what they pull back to [n], a move of each column [n], and the columns they may blame."""

    weights: Array
    gradient: Array
    move: Array
    candidates: Index
    inside: int  # so many of the candidates, the first ones, are the block's


class _Search:
    """The search in one block, by probes: random cotangents of its outputs, and moves of columns."""

    def __init__(self, place: Place, block: int, row: int | None = None, brief: bool = False) -> None:
        surveyed, pattern = place.surveyed, place.pattern
        self.surveyed, self.point, self.tensor, self.output = surveyed, surveyed.point, place.tensor, place.output
        self.which, self.brief, self.part = (place.tensor, block, row), brief, self.point.parts[place.output]
        self.columns = self.point.columns.of(place.tensor)
        self.outputs_inside = pattern.block_of_outputs() == block if row is None else np.arange(len(pattern)) == row - self.part.start
        self.columns_inside = pattern.block_of_inputs()[self.point.columns_of(place.tensor).coordinate] == block
        schedule = surveyed.schedule(place.tensor)
        self.stages: tuple[Stage, ...] = (schedule.start, *schedule.finer)
        if brief:
            quiet = bool((surveyed.noise <= SILENT * surveyed.survey.size).all())
            self.stages = ((BRIEF if quiet and schedule.start is not LOW_START else schedule.start[-1],),)

    def found(self) -> tuple[Index, Index]:
        """The column (one or none) and the outputs that it may be at fault with."""
        for n in range(2 * TRIES):
            probe = self._probe(n, rows=n % 2 == 0)
            off = self._deviation(probe, probe.candidates) if len(probe.candidates) else None
            if off is not None:
                column = self._worst_column(probe, off)
                return self.columns[[column]], self._worst_outputs(probe, column)
        nothing = np.zeros(0, np.intp)
        return nothing, nothing

    def _probe(self, number: int | str, rows: bool) -> _Probe:
        """Of the block's outputs and all columns (the block's first), or of all outputs and the block's columns."""
        weights = random_cotangent(self.point, self.output, "search", *self.which, number)
        weights = np.where(self.outputs_inside, weights, 0.0) if rows else weights
        gradient = self.point.by_column(pull_back(self.point, self.output, weights))[self.columns]
        source = self.point.seed.generator("search move", self.output, *self.which, number)
        move = moves_along(self.point, self.columns, signed_weights(len(self.columns), source))
        inside, outside = (np.flatnonzero(of_block & (move != 0)) for of_block in (self.columns_inside, ~self.columns_inside))
        return _Probe(weights, gradient, move, np.concatenate([inside, outside]) if rows else inside, len(inside))

    def _deviation(self, probe: _Probe, columns: Index) -> float | None:
        """Analytic less numeric Σ w_j (Jv)_j over these columns; inf where f is rough, None where both agree."""
        terms, scale = probe.gradient[columns] * probe.move[columns], self.point.columns.scale[self.columns[columns]]
        norm = np.full(1, float(np.sqrt(np.sum((probe.gradient[columns] * scale) ** 2))))
        d = self._derivative_of_sum(probe, columns, float(norm[0]))
        norm = np.maximum(norm, np.abs(np.nan_to_num(d.value)))
        allowed = self.surveyed.allowed(self.tensor, norm, np.zeros(1), self.output)
        off = terms.sum() - d.value
        if not np.isfinite(off[0]) or not d.clear[0]:
            return float("inf")
        passed = (guarded(np.abs(off), d.bar, allowed.tolerance) == Verdict.PASS) | (np.abs(off) <= d.bar)
        return None if passed[0] else float(off[0])

    def _derivative_of_sum(self, probe: _Probe, columns: Index, norm: float) -> ProbeDerivative:
        """Of Σ w_j f_j along the move of these columns: finer rungs where the first are rough."""
        move = np.zeros(len(self.columns))
        move[columns] = probe.move[columns]
        along = Directions(self.point, self.columns, [move])
        noise = np.sqrt(np.sum((probe.weights * self.surveyed.noise[self.part]) ** 2, keepdims=True))
        sigma = self.surveyed.noise_along(self.tensor, noise, np.nan_to_num(norm))

        def measured(rungs: Stage) -> ProbeDerivative:
            return self.surveyed.sums(self.output, along.samples(0, rungs), lambda change: probe.weights[None] @ change, sigma)

        return _first_clear(measured, self.stages)

    def _worst_column(self, probe: _Probe, off: float) -> int:
        """The column that is left when the half that is off by more is followed."""
        columns = probe.candidates
        if self.brief and len(columns) > GUESSED:
            likely = columns[[int(np.argmax(np.abs(np.nan_to_num(probe.gradient * probe.move)[columns])))]]
            guess = self._deviation(probe, likely)
            if guess is not None and abs(guess) >= LIKELY * abs(off) / len(columns) ** 0.5:
                return int(likely[0])
        return half_off(columns, lambda half: self._deviation(probe, half) or 0.0, off, cut=probe.inside)

    # ---- outputs of one column
    def outputs_of(self, column: int, group: int) -> Index:
        """As `found`, for a column that is known."""
        return self._worst_outputs(self._probe(f"of {column} in {group}", rows=False), column)

    def _worst_outputs(self, probe: _Probe, column: int) -> Index:
        """The output that the backward is off at, found by halving; all that are rough along the column, if any."""
        d = self._derivatives_along(column)
        used = probe.weights != 0
        rough = np.flatnonzero(used & ~d.clear)
        if rough.size:
            return rough[:ROUGH] + self.part.start
        outputs = np.concatenate([np.flatnonzero(used & self.outputs_inside), np.flatnonzero(used & ~self.outputs_inside)])
        off = probe.gradient[column] - float(probe.weights @ d.value)
        allowed = self.surveyed.allowed(self.tensor, np.full(1, np.linalg.norm(probe.weights * d.value)), np.zeros(1), self.output)
        if not len(outputs) or abs(off) <= float(np.abs(probe.weights) @ np.where(used, d.bar, 0.0)) + allowed.tolerance[0]:
            return np.zeros(0, np.intp)

        def deviation(half: Index) -> float:
            weights = np.zeros(len(probe.weights))
            weights[half] = probe.weights[half]
            return float(self.point.by_column(pull_back(self.point, self.output, weights))[self.columns[column]] - weights @ d.value)

        return np.array([half_off(outputs, deviation, off)]) + self.part.start

    def _derivatives_along(self, column: int) -> ProbeDerivative:
        """Derivatives of the tensor's outputs with respect to one column."""
        part, c, moved = self.part, self.point.columns, self.columns[[column]]
        one_hot = Directions(self.point, moved, [c.scale[moved]])
        f0, noise, unit = self.point.f0[part], self.surveyed.noise[part], self.point.unit[part]

        def measured(rungs: Stage) -> ProbeDerivative:
            up, down, steps = one_hot.samples(0, rungs)
            up, down = up[:, part], down[:, part]

            def of_some(at: slice) -> ProbeDerivative:
                one = np.ones(len(f0[at]))
                above, below = (np.outer(h * c.scale[moved], one) for h in steps.T)
                return probe_derivative(Samples(up[:, at], down[:, at], above, below, f0[at], noise[at], unit[at], one * np.abs(c.x[moved]),
                                                one * c.scale[moved], self.surveyed.rounds_x()))

            return joined([of_some(at) for at in pieces(len(f0))] or [of_some(slice(0))])

        masked = np.isinf(f0)
        d = _first_clear(measured, self.stages, masked)
        return ProbeDerivative(np.where(masked, 0.0, d.value), d.bar, d.clear | masked, d.noisy)


def _first_clear(read: Callable[[Stage], ProbeDerivative], stages: tuple[Stage, ...], masked: Mask | None = None) -> ProbeDerivative:
    """The first reading of each element that is clear, over these stages."""
    best, wanted = read(stages[0]), True if masked is None else ~masked
    for stage in stages[1:]:
        i = np.flatnonzero(~best.clear & wanted)
        if not i.size:
            break
        finer = read(stage).take(i)
        best = best.replaced(i[finer.clear], finer.take(finer.clear))
    return best
