"""Second opinions on verdicts: sums over kinks, ties, symmetric inputs, rounding inside f and the backward's own noise."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import numpy as np
from torch import Tensor

from gradverify.numerics.columns.cancelling import MEASURED, excuse_cancelled, only_certain
from gradverify.numerics.columns.judged import Judged
from gradverify.numerics.columns.rounded import excuse_rounded, until_one_stands
from gradverify.numerics.columns.run import Run
from gradverify.numerics.columns.ties import excuse_ties
from gradverify.numerics.compare import verdicts
from gradverify.numerics.estimate.climb import derivative
from gradverify.numerics.estimate.kinks import KINK
from gradverify.numerics.estimate.romberg import Best, one_sided
from gradverify.numerics.function.coordinates import mirror_of
from gradverify.numerics.function.point_lines import DirectionLine
from gradverify.numerics.rungs import BASE, RATIO, U32, VISIBLE, Array, Index, Mask, Z
from gradverify.numerics.survey import analytic_noise
from gradverify.numerics.verdict import MISMATCH, PASS, UNDECIDED, Limit

HUNDREDTH = 0.01  # of a derivative: a bar in which no error that matters could hide
KINK_RUNGS = range(4, 10)
SUM_SLACK = 1e-6  # of Σ|a|
SYMMETRIC = 2.0**-45  # of the largest entry; in float32 only bitwise symmetry is within it
NOISE_CALLS = 18  # for that of one row of backward
NOISE_ROWS = 6  # rows at a time whose analytic noise is measured, until a mismatch stands
NOISE_CAP = 2.0**10  # roundoffs of |a| ...
SUMS = 2.0**-40  # of f: more noise than the rounding of large sums is of another kind, as ripples, which backward may follow
FLOOR_CAP = 16  # ... or floors, for what cancels to nothing: more noise than either is itself the backward's fault

Entry = Callable[[int, int], float]
"""The analytic value of (column, output)."""

Border = Callable[[Judged], Mask]
"""Which elements [E] have no finite f on both sides of their columns, as for `verdicts`."""


def second_opinions(run: Run, judged: Judged, border: Border, entry: Entry) -> tuple[Judged, dict[int, float]]:
    """The verdicts after all second opinions, and per output the relative noise of a backward that is itself at fault."""
    judged = settle_slight(run, judged)
    if judged.derivative.rough:
        judged = along_kinks(run, judged)
    if not (judged.verdict == MISMATCH).any():
        return judged, {}
    judged = excuse_symmetric(run, judged, entry)
    judged = excuse_ties(run, only_certain(run, judged) if run.enough(MEASURED) else judged)
    narrow = run.point.narrow
    excused = excuse_rounded(run, judged, border(judged), narrow) if narrow else excuse_analytic_noise(run, judged, border(judged))
    judged, at_fault = excused
    return excuse_cancelled(run, judged), at_fault


def settle_slight(run: Run, judged: Judged) -> Judged:
    """Undecided elements that are negligible by their own |x|, and known to a HUNDREDTH, are right.

    A floor is divided by the tensor's RMS, or small elements would pass unseen beside large ones; in hypot of 1e-12 and 1 that asks for digits of the
    smaller one's derivative that no difference of f has.
    """
    d = judged.derivative
    known = (judged.verdict == UNDECIDED) & d.smooth & (np.abs(judged.a - d.value) <= d.bar) & (d.bar <= HUNDREDTH * np.abs(d.value))
    if not known.any():
        return judged
    agreed = ~np.isfinite(d.second) | (d.far & (np.abs(judged.a - d.second) <= d.second_bar))  # the nearer steps do not say otherwise
    i = np.flatnonzero(known & agreed & ~judged.bounds.unproven)
    reach = np.maximum(np.abs(judged.a[i]), np.abs(d.value[i])) * run.point.columns.scale[judged.column[i]]
    return judged.passed(i[reach <= run.floors()[judged.out[i]]])


def along_kinks(run: Run, judged: Judged) -> Judged:
    """A subgradient holds along sums too: the kinked elements of one output, moved together by equal steps.

    Outside is undecided, not a mismatch: torch's own `clamp(x).sum()` with both bounds hit looks like that.
    """
    kinked = np.flatnonzero((judged.derivative.outcome == KINK) & (judged.verdict == PASS))
    members: dict[int, list[int]] = defaultdict(list)
    for i in kinked.tolist():
        members[int(judged.out[i])].append(i)
    together: dict[tuple[int, ...], list[int]] = defaultdict(list)  # outputs that share their columns share the calls
    for out, elements in members.items():
        if len(elements) > 1:
            together[tuple(judged.column[elements].tolist())].append(out)
    for columns, outs in together.items():
        beyond = beyond_slopes(run, np.array(columns), np.array(outs), np.array([judged.a[members[out]] for out in outs]))
        for out in np.array(outs)[beyond].tolist():
            judged = judged.undecided(np.array(members[out]), Limit.KINK_SUM)
    return judged


def beyond_slopes(run: Run, columns: Index, outs: Index, a: Array) -> Mask:
    """Of which outputs [k] the sum of their analytic values a [k, columns] lies outside the slopes along all columns together: 12 forward calls."""
    left, right = (_joint_side(run, columns, outs, sign) for sign in (-1.0, 1.0))
    pad, total = np.maximum(left.bar, right.bar) + SUM_SLACK * np.abs(a).sum(1), a.sum(1)
    low, high = np.minimum(left.value, right.value), np.maximum(left.value, right.value)
    return np.asarray((total < low - pad) | (total > high + pad))


def _joint_side(run: Run, columns: Index, outs: Index, sign: float) -> Best:
    point, c = run.point, run.point.columns
    steps = [BASE * c.scale[columns].min() * RATIO ** float(-k) for k in KINK_RUNGS]
    values = np.array([point.moved_all(columns, c.x[columns] + sign * h)[outs] for h in steps])
    noise = run.noise[outs]
    h = np.repeat(sign * np.array(steps)[:, None], len(outs), 1)
    return one_sided(values - point.f0[outs], h, np.broadcast_to(noise, h.shape))


def excuse_symmetric(run: Run, judged: Judged, entry: Entry) -> Judged:
    """Where an input is (conjugate) symmetric: an op may read one triangle and spread the gradient over both.

    Undecided where the gradient is itself symmetric, and right along the symmetric direction.
    """
    c, bad = run.point.columns, np.flatnonzero(judged.verdict == MISMATCH)
    for t, x in enumerate(run.point.buffers):
        if x.dim() < 2 or x.shape[-1] != x.shape[-2] or (c.mirror[c.of(t)] >= 0).any() or not _symmetric(x):
            continue
        mirror, sign = mirror_of(x)
        start = int(c.of(t)[0]) if len(c.of(t)) else 0
        for column in np.unique(judged.column[bad[c.tensor[judged.column[bad]] == t]]).tolist():
            i = bad[judged.column[bad] == column]
            other, s = start + int(mirror[column - start]), float(sign[column - start])
            right = i if other == column and s < 0 else i[_right_along_pair(run, judged.take(i), column, other, s, entry)]
            judged = judged.undecided(right, Limit.SYMMETRY)
    return judged


def _symmetric(x: Tensor) -> bool:
    """Equal to its (conjugate) transpose, to rounding: b @ b.mT is not bitwise symmetric everywhere."""
    return bool(((x - x.mT.conj()).abs() <= SYMMETRIC * x.abs().amax()).all()) if x.numel() else False


def _right_along_pair(run: Run, judged: Judged, column: int, other: int, sign: float, entry: Entry) -> Mask:
    """Elements of one column that are right when it moves together with its mirror image."""
    if other == column:
        return np.zeros(len(judged.a), bool)
    scale = run.point.columns.scale[column]
    line = DirectionLine(run.point, np.array([column, other]), np.array([scale, sign * scale]))
    wanted = np.full(len(run.point.f0), np.inf)
    wanted[judged.out] = judged.bounds.tolerance(judged.a, judged.derivative.value) * scale / 2
    d = derivative(line, run.outputs(), rtol=0.0, atol=wanted).take(judged.out)
    mirrored = sign * np.array([entry(other, int(j)) for j in judged.out])
    given, found, bar = judged.a + mirrored, d.value / scale, d.bar / scale
    tol = judged.bounds.tolerance(given, found)
    return np.asarray((np.abs(judged.a - mirrored) <= tol) & (np.abs(given - found) <= tol + bar))


def excuse_analytic_noise(run: Run, judged: Judged, border: Mask) -> tuple[Judged, dict[int, float]]:
    """A mismatch within the backward's own noise, up to a cap, is undecided, or right where the forward is float32; never at kinks.

    `border` [E]: as for `verdicts`.
    """
    def one_row(judged: Judged, i: Index, row: int) -> tuple[Judged, float]:
        return _excuse_row(run, judged, border, i, row)

    return until_one_stands(judged, 1 if run.enough(NOISE_CALLS) else NOISE_ROWS, one_row)


def _excuse_row(run: Run, judged: Judged, border: Mask, i: Index, row: int) -> tuple[Judged, float]:
    """Elements i of one row; and the relative noise of its backward where it is above the cap."""
    part = judged.take(i)
    cap = _cap(run, part.a, part.bounds.floor, row)
    if run.enough(NOISE_CALLS):
        stands = verdicts(part.a, part.derivative, part.bounds, border[i], _most(run, part.a, cap, row)) == MISMATCH
        if stands.any():
            return judged.undecided(i[~stands], Limit.BUDGET), 0.0
    sigma, _ = analytic_noise(run.point, row, _row_of(run, judged, i), run.generator)
    noise = Z * sigma[part.column]
    excused = i[verdicts(part.a, part.derivative, part.bounds, border[i], np.minimum(noise, cap)) != MISMATCH]
    excess = np.where(noise > cap, noise / Z / np.abs(part.a), 0.0)
    judged = judged.undecided(excused, Limit.ANALYTIC_NOISE)
    if run.f_unit[row] == U32:
        judged = judged.passed(excused)
    return judged, float(np.nan_to_num(excess).max(initial=0.0))


def _cap(run: Run, a: Array, floor: Array, row: int) -> Array:
    """Noise that a backward may have; no cap where the forward itself is noisy beyond rounding: a right backward follows its ripples."""
    noisy = run.survey.sigma[row] > VISIBLE * run.f_unit[row] * run.survey.size[row]
    rounding = NOISE_CAP * run.f_unit[row] * np.nan_to_num(np.abs(a), posinf=0.0)
    return np.full(len(a), np.inf) if noisy else np.maximum(rounding, FLOOR_CAP * floor)


def _most(run: Run, a: Array, cap: Array, row: int) -> Array:
    """The cap; of a forward that sums many numbers, and is noisy with that alone, as many times that noise."""
    noise = run.survey.sigma[row] / run.survey.size[row] if run.survey.size[row] else np.inf
    return np.minimum(cap, NOISE_CAP * noise * np.abs(a)) if run.f_unit[row] < noise <= SUMS else cap


def _row_of(run: Run, judged: Judged, i: Index) -> Array:
    row = np.zeros(len(run.point.columns))
    row[judged.column[i]] = np.nan_to_num(judged.a[i])
    return row
