"""The derivative of backward by double backward, against backward itself (to the cotangents) and its ladder (to the inputs)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gradverify.evidence import Evidence
from gradverify.numerics.compare import FLOOR, RTOL, RTOL_LOW
from gradverify.numerics.flat import flat_all
from gradverify.numerics.ladder import Derivative
from gradverify.numerics.rungs import Array, Mask
from gradverify.oracles.along import Along, by_column, change, coordinates, shaped
from gradverify.rules.adjoint import DUST, NUDGE, Identity, bisect
from gradverify.rules.sound import SINGLE, tolerance
from gradverify.subject.failure import UserCodeError
from gradverify.subject.second_order import Second

NUDGES = 2


@dataclass(frozen=True, slots=True)
class Wrong:
    """d gradient / d `of` at one element: by double backward, and as it is. `gradient`, `place`: real coordinates (of all inputs; of all
    outputs where `cotangent`)."""

    gradient: int
    place: int
    cotangent: bool
    double: float
    truth: float


class Cotangents:
    """To the cotangents: backward is linear in them, so ⟨u, ∂⟨w, Jᵀv⟩/∂v⟩ = ⟨w, Jᵀu⟩, and no step is needed."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence, self.w = evidence, evidence.gradient_weights
        self.u = flat_all(evidence.weights("to the cotangent")).numpy()

    def wrong(self) -> Wrong | None:
        """The element at which double backward is wrong; None where there is none."""
        double, truth = self._double(self.w), self._pull(self.u)
        base = self._identity(self.u, double, truth)
        if base.holds() or base.holds(self._noise(double, truth)):
            return None
        row = bisect(self.u != 0, lambda mask: self._identity(self.u * mask, double, self._pull(self.u * mask)).off, base.off)
        one = np.arange(len(self.u)) == row
        column = self._pull(one * 1.0)
        total = float(double[row] - np.sum(self.w * column))
        gradient = bisect(self.w != 0, lambda mask: float(self._double(self.w * mask)[row] - np.sum((self.w * column)[mask])), total)
        weight = self.w * (np.arange(len(self.w)) == gradient)
        mine, theirs = float(self._double(weight)[row]) / float(self.w[gradient]), float(column[gradient])
        size = float(np.abs(flat_all(self.evidence.outputs).nan_to_num(posinf=0.0, neginf=0.0).numpy()[row])) / float(np.abs(self.w[gradient]))
        allowed = tolerance(self.evidence.precision) * max(abs(mine), abs(theirs)) + DUST * self.evidence.precision * size
        return None if abs(mine - theirs) <= allowed else Wrong(gradient, row, True, mine, theirs)

    def _identity(self, u: Array, double: Array, pulled: Array) -> Identity:
        unit, f = self.evidence.precision, flat_all(self.evidence.outputs).nan_to_num(posinf=0.0, neginf=0.0).numpy()
        return Identity((u * double)[u != 0], self.w * pulled, tolerance(unit), unit, DUST * unit * float(np.linalg.norm(u * f)))

    def _noise(self, double: Array, truth: Array) -> float:
        """How far both sums go when u and w are nudged: only sums that are rounding throughout go far."""
        source, step, moves = np.random.default_rng(self.evidence.settings.seed), NUDGE * tolerance(self.evidence.precision), [0.0]
        for _ in range(NUDGES):
            u = self.u * (1 + step * source.choice([-1.0, 1.0], len(self.u)))
            w = self.w * (1 + step * source.choice([-1.0, 1.0], len(self.w)))
            moves += [abs(float(np.sum(self.w * (self._pull(u) - truth)))), abs(float(np.sum(self.u * (self._double(w) - double))))]
        return max(move for move in moves if np.isfinite(move))

    def _pull(self, u: Array) -> Array:
        """Jᵀu by coordinates [N]."""
        return coordinates(self.evidence.function.vjp(shaped(u, self.evidence.outputs)), self.evidence.subject.inputs)

    def _double(self, w: Array) -> Array:
        """The derivative of ⟨w, Jᵀv⟩ with respect to v, by coordinates [M]."""
        seen = doubled(self.evidence, w) if w is not self.w else self.evidence.double_backward
        return coordinates(_known(seen).cotangents, self.evidence.outputs)


class Inputs:
    """To the inputs: the derivative of ⟨w, backward(x)⟩ along a direction, by double backward and by the ladder of backward."""

    def __init__(self, evidence: Evidence, along: Along, moved: Array) -> None:
        self.evidence, self.along, self.moved = evidence, along, moved
        self.w = evidence.gradient_weights

    @cached_property
    def moves(self) -> Array:
        return change(self.evidence.columns, self.moved, self.evidence.subject.inputs)

    @property
    def rtol(self) -> float:
        own = self.evidence.settings.rtol
        return own if own is not None else RTOL_LOW if max(self.evidence.precision, self.along.unit) >= SINGLE else RTOL

    def wrong(self) -> Wrong | None:
        """The element at which double backward is wrong, confirmed by the whole ladder; None where there is none."""
        quick, known = self.along.quick(self.moved), _known(self.evidence.double_backward)
        if self._off(self._along(known), quick, self.w) == "no":
            return None
        full = self.along.thorough(self.moved)
        w = np.where(full.smooth & np.isfinite(full.bar) & ~np.isfinite(full.second), self.w, 0.0)     # a jump or kink there has no derivative
        if not w.any() or self._off(self._along(doubled(self.evidence, w)), full, w) != "yes":
            return None
        return self._element(full, w)

    def _element(self, full: Derivative, w: Array) -> Wrong | None:
        """Halving by halving to one gradient's element and one column, on which the ladder is climbed anew."""
        def by_gradient(mask: Mask) -> float:
            return self._along(doubled(self.evidence, w * mask)) - float(np.sum((w * full.value)[mask & (w != 0)]))

        gradient = bisect(w != 0, by_gradient, by_gradient(w != 0))
        weight = w * (np.arange(len(w)) == gradient)
        inputs = coordinates(doubled(self.evidence, weight).inputs, self.evidence.subject.inputs) / w[gradient]
        row = by_column(self.evidence.columns, inputs)

        def by_place(mask: Mask) -> float:
            return float(np.sum((row * self.moved)[mask]) - self.along.quick(self.moved * mask).value[gradient])

        column = bisect(self.moved != 0, by_place, float(np.sum(row * self.moved) - full.value[gradient]))
        one = self.along.thorough(self.moved * (np.arange(len(self.moved)) == column))
        mine, theirs, bar = float(row[column] * self.moved[column]), float(one.value[gradient]), float(one.bar[gradient])
        allowed = self.rtol * max(abs(mine), abs(theirs)) + self._floor(np.abs(self.along.value[gradient]))
        if not one.smooth[gradient] or not np.isfinite(bar) or np.isfinite(one.second[gradient]) or abs(mine - theirs) - bar <= allowed:
            return None
        step, place = float(self.moved[column]), int(self.evidence.columns.coordinate[column])
        return Wrong(gradient, place, False, mine / step, theirs / step)

    def _off(self, mine: float, found: Derivative, w: Array) -> str:
        """Does double backward differ from the ladder? "yes", "no", or "open"."""
        asked = np.flatnonzero(w)
        weight, d = np.abs(w[asked]), found.take(asked)
        if not np.isfinite(d.bar).all():
            return "open"
        terms, noise = w[asked] * d.value, np.minimum(d.noise_bar, d.bar)
        bar = float(np.sum(weight * (d.bar - noise)) + np.linalg.norm(weight * noise))      # the noise of elements is independent
        off = abs(mine - float(terms.sum()))
        allowed = self.rtol * max(float(np.linalg.norm(terms)), abs(mine)) + self._floor(weight * np.abs(self.along.value[asked]))
        return "no" if off + bar <= allowed else "yes" if not off - bar <= allowed else "open"

    def _along(self, seen: Second) -> float:
        return float(np.sum(coordinates(seen.inputs, self.evidence.subject.inputs) * self.moves))

    def _floor(self, size: Array) -> float:
        """Second derivatives below this are rounding of gradients of that size."""
        return FLOOR * max(self.evidence.unit, self.along.unit) * float(np.linalg.norm(np.nan_to_num(size, posinf=0.0)))


def doubled(evidence: Evidence, w: Array) -> Second:
    """The double backward for other weights of the gradients' coordinates [N]."""
    return evidence.backwards.second(shaped(w, evidence.subject.inputs))


def _known(seen: Second | UserCodeError) -> Second:
    if isinstance(seen, UserCodeError):
        raise seen
    return seen
