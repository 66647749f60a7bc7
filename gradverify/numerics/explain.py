"""One element of a Jacobian as `gradverify explain` shows it: its verdict in the check, together
with the finite differences at every step.

The verdict is that of the check. The rungs are sampled for display and decide nothing. An element
that the check did not judge individually, as one of a row that was compared as a sum, is confirmed
as the check confirms suspected elements.
"""

from __future__ import annotations

import math
from typing import Unpack

import numpy as np

from gradverify.model.element import (
    Chosen,
    Decision,
    FixedStep,
    Measured,
    Reading,
    Rung,
    Sides,
    Tolerance,
    Truncation,
)
from gradverify.model.result import Outcome
from gradverify.numerics.entries import climber, column_at, pair_of_one
from gradverify.numerics.estimate.ladder import (
    KINK,
    ORDERS,
    SMOOTH,
    Best,
    Derivative,
    borders,
    pick,
    readings,
    table,
    with_tail_noise,
)
from gradverify.numerics.estimate.samples import Samples
from gradverify.numerics.excuses.insensitive import with_insensitive
from gradverify.numerics.function.point import Function
from gradverify.numerics.judging import Judged, no_limits
from gradverify.numerics.pairs.pair import ElementRecord, Requested
from gradverify.numerics.prepare import Settings, prepare
from gradverify.numerics.rungs import RATIO, Array, Z, finite_size
from gradverify.numerics.tolerance import Tolerances, verdicts
from gradverify.numerics.verdict import Limit

SLOPES = (
    # Number of rungs, the finest that noise does not hide, that determine how fast the quotient's
    # error falls
    4
)
# Powers of the step below this are no truncation error: at a kink or a jump the error does not fall
FALLS = 0.5
# By the codes of `pair.Outcome`
NAMES: tuple[Outcome, ...] = (
    "pass",
    "kink",
    "undecided",
    "staircase",
    "jump",
    "non_finite",
    "mismatch",
)
# The decisions for outcomes; "undecided" for all others
VERDICTS: dict[Outcome, Decision] = {
    "pass": "pass",
    "kink": "pass",
    "mismatch": "mismatch",
}


def measure(
    function: Function,
    requested: Requested,
    *,
    checked: ElementRecord | None = None,
    **settings: Unpack[Settings],
) -> Measured:
    """Measure one element on every rung.

    `checked`: its record in the check; None: the element is confirmed individually. Raises
    ValueError where it has no column of its own (`symmetric`).
    """
    prepared = prepare(function, grouped=False, **settings)
    column = column_at(prepared.point, requested.input, requested.input_index) if prepared else None
    if prepared is None or column is None:
        raise ValueError("this coordinate moves with its mirror image only")
    if checked is None:
        [pair] = with_insensitive(prepared, [pair_of_one(prepared, requested)])
        checked = pair.requested
    assert checked is not None
    run = prepared.fresh()
    point = prepared.point
    a = np.array([checked.analytic])
    columns = np.array([column])
    outs = np.array([point.parts[requested.output].start + requested.output_index])
    tolerances = Tolerances(
        prepared.atol, run.rtols()[outs], np.array([checked.floor]), np.zeros(1, bool)
    )
    with np.errstate(all="ignore"):  # climbs as in a check, and then every rung, settled or not
        climb = climber(run, columns, outs, lambda _, d: verdicts(a, d, tolerances))
        climb.run()
        climb.every_rung(np.arange(1))
        s = climb.ladders.samples(np.arange(1), climb.ladders.known)
        d = climb.derivative
        by_rungs = Judged(columns, outs, a, d, tolerances, verdicts(a, d, tolerances), no_limits(1))
        same = int(by_rungs.outcome[0]) == checked.outcome
        value = float(d.value[0])
        bar = float(d.bar[0])
        numeric = value if same else checked.numeric
        outcome = NAMES[checked.outcome]
        limit = checked.limit if outcome not in VERDICTS else Limit.NONE
        if np.isinf(s.f0[0]) and s.still.all():
            limit = Limit.MASKED
        size = finite_size(np.array([checked.analytic, numeric])).max()
        left = Reading(float(d.left[0]) + 0.0, float(d.left_bar[0]))
        right = Reading(float(d.right[0]) + 0.0, float(d.right_bar[0]))
        kink = d.outcome[0] == KINK and (same or checked.at_kink)
        second = Reading(float(d.second[0]), float(d.second_bar[0]))
        rungs, chosen, truncation = _shown(s, d)
        return Measured(
            x=float(point.columns.x[column]),
            f=float(point.f0[outs[0]]),
            analytic=checked.analytic,
            numeric=numeric,
            bar=bar if same else checked.bar,
            tolerance=Tolerance(
                checked.tolerance, run.atol, float(tolerances.rtol[0]), float(size), checked.floor
            ),
            sigma=float(s.sigma[0]),
            unit=float(s.unit[0]),
            verdict=VERDICTS.get(outcome, "undecided"),
            outcome=outcome,
            limit=limit.value if limit is not Limit.NONE else None,
            sides=Sides(left, right) if kink else None,
            second=second if same and math.isfinite(second.value) else None,
            chosen=chosen if same or abs(numeric - value) <= bar else None,
            truncation=truncation,
            rungs=rungs,
            forward=point.forward,
            backward=point.backward,
        )


def fixed_step(checked: ElementRecord | None, eps: float, *, atol: float, rtol: float) -> FixedStep:
    """Return gradcheck's verdict, from the element's record in the check under this step; None: f
    is the same infinity there, and the element is left out."""
    if checked is None:
        return FixedStep(eps, math.nan, atol, rtol, math.nan, "non_finite")
    return FixedStep(eps, checked.numeric, atol, rtol, checked.tolerance, NAMES[checked.outcome])


def _shown(s: Samples, d: Derivative) -> tuple[tuple[Rung, ...], Chosen | None, Truncation | None]:
    """Return the samples of one element [n, 1] for display, and the source of its numeric value."""
    quotient, noise, *_ = readings(s)
    best, noise = with_tail_noise(s, quotient, noise, pick(quotient, s.h, noise, True))
    big = float(s.largest[0])
    _, bars, noises = table(s.quotient, s.h, noise)
    # + 0.0 avoids a slope of −0
    left = (s.f0 - s.down) / s.step_down + 0.0
    right = (s.up - s.f0) / s.step_up
    parts = (s.h, s.quotient * big, bars[0] * big, noises[0] / Z * big, left, right)
    rungs = tuple(Rung(*(float(part[k, 0]) for part in parts)) for k in range(len(s.h)))
    return rungs, _chosen(s, d, best, table(quotient, s.h, noise)[0]), _truncation(s, noise)


def _chosen(s: Samples, d: Derivative, best: Best, values: Array) -> Chosen | None:
    """Return the chosen entry of the table [orders, n, 1]; None where there is none: at a kink, a
    jump, or where no two agree."""
    if d.at_border[0]:
        return next((Chosen(int(one_sided.rung[0]), 0) for _, one_sided in borders(s)), None)
    if s.unchanged[0]:
        width = float(s.rests_within[0])
        return Chosen(int(np.argmax(s.h[:, 0] == width)), 0) if width > 0 else None
    rung = int(best.rung[0])
    if d.outcome[0] != SMOOTH or rung < 0:
        return None
    return Chosen(rung, next((j for j in range(ORDERS) if values[j, rung, 0] == best.value[0]), 0))


def _truncation(s: Samples, noise: Array) -> Truncation | None:
    """Return the truncation error from the finest rungs whose quotients differ beyond noise; None
    where the differences do not fall."""
    h, change = s.h[:, 0], np.abs(np.diff(s.quotient[:, 0]))
    beyond = change > Z * (noise[:, 0] / h)[1:]
    # The first rung that noise hides
    last = int(np.argmin(beyond)) if not beyond.all() else len(beyond)
    fine = change[max(0, last - SLOPES) : last]
    if len(fine) < SLOPES - 1:
        return None
    power = float(np.median(np.log(fine[:-1] / fine[1:]))) / math.log(RATIO)
    if not FALLS < power < math.inf:
        return None
    steps = h[last - len(fine) : last + 1] ** power
    return Truncation(
        power, float(np.median(fine / (steps[:-1] - steps[1:]))) * float(s.largest[0])
    )
