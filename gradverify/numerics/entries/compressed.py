"""The analytic Jacobian through few backwards: outputs that share no input are pulled back together (method.md section 5)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gradverify.numerics.grouped_vjps import pulled_groups, shared_groups
from gradverify.numerics.judging.run import Run
from gradverify.numerics.rungs import Array, Index, Mask
from gradverify.numerics.seed_vectors import WEIGHTS
from gradverify.numerics.sparsity.pattern import NO_ENTRY, RowGroups
from gradverify.numerics.structure import Plan


@dataclass(frozen=True)
class OffPattern:
    """A row group whose gradient has numbers where none of its outputs depends on the input; `size`: the largest, in units of the inputs' sizes."""

    tensor: int
    output: int
    group: int
    size: float


@dataclass(frozen=True)
class Pulled:
    """Compressed VJPs of groups in a row: gradients [groups, N] of one tensor, and the output tensor's coordinate that each number is
    the derivative of (`row_of`), or NO_ENTRY; `weights` [m]: what each output has in the cotangent of its group."""

    plan: Plan
    output: int
    groups: range
    gradient: Array
    weights: Array

    @property
    def rows(self) -> RowGroups:
        return self.plan.rows[self.output]

    @cached_property
    def row_of(self) -> Index:
        return self.rows.rows_of(self.groups)

    @cached_property
    def in_pattern(self) -> Mask:
        """Numbers that the pattern has an entry for [groups, N]."""
        return np.asarray(self.row_of != NO_ENTRY)


class Compressed:
    """Compressed VJPs of the planned tensors. `weights` [M]: the cotangents of group members, continuous and signed; that of a lone one is 1."""

    def __init__(self, run: Run, plans: Sequence[Plan], weights: Array) -> None:
        self.run, self.plans, self.weights = run, plans, weights

    def fill(self, spans: Mapping[int, range]) -> tuple[dict[int, Array], list[OffPattern]]:
        """One pass: per tensor the analytic values [groups, M] of these column groups, and the row groups that have numbers off the pattern."""
        m = len(self.run.point.f0)
        values = {tensor: np.zeros((len(span), m)) for tensor, span in spans.items()}
        strays = list[OffPattern]()
        for pulled in self._pass([plan for plan in self.plans if plan.tensor in spans]):
            tensor = pulled.plan.tensor
            if pulled.plan.pointwise(pulled.output):
                self._add_pointwise(values[tensor], pulled)
                continue
            place, row, entry, off_pattern = self._entries_and_strays(pulled)
            group = pulled.plan.grouping.colour[place] - spans[tensor].start
            inside = (group >= 0) & (group < len(spans[tensor]))
            if not inside.all():
                inside = np.broadcast_to(inside, row.shape)
                group, row, entry = np.broadcast_to(group, row.shape)[inside], row[inside], entry[inside]
            values[tensor].reshape(-1)[group * m + row] = entry
            strays += off_pattern
        return values, strays

    def _entries_and_strays(self, pulled: Pulled) -> tuple[Index | slice, Index, Array, list[OffPattern]]:
        """As `_entries`, and the groups that have numbers off the pattern."""
        runs = pulled.rows.runs(pulled.groups)
        if runs:
            return slice(None), *self._of_runs(pulled, *runs), []
        place, row, entry = self._entries(pulled)
        self.run.reach.add_entries(row, pulled.plan.first + place, entry)
        return place, row, entry, self._strays(pulled)

    def _of_runs(self, pulled: Pulled, rows: Index, width: int) -> tuple[Index, Array]:
        """The row and the analytic value [groups, N] of gradients that are a run for each of these rows."""
        plan, shape = pulled.plan, pulled.gradient.shape
        entry = pulled.gradient.reshape(-1, width) / pulled.weights[rows, None]
        rows = rows + self.run.point.parts[pulled.output].start
        self.run.reach.add_runs(rows, slice(plan.first, plan.first + plan.size), entry)
        return rows.repeat(width).reshape(shape), entry.reshape(shape)

    def _add_pointwise(self, values: Array, pulled: Pulled) -> None:
        """A gradient of which every number belongs to the output in its own place, to the values [1 or 0, M]."""
        part, first = self.run.point.parts[pulled.output], pulled.plan.first
        entry = pulled.gradient[0] / pulled.weights
        self.run.reach.add_entries(part, slice(first, first + pulled.plan.size), entry)
        values[:, part] = entry

    def _entries(self, pulled: Pulled) -> tuple[Index, Index, Array]:
        """The entries of the pattern: the place among the columns, the row and the analytic value, [E] each.

        Where all numbers are such, [n], [groups, n] and [groups, n].
        """
        row, entry, held = pulled.row_of, pulled.gradient, pulled.in_pattern
        place = np.arange(row.shape[1])
        if not held.all():
            group, place = np.nonzero(held)
            row, entry = row[group, place], entry[group, place]
        return place, row + self.run.point.parts[pulled.output].start, entry / pulled.weights.take(row)

    def _pass(self, plans: Sequence[Plan]) -> Iterator[Pulled]:
        for shared in shared_groups([plan.rows for plan in plans]):
            sharing, rows, weights = [plans[n] for n in shared.users], shared.groups, self.weights[self.run.point.parts[shared.output]]
            weights = np.where(np.bincount(rows.group, minlength=rows.count)[rows.group] == 1, 1.0, weights)
            for groups, gradient in pulled_groups(self.run.point, shared, weights, [plan.tensor for plan in sharing]):
                columns = self.run.point.columns.combined(gradient)
                for plan in sharing:
                    yield Pulled(plan, shared.output, groups, columns[:, plan.first : plan.first + plan.size], weights)

    def _strays(self, pulled: Pulled) -> list[OffPattern]:
        lost = ~pulled.in_pattern & (pulled.gradient != 0)
        if not lost.any():
            return []
        plan, found = pulled.plan, list[OffPattern]()
        size = self.run.point.columns.size[plan.first : plan.first + plan.size]
        for n in np.flatnonzero(lost.any(1)).tolist():
            off = (np.abs(pulled.gradient[n]) / WEIGHTS[0] - self.run.atol) * size
            found.append(OffPattern(plan.tensor, pulled.output, pulled.groups[n], float(np.nan_to_num(off[lost[n]], nan=np.inf).max())))
        return found
