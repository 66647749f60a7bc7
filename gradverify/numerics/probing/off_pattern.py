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
    """What moved, or was pulled back, off the pattern: counted, the first KEPT of them kept."""

    def __init__(self) -> None:
        self.count = 0
        self._kept = [np.zeros((0, 3))]

    def add(self, group: int, lines: Index, sizes: Array | float = np.inf) -> None:
        """Lines of a group, with their sizes."""
        n, room = len(lines), KEPT_STRAYS - sum(map(len, self._kept))
        self._kept.append(np.stack([np.full(n, group), lines, np.broadcast_to(sizes, n)], 1)[:room])
        self.count += n

    def pairs(self, rounding: float) -> tuple[Index, int]:
        """(group, line) of those that are kept, and how many there are, without what is no larger
        than the rounding of forward, in which a term of that size may hide."""
        kept = np.concatenate(self._kept)
        larger = ~(kept[:, 2] <= rounding)
        return kept[larger, :2].astype(np.intp), self.count - int(np.count_nonzero(~larger))


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
