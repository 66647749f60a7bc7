"""The derivative of a function along one direction of all its inputs, by finite differences of many
steps, with an error bar."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from functools import cached_property
from itertools import accumulate, pairwise

import numpy as np
import torch
from torch import Tensor

from gradverify.numerics.estimate.ladder import (
    Derivative,
    Ladders,
    Outputs,
    along_line,
    secant,
)
from gradverify.numerics.estimate.noise import Ray, noise_along, pooled, repeat_noise
from gradverify.numerics.function.coordinates import (
    SINGLE,
    Columns,
    flat_all,
    numbers,
    real_shape,
    rms,
)
from gradverify.numerics.function.point import DirectionLine, Function, Point
from gradverify.numerics.rungs import QUICK, RUNGS, Array, Index
from gradverify.numerics.seed_vectors import cotangent, signed_tensor
from gradverify.oracles.finite_difference import Constraints, Filled, WithBackward
from gradverify.subject.subject import Cotangents, Tensors, filled

# The finest quick rung: its truncation error is 2e-9 of the ratio of the third derivative to the
# first, far below float64's tolerance, and its noise 1e-12 of f
GUESS = QUICK[-1]


class Along:
    """Directional derivatives of `function` at its inputs. Takes one call at first and one to
    measure noise, two for a guess, six for a quick ladder; consecutive evaluations along one
    direction share their calls."""

    def __init__(self, function: Function, columns: Columns) -> None:
        """`columns`: of the function's inputs, or of the same ones in another precision."""
        if columns.rounded and not any(x.dtype in SINGLE for x in function.inputs):
            columns = replace(columns, single=np.zeros(len(columns), bool))
        self.columns, self.point = columns, Point(function, columns)
        self.value = self.point.f0  # [M] at the inputs
        self._last: tuple[Array, Ladders] | None = None

    @property
    def unit(self) -> float:
        """The coarsest roundoff of f, by the dtypes and the bits of its outputs."""
        return float(self.point.unit.max(initial=0.0))

    @np.errstate(all="ignore")
    def guess(self, direction: Array) -> Derivative:
        """Return df/dt [M] from the finest quick rung alone, with two calls.

        The bar covers rounding only, and convergence is not examined: agreement with the guess
        within a tolerance is conclusive, disagreement is not.
        """
        # The bits of the samples may show that f rounds more finely than its dtype
        s = self._ladders(direction).samples(self._chosen(), [GUESS])
        magnitude = s.magnitude if s.rounds_x else None
        return secant(s.up[0], s.down[0], 2 * s.h[0], s.f0, self._rounding(), s.unit, magnitude)

    @np.errstate(all="ignore")
    def quick(
        self, direction: Array, only: Index | None = None, sigma: Array | None = None
    ) -> Derivative:
        """Return df/dt [M] of f(x + t·direction) from the quick rungs alone. `direction` [C]: one
        number per column, 0 for columns that do not move. `only`: of these outputs. `sigma`: the
        noise of f, None: that of repeated calls."""
        noise = np.maximum(self._repeated, self._rounding()) if sigma is None else sigma
        return self._ladders(direction).under(noise).solve(self._chosen(only), QUICK, False)

    @np.errstate(all="ignore")
    def thorough(self, direction: Array, only: Index | None = None) -> Derivative:
        """Return df/dt [M] from all rungs, with the noise of repeated calls and of nine points
        along the direction."""
        c, point, ladders = self.columns, self.point, self._ladders(direction)
        repeated = self._repeated
        moving = np.flatnonzero(direction)
        ray = Ray(
            c.x[moving],
            np.abs(direction[moving]),
            np.sign(direction[moving]),
            lambda: c.ulp(moving),
            lambda at: c.cast(at, moving),
            lambda at: point.values_at(moving, at),
        )
        size = np.where(np.isfinite(point.f0), np.abs(point.f0), 0.0)
        beyond = (
            ladders.samples(self._chosen(), known).up
            if len(known := ladders.known) >= len(QUICK)
            else np.arange(2)[:, None]
        )
        moves = np.broadcast_to((beyond[1:] != beyond[0]).any(0), size.shape)
        found = noise_along(ray, size, moves)[0]
        noise = np.maximum(repeated, pooled(found, size, point.parts, point.shared(size)))
        return ladders.under(noise).solve(self._chosen(only), range(RUNGS), True)

    def _chosen(self, only: Index | None = None) -> Index:
        """Return these outputs, or all."""
        return np.arange(len(self.value)) if only is None else only

    def _ladders(self, direction: Array) -> Ladders:
        """Return the ladders along a direction, with f taken as noise-free; samples along the same
        direction as last time are reused."""
        if self._last is None or not np.array_equal(direction, self._last[0]):
            moving = np.flatnonzero(direction)
            line = DirectionLine(self.point, moving, direction[moving])
            quiet = Outputs(
                self.value,
                np.zeros_like(self.value),
                lambda: self.point.unit,
                rounds_x=not self.columns.rounded,
            )
            self._last = direction, along_line(line, quiet)
        return self._last[1]

    @cached_property
    def _repeated(self) -> Array:
        """The noise [M] of identical calls."""
        return repeat_noise(self.point.values, self.point.f0, self.point.before)

    def _rounding(self) -> Array:
        """Return the rounding error [M] of sums of terms of the tensor's typical size: an output in
        which they cancel is as noisy as the others."""
        unit, sizes = self.point.unit, np.zeros_like(self.value)
        for part in self.point.parts:
            sizes[part] = rms(np.abs(self.value[part]))
        return np.asarray(unit * sizes)


def direction(columns: Columns, source: torch.Generator, zeros: bool = True) -> Array:
    """Draw a random signed direction [C], in each column's own scale; columns whose x is not finite
    do not move. `zeros` false: neither do zeros of an input that has other numbers too, as they may
    belong to its structure."""
    moves = np.isfinite(columns.x)
    for tensor in () if zeros else np.unique(columns.tensor).tolist():
        own = columns.of(tensor)
        if columns.x[own].any():
            moves[own] &= columns.x[own] != 0
    return np.where(moves, signed_tensor((len(columns),), source).numpy() * columns.scale, 0.0)


def change(columns: Columns, direction: Array, inputs: Tensors) -> Array:
    """Return the change of the inputs' real coordinates for t = 1 along the direction, mirror
    images included."""
    full = np.zeros(sum(part.stop - part.start for part in parts(inputs)))
    full[columns.coordinate] = direction
    pairs = columns.mirror >= 0
    full[columns.mirror[pairs]] = columns.sign[pairs] * direction[pairs]
    return full


def parts(tensors: Tensors) -> list[slice]:
    """Return the slice of each tensor's real coordinates among those of all tensors."""
    sizes = (x.numel() * (1 + x.is_complex()) for x in tensors)
    return [slice(first, last) for first, last in pairwise(accumulate(sizes, initial=0))]


def shaped(coordinates: Array, like: Tensors) -> list[Tensor]:
    """Return concatenated real coordinates as tensors of the shapes, dtypes and devices of
    `like`."""
    result = []
    for tensor, own in zip(like, parts(like), strict=True):
        real = torch.from_numpy(coordinates[own].copy()).reshape(
            real_shape(tensor.shape, tensor.dtype)
        )
        value = torch.view_as_complex(real) if tensor.is_complex() else real
        result.append(value.to(device=tensor.device, dtype=tensor.dtype))
    return result


def moduli(tensors: Tensors) -> Array:
    """Return |z| for every real coordinate, the modulus for both parts of a complex number; 0 where
    it is not finite."""
    parts = [np.repeat(numbers(x.detach().abs()), 1 + x.is_complex()) for x in tensors]
    return np.asarray(np.nan_to_num(np.concatenate([*parts, np.zeros(0)]), nan=0.0, posinf=0.0))


def coordinates(tensors: Cotangents, like: Tensors) -> Array:
    """Return the concatenated real coordinates of tensors, zeros for None."""
    return flat_all(filled(tensors, like)).numpy()


# ---- One derivative along one random direction: ⟨v, J d⟩ by finite differences against ⟨Jᵀv, d⟩ by
# backward
ROUNDINGS = 64.0  # of ‖v‖‖f‖, the natural size of both sides, by which backward may round


class Screen(Enum):
    """The outcome of a comparison along one direction."""

    AGREES = "the two agree within the tolerance"
    DIFFERS = "the two differ by more than the tolerance and the error bar"
    NON_FINITE = "the forward is not finite, or constant where the backward is not finite"
    CONSTANT = "the forward is constant where the two differ"
    OPEN = "the finite difference along the direction has too wide an error bar"


def screened(
    function: WithBackward,
    constraints: Constraints,
    source: torch.Generator,
    rtol: float,
    infinite: int = 0,
    invented: bool = False,
) -> Screen:
    """Compare backward with finite differences along one random signed direction. Raises
    UserCodeError where forward or backward does.

    The direction keeps the symmetry of symmetric inputs, and the zeros of inputs that have other
    numbers too. `infinite`: how many numbers of the outputs are legitimately not finite (masks of
    −inf); they are left out. `invented`: whether f may not be meant to be called at this point, so
    that outputs that no step moves are judged separately.
    """
    along = Along(Filled(function), constraints.columns(function.inputs))
    point = along.point
    if np.sum(~np.isfinite(point.f0)) > infinite:
        return Screen.NON_FINITE
    moved = direction(along.columns, source, zeros=False)
    own = moved != 0
    if not own.any() or not len(point.f0):
        return Screen.OPEN

    def pulled(v: Array) -> float:
        """Return ⟨Jᵀv, d⟩, by one backward."""
        cotangents = [cotangent(point, n, v[part]) for n, part in enumerate(point.parts)]
        return float(point.by_column(point.function.vjp(cotangents))[own] @ moved[own])

    def close(d: Derivative, v: Array, analytic: float, guessed: bool = False) -> bool:
        """Return whether both sides agree within rtol of the sum of the magnitudes of their terms,
        plus the bars and the rounding of backward. `guessed`: agreement must hold for every value
        within the bars."""
        used = v != 0
        terms, weight = v[used] * d.value[used], np.abs(v[used])
        size = np.linalg.norm(v) * np.linalg.norm(np.where(used, point.f0, 0.0))
        bars = (
            float(weight @ d.bar[used])
            if np.isfinite(d.bar[used]).all() and not d.unclear[used].any()
            else 0.0
        )
        unit = max(along.unit, point.backward_unit)
        allowed = (
            rtol * float(np.abs(terms).sum())
            + (-bars if guessed else bars)
            + ROUNDINGS * unit * float(size)
        )
        return bool(abs(float(terms.sum()) - analytic) <= allowed)

    v = np.where(np.isfinite(point.f0), signed_tensor((len(point.f0),), source).numpy(), 0.0)
    guess = along.guess(moved)
    with np.errstate(all="ignore"):
        analytic = pulled(v)
        if close(guess, v, analytic, guessed=True) or close(
            along.quick(moved, sigma=point.unit * np.abs(point.f0)), v, analytic
        ):
            return Screen.AGREES
        full = along.thorough(moved)
        finite = full.value[np.isfinite(full.value)]
        typical = float(np.sqrt(np.mean(finite**2))) if finite.size else 0.0
        # Only smooth derivatives whose bar is within rtol of their own or the typical size
        smooth = full.smooth & ~full.unclear & np.isnan(full.second)
        v = np.where(smooth & (full.bar <= rtol * np.maximum(np.abs(full.value), typical)), v, 0.0)
        if not v.any():
            return Screen.OPEN
        if close(full, v, pulled(v)):
            return Screen.AGREES
        if not invented or not full.unchanged.any():
            return Screen.DIFFERS
        v = np.where(full.unchanged, 0.0, v)
        analytic = pulled(v)
        if not np.isfinite(analytic):
            return Screen.NON_FINITE
        return Screen.CONSTANT if close(full, v, analytic) else Screen.DIFFERS
