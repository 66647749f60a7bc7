"""What sparsity detection asks of a function: slices of one axis of an input are perturbed in one call, and the outputs that changed are seen."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from gradverify.numerics.function.flat import real_shape
from gradverify.numerics.function.point import Point
from gradverify.numerics.rungs import Array, Index, Mask, in_a_row
from gradverify.numerics.seed_vectors import WEIGHTS
from gradverify.numerics.seeds import Seed
from gradverify.numerics.sparsity.codes import Code

STEP = 1.4e-3  # of the scale: finer steps hide small terms behind the rounding of large ones


class Probe(Protocol):
    """An input tensor of a function. A number has one axis of one slice."""

    def moved(self, axis: int, slices: Mask) -> Mask:
        """Which outputs [M] of all output tensors changed when all elements of these slices [n] of one axis were perturbed. A call each.

        Where n is more than the axis has, it is one with the axes before it: of the last axis, the elements of the tensor.
        """
        ...


@dataclass(frozen=True)
class Axis:
    """One axis of the input: its length and stride (elements of the flat input); the shapes and parts of the output tensors.

    `repeats`: the calls that each question takes, what moved in any of them moved.
    """

    probe: Probe
    axis: int
    length: int
    stride: int
    shapes: tuple[tuple[int, ...], ...]
    parts: tuple[slice, ...]
    repeats: int = 1

    @property
    def outputs(self) -> int:
        return self.parts[-1].stop if self.parts else 0

    def moved(self, slices: Mask) -> Mask:
        moved = self.probe.moved(self.axis, slices)
        for _ in range(1, self.repeats):
            moved = moved | self.probe.moved(self.axis, slices)
        return moved

    def responses(self, code: Code, calls: Iterable[int]) -> list[Mask]:
        """What moved [M] in each of the calls."""
        return [self.moved(code.slices(call)) for call in calls]


class PointProbe:
    """An input tensor without symmetry. Counts its `calls`.

    `threshold` [M]: an output moved if it changed by more; without one, if it changed at all. An element is moved up and down by turns, so
    that one that sits on a kink is seen in every other call. Elements that are not finite stay, and so do those that their domain leaves no step.
    """

    def __init__(self, point: Point, tensor: int, seed: Seed, threshold: Array | None = None) -> None:
        self.point, self.seed, self.threshold, self.calls = point, seed, threshold, 0
        x = point.function.inputs[tensor]
        self.shape = real_shape(x.shape, x.dtype)
        self._columns = point.columns.of(tensor)
        self._places = np.arange(len(self._columns))
        sign: Array = 2.0 * seed.generator("signs").integers(0, 2, len(self._columns)).astype(float) - 1.0
        columns = in_a_row(self._columns)
        self._x, self._step = point.columns.x[columns], sign * point.columns.scale[columns]
        self._finite = None if point.columns.finite else np.isfinite(self._x)
        self._defined = bool(np.isfinite(point.f0).all())

    def moved(self, axis: int, slices: Mask) -> Mask:
        """Which outputs [M] changed when the slices of an axis were perturbed; those that became NaN, or all if the call raised, did."""
        self.calls += 1
        places = self._chosen(axis, slices)
        step = self._step.take(places)
        to = self._perturbed(places, STEP * self.seed.generator("steps", self.calls).uniform(*WEIGHTS, len(places)) * step)
        self._step[places] = -step
        return self._differs(self._at(places, to))

    def _at(self, places: Index, to: Array) -> Array:
        """f [M], lent, with these elements [k] moved; without a domain all are written, which takes less time than to gather a half of them."""
        if not self.point.columns.free:
            return self.point.values_at(self._columns[places], to)
        x = self._x.copy()
        x[places] = to
        return self.point.values_inside(self._columns, x, lent=True)

    def _chosen(self, axis: int, slices: Mask) -> Index:
        """The elements [k] of the slices, ascending."""
        stride = math.prod(self.shape[axis + 1 :])
        places = self._places.reshape(-1, len(slices), stride).compress(slices, 1).reshape(-1)
        return places if self._finite is None else places[self._finite[places]]

    def _perturbed(self, places: Index, step: Array) -> Array:
        """x [k] of elements after a step: the other way at the border of a domain, none where neither way is inside."""
        c, x = self.point.columns, self._x.take(places)
        if c.free and not c.rounded:
            return x + step
        columns = self._columns.take(places)
        up = c.cast(x + step, columns)
        if c.free:
            return up
        ways = [up, c.cast(x - step, columns)]
        inside = [(c.low[columns] <= to) & (to <= c.high[columns]) for to in ways]
        return np.where(inside[0], ways[0], np.where(inside[1], ways[1], x))

    def _differs(self, f: Array) -> Mask:
        f0 = self.point.f0
        if self._defined and self.threshold is None:
            return np.asarray(f != f0)
        ended = np.isfinite(f) != np.isfinite(f0)
        with np.errstate(invalid="ignore"):
            changed = (f != f0) & ~(np.isnan(f) & np.isnan(f0)) if self.threshold is None else np.abs(f - f0) > self.threshold
        return np.asarray(ended | changed)
