"""Patterns by hand, as detection should find them, and the three screens on a function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from gradverify.numerics.function.coordinates import columns_of
from gradverify.numerics.function.point import Function, Point
from gradverify.numerics.probing.screen import Screened, check_blocks, check_rows
from gradverify.numerics.probing.seed_matrices import SurveyedPoint
from gradverify.numerics.seeds import Seed
from gradverify.numerics.sparsity.pattern import Pattern
from gradverify.numerics.survey import Survey, survey
from numerics.differentiable import Damage, Differentiable

CHECKS = {"rows": check_rows, "blocks": check_blocks}


@dataclass(frozen=True)
class Screen:
    """What one comparison by sums says of all pairs, and the calls it took."""

    pairs: list[Screened]
    forward: int
    backward: int

    @property
    def clean(self) -> bool:
        return all(pair.clean for pair in self.pairs)

    def pair(self, input_: int, output: int) -> Screened:
        return next(pair for pair in self.pairs if (pair.input, pair.output) == (input_, output))


def axes(*shape: int) -> list[np.ndarray]:
    """The index of each element along each axis, flat."""
    return [index.ravel() for index in np.indices(shape)]


def windows(shape: Sequence[int], low: Sequence[np.ndarray], high: Sequence[np.ndarray], nothing: np.ndarray | None = None) -> Pattern:
    m = len(low[0])
    return Pattern(tuple(shape), tuple(np.asarray(a, np.intp) for a in low), tuple(np.asarray(a, np.intp) for a in high),
                   np.zeros(m, bool) if nothing is None else nothing)


def elementwise(*shape: int) -> Pattern:
    return windows(shape, axes(*shape), axes(*shape))


def along_last(*shape: int, causal: bool = False) -> Pattern:
    """Every output depends on its own row, or on the row up to itself."""
    at = axes(*shape)
    last = at[-1] if causal else np.full_like(at[-1], shape[-1] - 1)
    return windows(shape, [*at[:-1], np.zeros_like(at[-1])], [*at[:-1], last])


def product(b: int, i: int, o: int) -> list[list[Pattern]]:
    """x (b, i) @ w (i, o)."""
    row, column = axes(b, o)
    zero, end = np.zeros_like(row), np.full_like(row, i - 1)
    return [[windows((b, i), [row, zero], [row, end])], [windows((i, o), [zero, column], [end, column])]]


def band(b: int, channels: int, out: int, n: int, kernel: int) -> Pattern:
    """The input of a convolution without padding."""
    batch, _, position = axes(b, out, n - kernel + 1)
    zero = np.zeros_like(batch)
    return windows((b, channels, n), [batch, zero, position], [batch, zero + channels - 1, position + kernel - 1])


def table(index: Sequence[int], rows: int, width: int) -> Pattern:
    """The weight of an embedding."""
    place, column = axes(len(index), width)
    row = np.asarray(index)[place]
    return windows((rows, width), [row, column], [row, column])


def point_of(function: Function, domains: Sequence[tuple[float, float] | None] | None = None, symmetric: Sequence[bool] | None = None,
             seed: int = 0) -> Point:
    n = len(function.inputs)
    return Point(function, columns_of(function.inputs, domains or [None] * n, symmetric or [False] * n), seed=Seed(seed))


def prepared(function: Function, domains: Sequence[tuple[float, float] | None] | None = None,
             symmetric: Sequence[bool] | None = None, seed: int = 0) -> tuple[Point, Survey]:
    point = point_of(function, domains, symmetric, seed)
    with np.errstate(all="ignore"):
        return point, survey(point)


def screen(mode: str, forward: Callable[..., object] | Function, inputs: Tensor | Sequence[Tensor], patterns: Sequence[Sequence[Pattern]] | Pattern,
           damage: Damage | None = None, seed: int = 1, domains: Sequence[tuple[float, float] | None] | None = None,
           symmetric: Sequence[bool] | None = None, **options: object) -> Screen:
    """One screen of a forward with torch's own gradient (damaged, where asked)."""
    inputs = [inputs] if isinstance(inputs, Tensor) else inputs
    function = Differentiable(forward, *inputs, damage=damage) if callable(forward) else forward
    point, known = prepared(function, domains, symmetric, seed)
    patterns = [[patterns]] if isinstance(patterns, Pattern) else patterns
    before = point.forward, point.backward
    with np.errstate(all="ignore"):
        pairs = CHECKS[mode](SurveyedPoint(point, known), patterns, **options)  # type: ignore[operator]
    return Screen(pairs, point.forward - before[0], point.backward - before[1])


def flagged(result: Screen) -> list[int]:
    """The lines of the only pair."""
    assert len(result.pairs) == 1
    return result.pairs[0].flagged.tolist()
