"""One element of a Jacobian as `gradverify explain` shows it: its verdict in the check, beside the finite differences at every step.

The verdict is the check's. The rungs are sampled to be looked at and decide nothing; an element that the check did not judge by itself, as one
of a row that was compared as a sum, is confirmed as the check confirms what it suspects.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from gradverify.model.element import Chosen, Decision, FixedStep, Measured, Reading, Rung, Sides, Tolerance, Truncation
from gradverify.model.result import Outcome
from gradverify.numerics.entries.confirm import climber, column_at, pair_of_one
from gradverify.numerics.estimate.climb import Ladders
from gradverify.numerics.estimate.kinks import KINK, SMOOTH, borders
from gradverify.numerics.estimate.ladder import Derivative
from gradverify.numerics.estimate.romberg import ORDERS, Best, pick, readings, table, with_tail_noise
from gradverify.numerics.estimate.samples import Line, Samples
from gradverify.numerics.excuses.insensitive import beside_insensitive
from gradverify.numerics.function.point import Function
from gradverify.numerics.judging.judged import Judged
from gradverify.numerics.pairs.pair import Asked, ElementRecord
from gradverify.numerics.prepare import Prepared, prepare
from gradverify.numerics.rungs import RATIO, RUNGS, Array, Codes, Z
from gradverify.numerics.seeds import Seed
from gradverify.numerics.tolerance import Tolerances, verdicts
from gradverify.numerics.verdict import Limit

TOP_RUNG = -RUNGS  # no climb above the scale goes further
SLOPES = 4  # rungs, the finest that noise does not hide, that tell how fast the quotient's error falls
FALLS = 0.5  # powers of the step below this are no truncation error: a kink or a jump does not fall
NAMES: tuple[Outcome, ...] = ("pass", "kink", "undecided", "staircase", "jump", "non_finite", "mismatch")  # by the codes of `tally.Outcome`
VERDICTS: dict[Outcome, Decision] = {"pass": "pass", "kink": "pass", "mismatch": "mismatch"}  # of the outcomes; "undecided" of the rest


@dataclass(frozen=True)
class Coordinate:
    """A real coordinate of a tensor: `tensor` is its place among inputs or outputs; re and im of one number are neighbours."""

    tensor: int
    coordinate: int


def asked_for(input_at: Coordinate, output_at: Coordinate) -> Asked:
    """The element by which a comparison knows it."""
    return Asked(input_at.tensor, output_at.tensor, input_at.coordinate, output_at.coordinate)


def measure(
    function: Function, input_at: Coordinate, output_at: Coordinate, *, checked: ElementRecord | None = None, atol: float = 0.0,
    rtol: float | None = None, domains: Sequence[tuple[float, float] | None] | None = None, symmetric: Sequence[bool] | None = None,
    specified: Sequence[Tensor | None] = (), seed: Seed = Seed(),
) -> Measured:
    """One element on every rung; tolerances, `domains` and `symmetric` as in `prepare`.

    `checked`: what came of it in the check; None: it is confirmed by itself. Raises ValueError where `input_at` has no column of its own
    (`symmetric`).
    """
    prepared = prepare(function, atol=atol, rtol=rtol, domains=domains, symmetric=symmetric, specified=specified, seed=seed,
                       grouped=False)
    column = column_at(prepared.point, input_at.tensor, input_at.coordinate) if prepared else None
    if prepared is None or column is None:
        raise ValueError("this coordinate moves with its mirror image only")
    if checked is None:
        [pair] = beside_insensitive(prepared, [pair_of_one(prepared, asked_for(input_at, output_at))])
        checked = pair.asked
    assert checked is not None
    with np.errstate(all="ignore"):
        return _Sampled(prepared, column, prepared.point.parts[output_at.tensor].start + output_at.coordinate, checked).measured()


def fixed_step(checked: ElementRecord | None, eps: float, *, atol: float, rtol: float) -> FixedStep:
    """gradcheck's verdict, as it came of the element in the check under this step; None: f is one and the same infinity there, which is left out."""
    if checked is None:
        return FixedStep(eps, math.nan, atol, rtol, math.nan, "non_finite")
    return FixedStep(eps, checked.numeric, atol, rtol, checked.tolerance, NAMES[checked.outcome])


class _Sampled:
    """One column and one output of a run on every rung, beside what came of them in the check."""

    def __init__(self, prepared: Prepared, column: int, out: int, checked: ElementRecord) -> None:
        self.run, self.column, self.out, self.checked = prepared.run(), np.array([column]), np.array([out]), checked
        self.a = np.array([checked.analytic])
        self.tolerances = Tolerances(prepared.atol, self.run.rtols()[self.out], np.array([checked.floor]), np.zeros(1, bool))

    def measured(self) -> Measured:
        samples, d = self._climbed()
        outcome, point, shown = NAMES[self.checked.outcome], self.run.point, _Shown(samples, d)
        same = self._outcome(d) == self.checked.outcome
        numeric, bar = (float(d.value[0]), float(d.bar[0])) if same else (self.checked.numeric, self.checked.bar)
        rests = same or abs(numeric - float(d.value[0])) <= float(d.bar[0])
        return Measured(
            x=float(point.columns.x[self.column[0]]), f=float(point.f0[self.out[0]]), analytic=self.checked.analytic, numeric=numeric, bar=bar,
            tolerance=self._tolerance(numeric), sigma=float(samples.sigma[0]), unit=float(samples.unit[0]),
            verdict=VERDICTS.get(outcome, "undecided"), outcome=outcome, limit=Limit.MASKED.value if shown.masked() else _limit(self.checked),
            sides=_sides(d) if same or self.checked.at_kink else None, second=_second(d) if same else None,
            chosen=shown.chosen() if rests else None, truncation=shown.truncation(), rungs=shown.rungs(), forward=point.forward,
            backward=point.backward)

    def _climbed(self) -> tuple[Samples, Derivative]:
        """As a check climbs, and then every rung, settled or not."""
        line, climb = climber(self.run, self.column, self.out, lambda _, d: self._verdict(d))
        climb.run()
        climb.every_rung(np.arange(1))
        return self._samples(climb.ladders, line), climb.derivative

    def _samples(self, ladders: Ladders, line: Line) -> Samples:
        up, down, step_up, step_down = np.stack([known for k in range(TOP_RUNG, RUNGS) if (known := _known(ladders, k)) is not None], 1)
        o = self.run.outputs()
        size, magnitude = (np.atleast_1d(np.asarray(x, float)) for x in (line.size, line.magnitude))
        return Samples(up, down, step_up, step_down, o.f0[self.out], o.sigma[self.out], o.unit()[self.out], magnitude, size, o.rounds_x)

    def _verdict(self, d: Derivative) -> Codes:
        return verdicts(self.a, d, self.tolerances)

    def _outcome(self, d: Derivative) -> int:
        """What the rungs alone would say under the tolerance of the check."""
        return int(Judged(self.column, self.out, self.a, d, self.tolerances, self._verdict(d), np.array([Limit.NONE], object)).outcome[0])

    def _tolerance(self, numeric: float) -> Tolerance:
        size = max((abs(number) for number in (self.checked.analytic, numeric) if math.isfinite(number)), default=0.0)
        return Tolerance(self.checked.tolerance, self.run.atol, float(self.tolerances.rtol[0]), size, self.checked.floor)


def _known(ladders: Ladders, k: int) -> Array | None:
    try:
        return ladders.known(k)
    except KeyError:
        return None


def _limit(checked: ElementRecord) -> str | None:
    return None if checked.limit is Limit.NONE or NAMES[checked.outcome] in VERDICTS else checked.limit.value


def _sides(d: Derivative) -> Sides | None:
    if d.outcome[0] != KINK:
        return None
    return Sides(Reading(float(d.left[0]) + 0.0, float(d.left_bar[0])), Reading(float(d.right[0]) + 0.0, float(d.right_bar[0])))


def _second(d: Derivative) -> Reading | None:
    return Reading(float(d.second[0]), float(d.second_bar[0])) if np.isfinite(d.second[0]) else None


class _Shown:
    """The samples of one element [n, 1] as they are shown, and where its numeric value comes from."""

    def __init__(self, samples: Samples, derivative: Derivative) -> None:
        self.s, self.d = samples, derivative
        quotient, noise, *_ = readings(samples)
        self.best, self.noise = with_tail_noise(samples, quotient, noise, pick(quotient, samples.h, noise, True))
        self.table = table(quotient, samples.h, self.noise)

    def rungs(self) -> tuple[Rung, ...]:
        s, big = self.s, float(self.s.largest[0])
        left, right = (s.f0 - s.down) / s.step_down + 0.0, (s.up - s.f0) / s.step_up  # + 0.0: no slope of −0
        t = table(s.quotient, s.h, self.noise)
        parts = (s.h, s.quotient * big, t.bar[0] * big, t.noise[0] / Z * big, left, right)
        return tuple(Rung(*(float(part[k, 0]) for part in parts)) for k in range(len(s.h)))

    def masked(self) -> bool:
        """Is f one and the same infinity on every rung?"""
        return bool(np.isinf(self.s.f0[0]) and (self.s.up == self.s.f0).all() and (self.s.down == self.s.f0).all())

    def chosen(self) -> Chosen | None:
        """None where no rung is: at a kink, a jump, or where no two agree."""
        if self.d.at_border[0]:
            return next((Chosen(int(best.rung[0]), 0) for _, best in borders(self.s)), None)
        if self.s.unchanged[0]:
            width = float(self.s.rests_within[0])
            return Chosen(int(np.argmax(self.s.h[:, 0] == width)), 0) if width > 0 else None
        if self.d.outcome[0] != SMOOTH or self.best.rung[0] < 0:
            return None
        return Chosen(int(self.best.rung[0]), self._order(self.best))

    def _order(self, best: Best) -> int:
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
        return Truncation(power, float(np.median(fine / (steps[:-1] - steps[1:]))) * float(self.s.largest[0]))
