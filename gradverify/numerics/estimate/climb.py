"""Adaptive step selection: every derivative gets coarser steps where noise limits it and finer ones
elsewhere, until its error suffices.

Noise-limited elements get coarser rungs, also above the scale; the others finer ones; what three
such steps leave climbs every rung. (All rungs at once: 41 calls a column instead of 7, and more
undecided.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import dataclass, replace

import numpy as np

from gradverify.numerics.estimate.ladder import JUMP, KINK, SMOOTH, Derivative, solve
from gradverify.numerics.estimate.samples import Line, Samples, sample_rung
from gradverify.numerics.rungs import CLIMB, QUICK, RUNGS, Array, Codes, Index, Mask, step
from gradverify.numerics.verdict import MISMATCH, PASS, UNDECIDED

# Then every rung; where noise limits, coarser rungs go on: half as many undecided
CLIMB_STEPS, NOISY_STEPS = 3, 7
# Of the bar is noise: a finer rung has 3.6 times as much, which is no less than the whole bar
# however well it converges
NOISE_SHARE = 0.25
FINEST = RUNGS - 1
EVERY_RUNG = 2 * RUNGS  # forward calls that every rung of one line takes

Judge = Callable[[Index, Derivative], Codes]
"""Verdicts of elements (indices, their derivatives): what is settled, and what is surely a
mismatch."""


@dataclass(frozen=True)
class Outputs:
    """What is known of the outputs: f(x), noise [M]; `unit()` their unit roundoff [M], read anew as
    values come in."""

    f0: Array
    sigma: Array
    unit: Callable[[], Array]
    rounds_x: bool


class Ladders:
    """The samples of a set of elements, pairs of a `line` and an output by index [E] in the order
    of the lines, taken once each: at most RUNGS + 21 rungs of up, down, two steps."""

    def __init__(self, lines: Sequence[Line], outputs: Outputs, line: Index, out: Index) -> None:
        self.lines, self.outputs, self.line, self.out = lines, outputs, line, out
        used, starts = np.unique(line, return_index=True)
        groups = np.split(np.arange(len(line)), starts[1:])
        self._members = {int(n): group for n, group in zip(used, groups, strict=False)}
        self._sampled: set[tuple[int, int]] = set()
        self._samples: dict[int, Array] = {}
        self._size, self._magnitude = np.empty((2, len(line)))
        self._lines = dict[int, Line]()
        for n, members in self._members.items():
            of = lines[n]
            self._lines[n] = of.of(out[members]) if hasattr(of, "of") else of
            self._size[members] = self._lines[n].size
            self._magnitude[members] = self._lines[n].magnitude

    def put(self, k: int, samples: Array) -> None:
        """Samples [4, E] (up, down, step up, step down) of rung k that are known already."""
        self._samples[k] = samples
        self._sampled.update((n, k) for n in self._members)

    def under(self, noise: Array) -> Ladders:
        """The same samples where f is known to have at least this noise [M]."""
        other = copy(self)
        other.outputs = replace(self.outputs, sigma=np.maximum(self.outputs.sigma, noise))
        return other

    @property
    def known(self) -> list[int]:
        """The rungs that were sampled, the coarsest first."""
        return sorted(self._samples)

    def samples(self, i: Index, rungs: Iterable[int]) -> Samples:
        """Elements i at these rungs, sampled where they were not yet."""
        lines, rungs = np.unique(self.line[i]).tolist(), list(rungs)
        for n in lines:  # line after line: where its columns lie is looked up once
            for k in rungs:
                self._sample(n, k)
        up, down, step_up, step_down = np.stack([self._samples[k][:, i] for k in rungs], 1)
        o, out = self.outputs, self.out[i]
        return Samples(
            up,
            down,
            step_up,
            step_down,
            o.f0[out],
            o.sigma[out],
            o.unit()[out],
            self._magnitude[i],
            self._size[i],
            o.rounds_x,
        )

    def solve(self, i: Index, rungs: Iterable[int], full: bool) -> Derivative:
        """Elements i from these rungs."""
        return solve(self.samples(i, rungs), full)

    def every_rung(self) -> Derivative:
        """The derivatives of all elements from the whole sequence of steps."""
        return self.solve(np.arange(len(self.out)), range(RUNGS), True)

    def _sample(self, n: int, k: int) -> None:
        if (n, k) in self._sampled:
            return
        self._sampled.add((n, k))
        members = self._members[n]
        if k not in self._samples:
            self._samples[k] = np.full((4, len(self.line)), np.nan)
        row = self._samples[k]
        line = self._lines[n]
        samples = sample_rung(line, k)
        if samples is None:
            row[2:, members] = step(1.0, k) * self._size[members]
        else:
            shown = slice(None) if hasattr(line, "of") else self.out[members]
            row[0, members], row[1, members] = samples.up[shown], samples.down[shown]
            row[2, members], row[3, members] = samples.step_up, samples.step_down


class Climb:
    """Climbs one set of elements. `unmoved` [E]: the quick rungs do not move them, a coarse step
    does.

    After the `run`, `unconfirmed`: mismatches that only a part of the ladder has seen; `exhausted`:
    elements that have seen all of it [E].
    """

    def __init__(self, ladders: Ladders, quick: Derivative, judge: Judge, unmoved: Mask) -> None:
        self.ladders = ladders
        self.derivative = quick
        self._judge = judge
        self._unmoved = unmoved
        self._line, lines = ladders.line, len(ladders.lines)
        self._low, self._high = np.full(lines, QUICK[0]), np.full(lines, QUICK[-1])
        self.unconfirmed, self.exhausted = np.zeros((2, len(self._line)), bool)

    def run(self) -> Derivative:
        """The derivatives of all elements, each climbed until it is settled or has seen every rung
        it may."""
        left = self._left(np.arange(len(self._line)))
        for n in range(NOISY_STEPS):
            helped = left[~self.unconfirmed[left]]
            helped = helped if n < CLIMB_STEPS else helped[self._noisy(helped)]
            if not helped.size:
                break
            self._widen(helped, first=n == 0)
            left = self._left(left)
        self.every_rung(left[~self.unconfirmed[left]])
        return self.derivative

    def every_rung(self, i: Index) -> None:
        """Elements i from the whole ladder."""
        lines = np.unique(self._line[i])
        self._low[lines], self._high[lines] = np.minimum(self._low[lines], 0), FINEST
        self._solve(i)
        self.exhausted[i] = True

    def _left(self, i: Index) -> Index:
        """Those of elements i that are not settled; which of them are surely wrong is noted."""
        d = self.derivative.take(i)
        codes = self._judge(i, d)
        self.unconfirmed[i] = (codes == MISMATCH) & d.smooth & ~d.unclear & ~d.at_border
        open_ = ~settled(d, codes) | (self._unmoved[i] & (self._low[self._line[i]] >= QUICK[0]))
        self.unconfirmed[i[~open_]] = False
        return i[open_]

    def _widen(self, helped: Index, first: bool) -> None:
        """Elements from three rungs more: coarser where noise limits, finer elsewhere, all where f
        is rough."""
        noisy, unmoved = self._noisy(helped), self._unmoved[helped] & first
        coarser, finer = (
            np.unique(self._line[helped[some & ~unmoved]]) for some in (noisy, ~noisy)
        )
        self._low[coarser] -= CLIMB
        self._low[np.unique(self._line[helped[unmoved]])] = 0
        self._high[finer] = np.minimum(self._high[finer] + CLIMB, FINEST)
        outcome = self.derivative.outcome[helped]
        self._high[np.unique(self._line[helped[(outcome == KINK) | (outcome == JUMP)]])] = FINEST
        self._solve(helped)

    def _solve(self, i: Index) -> None:
        """Elements i again, those with the same range of rungs together."""
        low, high = self._low[self._line[i]], self._high[self._line[i]]
        for a, b in sorted(set(zip(low.tolist(), high.tolist(), strict=True))):
            same = i[(low == a) & (high == b)]
            self.derivative = self.derivative.replaced(
                same, self.ladders.solve(same, range(a, b + 1), b >= FINEST)
            )

    def _noisy(self, i: Index) -> Mask:
        d = self.derivative
        bar, smooth = d.bar[i], d.outcome[i] == SMOOTH
        return np.asarray(
            np.isfinite(bar) & (d.noise_bar[i] > NOISE_SHARE * bar) & smooth & ~d.unclear[i]
        )


def settled(d: Derivative, verdicts: Codes) -> Mask:
    """By the verdict, not by the size of the bar: that saves a quarter of the calls at the same
    verdicts."""
    right = ~d.unclear & (verdicts == PASS)
    return np.asarray(right & d.smooth if d.rough else right)


def derivative(
    line: Line,
    outputs: Outputs,
    *,
    rtol: float = 1e-6,
    atol: float | Array = 0.0,
    every_rung: bool = False,
) -> Derivative:
    """Derivatives [M] of all outputs along one line, refined until each bar is within atol +
    rtol·|value| or nothing more helps.

    `atol` may be [M]; inf: not asked for. `every_rung` climbs the whole ladder, as nothing that is
    to stand rests on quick rungs alone.
    """
    ladders = along_line(line, outputs)
    everything = np.arange(len(outputs.f0))
    wanted = np.broadcast_to(atol, everything.shape)

    def narrow(i: Index, d: Derivative) -> Codes:
        return np.where(~(d.bar > wanted[i] + rtol * np.abs(d.value)), PASS, UNDECIDED).astype(
            np.int8
        )

    with np.errstate(all="ignore"):
        if every_rung:
            return ladders.every_rung()
        return Climb(
            ladders,
            ladders.solve(everything, QUICK, False),
            narrow,
            np.zeros(len(everything), bool),
        ).run()


def along_line(line: Line, outputs: Outputs) -> Ladders:
    """All outputs [M] along one line."""
    everything = np.arange(len(outputs.f0))
    return Ladders([line], outputs, np.zeros_like(everything), everything)
