"""From a flagged block to one suspicious entry: halve its inputs by forward calls, then the outputs of one input by backwards.

Both halves of what is wrong add up to it, so one of them is wrong by at least half as much: that one is followed. What looks rough (a kink
along the direction) is followed too. Nothing is judged here: the lone column and the one-hot row say whether the suspect is at fault.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gradverify.numerics.columns.survey import Survey
from gradverify.numerics.compare import Verdict, guarded
from gradverify.numerics.directions import SQRT3, Directions
from gradverify.numerics.lines import rung
from gradverify.numerics.pattern import Pattern
from gradverify.numerics.point import Point
from gradverify.numerics.point_lines import element_line
from gradverify.numerics.reduction import gather, held, moves, paired, pull_back, signed
from gradverify.numerics.rungs import Array, Index, Mask, step
from gradverify.numerics.samples import Samples
from gradverify.numerics.screen import Known, Reading, Stage, plan, reading, reduced

TRIES = 2  # probes: a fault may hide from one by chance
ROUGH = 16  # outputs at most that a column with kinks names


@dataclass(frozen=True)
class Suspects:
    """Columns and outputs to resolve, by number (as `Point.columns`, `Point.f0`); both empty where nothing was found. Calls used."""

    columns: Index
    outputs: Index
    forward: int
    backward: int


def localise(point: Point, survey: Survey, pattern: Pattern, tensor: int, output: int, block: int, generator: np.random.Generator, *,
             row: int | None = None, relative: float | None = None) -> Suspects:
    """One suspicious (output, column) of a flagged block, or no more than a few outputs of one column where f is rough along it.

    `row`: the output of the block that was flagged, where it is known: beside all others a small fault of it would drown.

    6 forward calls for each halving of the columns (more where kinks are near), then one backward for each halving of the outputs. A block
    has two sides: its outputs may depend on columns outside (then these are searched), its columns be pulled back to from outputs outside.
    """
    before, known = (point.forward, point.backward), Known(point, survey, relative)
    with np.errstate(all="ignore"):
        column, outputs = _Search(known, paired(point, tensor, [pattern])[0], tensor, output, block, generator, row).found()
    return Suspects(column, outputs, point.forward - before[0], point.backward - before[1])


def localise_column(point: Point, survey: Survey, pattern: Pattern, tensor: int, output: int, column: int, generator: np.random.Generator, *,
                    relative: float | None = None) -> Suspects:
    """The output, of all those of the tensor, whose cotangent pulls back wrongly to a flagged column; nothing where none does.

    One backward for each halving: finds also an output that the column has no business with, which one-hot rows of its own would not.
    """
    before, known = (point.forward, point.backward), Known(point, survey, relative)
    with np.errstate(all="ignore"):
        pattern = paired(point, tensor, [pattern])[0]
        columns = gather(point, tensor)
        local = int(np.searchsorted(columns.columns, column))
        block = int(pattern.block_of_inputs()[columns.place[local]])
        outputs = _Search(known, pattern, tensor, output, block, generator).outputs_of(local)
    return Suspects(np.full(min(len(outputs), 1), column), outputs, point.forward - before[0], point.backward - before[1])


@dataclass(frozen=True)
class _Probe:
    """Weights [outputs of the tensor], what they pull back to [n], a move of each column [n], and the columns they may blame."""

    w: Array
    gradient: Array
    move: Array
    candidates: Index
    inside: int  # so many of the candidates, the first ones, are the block's


class _Search:
    def __init__(self, known: Known, pattern: Pattern, tensor: int, output: int, block: int, generator: np.random.Generator,
                 row: int | None = None) -> None:
        self.known, self.point, self.tensor, self.output, self.generator = known, known.point, tensor, output, generator
        self.part, self.gather = self.point.parts[output], gather(self.point, tensor)
        self.columns = self.gather.columns
        self.outputs_inside = pattern.block_of_outputs() == block if row is None else np.arange(len(pattern)) == row - self.part.start
        self.columns_inside = pattern.block_of_inputs()[self.gather.place] == block
        self.plan = plan(known, tensor)

    def found(self) -> tuple[Index, Index]:
        """The column (one or none) and the outputs that it may be at fault with."""
        for n in range(2 * TRIES):
            probe = self._probe(rows=n % 2 == 0)
            off = self._off(probe, probe.candidates) if len(probe.candidates) else None
            if off is not None:
                column = self._column(probe, off)
                return self.columns[[column]], self._outputs(probe, column)
        nothing = np.zeros(0, np.intp)
        return nothing, nothing

    def _probe(self, rows: bool) -> _Probe:
        """Of the block's outputs and all columns (the block's first), or of all outputs and the block's columns."""
        w = held(self.point, self.output, signed(self.part.stop - self.part.start, self.generator))
        w = np.where(self.outputs_inside, w, 0.0) if rows else w
        gradient = self.gather(pull_back(self.point, self.output, w)[self.tensor])
        move = moves(self.point, self.columns, signed(len(self.columns), self.generator))
        inside, outside = (np.flatnonzero(own & (move != 0)) for own in (self.columns_inside, ~self.columns_inside))
        return _Probe(w, gradient, move, np.concatenate([inside, outside]) if rows else inside, len(inside))

    def _off(self, probe: _Probe, columns: Index) -> float | None:
        """Analytic less numeric Σ w_j (Jv)_j over these columns; inf where f is rough, None where both agree."""
        terms, scale = probe.gradient[columns] * probe.move[columns], self.point.columns.scale[self.columns[columns]]
        norm = np.full(1, float(np.sqrt(np.sum((probe.gradient[columns] * scale) ** 2))))
        d = self._derivative(probe, columns, float(norm[0]))
        norm = np.maximum(norm, np.abs(np.nan_to_num(d.value)))
        allowed = self.known.allowed_in(self.tensor, self.output, norm, np.zeros(1))
        off = terms.sum() - d.value
        if not np.isfinite(off[0]) or not d.clear[0]:
            return float("inf")
        passed = (guarded(np.abs(off), d.bar, allowed.tolerance) == Verdict.PASS) | (np.abs(off) <= d.bar)
        return None if passed[0] else float(off[0])

    def _derivative(self, probe: _Probe, columns: Index, norm: float) -> Reading:
        """Of Σ w_j f_j along the move of these columns: finer rungs where the first are rough."""
        move = np.zeros(len(self.columns))
        move[columns] = probe.move[columns]
        along = Directions(self.point, self.columns, move[None])
        variance = float(np.sum((probe.w * self.known.noise[self.part]) ** 2))
        sigma = np.full(1, np.hypot(np.sqrt(variance), self.known.unit_of_x(self.tensor) / SQRT3 * np.nan_to_num(norm)))

        def measured(rungs: Stage) -> Reading:
            up, down, steps = along.samples(0, rungs)
            h = 0.5 * steps.sum(1)
            sums = [np.array([[probe.w @ self.known.changes(f)[self.part]] for f in side]) for side in (up, down)]
            return reading(reduced(sums[0] * (h / steps[:, 0])[:, None], sums[1] * (h / steps[:, 1])[:, None], h, sigma,
                                   self.known.part_unit(self.output), self.known.rounds_x()))

        return _first_clear(measured, (self.plan.start, *self.plan.finer))

    def _column(self, probe: _Probe, off: float) -> int:
        """The column that is left when the half that is off by more is followed."""
        columns, cut = probe.candidates, probe.inside
        while len(columns) > 1:
            middle = cut if 0 < cut < len(columns) else len(columns) // 2
            first = self._off(probe, columns[:middle])
            own = 0.0 if first is None else first
            here = abs(own) >= abs(off) / 2 if np.isfinite(off) else not np.isfinite(own) or first is not None
            columns, off, cut = (columns[:middle], own, 0) if here else (columns[middle:], off - own, 0)
        return int(columns[0])

    # ---- outputs of one column
    def outputs_of(self, column: int) -> Index:
        """As `found`, for a column that is known."""
        return self._outputs(self._probe(rows=False), column)

    def _outputs(self, probe: _Probe, column: int) -> Index:
        """The output that the backward is off at, found by halving; all that are rough along the column, if any."""
        d = self._lone(column)
        used = probe.w != 0
        rough = np.flatnonzero(used & ~d.clear)
        if rough.size:
            return rough[:ROUGH] + self.part.start
        outputs = np.concatenate([np.flatnonzero(used & self.outputs_inside), np.flatnonzero(used & ~self.outputs_inside)])
        off = probe.gradient[column] - float(probe.w @ d.value)
        allowed = self.known.allowed_in(self.tensor, self.output, np.full(1, np.linalg.norm(probe.w * d.value)), np.zeros(1))
        if abs(off) <= float(np.abs(probe.w) @ np.where(used, d.bar, 0.0)) + allowed.tolerance[0]:
            return np.zeros(0, np.intp)
        while len(outputs) > 1:
            half = outputs[: len(outputs) // 2]
            w = np.zeros(len(probe.w))
            w[half] = probe.w[half]
            g = self.gather(pull_back(self.point, self.output, w)[self.tensor])[column]
            own = float(g - w @ d.value)
            here = not abs(own) < abs(off) / 2
            outputs, off = (half, own) if here else (outputs[len(half) :], off - own)
        return outputs + self.part.start

    def _lone(self, column: int) -> Reading:
        """Derivatives of the tensor's outputs with respect to one column."""
        line, part = element_line(self.point, int(self.columns[column])), self.part
        m = part.stop - part.start
        one, f0 = np.ones(m), self.point.f0[part]

        def measured(rungs: Stage) -> Reading:
            up, down, above, below = np.full((4, len(rungs), m), np.nan)
            for r, k in enumerate(rungs):
                taken = rung(line, k)
                above[r] = below[r] = step(line.scale, k)
                if taken is not None:
                    up[r], down[r], above[r], below[r] = taken.up[part], taken.down[part], taken.step_up, taken.step_down
            return reading(Samples(up, down, above, below, f0, self.known.noise[part], self.point.unit[part], one * line.magnitude,
                                   one * line.scale, self.known.rounds_x()))

        masked = np.isinf(f0)
        d = _first_clear(measured, (self.plan.start, *self.plan.finer), masked)
        return Reading(np.where(masked, 0.0, d.value), d.bar, d.clear | masked, d.noisy)


def _first_clear(measured: Callable[[Stage], Reading], stages: tuple[Stage, ...], masked: Mask | None = None) -> Reading:
    """The first reading of each element that is clear, over these stages."""
    got = measured(stages[0])
    for rungs in stages[1:]:
        open_ = np.flatnonzero(~got.clear if masked is None else ~got.clear & ~masked)
        if not open_.size:
            break
        new = measured(rungs).take(open_)
        got = got.replaced(open_[new.clear], new.take(new.clear))
    return got
