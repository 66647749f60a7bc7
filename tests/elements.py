"""Elements built by hand: ladders from closed forms in plain arithmetic, so that what is shown is
the same on every machine."""

import math
from dataclasses import replace

from gradverify.model.element import (
    Chosen,
    Element,
    FixedStep,
    Measured,
    Place,
    Reading,
    Rung,
    Sides,
    Tolerance,
    Truncation,
)
from gradverify.model.result import FunctionInfo

STEPS = tuple(0.23 / 3.6**k for k in range(24))
UNIT = 2.0**-53
PATTERN = (0.8, -1.4, 0.3, 1.9, -0.6, -1.1, 1.2)  # standard deviations of what passes for noise


def ladder(slope, curve=0.0, noise=UNIT, left=None, right=None):
    """slope + curve · step², with noise / step on it; `left`, `right`: slopes of the sides, where
    they differ."""
    rungs = []
    for k, step in enumerate(STEPS):
        deviation = noise / step / math.sqrt(2)
        quotient = slope + curve * step * step + PATTERN[k % 7] * deviation
        before = rungs[-1].quotient if rungs else math.nan
        bar = abs(quotient - before) + 6 * deviation if rungs else math.inf
        rungs.append(
            Rung(
                step,
                quotient,
                bar,
                deviation,
                quotient if left is None else left,
                quotient if right is None else right,
            )
        )
    return tuple(rungs)


def element(name="swish", **changes):
    """A smooth element that is right."""
    measured = dict(
        x=0.75,
        f=0.625,
        analytic=0.5,
        numeric=0.5 + 3e-14,
        bar=4.1e-13,
        tolerance=Tolerance(5e-7, 0.0, 1e-6, 0.5, 6.1e-13),
        sigma=UNIT / 4,
        unit=UNIT,
        verdict="pass",
        outcome="pass",
        limit=None,
        sides=None,
        second=None,
        chosen=Chosen(4, 2),
        truncation=Truncation(2.0, 0.11),
        rungs=ladder(0.5, -0.11),
        forward=61,
        backward=6,
    )
    own = {
        field: changes.pop(field)
        for field in list(changes)
        if field in Measured.__dataclass_fields__
    }
    values = dict(
        id=f"specs/ops.yaml::{name}",
        name=name,
        spec="specs/ops.yaml:12",
        function=FunctionInfo("my_ops.act:Swish"),
        device="cpu",
        dtype="float64",
        input=Place("x", (3, 1)),
        output=Place("y0", (2,)),
        measured=Measured(**{**measured, **own}),
        conclusion="right: within 5e-07 of the finite difference, whose bar is 4.1e-13",
    )
    return Element(**{**values, **changes})


def wrong():
    return element(
        "wrong",
        analytic=0.475,
        verdict="mismatch",
        outcome="mismatch",
        conclusion="wrong: 0.025 away from a finite difference that is known to 4.1e-13; that is 5e+04 "
        "times the tolerance",
    )


def kink():
    sides = Sides(Reading(0.25, 1e-15), Reading(1.0, 2e-15))
    return element(
        "kink",
        x=0.0,
        f=0.0,
        analytic=0.25,
        numeric=0.625,
        bar=math.inf,
        outcome="kink",
        sides=sides,
        chosen=None,
        truncation=None,
        rungs=ladder(0.625, noise=0.0, left=0.25, right=1.0),
        input=Place("x", ()),
        output=Place("y0", ()),
        conclusion="f has a kink here, with slope 0.25 on the left and 1 on the right: 0.25 lies between "
        "them",
    )


def staircase():
    limit = "f moves in steps: the steps and the trend above them have different derivatives"
    rungs = tuple(
        replace(rung, quotient=0.0, left=0.0, right=0.0) if rung.step < 5e-4 else rung
        for rung in ladder(1.0, noise=2e-4)
    )
    return element(
        "staircase",
        analytic=1.0,
        numeric=0.998,
        bar=0.031,
        verdict="undecided",
        outcome="staircase",
        limit=limit,
        tolerance=Tolerance(1e-6, 0.0, 1e-6, 1.0, 6.2e-13),
        second=Reading(0.0, 1.2e-12),
        chosen=Chosen(1, 0),
        truncation=None,
        rungs=rungs,
        conclusion=f"neither right nor wrong: {limit}",
    )


def noisy():
    limit = (
        "the forward's own noise is larger than the tolerance: compute in float64 inside, or give "
        "`rtol`"
    )
    return element(
        "noisy",
        numeric=0.4999996,
        bar=3.1e-6,
        verdict="undecided",
        outcome="undecided",
        limit=limit,
        sigma=1e-8,
        chosen=Chosen(2, 3),
        rungs=ladder(0.5, -0.11, noise=1e-8),
        conclusion=f"neither right nor wrong: {limit}",
        in_check="in the whole check this element is mismatch",
        notes=("no element was named: this is the worst of the check",),
    )


def at_a_fixed_step():
    return element(
        "fixed",
        fixed=FixedStep(0.1, 0.4989, 1e-5, 1e-3, 5.089e-4, "mismatch"),
        pair=Place("x", (1, 3)),
        input=Place("x", (1, 3), "im"),
        conclusion="torch.autograd.gradcheck's rule rejects this element at eps 0.1; under `eps: auto`: "
        "right",
    )


def everything():
    return (element(), wrong(), kink(), staircase(), noisy(), at_a_fixed_step())
