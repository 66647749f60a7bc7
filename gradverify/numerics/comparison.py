"""Backward against finite differences, by the comparison that was asked for or that can be afforded (method.md section 3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from gradverify.numerics.blocks import check_blocks
from gradverify.numerics.columns.arrange import Arrangement
from gradverify.numerics.columns.choose import Choice, Costs, Counts, Limits, Mode, choose, predicted, speed
from gradverify.numerics.columns.dense import Prepared, compare_entries, prepare
from gradverify.numerics.columns.projected import check_columns
from gradverify.numerics.columns.tally import Pair
from gradverify.numerics.columns.verified import PROBES
from gradverify.numerics.directions import PROBES as ROWS
from gradverify.numerics.directions import check_rows, directions
from gradverify.numerics.flagged import Flagged
from gradverify.numerics.point import Function
from gradverify.numerics.screen import Screen

Watch = Callable[[Choice], None]
"""Told what was chosen, and what it is predicted to cost, before it begins."""


@dataclass(frozen=True)
class Compared:
    """A `Pair` per (input, output); how they were compared; forward calls, `noise` of them before structure, and backward calls."""

    pairs: tuple[Pair, ...]
    choice: Choice | None
    arrangement: Arrangement
    forward: int
    noise: int
    backward: int


def compare(
    function: Function, *, mode: Mode | None = None, limits: Limits | None = None, atol: float = 0.0, rtol: float | None = None,
    domains: Sequence[tuple[float, float] | None] | None = None, symmetric: Sequence[bool] | None = None,
    generator: torch.Generator | None = None, keep: int = 10, watch: Watch | None = None,
) -> Compared:
    """`mode` None: the strongest comparison that `limits` afford. Tolerances, `domains` and `symmetric` as in `prepare`."""
    prepared = prepare(function, atol=atol, rtol=rtol, domains=domains, symmetric=symmetric, generator=generator)
    if prepared is None:
        return Compared((), None, Arrangement(), 0, 0, 0)
    point = prepared.point
    costs = _costs(prepared, point.seconds / max(point.forward - 1, 1))
    choice = choose(mode, limits or Limits(), costs)
    if watch:
        watch(choice)
    if choice.mode is Mode.ENTRIES:
        pairs, arrangement = compare_entries(prepared, keep)
    else:
        pairs, arrangement = _screened(prepared, choice.mode, keep)
    return Compared(tuple(pairs), choice, arrangement, point.forward, prepared.survey.forward, point.backward)


def _costs(prepared: Prepared, seconds: float) -> Costs:
    """`seconds`: of a forward call as it was measured."""
    point, arrangement = prepared.point, prepared.arrangement
    planned = {plan.tensor: plan.grouping.groups.count for plan in arrangement.plans}
    groups = {t: planned.get(t, len(point.columns.of(t))) for t in arrangement.patterns}
    linear = sum(count for t, count in groups.items() if t in prepared.linear)
    patterns = [pattern for own in arrangement.patterns.values() for pattern in own]
    counts = Counts(len(point.x), len(point.f0), len(point.buffers), len(point.parts), sum(groups.values()) - linear, linear,
                    _row_groups(prepared), sum(pattern.blocks for pattern in patterns), len(prepared.linear))
    return predicted(counts, speed(seconds))


def _row_groups(prepared: Prepared) -> int:
    """Backwards that tell every row: tensors with the same groups share them, and one-hot rows tell all tensors without."""
    count, alone = 0, False
    seen: list[tuple[int, np.ndarray[tuple[int, ...], np.dtype[np.intp]]]] = []
    planned = {plan.tensor: plan for plan in prepared.arrangement.plans}
    for tensor in prepared.arrangement.patterns:
        alone = alone or tensor not in planned
        for output, rows in enumerate(planned[tensor].rows if tensor in planned else ()):
            if not any(o == output and np.array_equal(group, rows.group) for o, group in seen):
                seen.append((output, rows.group))
                count += rows.count
    return count + alone * len(prepared.point.f0)


# ---- screens
def _screened(prepared: Prepared, mode: Mode, keep: int) -> tuple[list[Pair], Arrangement]:
    """Screened, verified by blocks, and what is flagged judged by entries; once more with complete detection where lines stay open."""
    while True:
        with np.errstate(all="ignore"):
            screen, check = _screens(prepared, mode)
            pairs, open_ = Flagged(prepared.run(), prepared.arrangement, keep).pairs(mode, screen, check)
        again = frozenset(t for t in open_ if prepared.arrangement.level.get(t) == 0 and _planned(prepared, t))
        if not again:
            return pairs, prepared.arrangement
        prepared = prepared.again(again)


def _planned(prepared: Prepared, tensor: int) -> bool:
    return any(plan.tensor == tensor for plan in prepared.arrangement.plans)


def _screens(prepared: Prepared, mode: Mode) -> tuple[Screen, Screen | None]:
    """The comparison asked for, and the blocks that verify it: along one direction, which rows have sampled already."""
    point, survey, generator = prepared.point, prepared.survey, prepared.generator
    tensors = range(len(point.buffers))
    patterns = [prepared.arrangement.patterns[t] for t in tensors]
    if mode is Mode.BLOCKS:
        return check_blocks(point, survey, patterns, generator), None
    along = [directions(point, t, ROWS if mode is Mode.ROWS else PROBES, generator, survey.looks[t]) for t in tensors]
    if mode is Mode.ROWS:
        screen = check_rows(point, survey, patterns, generator, along=along)
    else:
        screen = check_columns(point, survey, patterns, generator, linear=[t in prepared.linear for t in tensors])
    return screen, check_blocks(point, survey, patterns, generator, probes=PROBES, along=[own.first() for own in along])
