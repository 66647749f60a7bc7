"""The derivative of a function along one direction of all its inputs, by finite differences of many
steps, with an error bar."""

from __future__ import annotations

from collections.abc import Sequence
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
    as_derivative,
)
from gradverify.numerics.estimate.noise import Ray, noise_along, pooled, repeat_noise
from gradverify.numerics.estimate.smooth import secant
from gradverify.numerics.function.coordinates import SINGLE, Columns, flat_all, numbers, rms
from gradverify.numerics.function.point import DirectionLine, Function, Point
from gradverify.numerics.rungs import QUICK, RUNGS, Array, Index, Mask
from gradverify.numerics.seed_vectors import cotangent, signed_tensor
from gradverify.oracles.finite_difference import Filled, Gives, Wishes

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
        self._last: tuple[Array, Ladders] | None = None

    @property
    def value(self) -> Array:
        """f [M] at the inputs."""
        return self.point.f0

    @property
    def unit(self) -> float:
        """The coarsest roundoff that f's dtypes and bits show."""
        return float(self.point.unit.max(initial=0.0))

    def guess(self, direction: Array) -> Derivative:
        """df/dt [M] from the finest quick rung alone: two calls.

        The bar is rounding alone, and nothing tells how well it converges: what agrees with it to a
        tolerance is right, anything else is no news.
        """
        with np.errstate(all="ignore"):
            # Whose bits may tell of a finer rounding
            s = self._ladders(direction).samples(self._everything, [GUESS])
            return as_derivative(
                secant(
                    s.up[0],
                    s.down[0],
                    2 * s.h[0],
                    s.f0,
                    self._rounding(),
                    s.unit,
                    s.magnitude if s.rounds_x else None,
                )
            )

    def at_rounding(self, direction: Array) -> Derivative:
        """As `quick`, as if f were as good as its rounding: a better guess, in six calls."""
        return self._quick(direction, self.point.unit * np.abs(self.point.f0), self._everything)

    def quick(self, direction: Array, only: Index | None = None) -> Derivative:
        """df/dt [M] of f(x + t·direction) from the quick rungs alone. `direction` [C]: one number a
        column; 0: it does not move. `only`: of these outputs."""
        return self._quick(
            direction,
            np.maximum(self._repeated, self._rounding()),
            self._everything if only is None else only,
        )

    def thorough(self, direction: Array, only: Index | None = None) -> Derivative:
        """The same from every rung, with the noise measured along the direction."""
        with np.errstate(all="ignore"):
            return (
                self._ladders(direction)
                .under(self.noise(direction))
                .solve(self._everything if only is None else only, range(RUNGS), True)
            )

    def _quick(self, direction: Array, sigma: Array, only: Index) -> Derivative:
        with np.errstate(all="ignore"):
            return self._ladders(direction).under(sigma).solve(only, QUICK, False)

    @property
    def _everything(self) -> Index:
        return np.arange(len(self.value))

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
        point, unit = self.point, self.point.unit
        sizes = np.zeros_like(point.f0)
        for part in point.parts:
            sizes[part] = rms(np.abs(point.f0[part]))
        return np.asarray(unit * sizes)

    def noise(self, direction: Array) -> Array:
        """The noise [M] of repeated calls and of nine points along the direction."""
        c, moving, point, repeated = (
            self.columns,
            np.flatnonzero(direction),
            self.point,
            self._repeated,
        )
        ray = Ray(
            c.x[moving],
            np.abs(direction[moving]),
            np.sign(direction[moving]),
            lambda: c.ulp(moving),
            lambda at: c.cast(at, moving),
            lambda at: point.values_at(moving, at),
        )
        size = np.where(np.isfinite(point.f0), np.abs(point.f0), 0.0)
        with np.errstate(all="ignore"):
            ladders = self._ladders(direction)
            beyond = (
                ladders.samples(self._everything, known).up
                if len(known := ladders.known) >= len(QUICK)
                else np.arange(2)[:, None]
            )
            found = noise_along(
                ray, size, np.broadcast_to((beyond[1:] != beyond[0]).any(0), size.shape)
            )[0]
        return np.maximum(repeated, pooled(found, size, point.parts, point.shared(size)))


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


def change(columns: Columns, direction: Array, inputs: Sequence[Tensor]) -> Array:
    """What t = 1 along the direction adds to the inputs' real coordinates, mirror images
    included."""
    full = np.zeros(sum(map(real_size, inputs)))
    full[columns.coordinate] = direction
    pairs = columns.mirror >= 0
    full[columns.mirror[pairs]] = columns.sign[pairs] * direction[pairs]
    return full


def real_size(tensor: Tensor) -> int:
    """How many real coordinates a tensor has."""
    return tensor.numel() * (2 if tensor.is_complex() else 1)


def parts(tensors: Sequence[Tensor]) -> list[slice]:
    """Where the real coordinates of each tensor lie among those of all."""
    return [
        slice(first, last)
        for first, last in pairwise(accumulate(map(real_size, tensors), initial=0))
    ]


def shaped(coordinates: Array, like: Sequence[Tensor]) -> list[Tensor]:
    """Real coordinates, one tensor's after the other's, as tensors of those shapes, dtypes and
    devices."""
    result = []
    for tensor, own in zip(like, parts(like), strict=True):
        part = torch.from_numpy(coordinates[own].copy())
        value = (
            torch.view_as_complex(part.reshape(*tensor.shape, 2))
            if tensor.is_complex()
            else part.reshape(tensor.shape)
        )
        result.append(value.to(device=tensor.device, dtype=tensor.dtype))
    return result


def moduli(tensors: Sequence[Tensor]) -> Array:
    """|z| for every real coordinate, both parts of a complex number having its modulus; 0 where it
    is not finite."""
    parts = [
        np.repeat(numbers(tensor.detach().abs()), real_size(tensor) // max(tensor.numel(), 1))
        for tensor in tensors
    ]
    return np.asarray(np.nan_to_num(np.concatenate([*parts, np.zeros(0)]), nan=0.0, posinf=0.0))


def coordinates(tensors: Sequence[Tensor | None], like: Sequence[Tensor]) -> Array:
    """The real coordinates of tensors, one after the other; None is zeros."""
    return flat_all(
        [
            torch.zeros_like(x) if tensor is None else tensor
            for tensor, x in zip(tensors, like, strict=True)
        ]
    ).numpy()


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
    if not moved.any() or not len(point.f0):
        return Screen.OPEN
    v = np.where(np.isfinite(point.f0), signed_tensor((len(point.f0),), source).numpy(), 0.0)
    guess = along.guess(moved)
    with np.errstate(all="ignore"):
        analytic = _analytic(point, moved, v)
        if _close(guess, v, analytic, point, rtol, guessed=True) or _close(
            along.at_rounding(moved), v, analytic, point, rtol
        ):
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
    gradients = point.function.vjp(
        [cotangent(point, n, v[part]) for n, part in enumerate(point.parts)]
    )
    return float(point.by_column(gradients)[own] @ moved[own])


def _typical(d: Derivative) -> float:
    """The size of the derivatives along the direction: their root mean square."""
    finite = d.value[np.isfinite(d.value)]
    return float(np.sqrt(np.mean(finite**2))) if finite.size else 0.0


def _told(d: Derivative, rtol: float, typical: float) -> Mask:
    """Outputs [M] with one smooth derivative, within the tolerance of its own size or of the
    typical one."""
    return np.asarray(
        d.smooth
        & ~d.unclear
        & np.isnan(d.second)
        & (d.bar <= rtol * np.maximum(np.abs(d.value), typical))
    )


def _close(
    d: Derivative, v: Array, analytic: float, point: Point, rtol: float, guessed: bool = False
) -> bool:
    """Do both sides agree within rtol of what their terms add up to, the bars and the rounding of
    backward? `guessed`: wherever in the bars it is."""
    used = v != 0
    terms, weight = v[used] * d.value[used], np.abs(v[used])
    size = np.linalg.norm(v) * np.linalg.norm(np.where(used, point.f0, 0.0))
    bars = (
        float(weight @ d.bar[used])
        if np.isfinite(d.bar[used]).all() and not d.unclear[used].any()
        else 0.0
    )
    unit = max(float(point.unit.max(initial=0.0)), point.backward_unit)
    allowed = (
        rtol * float(np.abs(terms).sum())
        + (-bars if guessed else bars)
        + ROUNDINGS * unit * float(size)
    )
    return bool(abs(float(terms.sum()) - analytic) <= allowed)
