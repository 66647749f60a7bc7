"""When two gradients, or two outputs, are the same: within rounding, measured by sizes that a vanishing gradient does not take away."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.evidence import Evidence
from gradverify.numerics.flat import flat_all, flat_real
from gradverify.rules.shown import element_name
from gradverify.subject.subject import Argument

SINGLE, SIXTEEN = 2.0**-24, 2.0**-12    # roundoffs from which a forward computes in float32, in 16 bits
DUST = 16.0             # roundings of the gradient's natural size ‖v‖‖f‖/‖x‖
NUDGE = 1 / 32          # of the tolerance, by which v is changed: far above its rounding, and DUST times it stays below the tolerance
NUDGES = 2


@dataclass(frozen=True, slots=True)
class Difference:
    """The element where two tensors differ most."""

    where: str
    expected: float
    seen: float


def differing(evidence: Evidence, argument: Argument, expected: Tensor | None, seen: Tensor | None) -> Difference | None:
    """Where two gradients of one computation differ by more than rounding; None counts as zero."""
    a, b = flat(argument, expected), flat(argument, seen)
    base = flat(argument, evidence.worked.gradients[evidence.inputs.index(argument)])
    allowed = max(largest(a), largest(base)) * tolerance(evidence.precision) + dust(evidence, argument.value)
    return _worst(argument.name, argument.value, a, b, allowed)


def clearly_differing(evidence: Evidence, argument: Argument, expected: Tensor | None, seen: Tensor | None,
                      v: Sequence[Tensor]) -> Difference | None:
    """`differing` for two computations, which may round differently. Calls backward for the cotangents v again where they differ."""
    found = differing(evidence, argument, expected, seen)
    if found is None or not math.isfinite(found.expected - found.seen):
        return found
    again = evidence.function.vjp([cotangent.clone() for cotangent in v])[evidence.inputs.index(argument)]
    return found if abs(found.expected - found.seen) > DUST * noise(evidence, argument, v, flat(argument, again)) else None


def differing_output(evidence: Evidence, place: int, expected: Tensor, seen: Tensor) -> Difference | None:
    """Where an output differs from the one of the base call by more than rounding and than `nondeterminism` accepts. The shapes are equal.

    A sum that cancels (of `layer_norm(x)`) is rounding of the inputs' size.
    """
    a, b = flat_real(expected), flat_real(seen)
    rounding = DUST * evidence.precision * float(_finite(flat_all(evidence.subject.inputs)).norm())
    allowed = largest(a) * tolerance(evidence.precision) + rounding + evidence.settings.nondeterminism
    return _worst(f"y{place}", expected, a, b, allowed)


def _worst(name: str, like: Tensor, a: Tensor, b: Tensor, allowed: float) -> Difference | None:
    """NaN and infinities agree with themselves only."""
    off = torch.where((a == b) | (a.isnan() & b.isnan()), torch.zeros_like(a), (a - b).abs().nan_to_num(nan=torch.inf))
    if not len(off) or float(off.max()) <= allowed:
        return None
    worst = int(off.argmax())
    return Difference(element_name(name, like, worst), float(a[worst]), float(b[worst]))


def noise(evidence: Evidence, argument: Argument, v: Sequence[Tensor], expected: Tensor) -> float:
    """How far the gradient goes when v is nudged: only a gradient that is rounding throughout (of `layer_norm(x).sum()`) goes far."""
    place, found = evidence.inputs.index(argument), 0.0
    for nudge in range(NUDGES):
        signs = evidence.cotangents(f"nudge {nudge}")
        moved = [cotangent + NUDGE * tolerance(evidence.precision) * cotangent.abs() * sign for cotangent, sign in zip(v, signs, strict=True)]
        found = max(found, largest(flat(argument, evidence.function.vjp(moved)[place]) - expected))
    return found


def flat(argument: Argument, gradient: Tensor | None) -> Tensor:
    """The real coordinates of a gradient, copied, as backward may use its memory again; zeros where there is none."""
    return flat_real(torch.zeros_like(argument.value) if gradient is None else gradient.clone())


def largest(values: Tensor) -> float:
    """The largest finite magnitude."""
    return float(values[values.isfinite()].abs().max()) if values.isfinite().any() else 0.0


def tolerance(unit: float) -> float:
    """T of two gradients, relative, by the roundoff that the forward computes in."""
    return 5e-2 if unit > SIXTEEN else 3e-5 if unit >= SINGLE else 1e-9


def dust(evidence: Evidence, x: Tensor) -> float:
    """The rounding of a gradient whose natural size is ‖v‖‖f‖/‖x‖: sums over softmax rows and norms are made of it."""
    values, size = _finite(flat_all(evidence.outputs)), float(_finite(flat_real(x)).norm())
    return DUST * evidence.precision * float(values.numel() ** 0.5 * values.norm()) / size if size else 0.0


def _finite(values: Tensor) -> Tensor:
    return values.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
