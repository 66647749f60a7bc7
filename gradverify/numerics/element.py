"""One element of a Jacobian by itself: its column alone on every rung, and everything that its verdict rests on.

The verdict is that of `columns.dense` by the same parts (`verdicts`, `second_opinions`); the samples are kept to be looked at.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gradverify.model.element import Chosen, Decision, FixedStep, Measured, Reading, Rung, Sides, Tolerance, Truncation
from gradverify.model.result import Outcome
from gradverify.numerics.climb import Climb, Elements, Ladders
from gradverify.numerics.columns.bundle import lone
from gradverify.numerics.columns.opinions import second_opinions
from gradverify.numerics.columns.quick import QuickSamples, quick_samples
from gradverify.numerics.columns.run import Reach, Run
from gradverify.numerics.columns.survey import survey
from gradverify.numerics.columns.tally import Judged
from gradverify.numerics.compare import Limit, Verdict, limits, verdicts
from gradverify.numerics.kinks import Smoothness, borders
from gradverify.numerics.ladder import Derivative
from gradverify.numerics.lines import Line
from gradverify.numerics.point import Columns, Function, Point, columns_of
from gradverify.numerics.readings import readings, with_tail_noise
from gradverify.numerics.romberg import ORDERS, Choice, pick, table
from gradverify.numerics.rungs import QUICK, RATIO, RUNGS, Array, Codes, Index, Z
from gradverify.numerics.samples import Samples

ROWS = 1024  # of the output's tensor, at most, whose reach is looked up for the floor: one backward each
HIGHEST = -RUNGS  # no climb above the scale goes further
SLOPES = 4  # rungs, the finest that noise does not hide, that tell how fast the quotient's error falls
FALLS = 0.5  # powers of the step below this are no truncation error: a kink or a jump does not fall
MASKED = "f is one and the same infinity at every step: the element is left out of the comparison"
OUTCOMES: tuple[Outcome, ...] = ("pass", "kink", "undecided", "staircase", "jump", "non_finite", "mismatch")  # by the codes of `tally.Outcome`
DECISIONS: tuple[Decision, ...] = ("pass", "mismatch", "undecided")  # by the codes of `compare.Verdict`


@dataclass(frozen=True)
class Coordinate:
    """A real coordinate of a tensor: `tensor` is its place among inputs or outputs; re and im of one number are neighbours."""

    tensor: int
    coordinate: int


def column_of(columns: Columns, starts: Index, asked: Coordinate) -> int | None:
    """The column that moves this coordinate first; None where it only follows its mirror image."""
    found = np.flatnonzero(columns.coordinate == int(starts[asked.tensor]) + asked.coordinate)
    return int(found[0]) if found.size else None


def measure(
    function: Function, moved: Coordinate, seen: Coordinate, *, atol: float = 0.0, rtol: float | None = None,
    domains: Sequence[tuple[float, float] | None] | None = None, symmetric: Sequence[bool] | None = None,
    generator: np.random.Generator | None = None,
) -> Measured:
    """One element, by the rules of `check_entries` (which see). Raises ValueError where `moved` has no column of its own (`symmetric`)."""
    n = len(function.inputs)
    columns = columns_of(function.inputs, domains or [None] * n, symmetric or [False] * n)
    with np.errstate(all="ignore"):
        point = Point(function, columns)
        column = column_of(columns, point.starts, moved)
        if column is None:
            raise ValueError("this coordinate moves with its mirror image only")
        generator = generator or np.random.default_rng(0)
        run = Run(point, survey(point, generator), atol, rtol, Reach(point), generator)
        return _Alone(run, column, point.parts[seen.tensor].start + seen.coordinate, point.parts[seen.tensor]).measured()


def with_fixed_step(element: Measured, function: Function, moved: Coordinate, seen: Coordinate, eps: float, *, atol: float, rtol: float) -> Measured:
    """The same element with gradcheck's verdict at this step. The two parts of a complex input element are one number there."""
    columns = columns_of(function.inputs, [None] * len(function.inputs), [False] * len(function.inputs))
    with np.errstate(all="ignore"):
        point = Point(function, columns)
        own = int(point.starts[moved.tensor]) + moved.coordinate
        out = point.parts[seen.tensor].start + seen.coordinate
        first = own - own % 2 if function.inputs[moved.tensor].is_complex() else own
        both = range(first, first + (2 if function.inputs[moved.tensor].is_complex() else 1))
        row = point.row(out)
        ends = {c: [float(columns.cast(columns.x[[c]] + sign * eps, np.array([c]))[0]) for sign in (1.0, -1.0)] for c in both}
        quotient = {c: float(point.moved([c], [up])[out] - point.moved([c], [down])[out]) / (2 * eps) for c, (up, down) in ends.items()}
    tolerance = atol + rtol * math.hypot(*quotient.values())
    off = math.hypot(*(row[c] - quotient[c] for c in both))
    outcome: Outcome = "pass" if off <= tolerance else "mismatch"
    outcome = outcome if math.isfinite(quotient[own]) else "non_finite"
    outcome = "undecided" if columns.x[own] in ends[own] else outcome
    fixed = FixedStep(eps, quotient[own], atol, rtol, tolerance, outcome)
    return replace(element, fixed=fixed, forward=element.forward + point.forward, backward=element.backward + point.backward)


class _Alone:
    """One column and one output of a run."""

    def __init__(self, run: Run, column: int, out: int, part: slice) -> None:
        self.run, self.column, self.out, self.part = run, np.array([column]), np.array([out]), part
        self.wide = bool(run.survey.wide[run.point.columns.tensor[column], out])

    def measured(self) -> Measured:
        self.a = self._analytic()
        quick = quick_samples(self.run.point, lone(self.run.point, self.column))
        self._learn(quick)
        self._learn(quick_samples(self.run.point, lone(self.run.point, self.steepest)))
        line = lone(self.run.point, self.column, self.wide).lines[0]
        ladders, derivative = self._climbed(line, quick)
        border = quick.at_border[self.column] | ((derivative.outcome == Smoothness.NON_FINITE) & np.isfinite(self.run.point.f0[self.out]))
        judged = self._judged(derivative, border)
        samples = self._samples(ladders, line)
        shown = _Shown(samples, derivative)
        limit = MASKED if bool(quick.masked[0, self.out[0]]) else _sentence(judged)
        return Measured(
            x=float(self.run.point.columns.x[self.column[0]]), f=float(self.run.point.f0[self.out[0]]), analytic=float(self.a[0]),
            numeric=float(derivative.value[0]), bar=float(derivative.bar[0]), tolerance=self._tolerance(judged),
            sigma=float(samples.sigma[0]), unit=float(samples.unit[0]), verdict=DECISIONS[int(judged.verdict[0])],
            outcome=OUTCOMES[int(judged.outcome[0])], limit=limit, sides=_sides(derivative), second=_second(derivative), chosen=shown.chosen(),
            truncation=shown.truncation(), rungs=shown.rungs(), forward=self.run.point.forward, backward=self.run.point.backward)

    def _analytic(self) -> Array:
        """The element's own value; the rows of its tensor that a floor may depend on."""
        rows = range(self.part.start, self.part.stop) if self.part.stop - self.part.start <= ROWS else self.out.tolist()
        for j in rows:
            row = self.run.point.row(j)
            self.run.reach.add_row(j, row)
            if j == self.out[0]:
                own = row
        reach = np.nan_to_num(np.abs(own) * self.run.point.columns.scale, posinf=0.0)
        self.steepest = np.array([np.argmax(reach)])  # the column that should tell whether anything moves this output beyond rounding
        return np.asarray(own[self.column])

    def _learn(self, quick: QuickSamples) -> None:
        """How far the one column of these samples moves every output."""
        everything = np.arange(len(self.run.point.f0))
        ladders = Ladders(quick.bundle.lines, self.run.outputs(), Elements(np.zeros_like(everything), everything))
        self._put(ladders, quick, everything)
        d = ladders.solve(everything, QUICK, False)
        self.run.reach.add(quick.bundle.owner[0], everything, d.value, d.bar)

    @staticmethod
    def _put(ladders: Ladders, quick: QuickSamples, out: Index) -> None:
        for n, k in enumerate(QUICK):
            ladders.put(k, quick.at(n, np.zeros_like(out), out))

    def _climbed(self, line: Line, quick: QuickSamples) -> tuple[Ladders, Derivative]:
        """As a check climbs, and then every rung, settled or not."""
        ladders, one = Ladders([line], self.run.outputs(), Elements(np.zeros_like(self.out), self.out)), np.arange(1)
        if not self.wide:
            self._put(ladders, quick, self.out)
        asleep = self.run.survey.asleep[self.run.point.columns.tensor[self.column], self.out]
        first = ladders.solve(one, QUICK, False)
        first.unclear[:] |= asleep | self.wide
        climb = Climb(ladders, first, lambda i, d: self._verdict(d), asleep, np.zeros(1, bool))
        climb.run()
        climb.every_rung(one)
        self._verdict(climb.derivative)
        return ladders, climb.derivative

    def _verdict(self, d: Derivative, border: Array | None = None) -> Codes:
        self.run.reach.add(self.column, self.out, d.value, d.bar)
        at_border = d.at_border if border is None else border.astype(bool)
        return verdicts(self.a, d, self.run.bounds(self.column, self.out), at_border)

    def _judged(self, d: Derivative, border: Array) -> Judged:
        verdict = self._verdict(d, border)
        limit = np.array(limits(self.a, d) if verdict[0] == Verdict.UNDECIDED else [Limit.NONE], object)
        judged = Judged(self.column, self.out, self.a, d, self.run.bounds(self.column, self.out), verdict, limit)
        return second_opinions(self.run, judged, lambda _: border.astype(bool), lambda column, out: float(self.run.point.row(out)[column]))[0]

    def _samples(self, ladders: Ladders, line: Line) -> Samples:
        up, down, step_up, step_down = np.stack([known for k in range(HIGHEST, RUNGS) if (known := _known(ladders, k)) is not None], 1)
        o = self.run.outputs()
        size, magnitude = (np.atleast_1d(np.asarray(x, float)) for x in (line.size, line.magnitude))
        return Samples(up, down, step_up, step_down, o.f0[self.out], o.sigma[self.out], o.unit()[self.out], magnitude, size, o.rounds_x)

    def _tolerance(self, judged: Judged) -> Tolerance:
        value = float(judged.derivative.value[0])
        size = max((abs(number) for number in (float(self.a[0]), value) if math.isfinite(number)), default=0.0)
        tolerance = float(judged.bounds.tolerance(self.a, judged.derivative.value)[0])
        return Tolerance(tolerance, self.run.atol, float(judged.bounds.rtol[0]), size, float(judged.bounds.floor[0]))


def _known(ladders: Ladders, k: int) -> Array | None:
    try:
        return ladders.known(k)
    except KeyError:
        return None


def _sentence(judged: Judged) -> str | None:
    limit: Limit = judged.limit[0]
    return None if judged.verdict[0] != Verdict.UNDECIDED or limit is Limit.NONE else limit.value


def _sides(d: Derivative) -> Sides | None:
    if d.outcome[0] != Smoothness.KINK:
        return None
    return Sides(Reading(float(d.left[0]) + 0.0, float(d.left_bar[0])), Reading(float(d.right[0]) + 0.0, float(d.right_bar[0])))


def _second(d: Derivative) -> Reading | None:
    return Reading(float(d.second[0]), float(d.second_bar[0])) if np.isfinite(d.second[0]) else None


class _Shown:
    """The samples of one element [n, 1] as they are shown, and where its numeric value comes from."""

    def __init__(self, samples: Samples, derivative: Derivative) -> None:
        self.s, self.d = samples, derivative
        read = readings(samples)
        first = pick(read.quotient, samples.h, read.noise, True)
        self.best, self.noise = with_tail_noise(samples, read.quotient, read.noise, first)
        self.quotient = read.quotient
        self.table = table(read.quotient, samples.h, self.noise)

    def rungs(self) -> tuple[Rung, ...]:
        s, big = self.s, float(self.s.big[0])
        left, right = (s.f0 - s.down) / s.step_down + 0.0, (s.up - s.f0) / s.step_up  # + 0.0: no slope of −0
        t = table(s.quotient, s.h, self.noise)
        parts = (s.h, s.quotient * big, t.bar[0] * big, t.noise[0] / Z * big, left, right)
        return tuple(Rung(*(float(part[k, 0]) for part in parts)) for k in range(len(s.h)))

    def chosen(self) -> Chosen | None:
        """None where no rung is: at a kink, a jump, or where no two agree."""
        if self.d.at_border[0]:
            return next((Chosen(int(border.choice.rung[0]), 0) for border in borders(self.s)), None)
        if self.d.unchanged[0]:
            near = np.where(self.s.bad | self.s.far, -np.inf, self.s.h)[:, 0]
            return Chosen(int(np.argmax(near)), 0) if np.isfinite(near).any() else None
        if self.d.outcome[0] != Smoothness.SMOOTH or self.best.rung[0] < 0:
            return None
        return Chosen(int(self.best.rung[0]), self._order(self.best))

    def _order(self, best: Choice) -> int:
        entries = self.table.value[:, int(best.rung[0]), 0]
        return next((j for j in range(ORDERS) if entries[j] == best.value[0]), 0)

    def truncation(self) -> Truncation | None:
        """From the finest rungs whose quotients differ beyond noise; None where they do not fall."""
        h, q = self.s.h[:, 0], self.s.quotient[:, 0]
        change = np.abs(np.diff(q))
        beyond = change > Z * (self.noise[:, 0] / h)[1:]
        last = int(np.argmin(beyond)) if not beyond.all() else len(beyond)  # the first rung that noise hides
        fine = change[max(0, last - SLOPES) : last]
        if len(fine) < SLOPES - 1:
            return None
        power = float(np.median(np.log(fine[:-1] / fine[1:]))) / math.log(RATIO)
        if not FALLS < power < math.inf:
            return None
        steps = h[last - len(fine) : last + 1] ** power
        return Truncation(power, float(np.median(fine / (steps[:-1] - steps[1:]))) * float(self.s.big[0]))

