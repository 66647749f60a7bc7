"""Whose is it, and is it there at all? A number that belongs to no member of a group, followed to the output or column that it comes from."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gradverify.numerics.columns.bundle import GroupLine
from gradverify.numerics.columns.compressed import pull
from gradverify.numerics.columns.quick import STRAY
from gradverify.numerics.columns.run import Run
from gradverify.numerics.lines import rung
from gradverify.numerics.point_lines import DirectionLine
from gradverify.numerics.rungs import QUICK, RATIO, VISIBLE, Array, Index, Mask, step

NEARER = 5  # rungs below, 600 times nearer, a tie must be a tie still


def source(run: Run, output: int, rows: Index, weights: Array, column: int) -> int | None:
    """The output among `rows` whose backward alone reaches the column, by halving: log2(rows) backwards. None where none does any more."""
    while len(rows) > 1:
        half = rows[: len(rows) // 2]
        reached = pull(run.point, output, half, weights[half])[column] != 0
        rows = half if reached else rows[len(rows) // 2 :]
    return int(rows[0]) if len(rows) and run.point.row(int(rows[0]))[column] != 0 else None


def mover(run: Run, line: GroupLine, out: int) -> int | None:
    """The column of a group that moves an output which none of them owns: two forward calls a halving. None where none does alone."""
    columns, h = line.columns, step(line.scale, QUICK[0])
    while len(columns) > 1:
        half = columns[: len(columns) // 2]
        columns = half if _moves(run, replace(line, columns=half), h, out) else columns[len(half) :]
    return int(columns[0]) if _moves(run, replace(line, columns=columns), h, out) else None


def lasting(far: Array, near: Array, still: Array, noise: Array) -> Mask:
    """Outputs that moved by `far` on one rung, and by `near` on the NEARER one: do they depend on what moved, at x itself?

    What is `still` so near does not, the next in a sort or the loser of a maximum, unless noise would have hidden a linear dependence there.
    """
    hidden = ~(far * RATIO ** float(-NEARER) > VISIBLE * noise)
    return np.asarray(~(near <= still) | hidden)


def moved_near(run: Run, columns: Index, direction: Array) -> Mask:
    """The outputs [M] that move beyond their noise with all of these columns [k] along a direction [k], near x: two calls."""
    taken = rung(DirectionLine(run.point, columns, direction), QUICK[0] + NEARER)
    if taken is None:
        return np.zeros(len(run.point.f0), bool)
    off = np.fmax(np.abs(taken.up - run.point.f0), np.abs(taken.down - run.point.f0))
    return np.asarray(off > STRAY * run.survey.sigma)


def _moves(run: Run, line: GroupLine, h: float, out: int) -> bool:
    off = max(abs(float(line.at(t)[0][out] - run.point.f0[out])) for t in (h, -h))
    return off > STRAY * float(run.survey.sigma[out])
