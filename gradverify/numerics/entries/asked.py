"""The one element that was asked for, where no comparison of elements met it: part of a row that was compared as a sum, or a zero of both sides.

It climbs by itself as an element of a lone column does, is confirmed like one, and takes part in whatever holds for all of its pair.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gradverify.numerics.entries.confirm import judged_now, measured_alone
from gradverify.numerics.estimate.climb import Climb, Elements, Judge, Ladders
from gradverify.numerics.estimate.lines import Line
from gradverify.numerics.excuses.order import excused
from gradverify.numerics.function.point import Point
from gradverify.numerics.judging.bundle import lone_columns
from gradverify.numerics.judging.judged import Judged
from gradverify.numerics.judging.run import Run
from gradverify.numerics.pairs.pair import Asked, Pair
from gradverify.numerics.pairs.tally import MAP_ROWS, Tally
from gradverify.numerics.prepare import Prepared
from gradverify.numerics.rungs import QUICK, Index
from gradverify.numerics.verdict import Verdict


def with_asked(prepared: Prepared, pairs: list[Pair]) -> list[Pair]:
    """The pairs; that of the element which is asked for with what came of it."""
    asked = prepared.asked
    if asked is None or column_at(prepared.point, asked.input, asked.input_index) is None:
        return pairs
    wanted = [(pair.input, pair.output) == asked[:2] and pair.asked is None for pair in pairs]
    return [replace(pair, asked=pair_of_one(prepared, asked).asked, by_itself=True) if is_wanted else pair
            for is_wanted, pair in zip(wanted, pairs, strict=True)]


def column_at(point: Point, tensor: int, coordinate: int) -> int | None:
    """The column that moves this coordinate of an input first; None where it only follows its mirror image."""
    found = np.flatnonzero(point.columns.coordinate == int(point.starts[tensor]) + coordinate)
    return int(found[0]) if found.size else None


def pair_of_one(prepared: Prepared, asked: Asked) -> Pair:
    """A pair of this one element."""
    run, point, part = prepared.run(), prepared.point, prepared.point.parts[asked.output]
    column, out = np.array([column_at(point, asked.input, asked.input_index)]), np.array([part.start + asked.output_index])
    with np.errstate(all="ignore"):
        run.learn_secants()
        judged = excused(run, _judged(run, column, out))
    tally = Tally(asked.input, asked.output, (MAP_ROWS + 1, 1), 1, asked)
    tally.add(judged.pair_elements(part.start, np.array([asked.input_index])))
    return tally.result(float(point.unit[part].max()), bool(run.low_precision()[out[0]]))


def _judged(run: Run, column: Index, out: Index) -> Judged:
    """One element as it comes of its column; no mismatch without every rung."""
    a = run.analytic(column, out)

    _, climb = climber(run, column, out, lambda _, d: judged_now(run, column, out, a, d).verdict)
    judged = judged_now(run, column, out, a, climb.run().derivative)
    return measured_alone(run, column, out) if judged.verdict[0] == Verdict.MISMATCH else judged.with_limits()


def climber(run: Run, column: Index, out: Index, judge: Judge) -> tuple[Line, Climb]:
    """The line of a lone column [1], and one output [1] that is about to climb along it."""
    tensor = run.point.columns.tensor[column]
    wide, unmoved = run.survey.wide[tensor, out], run.survey.unmoved[tensor, out]
    line = lone_columns(run.point, column, bool(wide[0])).lines[0]
    ladders = Ladders([line], run.outputs(), Elements(np.zeros_like(out), out))
    first = ladders.solve(np.arange(1), QUICK, False)
    first.unclear[:] |= unmoved | wide
    return line, Climb(ladders, first, judge, unmoved, np.zeros(1, bool))
