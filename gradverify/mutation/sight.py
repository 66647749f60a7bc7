"""Does damage change a gradient at all: at the inputs of a check, or at others?"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from gradverify.evidence import Evidence
from gradverify.numerics.function.coordinates import UNITS, flat_all, flat_real
from gradverify.numerics.rungs import U64
from gradverify.rules.differ import DUST, flat, largest
from gradverify.subject.damage import Damage, done
from gradverify.subject.differentiable import Gradients, copied
from gradverify.subject.draw import generator
from gradverify.subject.failure import UserCodeError
from gradverify.subject.subject import Argument

PROBES = 2  # random cotangents under which damage must show
SPREADS = (1.0, 1.0, 1.0, 0.1, 10.0)  # of other points, of which the first two are near by
ROUNDINGS = 2.0**10  # of a gradient's largest element: less cannot be seen (1e-13, in float32 6e-5)
NEAR = (0.5, 1.5)  # factors, so that the first of them stays on the same side of 0

Replies = list[tuple[list[Tensor], Gradients]]
"""Cotangents and the gradients for them, at one point: random ones, at last ones."""


class Sights:
    """Of a right function: what backward says at the inputs of its check, and at others where it can
    be computed."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self.here = self._at(evidence.subject.inputs)
        self.elsewhere = [seen for n in range(len(SPREADS)) if (seen := self._other(n)) is not None]

    def changes(self, damage: Damage) -> bool:
        """At the check's inputs."""
        return self._changes(damage, self.here, self.elsewhere)

    def changes_elsewhere(self, damage: Damage) -> bool:
        return any(self._changes(damage, seen, [self.here]) for seen in self.elsewhere)

    def vanishes(self, place: int) -> bool:
        """Is the gradient of an input zero here?"""
        return all(self._same(place, gradients[place], None) for _, gradients in self.here)

    def _changes(self, damage: Damage, at: Replies, others: Sequence[Replies]) -> bool:
        for number, (cotangents, gradients) in enumerate(at[:-1]):
            changed = [done(damage, gradients, cotangents)]
            if damage.how == "stale":
                changed = [other[number][1] for other in others]
            elif damage.how == "deaf":
                changed = [at[-1][1]]
            for other in changed:
                if not all(map(self._same, range(len(other)), gradients, other)):
                    return True
        return False

    def _same(self, place: int, one: Tensor | None, other: Tensor | None) -> bool:
        """Within rounding of the gradient's size, and of the natural size ‖v‖‖f‖/‖x‖: sums over
        softmax rows are made of that."""
        argument = self._evidence.inputs[place]
        a, b = flat(argument, one), flat(argument, other)
        unit, dust = UNITS.get(argument.value.dtype, U64), 0.0
        y = flat_all(self._evidence.outputs).nan_to_num(0.0, 0.0, 0.0)
        size = float(flat_real(argument.value).nan_to_num(0.0, 0.0, 0.0).norm())
        if size:
            dust = DUST * unit * float(y.numel() ** 0.5 * y.norm()) / size
        rounding = max(largest(a), largest(b)) * ROUNDINGS * unit
        return bool(((a - b).abs() <= rounding + dust).all())

    def _at(self, inputs: Sequence[Tensor]) -> Replies:
        asked = [list(self._evidence.cotangents(f"damage {n}")) for n in range(PROBES)]
        asked.append([torch.ones_like(y) for y in self._evidence.outputs])
        vjp = self._evidence.function.vjp_at
        return [(v, copied(vjp(inputs, [cotangent.clone() for cotangent in v]))) for v in asked]

    def _other(self, n: int) -> Replies | None:
        """At another point; None where the function is not defined there."""
        inputs = []
        for argument in self._evidence.inputs:
            seed, check = self._evidence.settings.seed, self._evidence.subject.case.check
            source = generator(seed, check, f"{argument.name} elsewhere {n}")
            inputs.append(other_point(argument, n, source))
        try:
            seen = self._at(inputs)
        except UserCodeError:
            return None
        told = [gradient for _, gradients in seen for gradient in gradients if gradient is not None]
        return seen if all(bool(gradient.isfinite().all()) for gradient in told) else None


def other_point(argument: Argument, n: int, source: torch.Generator) -> Tensor:
    """Other values of an input's shape, inside its domain. n = 0: every element by a factor of its
    own; 1: with other signs; further: all drawn anew, at the input's size times a spread."""
    x = argument.value.detach()
    size = (float(x.abs().square().mean().sqrt()) or 1.0) * SPREADS[n]
    low, high = NEAR
    factor = low + (high - low) * torch.rand(x.shape, generator=source, dtype=torch.float64)
    drawn = torch.randn(x.shape, generator=source, dtype=torch.float64)
    moved = (drawn * size).to(dtype=x.dtype, device=x.device)
    if n < 2:
        factor = factor if n == 0 else factor * drawn.sign()
        moved = torch.where(x == 0, moved, x * factor.to(dtype=x.dtype, device=x.device))
    if argument.domain is None or moved.is_complex():
        return moved
    return torch.clamp(moved, *argument.domain)
