"""The column that moves an output off the sparsity pattern, found by halving."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gradverify.numerics.estimate.lines import sample_rung
from gradverify.numerics.function.point_lines import DirectionLine
from gradverify.numerics.halving import halved
from gradverify.numerics.judging.bundle import GroupLine
from gradverify.numerics.judging.run import Run
from gradverify.numerics.probing.off_pattern import NEARER
from gradverify.numerics.rungs import QUICK, Array, Index, Mask, step
from gradverify.numerics.survey import STRAY


def moving_column(run: Run, line: GroupLine, out: int) -> int | None:
    """The column of a group that moves an output which none of them owns: two forward calls a halving. None where none does alone."""
    h = step(line.scale, QUICK[0])

    def moves(columns: Index) -> bool:
        part = replace(line, columns=columns)
        off = max(abs(float(part.at(t)[0][out] - run.point.f0[out])) for t in (h, -h))
        return off > STRAY * float(run.survey.sigma[out])

    column = halved(line.columns, moves)
    return column if moves(np.array([column])) else None


def moved_near_x(run: Run, columns: Index, direction: Array) -> Mask:
    """The outputs [M] that move beyond their noise with all of these columns [k] along a direction [k], near x: two calls."""
    samples = sample_rung(DirectionLine(run.point, columns, direction), QUICK[0] + NEARER)
    if samples is None:
        return np.zeros(len(run.point.f0), bool)
    off = np.fmax(np.abs(samples.up - run.point.f0), np.abs(samples.down - run.point.f0))
    return np.asarray(off > STRAY * run.survey.sigma)
