"""Patterns by hand, as detection should find them, and the three screens on a function."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from gradverify.numerics.function.coordinates import columns_of
from gradverify.numerics.function.point import Point
from gradverify.numerics.probing.blocks import check_blocks
from gradverify.numerics.probing.columns import check_columns
from gradverify.numerics.probing.rows import check_rows
from gradverify.numerics.probing.screen import Screened
from gradverify.numerics.probing.thresholds import SurveyedPoint
from gradverify.numerics.sparsity.pattern import Pattern
from gradverify.numerics.survey import survey
from numerics.differentiable import Differentiable

CHECKS = {"columns": check_columns, "rows": check_rows, "blocks": check_blocks}


@dataclass(frozen=True)
class Screen:
    """What one comparison by sums says of all pairs, and the calls it took."""

    pairs: list[Screened]
    forward: int
    backward: int

    @property
    def clean(self):
        return all(pair.clean for pair in self.pairs)

    def pair(self, input_, output):
        return next(pair for pair in self.pairs if (pair.input, pair.output) == (input_, output))


def axes(*shape):
    """The index of each element along each axis, flat."""
    return [index.ravel() for index in np.indices(shape)]


def windows(shape, low, high, nothing=None):
    m = len(low[0])
    return Pattern(tuple(shape), tuple(np.asarray(a, np.intp) for a in low), tuple(np.asarray(a, np.intp) for a in high),
                   np.zeros(m, bool) if nothing is None else nothing)


def elementwise(*shape):
    return windows(shape, axes(*shape), axes(*shape))


def along_last(*shape, causal=False):
    """Every output depends on its own row, or on the row up to itself."""
    at = axes(*shape)
    last = at[-1] if causal else np.full_like(at[-1], shape[-1] - 1)
    return windows(shape, [*at[:-1], np.zeros_like(at[-1])], [*at[:-1], last])


def point_of(function, domains=None, symmetric=None):
    n = len(function.inputs)
    return Point(function, columns_of(function.inputs, domains or [None] * n, symmetric or [False] * n))


def prepared(function, domains=None,
             symmetric=None):
    point = point_of(function, domains, symmetric)
    with np.errstate(all="ignore"):
        return point, survey(point, np.random.default_rng(0))


def screen(mode, forward, inputs, patterns,
           damage=None, seed=1, domains=None,
           symmetric=None, **options):
    """One screen of a forward with torch's own gradient (damaged, where asked)."""
    inputs = [inputs] if isinstance(inputs, Tensor) else inputs
    function = Differentiable(forward, *inputs, damage=damage) if callable(forward) else forward
    point, known = prepared(function, domains, symmetric)
    patterns = [[patterns]] if isinstance(patterns, Pattern) else patterns
    before = point.forward, point.backward
    with np.errstate(all="ignore"):
        pairs = CHECKS[mode](SurveyedPoint(point, known), patterns, np.random.default_rng(seed), **options)
    return Screen(pairs, point.forward - before[0], point.backward - before[1])
