"""Do two ways to call one function agree? What the contract rules that vary the base call share.

Differences are judged against the gradient of a dense cotangent and its natural size ‖v‖‖f‖/‖x‖, never against the two compared numbers alone
(softmax and norms under a constant cotangent are pure rounding). What is then still too large must stand out from what a nudge of the cotangents,
and of the inputs, does to the same element: gradients that are rounding throughout and ties go far under a nudge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from gradverify.evidence import Evidence
from gradverify.numerics.flat import flat_all, flat_real, numbers
from gradverify.numerics.noise import Bits
from gradverify.rules.shown import element_name
from gradverify.subject.differentiable import Gradients
from gradverify.subject.draw import generator, signed
from gradverify.subject.failure import UserCodeError
from gradverify.subject.subject import Argument

SINGLE, SIXTEEN = 2.0**-24, 2.0**-12    # roundoffs from which a forward computes in float32, in 16 bits
DOUBLE = (torch.float64, torch.complex128)
DUST = 16.0             # roundings of the gradient's natural size ‖v‖‖f‖/‖x‖
NUDGE = 1 / 32          # of the tolerance, by which v is changed: far above its rounding, and DUST times it stays below the tolerance
NUDGES = 2              # directions; the inputs are nudged to both sides of each, which breaks a tie both ways


@dataclass(frozen=True, slots=True)
class Apart:
    """The element where two calls differ most, of an input's gradient or of an output. `text`: "x[0,1] is 1.5 …, expected 2"."""

    input: str | None
    output: int | None
    where: str
    expected: float
    got: float

    @property
    def text(self) -> str:
        what = f"the gradient at {self.where}" if self.input is not None else self.where
        return f"{what} is {self.got:.6g}, and not {self.expected:.6g}"


def tolerance(unit: float) -> float:
    """T of rules.md, by the roundoff that the forward computes in."""
    return 5e-2 if unit > SIXTEEN else 3e-5 if unit >= SINGLE else 1e-9


def flat(argument: Argument, gradient: Tensor | None) -> Tensor:
    """A gradient as real numbers of its own, zeros for None."""
    return flat_real(torch.zeros_like(argument.value) if gradient is None else gradient).clone()


def kept(gradients: Gradients) -> Gradients:
    """By value: a backward may hand out one buffer again and again."""
    return tuple(None if gradient is None else gradient.clone() for gradient in gradients)


def unsteady(found: frozenset[str]) -> str | None:
    """Why calls cannot be compared with each other after what was found; None where they can."""
    if "GV205" in found:
        return "the forward is not deterministic"
    return "backward is not deterministic" if "GV206" in found else None


def torchs_own(evidence: Evidence) -> str | None:
    """Why a rule on hand-written backwards has nothing to look at; None where there is one."""
    return None if evidence.forward.handwritten else "no custom Function is in the graph: every backward is torch's own"


def is_double(evidence: Evidence) -> bool:
    """Are all floating arguments float64 or complex128?"""
    values = (argument.value for argument in evidence.subject.arguments if argument.is_tensor)
    return all(x.dtype in DOUBLE for x in values if x.is_floating_point() or x.is_complex())


def dust(evidence: Evidence, x: Tensor) -> float:
    """The rounding of a gradient whose natural size is ‖v‖‖f‖/‖x‖: sums over softmax rows and norms are made of it."""
    values = flat_all(evidence.outputs).nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
    size = float(flat_real(x).norm())
    return DUST * evidence.precision * float(values.numel() ** 0.5 * values.norm()) / size if size else 0.0


def noise(evidence: Evidence, argument: Argument, v: Sequence[Tensor], expected: Tensor) -> float:
    """How far the gradient goes when v is nudged: only a gradient that is rounding throughout (of `layer_norm(x).sum()`) goes far."""
    place, most = evidence.inputs.index(argument), 0.0
    for nudge in range(NUDGES):
        signs = evidence.cotangents(f"nudge {nudge}")
        moved = [cotangent + NUDGE * tolerance(evidence.precision) * cotangent.abs() * sign for cotangent, sign in zip(v, signs, strict=True)]
        change = (flat(argument, evidence.function.vjp(moved)[place]) - expected).abs()
        most = max(most, float(change[change.isfinite()].max()) if change.isfinite().any() else 0.0)
    return most


def gradients_apart(evidence: Evidence, expected: Gradients, got: Gradients, v: Sequence[Tensor]) -> Iterator[Apart]:
    """Per input whose two gradients under the cotangents v differ, the element where they do most."""
    for place, argument in enumerate(evidence.inputs):
        wanted, given, dense = (flat(argument, gradients[place]) for gradients in (expected, got, evidence.worked.gradients))
        wanted[~dense.isfinite()] = torch.nan       # wrong already, or infinite by right: not for here
        unit = max(evidence.precision, Bits().seen(numbers(dense)).unit)
        apart, allowed = off(wanted, given), largest(dense) * tolerance(unit) + dust(evidence, argument.value)
        if not bool((apart > allowed).any()):
            continue
        shaken = noise(evidence, argument, v, flat(argument, evidence.function.vjp([c.clone() for c in v])[place]))
        moved = nudged(evidence, partial(gradient_at, evidence, v, place), _nudge(evidence))
        worst = worst_of(apart, allowed + DUST * (shaken + moved))
        if worst is not None:
            where = element_name(argument.name, argument.value, worst)
            yield Apart(argument.name, None, where, float(wanted[worst]), float(given[worst]))


def outputs_apart(evidence: Evidence, got: Sequence[Tensor]) -> Iterator[Apart]:
    """Per output that is not the base call's, the element where it differs most; one of another shape or dtype is for the caller to see."""
    for place, (number, y, again) in enumerate(zip(evidence.forward.checked, evidence.outputs, got, strict=True)):
        wanted, given = flat_real(y), flat_real(again)
        apart, allowed = off(wanted, given), largest(wanted) * tolerance(evidence.precision)
        if not bool((apart > allowed).any()):
            continue
        moved = nudged(evidence, partial(_output_at, evidence, place), _nudge(evidence))
        worst = worst_of(apart, allowed + DUST * moved)
        if worst is not None:
            yield Apart(None, number, element_name(f"y{number}", y, worst), float(wanted[worst]), float(given[worst]))


def off(wanted: Tensor, given: Tensor) -> Tensor:
    """|difference|, infinite where only `given` is not finite, 0 where `wanted` is not: that is another rule's."""
    return torch.where(wanted.isfinite(), (wanted - given).abs().nan_to_num(nan=torch.inf), torch.zeros_like(wanted))


def largest(values: Tensor) -> float:
    finite = values[values.isfinite()]
    return float(finite.abs().max()) if finite.numel() else 0.0


def worst_of(off: Tensor, allowed: Tensor) -> int | None:
    """The element furthest above what is allowed."""
    excess = off - allowed
    if not excess.numel():
        return None
    worst = int(excess.argmax())
    return worst if float(excess[worst]) > 0 else None


def _nudge(evidence: Evidence) -> float:
    return NUDGE * tolerance(evidence.precision)


def _output_at(evidence: Evidence, place: int, inputs: Sequence[Tensor]) -> Tensor:
    return flat_real(evidence.function.values([x.detach().clone() for x in inputs])[place])


def gradient_at(evidence: Evidence, v: Sequence[Tensor], place: int, inputs: Sequence[Tensor]) -> Tensor:
    """The gradient of one input at other inputs."""
    return flat(evidence.inputs[place], evidence.function.vjp_at(inputs, [c.clone() for c in v])[place])


def nudged(evidence: Evidence, measure: Callable[[Sequence[Tensor]], Tensor], size: float) -> Tensor:
    """How far each element of a measurement goes when all inputs are nudged by `size` of theirs; 0 where the function refuses that."""
    inputs = evidence.subject.inputs
    most = torch.zeros(())
    try:
        here = measure(inputs)
        for nudge in range(NUDGES):
            source = generator(evidence.settings.seed, evidence.subject.case.check, f"input nudge {nudge}")
            signs = [signed(x, source) for x in inputs]
            for side in (size, -size):
                there = measure([x + side * x.abs() * sign for x, sign in zip(inputs, signs, strict=True)])
                most = torch.maximum(most, (there - here).abs().nan_to_num(nan=0.0, posinf=0.0))
    except UserCodeError:
        pass
    return most
