"""Derivatives along a probe: of single outputs, or of weighted sums of how far the outputs moved, each with its error bar."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradverify.numerics.estimate.ladder import solve
from gradverify.numerics.estimate.samples import Samples
from gradverify.numerics.estimate.smooth import secant
from gradverify.numerics.records import Record
from gradverify.numerics.rungs import QUICK, RATIO, WIDE_RUNG, Array, Mask
from gradverify.numerics.seed_vectors import WEIGHTS

FINER = ((7, 8, 9), (9, 10, 11))  # rungs that open lines see next: kinks and curvature are smaller there ...
COARSER = ((0, 1, 2, 3), (-2, -1, 0), (-5, -4, -3), (-8, -7, -6))  # ... and noise is here; those above the scale up to 1
LINEAR = (WIDE_RUNG,)  # of a linear function
LOW_START, LOW_FINER = (2, 3, 4), (QUICK, FINER[0])  # rounding to float32 drowns the usual ones
DROWNS = RATIO**-2  # of a bar: noise larger than this makes it wider on finer rungs

Stage = tuple[int, ...]


@dataclass(frozen=True)
class ProbeDerivative(Record):
    """Derivatives along t of m elements, value ± bar; `clear`: the rungs agree and show no kink; `noisy`: finer rungs would widen the bar."""

    value: Array
    bar: Array
    clear: Mask
    noisy: Mask


def probe_derivative(s: Samples) -> ProbeDerivative:
    """The derivative of every element from three rungs, 0 ± 0 where f is bitwise unchanged; from a single one as if f were linear."""
    if len(s.up) == 1:
        return _linear(s)
    d = solve(s, False)
    finite, clear = np.isfinite(d.bar), ~d.unclear
    noisy = finite & (d.noise_bar > DROWNS * d.bar)
    if d.rough:
        clear, noisy = clear & d.smooth, noisy & d.smooth
    if d.resting:
        return ProbeDerivative(d.value, np.where(d.unchanged, 0.0, d.bar), clear & (finite | d.unchanged), noisy)
    return ProbeDerivative(d.value, d.bar, clear & finite, noisy)


def _linear(s: Samples) -> ProbeDerivative:
    """A single rung shows no curvature: the error is noise alone."""
    up, down = s.up[0], s.down[0]
    found = secant(up, down, s.width[0], s.f0, s.sigma, s.unit, s.magnitude if s.rounds_x else None)
    bar = np.where((up == s.f0) & (down == s.f0), 0.0, found.bar)
    return ProbeDerivative(found.value, bar, np.isfinite(bar) & np.isfinite(found.value), np.zeros(len(bar), bool))


def derivative_of_sums(up: Array, down: Array, h: Array, sigma: Array, unit: float, rounds_x: bool) -> ProbeDerivative:
    """Of sums of changes of f [rungs, m] at nominal steps [rungs]: f(x) is 0, so the rounding of f must be in `sigma` [m]."""
    m = up.shape[1]
    steps, zero, one = np.broadcast_to(h[:, None], up.shape), np.zeros(m), np.ones(m)
    return probe_derivative(Samples(up, down, steps, steps, zero, sigma, zero + unit, one / WEIGHTS[0], one, rounds_x))


# ---- steps
@dataclass(frozen=True)
class Schedule:
    """The rungs to begin with, and those for lines that stay open: limited by noise, or by anything else.

    Not `sure`: what the first rungs call off is measured again as well, because they rest on an assumption.
    """

    start: Stage
    coarser: tuple[Stage, ...]
    finer: tuple[Stage, ...]
    sure: bool = True


def reachable(scale: Array, size: Array, rungs: Stage) -> Mask:
    """Scales whose coarsest rung stays within the typical size of the tensor, or 1: beyond, f may be another function."""
    return np.asarray((rungs[0] > 0) | (scale * RATIO ** -rungs[0] <= np.maximum(size, 1.0)))
