"""Ties of order statistics: outputs that no one of several equal inputs moves, and all of them do (a sort, the median, the third largest).

There f has no derivative, and no difference along one column shows it: the value in the middle of a tie stays where it is whichever of the tied
moves. Every order of the tied values has a gradient of its own, so a mismatch against the zero that was measured proves nothing. Central differences
tell: those of a function with a derivative add up (and so do those of kinks along single columns), those of a tie do not.
"""

from __future__ import annotations

import numpy as np

from gradverify.numerics.judging.judged import Judged
from gradverify.numerics.judging.run import Run
from gradverify.numerics.rungs import Array, Index, Mask, step
from gradverify.numerics.seed_vectors import signed_weights_float32
from gradverify.numerics.verdict import Limit, Verdict

TIED_RUNGS = (8, 10)     # 8e-6 and 6e-7 of s: below the quick rungs, well above the roundings
TRIALS = 12         # at most: one shows a tie of three with a chance of a half
LASTS = 0.5         # of what is missing at the coarser step: that of a smooth function goes with the step
SURE = 30.0         # standard deviations of noise
SHARE = 1e-3        # of |a|·s: less is another matter than the gradient in question


def excuse_ties(run: Run, judged: Judged) -> Judged:
    """Mismatches of zero differences are undecided where the output does not add up when columns that hold the same number move together.

    At most 144 forward calls in all for a number that several columns hold.
    """
    zeros = np.flatnonzero((judged.verdict == Verdict.MISMATCH) & (judged.derivative.value == 0))
    if not zeros.size:
        return judged
    column, c = judged.column[zeros], run.point.columns
    claimed, found = SHARE * np.abs(judged.analytic[zeros]) * c.scale[column], np.zeros(len(zeros), bool)
    for tensor, x in sorted(set(zip(c.tensor[column].tolist(), c.x[column].tolist(), strict=True))):
        of_number = np.flatnonzero((c.tensor[column] == tensor) & (c.x[column] == x))
        found[of_number] = _do_not_add_up(run, tensor, x, judged.out[zeros[of_number]], claimed[of_number])
    return judged.undecided(zeros[found], Limit.TIE)


def _do_not_add_up(run: Run, tensor: int, x: float, out: Index, claimed: Array) -> Mask:
    """Of which outputs [k] more than is `claimed` is missing when the columns of this number move together, as far as is known or can be asked."""
    equal = run.point.columns.of(tensor)
    equal = equal[run.point.columns.x[equal] == x]
    trials, largest = run.tie_sums.get((tensor, x), (0, np.zeros(len(run.point.f0))))
    while len(equal) > 1 and trials < TRIALS and not (largest[out] > claimed).all():
        trials, largest = trials + 1, np.maximum(largest, _deficit(run, equal, trials))
        run.tie_sums[tensor, x] = trials, largest
    return np.asarray(largest[out] > claimed)


def _deficit(run: Run, columns: Index, trial: int) -> Array:
    """By how much slopes [M] along two halves of the columns miss that along both; 0 where less and less is missing."""
    seed = run.point.seed.within("tied", int(columns[0]), trial)
    move = signed_weights_float32(len(columns), seed.generator("move")) * run.point.columns.scale[columns]
    half = signed_weights_float32(len(columns), seed.generator("half")) < 0
    noise = run.noise
    deficits = []
    for t in (step(1.0, rung) for rung in TIED_RUNGS):
        both, one, other = (_change(run, columns, t * part) for part in (move, np.where(half, move, 0.0), np.where(half, 0.0, move)))
        off = np.abs(both - one - other)
        deficits.append(np.where(off > SURE * noise, off / (2 * t), 0.0))
    return np.where(deficits[1] >= LASTS * deficits[0], deficits[1], 0.0)


def _change(run: Run, columns: Index, move: Array) -> Array:
    """f(x + move) − f(x − move) [M]."""
    c, x = run.point.columns, run.point.columns.x[columns]
    up, down = (run.point.values_at(columns, c.cast(x + sign * move, columns)) for sign in (1.0, -1.0))
    return up - down
