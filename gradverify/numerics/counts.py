"""What the structure of a function says of the calls that a comparison takes: its counts of columns, rows, groups and blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from gradverify.numerics.costs import Counts, SharingInputs
from gradverify.numerics.grouped_vjps import shared_groups
from gradverify.numerics.prepare import Prepared

RowGroupsNeeded = tuple[tuple[int, int], ...]
"""Of an input tensor, for each output tensor: the number of the row groups that it is pulled back in, and how many they are."""


def counts(prepared: Prepared) -> Counts:
    """Of coordinates, tensors, groups and blocks."""
    point, structure = prepared.point, prepared.structure
    planned = {plan.tensor: plan.grouping.groups.count for plan in structure.plans}
    column_groups = {t: planned.get(t, len(point.columns.of(t))) for t in structure.patterns}
    linear_groups = sum(count for t, count in column_groups.items() if t in prepared.linear)
    patterns = [pattern for patterns_of_tensor in structure.patterns.values() for pattern in patterns_of_tensor]
    row_groups = _row_groups(prepared)
    return Counts(len(point.x), len(point.f0), len(point.buffers), len(point.parts), sum(column_groups.values()) - linear_groups, linear_groups,
                  _distinct(row_groups.values()), sum(pattern.blocks for pattern in patterns), len(prepared.linear),
                  tuple(_sharing_inputs(prepared, column_groups, row_groups)))


def _row_groups(prepared: Prepared) -> dict[int, RowGroupsNeeded]:
    """Per input tensor; tensors that share their backwards have row groups of the same number."""
    plans = prepared.structure.plans
    needed: dict[int, list[tuple[int, int]]] = {plan.tensor: [] for plan in plans}
    for number, group in enumerate(shared_groups([plan.rows for plan in plans])):
        for plan_number in group.users:
            needed[plans[plan_number].tensor].append((number, group.groups.count))
    one_by_one = ((-1, len(prepared.point.f0)),)  # one-hot rows, which tell all tensors without structure
    return {t: tuple(needed[t]) if t in needed else one_by_one for t in prepared.structure.patterns}


def _distinct(row_groups: Iterable[RowGroupsNeeded]) -> int:
    """How many backwards all of them take together."""
    return sum(dict(numbered for needed in row_groups for numbered in needed).values())


def _sharing_inputs(prepared: Prepared, column_groups: Mapping[int, int], row_groups: Mapping[int, RowGroupsNeeded]) -> Iterator[SharingInputs]:
    """Input tensors that share all their backwards."""
    sizes = np.diff(prepared.point.starts)
    for needed in dict.fromkeys(row_groups.values()):
        tensors = tuple(t for t in column_groups if row_groups[t] == needed)
        linear = [t for t in tensors if t in prepared.linear]
        linear_groups = sum(column_groups[t] for t in linear)
        nonlinear_groups = sum(column_groups[t] for t in tensors) - linear_groups
        yield SharingInputs(tensors, int(sizes[list(tensors)].sum()), nonlinear_groups, linear_groups, _distinct([needed]), len(linear))
