"""Symmetric inputs: a function may read one triangle of a symmetric matrix and spread the gradient over both."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from gradverify.numerics.elements.judged import Judged
from gradverify.numerics.elements.run import Run
from gradverify.numerics.estimate.climb import derivative
from gradverify.numerics.function.coordinates import mirror_of
from gradverify.numerics.function.point_lines import DirectionLine
from gradverify.numerics.rungs import Mask
from gradverify.numerics.verdict import MISMATCH, Limit

SYMMETRIC = 2.0**-45  # of the largest entry; in float32 only bitwise symmetry is within it


def excuse_symmetric(run: Run, judged: Judged) -> Judged:
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
            right = i if other == column and s < 0 else i[_right_along_pair(run, judged.take(i), column, other, s)]
            judged = judged.undecided(right, Limit.SYMMETRY)
    return judged


def _symmetric(x: Tensor) -> bool:
    """Equal to its (conjugate) transpose, to rounding: b @ b.mT is not bitwise symmetric everywhere."""
    return bool(((x - x.mT.conj()).abs() <= SYMMETRIC * x.abs().amax()).all()) if x.numel() else False


def _right_along_pair(run: Run, judged: Judged, column: int, other: int, sign: float) -> Mask:
    """Elements of one column that are right when it moves together with its mirror image."""
    if other == column:
        return np.zeros(len(judged.a), bool)
    scale = run.point.columns.scale[column]
    line = DirectionLine(run.point, np.array([column, other]), np.array([scale, sign * scale]))
    wanted = np.full(len(run.point.f0), np.inf)
    wanted[judged.out] = judged.bounds.tolerance(judged.a, judged.derivative.value) * scale / 2
    d = derivative(line, run.outputs(), rtol=0.0, atol=wanted).take(judged.out)
    entry = judged.entry or (lambda column, output: float(run.point.row(output)[column]))
    mirrored = sign * np.array([entry(other, int(j)) for j in judged.out])
    given, found, bar = judged.a + mirrored, d.value / scale, d.bar / scale
    tol = judged.bounds.tolerance(given, found)
    return np.asarray((np.abs(judged.a - mirrored) <= tol) & (np.abs(given - found) <= tol + bar))
