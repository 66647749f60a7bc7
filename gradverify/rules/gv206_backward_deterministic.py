"""GV206 backward-deterministic: backward gives other gradients when it is called again

What. Calls of backward with the same `grad_output`, on the same inputs, differ.

Why it matters. A gradient that depends on how often backward ran (a counter, a warm-up, an uninitialised buffer, a race) is right in a test that
calls it once and wrong in training. Up to 4 ulp are right. Up to 2¹⁰ roundings of the gradient's size are a warning: that is what atomic adds in
another order do, and two runs of one training then differ. More is an error.

How it is measured. 20 identical calls: the base call, which is the first of the check's process, and 19 more; 4 calls where a second backward of one
graph is refused and each needs its own forward. A fault that shows more rarely than every 20th call is not seen; `-v` prints how many calls were
compared. What differs is called again on fresh graphs: a backward that is spoilt by an earlier one of the same graph has a code of its own.

How to repair. Keep no state on the class. Fill what `torch.empty` returns. Sum in a fixed order, or say in the docstring that it is not
deterministic.

Example.
    class Square(Function):
        calls = 0

        @staticmethod
        def backward(ctx, grad_output):
            Square.calls += 1
            x, = ctx.saved_tensors
            return (2 if Square.calls > 1 else 1) * x * grad_output     # a warm-up: the first call is another one
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.evidence import Evidence
from gradverify.model.result import Finding
from gradverify.numerics.point import UNITS
from gradverify.rules.agreement import dust, flat, largest, torchs_own
from gradverify.rules.shown import element_name
from gradverify.subject.differentiable import Gradients

CATCHES = "decays_every_twentieth_call"
CALLS, FEW = 20, 4      # compared calls; where each needs a forward of its own
ULPS = 4
ATOMIC = 2.0**10        # roundings of the gradient's size: sums in another order


@dataclass(frozen=True)
class Odd:
    """The worst difference of an input's gradients: `calls` that differ from the second one; roundings of the gradient's size."""

    place: int
    calls: tuple[int, ...]
    element: int
    here: float
    there: float
    roundings: float


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    return "the forward is not deterministic" if "GV205" in found else torchs_own(evidence)


def check(evidence: Evidence) -> Iterator[Finding | str]:
    first, function, v = evidence.worked.gradients, evidence.function, evidence.cotangents("base")
    second = function.vjp([cotangent.clone() for cotangent in v])
    calls = CALLS if function.reuses else FEW
    odd = _odd(evidence, calls, first, second, lambda: function.vjp([cotangent.clone() for cotangent in v]))
    if odd and function.reuses:
        calls += 1      # 20 in a row, and the base call again
        fresh = _odd(evidence, calls, first, function.once(v)[1], lambda: function.once(v)[1])
        if not fresh:
            yield "a second backward of one graph differs from its first, fresh graphs agree: not for this rule"
        odd = fresh
    for each in odd:
        yield _finding(evidence, each, calls)
    yield f"{calls} identical calls compared, the first of the process among them"


def _odd(evidence: Evidence, calls: int, first: Gradients, second: Gradients, again: Callable[[], Gradients]) -> list[Odd]:
    """Per input whose gradients differ by more than 4 ulp, the call that is furthest from the second. `calls` counts both first ones."""
    wanted = [flat(argument, gradient) for argument, gradient in zip(evidence.inputs, second, strict=True)]
    found: dict[int, list[Odd]] = {}
    for number in (1, *range(3, calls + 1)):
        given = first if number == 1 else again()
        for place, gradient in enumerate(given):
            odd = _difference(evidence, place, number, wanted[place], flat(evidence.inputs[place], gradient))
            if odd is not None:
                found.setdefault(place, []).append(odd)
    return [_merged(each) for each in found.values()]


def _difference(evidence: Evidence, place: int, number: int, wanted: Tensor, given: Tensor) -> Odd | None:
    argument = evidence.inputs[place]
    unit = max(evidence.precision, UNITS[argument.value.dtype])
    equal = (wanted == given) | (wanted.isnan() & given.isnan())
    apart = torch.where(equal, torch.zeros_like(wanted), (wanted - given).abs().nan_to_num(nan=torch.inf))
    if equal.all():
        return None
    rounding, worst = unit * largest(wanted), int(apart.argmax())
    if float(apart[worst]) <= max(2 * ULPS * rounding, dust(evidence, argument.value)):
        return None
    return Odd(place, (number,), worst, float(given[worst]), float(wanted[worst]), float(apart[worst]) / rounding if rounding else torch.inf)


def _merged(odd: list[Odd]) -> Odd:
    worst = max(odd, key=lambda each: each.roundings)
    return Odd(worst.place, tuple(call for each in odd for call in each.calls), worst.element, worst.here, worst.there, worst.roundings)


def _finding(evidence: Evidence, odd: Odd, calls: int) -> Finding:
    argument = evidence.inputs[odd.place]
    where = element_name(argument.name, argument.value, odd.element)
    which = "the first call of all" if odd.calls == (1,) else f"call {odd.calls[0]}" if len(odd.calls) == 1 else f"{len(odd.calls)} of the calls"
    message = (f"backward is not deterministic: of {calls} calls with the same grad_output {which} differ{'' if len(odd.calls) > 1 else 's'} from "
               f"the second; at {where} {odd.here:.6g} and {odd.there:.6g}")
    if odd.roundings > ATOMIC:
        return Finding("GV206", message, input=argument.name, hint="keep no state between calls, and leave no memory of torch.empty unwritten")
    return Finding("GV206", message, severity="warning", input=argument.name, hint="that is what a sum in another order does (atomic adds)")
