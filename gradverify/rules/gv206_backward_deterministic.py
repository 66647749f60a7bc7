"""GV206 backward-deterministic: backward gives other gradients when it is called again

What. Calls of backward with the same `grad_output`, on the same inputs, differ.

Why it matters. A gradient that depends on how often backward ran (a counter, a warm-up, an uninitialised buffer, a race) is right in a test that
calls it once and wrong in training. Up to 4 ulp are right. Up to 2¹⁰ roundings of the gradient's size are a warning: that is what atomic adds in
another order do, and two runs of one training then differ; so is what an iteration leaves, below `rtol`. More is an error, and with
`deterministic: true` any difference.

How it is measured. 20 identical calls: the first of the check's process (GV231), the base call, and 18 more; 4 calls where a second backward of one
graph is refused and each needs its own forward. Where up to four inputs and several outputs make the other rules call more often, it is as many as
keep all rules GV2xx within 60 backward calls. A fault that shows more rarely than that is not seen; `-v` prints how many calls were compared, and
how many different results they gave, as the JSON report does (`reproducibility`). What differs is called again on fresh graphs: a backward that is
spoilt by an earlier one of the same graph has a code of its own. What GV211, GV214 and GV220 ask of graphs of their own, of the same inputs (for a
backward that depends on how often forward ran), is compared too. A backward that draws random numbers (from torch, NumPy or Python) is called 60
times more, each time with another seed: every call of a check is seeded alike, so that it seems to repeat itself. What these calls differ by is an
error beyond `rtol` of the gradient's size, and a warning below (an iteration that starts from random numbers).

How to repair. Keep no state on the class. Fill what `torch.empty` returns. Draw a mask in forward, and save it. Sum in a fixed order, or say in the
docstring that it is not deterministic.

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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import torch
from torch import Tensor

from gradverify.evidence import Evidence
from gradverify.model.result import Finding, Reproduced
from gradverify.numerics.function.coordinates import UNITS
from gradverify.rules.agreement import dust, equal, flat, largest, torchs_own, unsteady
from gradverify.rules.gv208_input_subset import ALL_SUBSETS, subsets
from gradverify.rules.repeats import ANOTHER, ATOMIC, LEFT, ORDER_OF_SUMS, Repeats, in_words
from gradverify.rules.shown import apart as told_apart
from gradverify.rules.shown import element_name
from gradverify.subject.differentiable import Gradients, copied

CATCHES = "decays_every_twentieth_call"
ORDER = 80
RANK = 20
PRICE, WORTH = (0, 2), 100
CALLS, FEW = 20, 4      # compared calls; where each needs a forward of its own
SEEDS = 60              # calls of a backward that draws: a mask that drops 5 % of three elements is missed once in 10,000
ASKED = 2               # calls of one graph that show whether it may be asked again
BUDGET, OTHERS = 60, 26     # backward calls of all rules GV2xx up to ALL_SUBSETS inputs; of the others with one input and one output
ULPS = 4
DRAWN = "backward must be the derivative of the forward that ran: what that drew must be saved, and nothing drawn anew"


@dataclass(frozen=True)
class Odd:
    """The worst difference of an input's gradients: `calls` that differ from the second one; roundings of the gradient's size, how far they are
    off, that size."""

    place: int
    calls: tuple[int, ...]
    element: int
    here: float
    there: float
    roundings: float
    off: float
    size: float


@dataclass(frozen=True)
class Compared:
    """The inputs whose gradients differ among this many calls; the different results of each input, counted."""

    odd: list[Odd]
    calls: int
    counted: list[Reproduced]


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    return unsteady(found) or torchs_own(evidence)


def check(evidence: Evidence) -> Iterator[Finding | str]:
    before = evidence.poisoned.repeats
    planned = evidence.spending.some(range(2 + len(before), _planned(evidence) + 1), 0, 1, "repeats")
    compared = _compared(evidence, _repeats(evidence, planned), before)
    if compared.odd and evidence.repeats is not None:
        compared, first = _compared(evidence, _on_fresh_graphs(evidence), before), compared
        if not compared.odd:
            yield f"call {first.odd[0].calls[0]} of one graph differs, but fresh graphs agree: not for this rule"
    for odd in compared.odd:
        yield _finding(evidence, odd, compared.calls)
    if not compared.odd and _draws(evidence):
        drawn = _compared(evidence, _with_other_seeds(evidence))
        for odd in drawn.odd:
            yield _of_draws(evidence, odd, drawn.calls)
    evidence.reproduced += compared.counted
    yield f"{compared.calls} identical calls compared, the first of the process among them"
    if in_words(compared.counted):
        yield in_words(compared.counted)


def _planned(evidence: Evidence) -> int:
    """How many calls to compare: what the other rules leave of the budget."""
    inputs, outputs = len(evidence.inputs), len(evidence.forward.checked)
    if inputs > ALL_SUBSETS:
        return CALLS
    each_alone = (outputs + 1 if outputs > 1 else 0) + (outputs if outputs > 2 else 0)  # GV209
    conjugated = any(y.is_complex() for y in evidence.outputs)                          # GV210
    others = OTHERS + len(subsets(inputs)) + inputs + outputs - 1 + each_alone + conjugated     # GV208, GV215
    others += any(a.is_tensor and not a.value.is_floating_point() for a in evidence.subject.arguments)      # GV223
    return max(FEW, min(CALLS, BUDGET - others + 1))


def _repeats(evidence: Evidence, numbers: Sequence[int]) -> Iterator[Gradients]:
    """The base call's backward again, on another graph as long as one is allowed; among them the repeats that GV207 and GV227 ask for as well.

    These come when that graph was asked twice: of the base graph, whose saved tensors are watched, torch would not see that they were written to.
    """
    for _ in numbers[:ASKED]:
        yield evidence.function.vjp(evidence.cotangents("base"))
    again = (evidence.repeats or ())[:len(numbers) - ASKED] if len(numbers) > ASKED else ()
    yield from (returned.values for returned in again)
    for number in numbers[ASKED + len(again):]:
        if number > FEW and not evidence.function.reusable:
            return
        yield evidence.function.vjp(evidence.cotangents("base"))


def _on_fresh_graphs(evidence: Evidence) -> Iterator[Gradients]:
    """CALLS first backwards of graphs of their own, in a row."""
    for _ in range(CALLS):
        yield evidence.function.once(evidence.cotangents("base"))[1]


def _draws(evidence: Evidence) -> bool:
    """Does backward draw random numbers, and can it be called with others for one and the same forward?"""
    before, after = evidence.worked.drawn
    return evidence.settings.reseed and before != after and (evidence.function.reusable or not evidence.draws)


def _with_other_seeds(evidence: Evidence) -> Iterator[Gradients]:
    evidence.function.here()        # a forward that draws is not to be made with another seed
    for number in evidence.spending.some(range(SEEDS), 0, 1, "other seeds"):
        yield evidence.subject.seeded_elsewhere(lambda: evidence.function.vjp(evidence.cotangents("base")), number)


def _compared(evidence: Evidence, repeats: Iterator[Gradients], before: Sequence[Gradients] = ()) -> Compared:
    """The base call and its repeats, all against the second. `before`: the first call of all, and what else was called before the base call."""
    calls = chain([*before[:1], evidence.worked.gradients, *before[1:]], repeats)
    first, given = next(calls), copied(next(calls))
    second = [flat(argument, gradient) for argument, gradient in zip(evidence.inputs, given, strict=True)]
    counts = [Repeats(f"grad of {argument.name}") for argument in evidence.inputs]
    for count, each in zip(counts, second, strict=True):
        count.add(each)
    found: dict[int, list[Odd]] = {}
    number = 2
    for number, returned in chain([(1, first)], enumerate(calls, 3)):
        for place, gradient in enumerate(returned):
            if equal(given[place], gradient):
                counts[place].again()
                continue
            other = flat(evidence.inputs[place], gradient)
            counts[place].add(other)
            odd = _difference(evidence, place, number, second[place], other)
            if odd is not None:
                found.setdefault(place, []).append(odd)
    units = [max(evidence.precision, UNITS[argument.value.dtype]) for argument in evidence.inputs]
    counted = [count.told(unit) for count, unit in zip(counts, units, strict=True)]
    return Compared([_merged(each) for each in found.values()], max(number, 2), counted)


def _difference(evidence: Evidence, place: int, number: int, wanted: Tensor, given: Tensor) -> Odd | None:
    if torch.equal(wanted, given):
        return None
    argument = evidence.inputs[place]
    unit = max(evidence.precision, UNITS[argument.value.dtype])
    equal = (wanted == given) | (wanted.isnan() & given.isnan())
    apart = torch.where(equal, torch.zeros_like(wanted), (wanted - given).abs().nan_to_num(nan=torch.inf))
    if equal.all():
        return None
    rounding, worst = unit * largest(wanted), int(apart.argmax())
    if not evidence.settings.deterministic and float(apart[worst]) <= max(2 * ULPS * rounding, dust(evidence, argument.value)):
        return None
    distance, size = float(apart[worst]), largest(wanted)
    return Odd(place, (number,), worst, float(given[worst]), float(wanted[worst]), distance / rounding if rounding else torch.inf, distance, size)


def _merged(odd: list[Odd]) -> Odd:
    worst = max(odd, key=lambda each: each.roundings)
    return replace(worst, calls=tuple(call for each in odd for call in each.calls))


def _finding(evidence: Evidence, odd: Odd, calls: int) -> Finding:
    argument = evidence.inputs[odd.place]
    where = element_name(argument.name, argument.value, odd.element)
    which = "the first call of all" if odd.calls == (1,) else f"call {odd.calls[0]}" if len(odd.calls) == 1 else f"{len(odd.calls)} of the calls"
    message = (f"backward is not deterministic: of {calls} calls with the same grad_output {which} differ{'' if len(odd.calls) > 1 else 's'} from "
               f"the second; at {where} {' and '.join(told_apart(odd.here, odd.there))}")
    if odd.roundings > ATOMIC and not odd.off <= evidence.leftover * odd.size:
        return Finding("GV206", message, input=argument.name, hint=ANOTHER)
    if odd.roundings > ATOMIC:
        return Finding("GV206", message, severity="warning", input=argument.name, hint=LEFT)
    return Finding("GV206", message, severity="warning", input=argument.name, hint=ORDER_OF_SUMS)


def _of_draws(evidence: Evidence, odd: Odd, calls: int) -> Finding:
    argument = evidence.inputs[odd.place]
    message = (f"backward draws random numbers, and its gradient depends on them: of {calls} calls with the same grad_output and other seeds "
               f"{len(odd.calls)} differ{'' if len(odd.calls) > 1 else 's'} from the second; at "
               f"{element_name(argument.name, argument.value, odd.element)} {' and '.join(told_apart(odd.here, odd.there))}")
    if odd.off <= evidence.settings.tolerances(low_precision=evidence.low_precision)[1] * odd.size:
        return Finding("GV206", message, severity="warning", input=argument.name, hint="the differences are within `rtol`")
    return Finding("GV206", message, input=argument.name, hint=DRAWN)
