"""Symmetric inputs: a function may read one triangle of a symmetric matrix and spread the gradient over both."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from gradverify.numerics.estimate.climb import derivative
from gradverify.numerics.function.coordinates import mirror_of
from gradverify.numerics.function.point_lines import DirectionLine
from gradverify.numerics.judging.judged import Judged
from gradverify.numerics.judging.run import Run
from gradverify.numerics.rungs import Array, Mask
from gradverify.numerics.verdict import MISMATCH, Limit

SYMMETRIC = 2.0**-45  # of the largest entry; in float32 only bitwise symmetry is within it


def excuse_symmetric(run: Run, judged: Judged) -> Judged:
    """Where an input is (conjugate) symmetric: an op may read one triangle and spread the gradient over both.

    Undecided where the gradient is itself symmetric, and right along the symmetric direction.
    """
    c, bad = run.point.columns, np.flatnonzero(judged.verdict == MISMATCH)
    for t, x in enumerate(run.point.buffers):
        if x.dim() < 2 or not x.numel() or x.shape[-1] != x.shape[-2] or (c.mirror[c.of(t)] >= 0).any() or not _symmetric(x):
            continue
        first, (mirror, sign) = int(c.of(t)[0]), mirror_of(x)
        wrong = bad[c.tensor[judged.column[bad]] == t]
        mirrored, signs = first + mirror[judged.column[wrong] - first], sign[judged.column[wrong] - first]
        diagonal = mirrored == judged.column[wrong]
        judged = judged.undecided(wrong[diagonal & (signs < 0)], Limit.SYMMETRY)  # the imaginary part of a real number
        wrong, mirrored, signs = wrong[~diagonal], mirrored[~diagonal], signs[~diagonal]
        values = signs * run.analytic(mirrored, judged.out[wrong])
        for column in np.unique(judged.column[wrong]).tolist():
            of_column = np.flatnonzero(judged.column[wrong] == column)
            other, its_sign = int(mirrored[of_column[0]]), float(signs[of_column[0]])
            right = _right_along_pair(run, judged.take(wrong[of_column]), values[of_column], other, its_sign)
            judged = judged.undecided(wrong[of_column][right], Limit.SYMMETRY)
    return judged


def _symmetric(x: Tensor) -> bool:
    """Equal to its (conjugate) transpose, to rounding: b @ b.mT is not bitwise symmetric everywhere."""
    return bool(((x - x.mT.conj()).abs() <= SYMMETRIC * x.abs().amax()).all())


def _right_along_pair(run: Run, judged: Judged, mirrored: Array, other: int, sign: float) -> Mask:
    """Elements of one column that are right when it moves together with its mirror image `other`, whose analytic values are `mirrored` [E]."""
    column = int(judged.column[0])
    scale = run.point.columns.scale[column]
    line = DirectionLine(run.point, np.array([column, other]), np.array([scale, sign * scale]))
    wanted = np.full(len(run.point.f0), np.inf)
    wanted[judged.out] = judged.tolerances.tolerance(judged.analytic, judged.derivative.value) * scale / 2
    d = derivative(line, run.outputs(), rtol=0.0, atol=wanted).take(judged.out)
    analytic, numeric, bar = judged.analytic + mirrored, d.value / scale, d.bar / scale
    tolerance = judged.tolerances.tolerance(analytic, numeric)
    return np.asarray((np.abs(judged.analytic - mirrored) <= tolerance) & (np.abs(analytic - numeric) <= tolerance + bar))
