"""The reasons for which an element that differs is right or undecided, in the order in which they
are tried.

Here are those of undecided elements and of symmetric inputs; the larger ones are modules of this
folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
from torch import Tensor

from gradverify.numerics.estimate.climb import derivative
from gradverify.numerics.estimate.kinks import SMOOTH
from gradverify.numerics.excuses.cancelling import (
    excuse_cancelled,
    excuse_uncertain,
    judge_above_steps,
)
from gradverify.numerics.excuses.kink_sums import excuse_ties, judge_kink_sums
from gradverify.numerics.excuses.rounded import excuse_backward_noise, excuse_rounded
from gradverify.numerics.excuses.treads import excuse_ends, excuse_treads
from gradverify.numerics.excuses.wide_fits import pass_fitted
from gradverify.numerics.function.coordinates import mirror_of
from gradverify.numerics.function.point import DirectionLine
from gradverify.numerics.judging.judged import Decided, Judged
from gradverify.numerics.judging.run import Run
from gradverify.numerics.rungs import Array, Mask
from gradverify.numerics.verdict import MISMATCH, UNDECIDED, Limit

# ---- Undecided elements that are right all the same: negligible by the size of their own input
# element, or zero where no step moves that
HUNDREDTH = 0.01  # of a derivative: a bar in which no error that matters could hide


def pass_slight(run: Run, judged: Judged) -> Iterator[Decided]:
    """Undecided elements that are negligible by their own |x|, and known to a HUNDREDTH, are right.

    A floor is divided by the tensor's RMS, or small elements would pass unseen beside large ones;
    in hypot of 1e-12 and 1 that asks for digits of the smaller one's derivative that no difference
    of f has.
    """
    d = judged.derivative
    known = (
        (judged.verdict == UNDECIDED)
        & d.smooth
        & (np.abs(judged.analytic - d.value) <= d.bar)
        & (d.bar <= HUNDREDTH * np.abs(d.value))
    )
    # The nearer steps do not say otherwise
    agreed = ~np.isfinite(d.second) | (d.far & (np.abs(judged.analytic - d.second) <= d.second_bar))
    i = np.flatnonzero(known & agreed & ~judged.tolerances.unproven)
    reach = (
        np.maximum(np.abs(judged.analytic[i]), np.abs(d.value[i]))
        * run.point.columns.scale[judged.column[i]]
    )
    yield Decided(i[reach <= run.floors()[judged.out[i]]], Limit.NONE)


def pass_unmovable(run: Run, judged: Judged) -> Judged:
    """Zeros where x is infinite or NaN: x + h is x for every step h, so f, finite there, is
    constant along all of them."""
    x, f0 = run.point.columns.x, run.point.f0
    if run.point.columns.finite:
        return judged
    i = np.flatnonzero(
        (judged.verdict == UNDECIDED)
        & ~np.isfinite(x[judged.column])
        & np.isfinite(f0[judged.out])
        & (judged.analytic == 0)
    )
    d = judged.derivative.take(i)
    zeros = np.zeros(len(i))
    at_rest = replace(
        d,
        value=zeros,
        bar=zeros,
        noise_bar=zeros,
        outcome=np.full(len(i), SMOOTH, np.int8),
        unchanged=np.ones(len(i), bool),
    )
    return replace(judged.passed(i), derivative=judged.derivative.replaced(i, at_rest))


# ---- Symmetric inputs: a function may read one triangle of a symmetric matrix and spread the
# gradient over both
SYMMETRIC = 2.0**-45  # of the largest entry; in float32 only bitwise symmetry is within it


def excuse_symmetric(run: Run, judged: Judged) -> Iterator[Decided]:
    """Where an input is (conjugate) symmetric: an op may read one triangle and spread the gradient
    over both.

    Undecided where the gradient is itself symmetric, and right along the symmetric direction.
    """
    c, bad = run.point.columns, np.flatnonzero(judged.verdict == MISMATCH)
    for t, x in enumerate(run.point.buffers):
        if (
            x.dim() < 2
            or not x.numel()
            or x.shape[-1] != x.shape[-2]
            or (c.mirror[c.of(t)] >= 0).any()
            or not _symmetric(x)
        ):
            continue
        first, (mirror, sign) = int(c.of(t)[0]), mirror_of(x)
        wrong = bad[c.tensor[judged.column[bad]] == t]
        mirrored, signs = (
            first + mirror[judged.column[wrong] - first],
            sign[judged.column[wrong] - first],
        )
        diagonal = mirrored == judged.column[wrong]
        # The imaginary part of a real number
        yield Decided(wrong[diagonal & (signs < 0)], Limit.SYMMETRY)
        wrong, mirrored, signs = wrong[~diagonal], mirrored[~diagonal], signs[~diagonal]
        values = signs * run.analytic(mirrored, judged.out[wrong])
        for column in np.unique(judged.column[wrong]).tolist():
            of_column = np.flatnonzero(judged.column[wrong] == column)
            other, its_sign = int(mirrored[of_column[0]]), float(signs[of_column[0]])
            right = _right_along_pair(
                run, judged.take(wrong[of_column]), values[of_column], other, its_sign
            )
            yield Decided(wrong[of_column][right], Limit.SYMMETRY)


def _symmetric(x: Tensor) -> bool:
    """Equal to its (conjugate) transpose, to rounding: b @ b.mT is not bitwise symmetric
    everywhere."""
    return bool(((x - x.mT.conj()).abs() <= SYMMETRIC * x.abs().amax()).all())


def _right_along_pair(run: Run, judged: Judged, mirrored: Array, other: int, sign: float) -> Mask:
    """Elements of one column that are right when it moves together with its mirror image `other`,
    whose analytic values are `mirrored` [E]."""
    column = int(judged.column[0])
    scale = run.point.columns.scale[column]
    line = DirectionLine(run.point, np.array([column, other]), np.array([scale, sign * scale]))
    wanted = np.full(len(run.point.f0), np.inf)
    wanted[judged.out] = (
        judged.tolerances.tolerance(judged.analytic, judged.derivative.value) * scale / 2
    )
    d = derivative(line, run.outputs(), rtol=0.0, atol=wanted).take(judged.out)
    analytic, numeric, bar = judged.analytic + mirrored, d.value / scale, d.bar / scale
    tolerance = judged.tolerances.tolerance(analytic, numeric)
    return np.asarray(
        (np.abs(judged.analytic - mirrored) <= tolerance)
        & (np.abs(analytic - numeric) <= tolerance + bar)
    )


# ---- What may explain a mismatch, in the order in which it is asked. What no excuse explains is
# wrong
Excuse = Callable[[Run, Judged], Iterator[Decided]]
"""The mismatches that it explains, with the reason; it writes nothing, and calls nothing where none
is left."""
EXCUSES: tuple[Excuse, ...] = (
    excuse_ends,
    excuse_symmetric,
    excuse_uncertain,
    excuse_ties,
    excuse_rounded,
    excuse_backward_noise,
    excuse_cancelled,
    excuse_treads,
)


def excused(run: Run, judged: Judged) -> Judged:
    """The elements as a check tells of them, whatever they were measured with: slight and unmovable
    ones passed, mismatches excused, kinks summed."""
    judged, above = judge_above_steps(run, pass_unmovable(run, judged))
    for excuse in (pass_slight, *EXCUSES):
        if excuse is pass_slight or (judged.verdict == MISMATCH).any():
            for found in excuse(run, judged):
                judged = judged.decided(found) if len(found.i) else judged
    judged = pass_fitted(run, judge_kink_sums(run, judged), above)
    return judged.undecided(above[judged.verdict[above] == UNDECIDED], Limit.CANCELS)
