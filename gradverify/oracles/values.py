"""Forward values against a reference's, within bars: what both lose to rounding, seen when their inputs move by an ulp."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from gradverify.model.case import Settings
from gradverify.numerics.columns.tally import Compared, Outcome, Pair, Tally
from gradverify.numerics.compare import FLOOR, Limit, Verdict, guarded
from gradverify.numerics.exact import ROUNDING
from gradverify.numerics.flat import numbers, rms
from gradverify.numerics.point import UNITS
from gradverify.numerics.rungs import U32, Array
from gradverify.oracles.finite_difference import WORST

JITTERS = 3  # calls of each with inputs moved by an ulp: the largest of so few is within 3 of the largest there is
WIDER = 3.0

Values = Callable[[Sequence[Tensor]], Sequence[Tensor]]


def reference_values(ours: Values, theirs: Values, inputs: Sequence[Tensor], settings: Settings) -> dict[int, Pair | str]:
    """Forward values per output: a Pair, or the sentence that says how the shapes differ."""
    mine, other = ours(inputs), theirs(inputs)
    complaints = {place: said for place, pair in enumerate(zip(mine, other, strict=True)) if (said := _complaint(*pair))}
    if complaints:
        return {place: complaints[place] for place in sorted(complaints)}
    spread = [a + b for a, b in zip(_spread(ours, inputs, mine, settings), _spread(theirs, inputs, other, settings), strict=True)]
    return {place: _values(place, a, b, spread[place], settings) for place, (a, b) in enumerate(zip(mine, other, strict=True))}


def _complaint(mine: Tensor, theirs: Tensor) -> str | None:
    if mine.shape != theirs.shape:
        return f"the function returns shape {list(mine.shape)}, the reference {list(theirs.shape)}"
    if mine.is_complex() != theirs.is_complex():
        return f"the function returns {mine.dtype}, the reference {theirs.dtype}"
    return None


def _spread(function: Values, inputs: Sequence[Tensor], at: Sequence[Tensor], settings: Settings) -> list[Array]:
    """Per output, how far each number [M] goes when all inputs move by an ulp: rounding, and what the function makes of it."""
    source = torch.Generator().manual_seed(settings.seed)
    largest = [np.zeros(numbers(y).shape) for y in at]
    for _ in range(JITTERS):
        moved = function([_jittered(x, source) for x in inputs])
        with np.errstate(all="ignore"):
            largest = [np.fmax(old, np.nan_to_num(np.abs(numbers(a) - numbers(b)), posinf=0.0)) if a.shape == b.shape else old
                       for old, a, b in zip(largest, moved, at, strict=True)]
    return [WIDER * each for each in largest]


def _jittered(x: Tensor, source: torch.Generator) -> Tensor:
    """Each number one ulp up, down, or left alone; complex ones by as much."""
    steps = torch.randint(-1, 2, x.shape, generator=source).to(x.device)
    return (x + x * steps * 2 * UNITS[x.dtype]).detach().requires_grad_()


def _values(place: int, mine: Tensor, theirs: Tensor, spread: Array, settings: Settings) -> Pair:
    """One output [M]. The floor is the rounding of the tensor's typical size; two equal infinities agree."""
    a, v, unit = numbers(mine), numbers(theirs), UNITS.get(mine.dtype, U32)
    tally, (atol, rtol) = Tally(0, place, (len(a), 1), WORST), settings.tolerances()
    with np.errstate(all="ignore"):
        same_infinity = (a == v) & np.isinf(v)
        floor = np.full(len(a), FLOOR * unit * rms(np.abs(v)))
        largest = np.maximum(np.nan_to_num(np.abs(a), nan=0.0, posinf=0.0), np.nan_to_num(np.abs(v), nan=0.0, posinf=0.0))
        tolerance, bar = atol + np.maximum(rtol * largest, floor), ROUNDING * unit * largest + spread
        verdict = guarded(np.abs(a - v), bar, tolerance)
    finite = np.isfinite(a) & np.isfinite(v)
    outcome = np.select([verdict == Verdict.PASS, (verdict == Verdict.MISMATCH) | ~finite], [Outcome.PASS, Outcome.MISMATCH],
                        Outcome.UNDECIDED).astype(np.int8)
    tally.add_zeros(np.zeros(0), np.zeros(0), same_infinity)
    kept = np.flatnonzero(~same_infinity)
    limit, nothing = np.full(len(kept), Limit.NONE, object), np.full(len(kept), np.nan)
    limit[outcome[kept] == Outcome.UNDECIDED] = Limit.NOISE
    tally.add(Compared(kept, np.zeros(len(kept), np.intp), a[kept], v[kept], bar[kept], tolerance[kept], floor[kept], outcome[kept], limit, nothing,
                       nothing))
    return tally.result(unit, False)
