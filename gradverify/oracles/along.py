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
from gradverify.oracles.finite_difference import Filled, Gives, Wishes
from gradverify.subject.subject import Cotangents, Tensors, filled

# ---- The derivative of a function along one direction of all its inputs, by finite differences of
# many steps, with an error bar
# Truncation is 2e-9 of the third derivative, over the first: far below float64's tolerance; noise
# 1e-12 of f
GUESS = QUICK[-1]


class Along:
    """Ladders of `function` through its inputs. One call at once, one repeat for its noise; two
    calls a guess, six a quick ladder; no call twice for one direction after the other."""

    def __init__(self, function: Function, columns: Columns) -> None:
        """`columns`: of the function's inputs, or of the same ones in another precision."""
        if columns.rounded and not any(x.dtype in SINGLE for x in function.inputs):
            columns = replace(columns, single=np.zeros(len(columns), bool))
        self.columns, self.point = columns, Point(function, columns)
        self.value = self.point.f0  # [M] at the inputs
        self._last: tuple[Array, Ladders] | None = None

    @property
    def unit(self) -> float:
        """The coarsest roundoff that f's dtypes and bits show."""
        return float(self.point.unit.max(initial=0.0))

    @np.errstate(all="ignore")
    def guess(self, direction: Array) -> Derivative:
        """df/dt [M] from the finest quick rung alone: two calls.

        The bar is rounding alone, and nothing tells how well it converges: what agrees with it to a
        tolerance is right, anything else is no news.
        """
        # Whose bits may tell of a finer rounding
        s = self._ladders(direction).samples(self._asked(), [GUESS])
        magnitude = s.magnitude if s.rounds_x else None
        return secant(s.up[0], s.down[0], 2 * s.h[0], s.f0, self._rounding(), s.unit, magnitude)

    @np.errstate(all="ignore")
    def quick(
        self, direction: Array, only: Index | None = None, sigma: Array | None = None
    ) -> Derivative:
        """df/dt [M] of f(x + t·direction) from the quick rungs alone. `direction` [C]: one number a
        column; 0: it does not move. `only`: of these outputs. `sigma`: the noise of f, where it is
        not that of repeated calls."""
        noise = np.maximum(self._repeated, self._rounding()) if sigma is None else sigma
        return self._ladders(direction).under(noise).solve(self._asked(only), QUICK, False)

    @np.errstate(all="ignore")
    def thorough(self, direction: Array, only: Index | None = None) -> Derivative:
        """The same from every rung, with the noise of repeated calls and of nine points along the
        direction."""
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
            ladders.samples(self._asked(), known).up
            if len(known := ladders.known) >= len(QUICK)
            else np.arange(2)[:, None]
        )
        moves = np.broadcast_to((beyond[1:] != beyond[0]).any(0), size.shape)
        found = noise_along(ray, size, moves)[0]
        noise = np.maximum(repeated, pooled(found, size, point.parts, point.shared(size)))
        return ladders.under(noise).solve(self._asked(only), range(RUNGS), True)

    def _asked(self, only: Index | None = None) -> Index:
        """These outputs, or all."""
        return np.arange(len(self.value)) if only is None else only

    def _ladders(self, direction: Array) -> Ladders:
        """Of an f without noise; what was sampled along the direction before is not sampled
        again."""
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
        """Of sums over terms of the tensor's typical size [M]: an output in which they cancel is no
        less noisy than the others."""
        unit, sizes = self.point.unit, np.zeros_like(self.value)
        for part in self.point.parts:
            sizes[part] = rms(np.abs(self.value[part]))
        return np.asarray(unit * sizes)


def direction(columns: Columns, source: torch.Generator, zeros: bool = True) -> Array:
    """A random direction [C]: signed, in each column's own scale; columns of no finite x stay. Not
    `zeros`: so do zeros of an input that has other numbers too, which may belong to its
    structure."""
    moves = np.isfinite(columns.x)
    for tensor in () if zeros else np.unique(columns.tensor).tolist():
        own = columns.of(tensor)
        if columns.x[own].any():
            moves[own] &= columns.x[own] != 0
    return np.where(moves, signed_tensor((len(columns),), source).numpy() * columns.scale, 0.0)


def change(columns: Columns, direction: Array, inputs: Tensors) -> Array:
    """What t = 1 along the direction adds to the inputs' real coordinates, mirror images
    included."""
    full = np.zeros(sum(part.stop - part.start for part in parts(inputs)))
    full[columns.coordinate] = direction
    pairs = columns.mirror >= 0
    full[columns.mirror[pairs]] = columns.sign[pairs] * direction[pairs]
    return full


def parts(tensors: Tensors) -> list[slice]:
    """Where the real coordinates of each tensor lie among those of all."""
    sizes = (x.numel() * (1 + x.is_complex()) for x in tensors)
    return [slice(first, last) for first, last in pairwise(accumulate(sizes, initial=0))]


def shaped(coordinates: Array, like: Tensors) -> list[Tensor]:
    """Real coordinates, one tensor's after the other's, as tensors of those shapes, dtypes and
    devices."""
    result = []
    for tensor, own in zip(like, parts(like), strict=True):
        real = torch.from_numpy(coordinates[own].copy()).reshape(
            real_shape(tensor.shape, tensor.dtype)
        )
        value = torch.view_as_complex(real) if tensor.is_complex() else real
        result.append(value.to(device=tensor.device, dtype=tensor.dtype))
    return result


def moduli(tensors: Tensors) -> Array:
    """|z| for every real coordinate, both parts of a complex number having its modulus; 0 where it
    is not finite."""
    parts = [np.repeat(numbers(x.detach().abs()), 1 + x.is_complex()) for x in tensors]
    return np.asarray(np.nan_to_num(np.concatenate([*parts, np.zeros(0)]), nan=0.0, posinf=0.0))


def coordinates(tensors: Cotangents, like: Tensors) -> Array:
    """The real coordinates of tensors, one after the other; None is zeros."""
    return flat_all(filled(tensors, like)).numpy()


# ---- One derivative along one random direction: ⟨v, J d⟩ by finite differences against ⟨Jᵀv, d⟩ by
# backward
ROUNDINGS = 64.0  # of ‖v‖‖f‖, the natural size of both sides: what backward may round


class Screen(Enum):
    """What a direction said."""

    AGREES = "the two agree within the tolerance"
    DIFFERS = "the two differ by more than the tolerance and the error bar"
    NON_FINITE = "the forward is not finite, or constant where the backward is not finite"
    CONSTANT = "the forward is constant where the two differ"
    OPEN = "the finite difference along the direction has too wide an error bar"


def screened(
    function: Gives,
    wishes: Wishes,
    source: torch.Generator,
    rtol: float,
    infinite: int = 0,
    invented: bool = False,
) -> Screen:
    """Backward against finite differences along one random signed direction. Raises UserCodeError
    where forward or backward does.

    The direction keeps the symmetry of symmetric inputs, and the zeros of inputs that have other
    numbers too. `infinite`: how many numbers of the outputs are not finite by right (masks of
    −inf); they are left out. `invented`: the point may lie where f is not meant to be called, so
    that outputs which no step moves are judged apart.
    """
    along = Along(Filled(function), wishes.columns(function.inputs))
    point = along.point
    if np.sum(~np.isfinite(point.f0)) > infinite:
        return Screen.NON_FINITE
    moved = direction(along.columns, source, zeros=False)
    own = moved != 0
    if not own.any() or not len(point.f0):
        return Screen.OPEN

    def pulled(v: Array) -> float:
        """⟨Jᵀv, d⟩ by one backward."""
        cotangents = [cotangent(point, n, v[part]) for n, part in enumerate(point.parts)]
        return float(point.by_column(point.function.vjp(cotangents))[own] @ moved[own])

    def close(d: Derivative, v: Array, analytic: float, guessed: bool = False) -> bool:
        """Do both sides agree within rtol of what their terms add up to, the bars and the rounding
        of backward? `guessed`: wherever in the bars it is."""
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
        # Of one smooth derivative, within the tolerance of its own size or of the typical one
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
