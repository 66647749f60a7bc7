"""What belongs to nobody: gradients and movements where the structure has no entry, and the rounding in which a term may hide there."""

from __future__ import annotations

import numpy as np

from gradverify.numerics.reduction import WEIGHTS
from gradverify.numerics.rungs import Array, Index

KEPT = 4096  # strays that are kept; they are all counted


class Strays:
    """Violations of "unowned is zero": counted, the first KEPT of them kept, with their `sizes` (inf where none is given)."""

    def __init__(self) -> None:
        self._kept: list[Index] = []
        self._sizes: list[Array] = []
        self._room, self.count = KEPT, 0

    def add(self, group: int, lines: Index, sizes: Array | None = None) -> None:
        if not len(lines):
            return
        kept = lines[: self._room]
        self._kept.append(np.stack([np.full(len(kept), group), kept], 1))
        self._sizes.append(np.full(len(kept), np.inf) if sizes is None else sizes[: self._room])
        self._room -= len(kept)
        self.count += len(lines)

    def forget(self, dust: float) -> None:
        """Those that are no larger were rounding: the forward has a term there that its own rounding hides."""
        keep = [~(sizes <= dust) for sizes in self._sizes]
        self.count -= sum(int((~k).sum()) for k in keep)
        self._kept = [lines[k] for lines, k in zip(self._kept, keep, strict=True)]
        self._sizes = [sizes[k] for sizes, k in zip(self._sizes, keep, strict=True)]

    def pairs(self) -> Index:
        return np.concatenate([np.zeros((0, 2), np.intp), *self._kept])


def nobodys(floor: Array, of_outputs: Array) -> Array:
    """The floor of lines [..., m]; of those that no output owns (0), the least of any output's, in whose rounding a term may hide."""
    return np.where(floor == 0, WEIGHTS[0] * of_outputs.min(initial=np.inf) if of_outputs.size else 0.0, floor)
