"""Off the sparsity pattern: what moves, or is pulled back, where no entry should be, and whether it
is there at all.

What is not there at x itself (the next in a sort, the loser of a maximum) stops as the step
shrinks; what is smaller than rounding may be a term that hides in the forward's.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gradverify.numerics.estimate.samples import Line
from gradverify.numerics.rungs import RATIO, VISIBLE, Array, Index, Mask, step

KEPT_STRAYS = 4096  # strays that are kept; they are all counted
NEARER = 5  # rungs below, 600 times nearer, a tie must be a tie still

Change = Callable[[float], Array | None]
"""How far outputs [M] move with a group at a signed step; None where it does not move."""


class Strays:
    """What moved, or was pulled back, off the pattern: counted, the first KEPT of them kept, with
    their `sizes` (inf where none is given)."""

    def __init__(self) -> None:
        self._kept: list[Index] = []
        self._sizes: list[Array] = []
        self._room, self.count = KEPT_STRAYS, 0

    def add(self, group: int, lines: Index, sizes: Array | None = None) -> None:
        if not len(lines):
            return
        kept = lines[: self._room]
        self._kept.append(np.stack([np.full(len(kept), group), kept], 1))
        self._sizes.append(np.full(len(kept), np.inf) if sizes is None else sizes[: self._room])
        self._room -= len(kept)
        self.count += len(lines)

    def forget(self, rounding: float) -> None:
        """Those that are no larger were rounding: the forward has a term there that its own
        rounding hides."""
        keep = [~(sizes <= rounding) for sizes in self._sizes]
        self.count -= sum(int((~k).sum()) for k in keep)
        self._kept = [lines[k] for lines, k in zip(self._kept, keep, strict=True)]
        self._sizes = [sizes[k] for sizes, k in zip(self._sizes, keep, strict=True)]

    def pairs(self) -> Index:
        return np.concatenate([np.zeros((0, 2), np.intp), *self._kept])


# ---- is it there?
def present_at_x(change: Change, out: Index, rung: int, still: Array, noise: Array) -> Mask:
    """Which of the outputs [k] that moved on a rung depend on what moved at x itself: two calls, or
    four.

    What is `still` [M] on the NEARER rung does not, unless noise [M] would have hidden a linear
    dependence there.
    """
    near, limit = _displaced(change, out, rung + NEARER), still[out]
    if not (near <= limit).any():
        return np.ones(len(out), bool)
    hidden = ~(_displaced(change, out, rung) * RATIO ** float(-NEARER) > VISIBLE * noise[out])
    return np.asarray(~(near <= limit) | hidden)


def change_along(line: Line, f0: Array) -> Change:
    """With the columns of a line."""

    def change(t: float) -> Array | None:
        side = line.at(t * line.scale)
        return None if side is None else side[0] - f0

    return change


def _displaced(change: Change, out: Index, rung: int) -> Array:
    """How far outputs [k] move, on either side; NaN where what should move them stays."""
    sides = (change(sign * step(1.0, rung)) for sign in (1.0, -1.0))
    return np.asarray(
        np.max(
            [np.full(len(out), np.nan) if side is None else np.abs(side[out]) for side in sides], 0
        )
    )
