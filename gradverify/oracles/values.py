"""Forward values against a reference's, within bars: the noise of both, measured where they differ."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from gradverify.model.case import Settings
from gradverify.numerics.exact import ROUNDING
from gradverify.numerics.function.dtypes import UNITS
from gradverify.numerics.function.flat import numbers, rms
from gradverify.numerics.function.point import Function, Point
from gradverify.numerics.pairs.pair import Outcome, Pair, PairElements
from gradverify.numerics.pairs.tally import Tally
from gradverify.numerics.rungs import U32, Array, Z
from gradverify.numerics.survey import survey
from gradverify.numerics.tolerance import FLOOR, guarded
from gradverify.numerics.verdict import Limit, Verdict
from gradverify.oracles.finite_difference import WORST, Wishes


def reference_values(mine: Sequence[Tensor], theirs: Sequence[Tensor], ours: Function, reference: Function, settings: Settings,
                     wishes: Wishes) -> dict[int, Pair | str]:
    """Forward values per output: a Pair, or the sentence that says how the shapes differ."""
    result: dict[int, Pair | str] = {}
    noise: list[Array] | None = None
    for place, (a, b) in enumerate(zip(mine, theirs, strict=True)):
        seen = _complaint(a, b) or _values(place, a, b, np.zeros(numbers(a).shape), settings)
        if not isinstance(seen, str) and seen.count(Outcome.MISMATCH, Outcome.UNDECIDED):
            noise = noise or _noise(ours, reference, settings, wishes)
            seen = _values(place, a, b, noise[place], settings)
        result[place] = seen
    return result


def _complaint(mine: Tensor, theirs: Tensor) -> str | None:
    if mine.shape != theirs.shape:
        return f"the function returns shape {list(mine.shape)}, the reference {list(theirs.shape)}"
    if mine.is_complex() != theirs.is_complex():
        return f"the function returns {mine.dtype}, the reference {theirs.dtype}"
    return None


def _noise(ours: Function, reference: Function, settings: Settings, wishes: Wishes) -> list[Array]:
    """Z standard deviations of the noise of both, per output [M]; nothing where one of them has none to measure (a shape that differs)."""
    columns = wishes.columns(ours.inputs)
    (one, parts), (other, others) = (_sigma(Point(function, columns, seed=wishes.seed)) for function in (ours, reference))
    same = [a.stop - a.start for a in parts] == [b.stop - b.start for b in others]
    return [Z * (one[part] + (other[part] if same else 0.0)) for part in parts]


def _sigma(point: Point) -> tuple[Array, list[slice]]:
    with np.errstate(all="ignore"):
        return survey(point).sigma, point.parts


def _values(place: int, mine: Tensor, theirs: Tensor, noise: Array, settings: Settings) -> Pair:
    """One output [M]. The floor is the rounding of the tensor's typical size; two equal infinities agree."""
    a, v, unit = numbers(mine), numbers(theirs), UNITS.get(mine.dtype, U32)
    tally, (atol, rtol) = Tally(0, place, (len(a), 1), WORST), settings.tolerances()
    with np.errstate(all="ignore"):
        same_infinity = (a == v) & np.isinf(v)
        floor = np.full(len(a), FLOOR * unit * rms(np.abs(v)))
        largest = np.maximum(np.nan_to_num(np.abs(a), nan=0.0, posinf=0.0), np.nan_to_num(np.abs(v), nan=0.0, posinf=0.0))
        tolerance, bar = atol + np.maximum(rtol * largest, floor), ROUNDING * unit * largest + noise
        verdict = guarded(np.abs(a - v), bar, tolerance)
    finite = np.isfinite(a) & np.isfinite(v)
    outcome = np.select([verdict == Verdict.PASS, (verdict == Verdict.MISMATCH) | ~finite], [Outcome.PASS, Outcome.MISMATCH],
                        Outcome.UNDECIDED).astype(np.int8)
    tally.add_zeros(np.zeros(0), np.zeros(0), same_infinity)
    kept = np.flatnonzero(~same_infinity)
    limit, nothing = np.full(len(kept), Limit.NONE, object), np.full(len(kept), np.nan)
    limit[outcome[kept] == Outcome.UNDECIDED] = Limit.NOISE
    tally.add(PairElements(kept, np.zeros(len(kept), np.intp), a[kept], v[kept], bar[kept], tolerance[kept],
                           floor[kept], outcome[kept], limit, nothing, nothing))
    return tally.result(unit, False)
