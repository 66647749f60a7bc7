"""Seed vectors: random weights, directions and cotangents that reduce a Jacobian to one number for
each row, column or block."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gradverify.numerics.function.coordinates import numbers, real_shape
from gradverify.numerics.function.point import Point
from gradverify.numerics.rungs import BASE, Array, Index, in_a_row

# Range of the magnitudes of the members of a group, a direction or a cotangent: with ±1 pairs may
# cancel
WEIGHTS = (0.7, 1.4)
INSIDE = 0.5  # of the way to the end of the domain: the widest step of a probe


@dataclass(frozen=True)
class Drawn(Sequence[Array]):
    """A sequence of `number` arrays: those `known`, then random ones, each drawn again at every
    access, so that at most one of them is in memory."""

    number: int
    draw: Callable[[int], Array]
    known: Sequence[Array] = ()

    def __len__(self) -> int:
        return self.number

    def __getitem__(self, k: int) -> Array:  # type: ignore[override]  # no slices
        if k >= self.number:
            raise IndexError(k)
        return self.known[k] if k < len(self.known) else self.draw(k)


def uniform(n: int, generator: np.random.Generator) -> Array:
    """Return n numbers from −1 to 1."""
    drawn = generator.random(n)
    drawn *= 2
    drawn -= 1
    return drawn


def signed_weights(n: int, generator: np.random.Generator) -> Array:
    """Return continuous signed weights [n], ±[0.7, 1.4]: with ±1 half of the pairs of strays
    cancel, with all ones every pair of opposite strays does."""
    return away_from_zero(uniform(n, generator))


def signed_weights_float32(n: int, generator: np.random.Generator) -> Array:
    """Return such weights exact in float32, so that they add no rounding there."""
    return signed_weights(n, generator).astype(np.float32).astype(float)


def signed_tensor(shape: Sequence[int], source: torch.Generator) -> Tensor:
    """Return such weights as a float64 tensor from a torch generator."""
    low, high = WEIGHTS
    sign = torch.randint(0, 2, tuple(shape), generator=source, dtype=torch.float64) * 2 - 1
    return sign * (
        low + (high - low) * torch.rand(tuple(shape), generator=source, dtype=torch.float64)
    )


def away_from_zero(numbers: Array) -> Array:
    """Map numbers from −1 to 1 to such weights, in place."""
    low, high = WEIGHTS
    numbers *= high - low
    numbers += np.copysign(low, numbers)
    return numbers


def moves_along(point: Point, columns: Index, probe: Array) -> Array:
    """Return probe × scale for columns [k]: 0 where x is not finite, and shorter where the first
    rung would leave the domain."""
    c = point.columns
    moved = in_a_row(columns)
    x, move = c.x[moved], probe * c.scale[moved]
    if c.free:
        return move if c.finite else np.where(np.isfinite(x), move, 0.0)
    room = INSIDE * np.minimum(x - c.low[columns], c.high[columns] - x) / BASE
    return np.where(
        np.isfinite(x),
        np.sign(move)
        * np.minimum(np.abs(move), np.maximum(np.nan_to_num(room, posinf=np.inf), 0.0)),
        0.0,
    )


def pull_back(point: Point, output: int, weights: Array) -> Sequence[Tensor]:
    """Return the gradient of each input for one backward with a cotangent [outputs of the
    tensor]."""
    cotangents: list[Tensor | None] = [None] * len(point.parts)
    cotangents[output] = cotangent(point, output, weights)
    point.backward += 1
    return point.function.vjp(cotangents)


def gradient_of_rows(point: Point, output: int, rows: Index, weights: Array) -> Array:
    """Return the gradient in all input coordinates [N] for a cotangent that is `weights` at these
    rows of one output tensor, one backward; in new memory, as a backward may reuse that of the
    gradients it returned."""
    part = point.parts[output]
    vector = np.asarray(np.bincount(rows, weights, part.stop - part.start), float)
    return np.concatenate([numbers(gradient) for gradient in pull_back(point, output, vector)])


def cotangent(point: Point, output: int, vector: Array) -> Tensor:
    """Return real coordinates [M] of one output tensor as a tensor of its shape, dtype and
    device."""
    shape, dtype, device = point.shapes[output]
    real = torch.from_numpy(np.ascontiguousarray(vector).reshape(real_shape(shape, dtype)))
    value = torch.view_as_complex(real) if dtype.is_complex else real
    return value.to(device=device, dtype=dtype)


def as_dtype_holds(point: Point, output: int, weights: Array) -> Array:
    """Return weights [outputs of the tensor] rounded to its dtype; 0 where f is infinite, because
    such outputs are masked."""
    dtype = point.shapes[output][1]
    kept = (
        torch.from_numpy(weights)
        .to(dtype.to_real() if dtype.is_complex else dtype)
        .double()
        .numpy()
    )
    infinite = np.isinf(point.f0[point.parts[output]])
    return np.where(infinite, 0.0, kept)
