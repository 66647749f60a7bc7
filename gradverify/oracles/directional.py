"""One derivative along one random direction: ⟨v, J d⟩ by finite differences against ⟨Jᵀv, d⟩ by backward.

A screen: what it flags is judged by element. Three forward calls and one backward where the two agree, four more where only three steps show it. What
does not agree climbs the whole ladder, with measured noise, and without the outputs whose derivative is then not told within the tolerance.
"""

from __future__ import annotations

from enum import Enum

import numpy as np
import torch

from gradverify.numerics.estimate.ladder import Derivative
from gradverify.numerics.function.coordinates import columns_of
from gradverify.numerics.function.point import Point
from gradverify.numerics.rungs import Array, Mask
from gradverify.numerics.seed_vectors import cotangent, signed_tensor
from gradverify.oracles.along import Along, direction
from gradverify.oracles.finite_difference import Filled, Gives, Wishes

ROUNDINGS = 64.0        # of ‖v‖‖f‖, the natural size of both sides: what backward may round


class Screen(Enum):
    """What a direction said."""

    AGREES = "the two agree within the tolerance"
    DIFFERS = "the two differ by more than the tolerance and the error bar"
    NON_FINITE = "the forward is not finite, or constant where the backward is not finite"
    CONSTANT = "the forward is constant where the two differ"
    OPEN = "the finite difference along the direction has too wide an error bar"


def screened(function: Gives, wishes: Wishes, source: torch.Generator, rtol: float, infinite: int = 0,
             invented: bool = False) -> Screen:
    """Backward against finite differences along one random signed direction. Raises UserCodeError where forward or backward does.

    The direction keeps the symmetry of symmetric inputs, and the zeros of inputs that have other numbers too. `infinite`: how many numbers of
    the outputs are not finite by right (masks of −inf); they are left out. `invented`: the point may lie where f is not meant to be called, so that
    outputs which no step moves are judged apart.
    """
    along = Along(Filled(function), columns_of(function.inputs, wishes.domains, wishes.symmetric, wishes.specified))
    point = along.point
    if np.sum(~np.isfinite(point.f0)) > infinite:
        return Screen.NON_FINITE
    moved = direction(along.columns, source, zeros=False)
    if not moved.any() or not len(point.f0):
        return Screen.OPEN
    v = np.where(np.isfinite(point.f0), signed_tensor((len(point.f0),), source).numpy(), 0.0)
    guess = along.guess(moved)
    with np.errstate(all="ignore"):
        analytic = _analytic(point, moved, v)
        if _close(guess, v, analytic, point, rtol, guessed=True) or _close(along.at_rounding(moved), v, analytic, point, rtol):
            return Screen.AGREES
        full = along.thorough(moved)
        v = np.where(_told(full, rtol, _typical(full)), v, 0.0)
        if not v.any():
            return Screen.OPEN
        if _close(full, v, _analytic(point, moved, v), point, rtol):
            return Screen.AGREES
        if not invented or not full.unchanged.any():
            return Screen.DIFFERS
        v = np.where(full.unchanged, 0.0, v)
        analytic = _analytic(point, moved, v)
        if not np.isfinite(analytic):
            return Screen.NON_FINITE
        return Screen.CONSTANT if _close(full, v, analytic, point, rtol) else Screen.DIFFERS


def _analytic(point: Point, moved: Array, v: Array) -> float:
    """⟨Jᵀv, d⟩ by one backward."""
    own = moved != 0
    gradients = point.function.vjp([cotangent(point, n, v[part]) for n, part in enumerate(point.parts)])
    return float(point.by_column(gradients)[own] @ moved[own])


def _typical(d: Derivative) -> float:
    """The size of the derivatives along the direction: their root mean square."""
    finite = d.value[np.isfinite(d.value)]
    return float(np.sqrt(np.mean(finite**2))) if finite.size else 0.0


def _told(d: Derivative, rtol: float, typical: float) -> Mask:
    """Outputs [M] with one smooth derivative, within the tolerance of its own size or of the typical one."""
    return np.asarray(d.smooth & ~d.unclear & np.isnan(d.second) & (d.bar <= rtol * np.maximum(np.abs(d.value), typical)))


def _close(d: Derivative, v: Array, analytic: float, point: Point, rtol: float, guessed: bool = False) -> bool:
    """Do both sides agree within rtol of what their terms add up to, the bars and the rounding of backward? `guessed`: wherever in the bars it is."""
    used = v != 0
    terms, weight = v[used] * d.value[used], np.abs(v[used])
    size = np.linalg.norm(v) * np.linalg.norm(np.where(used, point.f0, 0.0))
    bars = float(weight @ d.bar[used]) if np.isfinite(d.bar[used]).all() and not d.unclear[used].any() else 0.0
    unit = max(float(point.unit.max(initial=0.0)), point.backward_unit)
    allowed = rtol * float(np.abs(terms).sum()) + (-bars if guessed else bars) + ROUNDINGS * unit * float(size)
    return bool(abs(float(terms.sum()) - analytic) <= allowed)
