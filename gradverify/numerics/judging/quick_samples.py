"""f on the quick rungs, the first three steps, and derivatives from them alone, which suffice for
most elements of a smooth function."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gradverify.numerics.estimate.climb import Elements, Ladders
from gradverify.numerics.estimate.kinks import GROWTH, SMOOTH
from gradverify.numerics.estimate.ladder import Derivative, as_derivative
from gradverify.numerics.estimate.samples import LOW_UNIT, one_side, sample_rung
from gradverify.numerics.estimate.smooth import SmoothEstimate, secant, smooth_estimate
from gradverify.numerics.function.point import Point
from gradverify.numerics.judging.bundle import Bundle, Cells, GroupLine, lone_columns, steps
from gradverify.numerics.judging.run import Run
from gradverify.numerics.records import joined
from gradverify.numerics.rungs import QUICK, Array, Index, Mask, in_a_row, step
from gradverify.numerics.survey import STRAY

# ---- f on the quick rungs, the first three steps, and derivatives from them alone, which suffice
# for most elements of a smooth function
# Elements of a piece where all is plain: arrays of 64 KiB take a fifth less time an element than
# those of 128 KiB
PLAIN_PIECE = 1 << 13

# Of a slope: what that on one side may still change from rung to rung; one that climbs without
# bound does by a tenth at least
SETTLED = 2.0**-10


@dataclass(frozen=True)
class QuickSamples:
    """f on the quick rungs of a bundle's n lines, up and down along each line [rungs, n, M].

    step_up, step_down [rungs, k]: realised steps, nominal where x is stuck, negative where the line
    moves a column the other way; `place` [n, M or 1]: which of the k an element has.
    """

    bundle: Bundle
    up: Array
    down: Array
    step_up: Array
    step_down: Array
    place: Index
    f0: Array

    @cached_property
    def width(self) -> Array:
        """Of the k pairs of steps [rungs, k]."""
        return self.step_up + self.step_down

    def at(self, n: int, line: Index, out: Index) -> Array:
        """Samples [4, E] of the n-th rung for elements, each with its column's own way up."""
        place = self.place[line, out if self.bundle.grouped else 0]
        up, down, forth, back = (
            self.up[n, line, out],
            self.down[n, line, out],
            self.step_up[n, place],
            self.step_down[n, place],
        )
        turned = forth < 0
        return np.stack(
            [
                np.where(turned, down, up),
                np.where(turned, up, down),
                np.where(turned, -back, forth),
                np.where(turned, -forth, back),
            ]
        )

    def widest(self, outs: slice) -> Array:
        """The larger step of the first rung [n, outs or 1]."""
        widest = np.maximum(np.abs(self.step_up[0]), np.abs(self.step_down[0]))
        return np.asarray(widest[self.place[:, outs if self.bundle.grouped else slice(None)]])

    @cached_property
    def bad(self) -> Mask | None:
        """Rungs without a value on both sides [rungs, n, M]; None where there are none."""
        if np.isfinite(self.up).all() and np.isfinite(self.down).all():
            return None
        return ~(np.isfinite(self.up) & np.isfinite(self.down))

    @property
    def unchanged(self) -> Mask:
        """Elements [n, M] whose output is bitwise f(x) at every rung that has a value, two or
        more."""
        if self.bad is None:
            unchanged = self.up[0] == self.f0
            return (
                np.asarray((self.up == self.f0).all(0) & (self.down == self.f0).all(0))
                if unchanged.any()
                else unchanged
            )
        same = (self.up == self.f0) & (self.down == self.f0)
        return np.asarray((same | self.bad).all(0) & (np.sum(~self.bad, 0) >= min(2, len(self.up))))

    @property
    def masked(self) -> Mask:
        """Elements [n, M] whose output is one and the same infinity everywhere."""
        if self.bad is None:
            return np.zeros(self.up.shape[1:], bool)
        return np.asarray(
            np.isinf(self.f0) & (self.up == self.f0).all(0) & (self.down == self.f0).all(0)
        )

    @property
    def at_border(self) -> Mask:
        """Columns [C] along which some output is not finite on both sides; one and the same
        infinity everywhere is taken as finite."""
        border = np.zeros(int(self.bundle.column_of.max(initial=-1)) + 1, bool)
        if self.bad is not None:
            one_side = np.isfinite(self.up) != np.isfinite(self.down)
            lost = (self.bad & ~self.masked) | one_side
            border[self.bundle.column_of[lost.any(0) & self.bundle.in_pattern]] = True
        return border

    def growing(self, n: int) -> Index:
        """The outputs whose slopes along line n, on a side, grow from rung to rung: finer ones tell
        whether they end."""
        sides = (
            (self.up[:, n], self.step_up[:, self.place[n]]),
            (self.down[:, n], self.step_down[:, self.place[n]]),
        )
        slopes = [np.abs((f - self.f0) / h) for f, h in sides]
        return np.flatnonzero(
            np.any([(s[1:] > GROWTH * s[:-1]).all(0) for s in slopes], 0) & np.isfinite(self.f0)
        )

    def settles(self, line: Index, out: Index) -> Mask:
        """Elements [k] with a slope on one side at least that does not grow: f does not end there,
        nor climb without bound on both sides."""
        if len(self.up) < 2:  # f is linear in these columns
            return np.zeros(len(line), bool)
        place = self.place[line, out if self.bundle.grouped else 0]
        sides = (
            (self.up[:, line, out], self.step_up[:, place]),
            (self.down[:, line, out], self.step_down[:, place]),
        )
        slopes = [(f - self.f0[out]) / h for f, h in sides]
        return np.asarray(
            np.any([np.abs(s[-1] - s[-2]) <= SETTLED * np.abs(s[-1]) for s in slopes], 0)
        )

    def strays(self, outs: slice, sigma: Array) -> Mask:
        """Elements [n, outs] off the pattern that move all the same, beyond the noise of f: the
        structure is wrong."""
        in_pattern = self.bundle.in_pattern[:, outs]
        if in_pattern.all():
            return np.zeros_like(in_pattern)
        f0 = self.f0[outs]
        off = np.fmax(np.abs(self.up[:, :, outs] - f0), np.abs(self.down[:, :, outs] - f0)).max(0)
        return np.asarray(~in_pattern & (off > STRAY * sigma[outs]))


def quick_samples(
    point: Point, bundle: Bundle, rungs: Sequence[int] = QUICK, above: bool = False
) -> QuickSamples:
    """Two forward calls a line and rung; one where only the samples `above` x are taken, with f(x)
    below."""
    if bundle.grouped:
        return _of_groups(point, bundle, rungs, above)
    n, m = len(bundle.lines), len(point.f0)
    up, down = np.full((2, len(rungs), n, m), np.nan)
    step_up, step_down = np.empty((2, len(rungs), n))
    for i, line in enumerate(bundle.lines):
        for r, k in enumerate(rungs):
            samples = one_side(line, k, point.f0) if above else sample_rung(line, k)
            if samples is None:
                step_up[r, i] = step_down[r, i] = step(1.0, k) * line.size
            else:
                up[r, i], down[r, i], step_up[r, i], step_down[r, i] = samples
    return QuickSamples(bundle, up, down, step_up, step_down, np.arange(n)[:, None], point.f0)


def _of_groups(point: Point, bundle: Bundle, rungs: Sequence[int], above: bool) -> QuickSamples:
    """Of lines that share no column and move theirs alike: steps are kept by column, and a last one
    for outputs off the pattern."""
    n, m, c, r = len(bundle.lines), len(point.f0), len(point.columns), len(rungs)
    t = np.array(
        [sign * step(1.0, k) for sign in ((1.0,) if above else (1.0, -1.0)) for k in rungs]
    )
    f, change, first = np.empty((len(t), n, m)), np.empty((len(t), c + 1)), 0
    change[:, c] = t
    columns, lines = bundle.columns, [line for line in bundle.lines if isinstance(line, GroupLine)]
    moved = in_a_row(columns) if n == 1 else columns  # those of several lines are not in order
    to, change[:, moved], stuck = steps(
        point, columns, point.columns.x[moved], lines[0].move[moved], t
    )
    for i, line in enumerate(lines):
        span = slice(first, first + len(line.columns))
        for k in range(len(t)):
            f[k, i] = line.values(
                to[k, span], stuck if stuck is None else stuck[k, span], lent=True
            )
        first = span.stop
    place = (
        bundle.column_of
        if bundle.in_pattern.all()
        else np.where(bundle.in_pattern, bundle.column_of, c)
    )
    if above:
        return QuickSamples(
            bundle,
            f,
            np.broadcast_to(point.f0, f.shape),
            change,
            np.zeros_like(change),
            place,
            point.f0,
        )
    return QuickSamples(bundle, f[:r], f[r:], change[:r], -change[r:], place, point.f0)


def linear_derivatives(s: QuickSamples, run: Run, cells: Cells) -> Derivative:
    """Derivatives [E] where f is linear: the wider the step, the better."""
    up, down, step_up, step_down = s.at(0, cells.line, cells.out)
    f0, sigma, unit = (
        values.take(cells.out) for values in (s.f0, run.survey.sigma, run.point.unit)
    )
    rounding_of_x = (
        None if run.point.columns.rounded else np.abs(run.point.columns.x.take(cells.column))
    )
    found = secant(up, down, step_up + step_down, f0, sigma, unit, rounding_of_x)
    bad, nothing, nan = (
        ~(np.isfinite(up) & np.isfinite(down)),
        np.zeros(len(cells), bool),
        np.full(len(cells), np.nan),
    )
    value, bar, outcome = (
        np.where(bad, 0.0, found.value),
        np.where(bad, np.inf, found.bar),
        np.full(len(cells), SMOOTH, np.int8),
    )
    infinite = np.full(len(cells), np.inf)
    return Derivative(
        value,
        bar,
        outcome,
        found.noise,
        nan,
        nan.copy(),
        infinite,
        infinite.copy(),
        nan.copy(),
        infinite.copy(),
        nothing,
        nothing.copy(),
        bad,
        (up == f0) & (down == f0),
        nothing.copy(),
    )


def plain_derivatives(s: QuickSamples, run: Run, cells: Cells) -> tuple[Derivative, Index]:
    """Derivatives [E] where nothing is hard, and which of the elements are: theirs are void."""
    sigma, unit = run.survey.sigma, run.point.unit
    parts = list(_pieces(s, sigma, unit, cells))
    easy = parts[0]
    if len(parts) > 1:
        easy = SmoothEstimate(
            *(
                np.concatenate([getattr(p, name).ravel() for p in parts])
                for name in ("value", "bar", "noise", "smooth")
            )
        )
    hard, low = ~easy.smooth.ravel(), unit > LOW_UNIT
    if low.any() and not run.point.columns.rounded:
        hard |= low[cells.out]
    return as_derivative(easy), np.flatnonzero(hard)


def _pieces(s: QuickSamples, sigma: Array, unit: Array, cells: Cells) -> Iterator[SmoothEstimate]:
    """What is plain, some elements at a time."""
    for part in (
        slice(first, first + PLAIN_PIECE) for first in range(0, len(cells), PLAIN_PIECE) or [0]
    ):
        i, j = cells.line[part], cells.out[part]
        width = s.width.take(s.place[i, j if s.bundle.grouped else 0], 1)
        yield smooth_estimate(s.up[:, i, j], s.down[:, i, j], width, s.f0[j], sigma[j], unit[j])


# ---- Elements measured at every step, each by moving its column alone
class LoneLadders:
    """Elements (column, output) [E] in any order, the column of each on a line of its own, at every
    step: 48 forward calls a column.

    Outputs that only move beyond the column's own scale (`Survey.wide`) are measured by steps of at
    least unit scale.
    """

    def __init__(self, run: Run, column: Index, out: Index) -> None:
        self.run = run
        wide = run.survey.wide[run.point.columns.tensor[column], out]
        order = np.lexsort((out, column, wide))
        parts = np.split(order, [np.count_nonzero(~wide)])
        self._place = np.argsort(order)
        self._parts = [
            self._ladders(column[i], out[i], is_wide)
            for i, is_wide in zip(parts, (False, True), strict=True)
            if i.size
        ]

    def _ladders(self, column: Index, out: Index, wide: bool) -> Ladders:
        columns, line = np.unique(column, return_inverse=True)
        return Ladders(
            lone_columns(self.run.point, columns, wide).lines,
            self.run.outputs(),
            Elements(line, out),
        )

    def derivative(self, noise: Array | None = None) -> Derivative:
        """Of the elements, as they were asked; under this `noise` [M] of the outputs in place of
        what was measured."""
        parts = self._parts if noise is None else [ladders.under(noise) for ladders in self._parts]
        return joined(ladders.every_rung() for ladders in parts).take(self._place)
