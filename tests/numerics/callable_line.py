"""A plain callable of t as the line that numerics samples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gradverify.numerics.rungs import Array


@dataclass(frozen=True)
class CallableLine:
    """A plain callable of t as a line; `cast` rounds t to what the callable can tell apart."""

    evaluate: Callable[[float], Array]
    scale: float = 1.0
    magnitude: float = 1.0
    cast: Callable[[float], float] = float

    @property
    def size(self):
        return self.scale

    def at(self, t):
        moved = self.cast(t)
        return None if moved == 0 else (np.asarray(self.evaluate(moved), float), moved)
