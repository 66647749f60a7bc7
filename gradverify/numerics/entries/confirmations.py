"""How many elements of each pair were measured alone in a sweep, and what came of them: when that is enough."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from gradverify.numerics.estimate.climb import EVERY_RUNG
from gradverify.numerics.judging.judged import Judged
from gradverify.numerics.judging.run import Run
from gradverify.numerics.judging.worst_first import enough_confirmed
from gradverify.numerics.verdict import Verdict


@dataclass
class Confirmations:
    """Of one sweep: how many elements that were measured alone are mismatches (`confirmed`) or right (`cleared`), by (input, output) tensor; and
    the (column, output) that were counted though no group has them."""

    run: Run
    confirmed: Counter[tuple[int, int]] = field(default_factory=Counter)
    cleared: Counter[tuple[int, int]] = field(default_factory=Counter)
    counted_strays: set[tuple[int, int]] = field(default_factory=set)

    def count(self, pair: tuple[int, int], alone: Judged) -> None:
        self.confirmed[pair] += int(np.sum(alone.verdict == Verdict.MISMATCH))
        self.cleared[pair] += int(np.sum(alone.verdict == Verdict.PASS))

    @property
    def budget_ended(self) -> bool:
        """The budget does not afford another column, and an element that was measured alone is wrong: that is enough."""
        return self.run.over_budget(EVERY_RUNG) and self.confirmed.total() > 0

    def enough_confirmed(self, pair: tuple[int, int]) -> bool:
        """Do the pair's other mismatches count as wrong unasked?"""
        return enough_confirmed(self.confirmed[pair], self.cleared[pair])
