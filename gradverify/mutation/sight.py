"""Does damage change a gradient at all: at the inputs of a check, or at others?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
KEEPING = ("signs", "sizes")  # what the first other points keep of the inputs, near by
SPREADS = (1.0, 0.1, 10.0)  # times their size: further points, which keep nothing else
POINTS = len(KEEPING) + len(SPREADS)
ROUNDINGS = 2.0**10  # of a gradient's largest element: less cannot be seen (1e-13, in float32 6e-5)
NEAR = (0.5, 1.5)  # factors, so that the first of them stays on the same side of 0


@dataclass(frozen=True)
class Sight:
    """What backward says at one point: gradients for random cotangents, and for ones."""

    replies: tuple[tuple[tuple[Tensor, ...], Gradients], ...]
    for_ones: Gradients


class Sights:
    """Of a right function, at the inputs of its check and at others where it can be computed."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self.here = self._at(evidence.subject.inputs)
        self.elsewhere = tuple(seen for n in range(POINTS) if (seen := self._try(n)) is not None)

    def changes(self, damage: Damage) -> bool:
        """At the check's inputs."""
        return self._changes(damage, self.here, self.elsewhere)

    def changes_elsewhere(self, damage: Damage) -> bool:
        return any(self._changes(damage, seen, (self.here,)) for seen in self.elsewhere)

    def vanishes(self, place: int) -> bool:
        """Is the gradient of an input zero here?"""
        return all(self._same(place, gradients[place], None) for _, gradients in self.here.replies)

    def _changes(self, damage: Damage, at: Sight, others: Sequence[Sight]) -> bool:
        if damage.how == "stale":
            return any(self._unequal(mine, theirs) for other in others for (_, mine), (_, theirs) in zip(at.replies, other.replies, strict=True))
        if damage.how == "deaf":
            return any(self._unequal(gradients, at.for_ones) for _, gradients in at.replies)
        return any(self._unequal(gradients, done(damage, gradients, cotangents)) for cotangents, gradients in at.replies)

    def _unequal(self, one: Gradients, other: Gradients) -> bool:
        return not all(self._same(place, a, b) for place, (a, b) in enumerate(zip(one, other, strict=True)))

    def _same(self, place: int, one: Tensor | None, other: Tensor | None) -> bool:
        """Within rounding of the gradient's size, and of the natural size ‖v‖‖f‖/‖x‖: sums over softmax rows are made of that."""
        argument = self._evidence.inputs[place]
        a, b = flat(argument, one), flat(argument, other)
        unit = UNITS.get(argument.value.dtype, U64)
        y, size = flat_all(self._evidence.outputs).nan_to_num(0.0, 0.0, 0.0), float(flat_real(argument.value).nan_to_num(0.0, 0.0, 0.0).norm())
        dust = DUST * unit * float(y.numel() ** 0.5 * y.norm()) / size if size else 0.0
        return bool(((a - b).abs() <= max(largest(a), largest(b)) * ROUNDINGS * unit + dust).all())

    def _at(self, inputs: Sequence[Tensor]) -> Sight:
        vjp, outputs = self._evidence.function.vjp_at, self._evidence.outputs
        asked = [self._evidence.cotangents(f"damage {n}") for n in range(PROBES)]
        replies = tuple((v, copied(vjp(inputs, [cotangent.clone() for cotangent in v]))) for v in asked)
        return Sight(replies, copied(vjp(inputs, [torch.ones_like(y) for y in outputs])))

    def _try(self, n: int) -> Sight | None:
        """None where the function is not defined there."""
        try:
            seen = self._at([self._other(n, argument) for argument in self._evidence.inputs])
        except UserCodeError:
            return None
        told = [gradient for _, gradients in seen.replies for gradient in (*gradients, *seen.for_ones) if gradient is not None]
        return seen if all(bool(gradient.isfinite().all()) for gradient in told) else None

    def _other(self, n: int, argument: Argument) -> Tensor:
        return other_point(argument, n, generator(self._evidence.settings.seed, self._evidence.subject.case.check, f"{argument.name} elsewhere {n}"))


def other_point(argument: Argument, n: int, source: torch.Generator) -> Tensor:
    """Other values of an input's shape, inside its domain. n = 0: every element by a factor of its own; 1: with other signs; further: all drawn
    anew, at the input's size times a spread."""
    x = argument.value.detach()
    size = (float(x.abs().square().mean().sqrt()) or 1.0) * (1.0 if n < len(KEEPING) else SPREADS[n - len(KEEPING)])
    low, high = NEAR
    factor = low + (high - low) * torch.rand(x.shape, generator=source, dtype=torch.float64)
    drawn = torch.randn(x.shape, generator=source, dtype=torch.float64)
    anew = (drawn * size).to(dtype=x.dtype, device=x.device)
    if n >= len(KEEPING):
        moved = anew
    else:
        moved = torch.where(x == 0, anew, x * (factor if KEEPING[n] == "signs" else factor * drawn.sign()).to(dtype=x.dtype, device=x.device))
    return moved if argument.domain is None or moved.is_complex() else torch.clamp(moved, *argument.domain)
