"""One derivative along one random direction: ⟨v, J d⟩ by finite differences against ⟨Jᵀv, d⟩ by backward.

A screen: what it flags is judged by element. Eight forward calls and one backward where the two agree. Only what does not agree climbs the whole
ladder, with measured noise, and without the outputs whose derivative is then not told within the tolerance.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np
import torch
from torch import Tensor

from gradverify.numerics.climb import Elements, Ladders, Outputs, derivative
from gradverify.numerics.ladder import Derivative
from gradverify.numerics.noise import Ray, noise_along, pooled, repeat_noise
from gradverify.numerics.point import Columns, Point, columns_of
from gradverify.numerics.point_lines import DirectionLine
from gradverify.numerics.rungs import QUICK, Array, Mask
from gradverify.oracles.finite_difference import Filled, Gives, Wishes
from gradverify.subject.draw import HIGH, LOW

ROUNDINGS = 64.0        # of ‖v‖‖f‖, the natural size of both sides: what backward may round


class Screen(Enum):
    """What a direction said."""

    AGREES = "the two agree within the tolerance"
    DIFFERS = "the two differ by more than the tolerance and the error bar"
    NON_FINITE = "the forward is not finite"
    OPEN = "the finite difference along the direction has too wide an error bar"


@dataclass(frozen=True)
class Direction:
    """Columns that move [k], and by how much for t = 1 [k]: signed, of each column's own size."""

    columns: np.ndarray[tuple[int, ...], np.dtype[np.intp]]
    along: Array


def screened(function: Gives, wishes: Wishes, source: torch.Generator, rtol: float, infinite: int = 0) -> Screen:
    """Backward against finite differences along one random signed direction. Raises UserCodeError where forward or backward does.

    The direction keeps the symmetry of symmetric inputs, and the zeros of inputs that have other numbers too. `infinite`: how many numbers of
    the outputs are not finite by right (masks of −inf); they are left out.
    """
    filled = Filled(function)
    columns = columns_of(function.inputs, wishes.domains, wishes.symmetric)
    point = Point(filled, columns)
    if np.sum(~np.isfinite(point.f0)) > infinite:
        return Screen.NON_FINITE
    direction = _direction(columns, source)
    if not len(direction.columns) or not len(point.f0):
        return Screen.OPEN
    v = np.where(np.isfinite(point.f0), _weights(len(point.f0), source), 0.0)
    line = DirectionLine(point, direction.columns, direction.along)
    with np.errstate(all="ignore"):
        quick = _quick(line, point)
        if _close(quick, v, _analytic(point, filled, direction, v), point, rtol):
            return Screen.AGREES
        full = derivative(line, _outputs(point, _noise(point, direction)), rtol=rtol, atol=rtol * _typical(quick), every_rung=True)
        v = np.where(_told(full, rtol, _typical(full)), v, 0.0)
        if not v.any():
            return Screen.OPEN
        return Screen.AGREES if _close(full, v, _analytic(point, filled, direction, v), point, rtol) else Screen.DIFFERS


def _direction(columns: Columns, source: torch.Generator) -> Direction:
    """Every column but those of structural zeros and of numbers that are not finite."""
    weights, moves = _weights(len(columns), source), np.isfinite(columns.x)
    for tensor in np.unique(columns.tensor):
        own = columns.of(int(tensor))
        if columns.x[own].any():
            moves[own] &= columns.x[own] != 0
    where = np.flatnonzero(moves)
    return Direction(where, weights[where] * columns.scale[where])


def _weights(n: int, source: torch.Generator) -> Array:
    """±[0.7, 1.4]: continuous, signed and dense."""
    sign = np.where(torch.rand(n, generator=source, dtype=torch.float64).numpy() < 0.5, -1.0, 1.0)
    return np.asarray(sign * (LOW + (HIGH - LOW) * torch.rand(n, generator=source, dtype=torch.float64).numpy()))


def _outputs(point: Point, sigma: Array) -> Outputs:
    return Outputs(point.f0, sigma, lambda: point.unit, rounds_x=not point.columns.single.any())


def _quick(line: DirectionLine, point: Point) -> Derivative:
    """From the quick rungs alone, as if f were as good as its rounding."""
    every = np.arange(len(point.f0))
    ladders = Ladders([line], _outputs(point, point.unit * np.abs(point.f0)), Elements(np.zeros_like(every), every))
    return ladders.solve(every, QUICK, False)


def _noise(point: Point, direction: Direction) -> Array:
    """The noise [M] of repeated calls and of nine points along the direction."""
    c, where = point.columns, direction.columns
    ray = Ray(c.x[where], c.scale[where], np.sign(direction.along), c.ulp(where), lambda at: c.cast(at, where), lambda at: point.moved_all(where, at))
    size = np.nan_to_num(np.abs(point.f0), posinf=0.0)
    along = noise_along(ray, size, np.ones(len(size), bool)).sigma
    return np.maximum(repeat_noise(point.values, point.f0), pooled(along, size, point.parts, point.shared(size)))


def _analytic(point: Point, filled: Filled, direction: Direction, v: Array) -> float:
    """⟨Jᵀv, d⟩ by one backward."""
    cotangents = [_tensor(v[part], *shape) for part, shape in zip(point.parts, point.shapes, strict=True)]
    return float(point.by_column(filled.vjp(cotangents))[direction.columns] @ direction.along)


def _tensor(values: Array, shape: torch.Size, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A cotangent from its real coordinates."""
    real = torch.from_numpy(values.copy())
    return (torch.view_as_complex(real.reshape(-1, 2)) if dtype.is_complex else real).reshape(shape).to(dtype=dtype).to(device=device)


def _typical(d: Derivative) -> float:
    """The size of the derivatives along the direction: their root mean square."""
    finite = d.value[np.isfinite(d.value)]
    return float(np.sqrt(np.mean(finite**2))) if finite.size else 0.0


def _told(d: Derivative, rtol: float, typical: float) -> Mask:
    """Outputs [M] with one smooth derivative, within the tolerance of its own size or of the typical one."""
    return np.asarray(d.smooth & ~d.unclear & np.isnan(d.second) & (d.bar <= rtol * np.maximum(np.abs(d.value), typical)))


def _close(d: Derivative, v: Array, analytic: float, point: Point, rtol: float) -> bool:
    """Do both sides agree within rtol of what their terms add up to, the bars and the rounding of backward?"""
    used = v != 0
    terms, weight = v[used] * d.value[used], np.abs(v[used])
    size = np.linalg.norm(v) * np.linalg.norm(np.where(used, point.f0, 0.0))
    bars = float(weight @ d.bar[used]) if np.isfinite(d.bar[used]).all() and not d.unclear[used].any() else 0.0
    allowed = rtol * float(np.abs(terms).sum()) + bars + ROUNDINGS * max(float(point.unit.max(initial=0.0)), point.backward_unit) * float(size)
    return bool(abs(float(terms.sum()) - analytic) <= allowed)
