"""Outputs that moved off the sparsity pattern of one tensor's groups, judged with the column that they moved with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gradverify.numerics.entries.confirm import Confirmations, measured_alone
from gradverify.numerics.entries.leaks import moving_column
from gradverify.numerics.excuses.order import excused
from gradverify.numerics.judging.bundle import Bundle, GroupLine
from gradverify.numerics.judging.run import Run
from gradverify.numerics.pairs.tally import Tally
from gradverify.numerics.probing.off_pattern import change_along, present_at_x
from gradverify.numerics.rungs import QUICK, Index, Mask
from gradverify.numerics.structure import Plan
from gradverify.numerics.survey import STRAY
from gradverify.numerics.verdict import Verdict

STRAYS = 12  # numbers of a pair off the pattern that are followed at most


@dataclass(frozen=True)
class GroupStrays:
    """Follows what moved off the pattern of one tensor's groups."""

    run: Run
    plan: Plan
    tallies: Mapping[tuple[int, int], Tally]
    counts: Confirmations

    def moved(self, bundle: Bundle, strays: Mask, first: int) -> bool:
        """Follows outputs that moved off the pattern [n, outs], counted from the `first`: False where f truly depends on a column, and backward
        rightly, or where they are many."""
        if not strays.any():
            return True
        line, out = np.nonzero(strays)
        line, out = self._lasting(bundle, line, out + first)
        for n, j in zip(line[: STRAYS + 1].tolist(), out[: STRAYS + 1].tolist(), strict=True):
            if self.counts.budget_ended:
                return True
            group_line = bundle.lines[n]
            column = moving_column(self.run, group_line, j) if isinstance(group_line, GroupLine) else None
            if column is not None and not self.add(self.run.point.output_tensor(j), column, j):
                return False
        return len(line) <= STRAYS or any(self.counts.confirmed[self.plan.tensor, output] for output in range(len(self.run.point.parts)))

    def _lasting(self, bundle: Bundle, line: Index, out: Index) -> tuple[Index, Index]:
        """Those of the outputs that moved along these lines which do so near x: at most four calls a line."""
        lasts, point, sigma = np.ones(len(line), bool), self.run.point, self.run.survey.sigma
        still, noise = STRAY * sigma, self.run.noise
        for n in np.unique(line).tolist():
            i = np.flatnonzero(line == n)
            lasts[i] = present_at_x(change_along(bundle.lines[n], point.f0), out[i], QUICK[0], still, noise)
        return line[lasts], out[lasts]

    def add(self, output: int, column: int, out: int) -> bool:
        """Adds an element that no group has, as it is when measured alone, and once, in however many ways it is met.

        False where f does depend on it and backward is right: then the groups are not what they were taken for.
        """
        found = measured_alone(self.run, np.array([column]), np.array([out]))
        right = found.verdict[0] == Verdict.PASS and not found.is_zero[0]
        if (column, out) not in self.counts.counted_strays:
            self.counts.counted_strays.add((column, out))
            found = excused(self.run, found)
            self.counts.confirmed[self.plan.tensor, output] += int(np.sum(found.verdict == Verdict.MISMATCH))
            self.tallies[self.plan.tensor, output].add(found.pair_elements(self.run.point.parts[output].start, found.column - self.plan.first))
        return not right
