"""What the structure of a function says of the calls that a comparison takes: its counts of columns, rows, groups and blocks."""

from __future__ import annotations

from gradverify.numerics.costs import Counts
from gradverify.numerics.grouped_vjps import shared_groups
from gradverify.numerics.prepare import Prepared


def counts(prepared: Prepared) -> Counts:
    """Of coordinates, tensors, groups and blocks."""
    point, structure = prepared.point, prepared.structure
    planned = {plan.tensor: plan.grouping.groups.count for plan in structure.plans}
    column_groups = {t: planned.get(t, len(point.columns.of(t))) for t in structure.patterns}
    linear_groups = sum(count for t, count in column_groups.items() if t in prepared.linear)
    blocks = sum(pattern.blocks for patterns in structure.patterns.values() for pattern in patterns)
    row_groups = sum(shared.groups.count for shared in shared_groups([plan.rows for plan in structure.plans]))
    if structure.patterns.keys() - planned.keys():
        row_groups += len(point.f0)     # one-hot rows, which tell all tensors without structure
    return Counts(len(point.x), len(point.f0), len(point.buffers), len(point.parts), sum(column_groups.values()) - linear_groups, linear_groups,
                  row_groups, blocks, len(prepared.linear))
