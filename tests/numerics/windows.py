"""Patterns by hand, and the point that a function is measured at."""

from __future__ import annotations

import numpy as np

from gradverify.numerics.function.coordinates import columns_of
from gradverify.numerics.function.point import Point
from gradverify.numerics.seeds import Seed
from gradverify.numerics.sparsity.pattern import Pattern
from gradverify.numerics.survey import survey


def axes(*shape):
    """The index of each element along each axis, flat."""
    return [index.ravel() for index in np.indices(shape)]


def windows(shape, low, high, nothing=None):
    m = len(low[0])
    return Pattern(
        tuple(shape),
        tuple(np.asarray(a, np.intp) for a in low),
        tuple(np.asarray(a, np.intp) for a in high),
        np.zeros(m, bool) if nothing is None else nothing,
    )


def along_last(*shape, causal=False):
    """Every output depends on its own row, or on the row up to itself."""
    at = axes(*shape)
    last = at[-1] if causal else np.full_like(at[-1], shape[-1] - 1)
    return windows(shape, [*at[:-1], np.zeros_like(at[-1])], [*at[:-1], last])


def point_of(function, domains=None, symmetric=None, seed=0):
    n = len(function.inputs)
    return Point(
        function,
        columns_of(function.inputs, domains or [None] * n, symmetric or [False] * n),
        seed=Seed(seed),
    )


def prepared(function, domains=None, symmetric=None):
    point = point_of(function, domains, symmetric)
    with np.errstate(all="ignore"):
        return point, survey(point)
