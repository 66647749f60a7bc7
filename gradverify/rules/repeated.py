"""Calls that are made again: identical ones, those of one graph, those after a call elsewhere, those that accumulate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain

import torch
from torch import Tensor

from gradverify.evidence import Evidence
from gradverify.model.case import Settings
from gradverify.model.result import Finding, Reproduced
from gradverify.numerics.function.coordinates import UNITS, flat_real
from gradverify.rules.at_line import at_forward
from gradverify.rules.differ import (
    ANOTHER,
    Difference,
    differing,
    differing_output,
    dust,
    equal,
    flat,
    largest,
    on_another_graph,
    other_gradient,
    torchs_own,
    unsteady,
)
from gradverify.rules.repeats import Repeats, in_words
from gradverify.rules.shown import NO_FUNCTION, RANDOM, apart, changed, element_name
from gradverify.rules.shown import apart as told_apart
from gradverify.rules.variants import ALL_SUBSETS, subsets
from gradverify.subject.alias import overlaps
from gradverify.subject.another import leaf_elsewhere
from gradverify.subject.differentiable import Gradients, Graph, Returned, copied
from gradverify.subject.failure import UserCodeError
from gradverify.subject.snapshot import change, same
from gradverify.subject.vmapped import Accumulated, accumulated, straight
from gradverify.torch_private import is_zerotensor

# ---- Identical calls compared: how many different results they gave, and how far apart these are
ATOMIC = 2.0**10        # roundings of a tensor's size: sums in another order
ASKS = ("GV205", "GV206")
LEFT = "that is what an iteration leaves that starts from other numbers, or rounds in another order: within `rtol`"
ORDER_OF_SUMS = "that is what a sum in another order does (atomic adds, split-k); `deterministic: true` makes it an error"


def graded(findings: Iterable[Finding], settings: Settings) -> tuple[Finding, ...]:
    """As severe as the spec wants them, when all is found: under `strict` every one is an error, under `deterministic` what differs between calls."""
    return tuple(replace(finding, severity="error") if settings.strict or (settings.deterministic and finding.code in ASKS) else finding
                 for finding in findings)


# ---- GV205 forward-deterministic: the forward gives other values when it is called again
MORE = 3        # calls, to count the different results of a forward that has some


def gv205(evidence: Evidence) -> Iterator[Finding | str]:
    """What differs by roundings is told when all calls were made: a later one may differ by more."""
    before = torch.default_generator.get_state()
    counts = [Repeats(evidence.name_of(place)) for place in evidence.forward.checked]
    _count(counts, evidence.outputs)
    slight: Finding | None = None
    for again in _forwards(evidence):
        _count(counts, again)
        for place, first, second in zip(evidence.forward.checked, evidence.outputs, again, strict=True):
            accepted = 0.0 if evidence.settings.deterministic else evidence.settings.nondeterminism
            difference = _of_outputs(first, second, accepted, evidence.name_of(place))
            if difference is None:
                continue
            told = Finding("GV205", f"the forward is not deterministic: {difference}", output=place)
            if _rounded(evidence, first, second):
                slight = slight or replace(told, severity="warning", hint=f"{ORDER_OF_SUMS}, `nondeterminism` accepts it")
            elif _converges(evidence, first, second):
                yield replace(told, severity="warning", hint=LEFT)
                return
            else:
                drawn = not evidence.settings.reseed and not torch.equal(before, torch.default_generator.get_state())
                yield replace(told, hint=_hint(drawn))
                return
    yield from _counted(evidence, counts, slight)


def _counted(evidence: Evidence, counts: Sequence[Repeats], slight: Finding | None) -> Iterator[Finding | str]:
    """What differs is called a few times more, to be counted."""
    if any(count.told(1.0).distinct > 1 for count in counts):
        for _ in range(MORE):
            _count(counts, evidence.function.here())
    found = [count.told(evidence.precision) for count in counts]
    evidence.reproduced += found
    if slight is not None:
        yield slight
    if in_words(found):
        yield in_words(found)


def _count(counts: Sequence[Repeats], outputs: Sequence[Tensor]) -> None:
    for count, y in zip(counts, outputs, strict=True):
        count.add(y)


def _rounded(evidence: Evidence, first: Tensor, second: Tensor) -> bool:
    """Is the difference no more than what a sum in another order makes?"""
    if first.shape != second.shape:
        return False
    a, b = flat_real(first), flat_real(second)
    return float((a - b).abs().nan_to_num(nan=torch.inf).max()) <= ATOMIC * evidence.precision * largest(a)


def _converges(evidence: Evidence, first: Tensor, second: Tensor) -> bool:
    """Is the difference no more than what an iteration leaves? It calls the function only where that would excuse it."""
    if first.shape != second.shape:
        return False
    a, b = flat_real(first), flat_real(second)
    off, size = float((a - b).abs().nan_to_num(nan=torch.inf).max()), largest(a)
    return off <= evidence.settings.tolerances(low_precision=evidence.low_precision)[1] * size and off <= evidence.leftover * size


def _forwards(evidence: Evidence) -> Iterator[Sequence[Tensor]]:
    """Those of the first call of all, where they are others; two further ones, the second with generators that start
    elsewhere, unless that alone makes the difference."""
    if evidence.poisoned.earliest is not None:
        yield evidence.poisoned.earliest
    yield evidence.function.here()
    if evidence.forward.random:
        yield evidence.function.values(evidence.subject.leaves())
        return
    again = evidence.reseeded
    if not evidence.draws:
        yield again


def _of_outputs(first: Tensor, second: Tensor, accepted: float, name: str) -> str | None:
    """How two outputs of one point differ, in words; None where they do not."""
    if first.shape != second.shape:
        return f"{name} had shape {list(first.shape)}, and {list(second.shape)} when called again"
    if same(first, second):
        return None
    a, b = flat_real(first), flat_real(second)
    off = torch.where((a == b) | (a.isnan() & b.isnan()), torch.zeros_like(a), (a - b).abs().nan_to_num(nan=torch.inf))
    worst = int(off.argmax())
    if float(off[worst]) <= accepted:
        return None
    was, now = apart(float(a[worst]), float(b[worst]))
    return f"{element_name(name, first, worst)} was {was}, and {now} when called again with the same input"


def _hint(drawn: bool) -> str:
    if drawn:
        return "it draws from torch's generator: leave out `reseed: false`, and every forward draws the same numbers"
    return f"{ANOTHER}; `nondeterminism` accepts small differences"


# ---- GV206 backward-deterministic: backward gives other gradients when it is called again
CALLS, FEW = 20, 4      # compared calls; where each needs a forward of its own
SEEDS = 60              # calls of a backward that draws: a mask that drops 5 % of three elements is missed once in 10,000
ASKED = 2               # calls of one graph that show whether it may be asked again
BUDGET, OTHERS = 60, 27     # backward calls of all rules GV2xx up to ALL_SUBSETS inputs; of the others with one input and one output
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


def gv206_applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    return unsteady(found) or torchs_own(evidence)


def gv206(evidence: Evidence) -> Iterator[Finding | str]:
    before = evidence.poisoned.repeats
    planned = evidence.spending.some(range(2 + len(before), _planned(evidence) + 1), 0, 1, "repeats")
    compared = _compared(evidence, _backwards(evidence, planned), before)
    if compared.odd and evidence.repeats is not None:
        compared, first = _compared(evidence, _on_fresh_graphs(evidence), before), compared
        if not compared.odd:
            yield f"call {first.odd[0].calls[0]} of one graph differs, but fresh graphs agree: not for this rule"
    for odd in compared.odd:
        yield _of_repeats(evidence, odd, compared.calls)
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


def _backwards(evidence: Evidence, numbers: Sequence[int]) -> Iterator[Gradients]:
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
            odd = _of_gradients(evidence, place, number, second[place], other)
            if odd is not None:
                found.setdefault(place, []).append(odd)
    units = [max(evidence.precision, UNITS[argument.value.dtype]) for argument in evidence.inputs]
    counted = [count.told(unit) for count, unit in zip(counts, units, strict=True)]
    return Compared([_merged(each) for each in found.values()], max(number, 2), counted)


def _of_gradients(evidence: Evidence, place: int, number: int, wanted: Tensor, given: Tensor) -> Odd | None:
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


def _of_repeats(evidence: Evidence, odd: Odd, calls: int) -> Finding:
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


# ---- GV207 reentrant: a call changes what an earlier call returned or will return
OF_ONE_CALL = "what belongs to one call must not be kept where other calls reach it: on the class, in a module, in a shared buffer"
AGAIN = "backward must leave what it reads as it is (ctx, the class, buffers), so that the next call of it finds the same"
FRESH = "return fresh tensors: what was handed out is the caller's"
REMEMBERED = ("compute it from the tensor in every call, or let what is remembered depend on its `_version`, which every write in place raises: "
              "a tensor's address, `id` and shape stay as they are")


def gv207_applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    return RANDOM if "GV205" in found else None


def gv207(evidence: Evidence) -> Iterator[Finding]:
    found = next(_seen(evidence), None)
    if found is not None:
        yield found


def _seen(evidence: Evidence) -> Iterator[Finding]:
    """What each step of the sequence shows."""
    for again in evidence.repeats or ():
        yield from _gradients(evidence, again.values, "backward of one graph gives another gradient when it is called again", AGAIN)
    first = evidence.usable()
    earlier = _Earlier(evidence, first)
    leaves = _call_elsewhere(evidence, earlier)
    yield from _again(evidence, first)
    if leaves is not None and _can_be_updated(evidence, leaves):
        earlier.leave_out(leaves)
        yield from _updated(evidence, leaves)
    yield from _outputs(evidence)
    yield from earlier.changed()


class _Earlier:
    """Outputs and gradients that were handed out, remembered by name and value."""

    def __init__(self, evidence: Evidence, first: Graph) -> None:
        self._evidence, self._watched = evidence, list[tuple[str, Tensor, Tensor]]()
        self.outputs(first)
        for returned in evidence.repeats or ():
            self.gradients(returned)

    def outputs(self, graph: Graph) -> None:
        named = zip(map(self._evidence.name_of, self._evidence.forward.checked), self._evidence.function.of(graph), strict=True)
        self._watch((name, y, y.detach().clone()) for name, y in named)

    def gradients(self, returned: Returned) -> None:
        triples = zip(self._evidence.inputs, returned.handed_out, returned.values, strict=True)
        self._watch((f"the gradient of {argument.name}", tensor, value) for argument, tensor, value in triples
                    if tensor is not None and value is not None)

    def _watch(self, tensors: Iterator[tuple[str, Tensor, Tensor]]) -> None:
        self._watched += [(name, tensor, value) for name, tensor, value in tensors if tensor.layout == torch.strided]

    def leave_out(self, leaves: Sequence[Tensor]) -> None:
        """What lies in their memory, and is written with them by right."""
        self._watched = [each for each in self._watched if not any(overlaps(each[1], leaf) for leaf in leaves)]

    def changed(self) -> Iterator[Finding]:
        for name, now, then in self._watched:
            if not same(then, now):
                yield _of_reentry(f"{name}, returned by an earlier call, is overwritten by a later one{changed('', now, change(then, now))}", FRESH)


def _call_elsewhere(evidence: Evidence, earlier: _Earlier) -> list[Tensor] | None:
    """A forward and a backward at another point, of which the leaves are left; a function that is not defined there says so, and is left alone."""
    leaves = [leaf_elsewhere(argument, leaf) for argument, leaf in zip(evidence.inputs, evidence.forward.leaves, strict=True)]
    try:
        graph = evidence.function.graph(leaves)
        earlier.outputs(graph)
        earlier.gradients(Returned.now(evidence.function.gradients(graph, evidence.worked.cotangents)))
    except UserCodeError:
        return None
    return leaves


def _again(evidence: Evidence, first: Graph) -> Iterator[Finding]:
    """Backward of the earlier call."""
    try:
        again = _backward(evidence, first)
    except UserCodeError as error:
        yield Finding("GV207", f"a forward and backward with other inputs breaks the backward of an earlier call, which works without them: "
                      f"{error.message}", hint=OF_ONE_CALL, frames=error.frames)
        return
    yield from _gradients(evidence, again, "a forward and backward with other inputs changes the gradient of an earlier call")


def _backward(evidence: Evidence, graph: Graph) -> Gradients:
    return evidence.function.gradients(graph, evidence.worked.cotangents, retain=evidence.repeats is not None)


def _gradients(evidence: Evidence, again: Gradients, what: str, hint: str = OF_ONE_CALL) -> Iterator[Finding]:
    difference = other_gradient(evidence, again)
    if difference is not None:
        yield _of_reentry(f"{what}: {_first_and_then(difference)}", hint)


def _outputs(evidence: Evidence) -> Iterator[Finding]:
    difference = _other_values(evidence, evidence.later)
    if difference is not None:
        yield at_forward(_of_reentry(f"forward gives other values after a call with other inputs: {_first_and_then(difference)}"), evidence)


def _other_values(evidence: Evidence, graph: Graph) -> Difference | None:
    """Where a forward with the numbers of the base call has other outputs."""
    places = zip(evidence.forward.checked, evidence.outputs, evidence.function.of(graph), strict=True)
    found = (differing_output(evidence, place, first, now) for place, first, now in places if first.shape == now.shape)
    return next((difference for difference in found if difference is not None), None)


def _first_and_then(difference: Difference) -> str:
    expected, seen = apart(difference.expected, difference.seen)
    return f"{expected} at {difference.where} was first, {seen} then"


def _of_reentry(message: str, hint: str = OF_ONE_CALL) -> Finding:
    return Finding("GV207", message, hint=hint)


# ---- an update in place
def _can_be_updated(evidence: Evidence, leaves: Sequence[Tensor]) -> bool:
    """Do the leaves lie in memory as those of the base call do, and is it still theirs? A function that writes into its inputs gets clones."""
    alike = all(leaf.stride() == first.stride() for leaf, first in zip(leaves, evidence.forward.leaves, strict=True))
    return alike and not evidence.subject.writes and not evidence.forward.freed


def _updated(evidence: Evidence, leaves: Sequence[Tensor]) -> Iterator[Finding]:
    """A call with tensors that held other numbers in an earlier call, and hold now those of the base call; a forward that refuses them says so."""
    with torch.no_grad():
        for leaf, x in zip(leaves, evidence.subject.inputs, strict=True):
            leaf.copy_(x)
    with suppress(UserCodeError):
        graph, seen = _called(evidence, leaves)
        if seen is not None:
            yield _told(evidence, leaves, seen)
        elif evidence.repeats is not None:
            evidence.later = graph


def _called(evidence: Evidence, leaves: Sequence[Tensor]) -> tuple[Graph, Difference | UserCodeError | None]:
    """A forward and a backward with the numbers of the base call: where they differ from it, or what backward raises. Raises UserCodeError."""
    graph = evidence.function.graph(leaves)
    difference = _other_values(evidence, graph)
    if difference is not None:
        return graph, difference
    try:
        return graph, other_gradient(evidence, _backward(evidence, graph))
    except UserCodeError as error:
        return graph, error


def _told(evidence: Evidence, leaves: Sequence[Tensor], seen: Difference | UserCodeError) -> Finding:
    """Of a call after an update, which was not as the base call. It is the update if new tensors do not show it, and if it is there again."""
    others = _called(evidence, evidence.subject.leaves())[1]
    if others is not None:
        return _after_other_inputs(others)
    if _called(evidence, leaves)[1] is None:
        return _now_and_then(seen)
    told = "after the inputs were updated in place, as an optimizer does,"
    if isinstance(seen, UserCodeError):
        return Finding("GV207", f"{told} {seen.message}", hint=REMEMBERED, frames=seen.frames)
    who = "backward" if seen.output is None else "forward"
    found = _of_reentry(f"{told} {seen.text}, which it is with new tensors of the same numbers: {who} goes on with what was kept of the old ones",
                     REMEMBERED)
    return found if seen.output is None else at_forward(found, evidence)


def _after_other_inputs(seen: Difference | UserCodeError) -> Finding:
    """Of a call with new tensors that hold the numbers of the base call."""
    if isinstance(seen, UserCodeError):
        return Finding("GV207", f"after a call with other inputs {seen.message}", hint=OF_ONE_CALL, frames=seen.frames)
    what = "backward gives another gradient" if seen.output is None else "forward gives other values"
    return _of_reentry(f"{what} after a call with other inputs: {_first_and_then(seen)}")


def _now_and_then(seen: Difference | UserCodeError) -> Finding:
    code, who = ("GV206", "backward") if isinstance(seen, UserCodeError) or seen.output is None else ("GV205", "forward")
    what = seen.message if isinstance(seen, UserCodeError) else seen.text
    return Finding(code, f"{who} is not deterministic: {what}; the same call again is as the first one", hint=ANOTHER)


# ---- GV220 accumulation: gradients that accumulate in .grad come out wrong
UNHELD = "return grad_output itself or a tensor that nothing else holds: autograd may keep what it gets as .grad, and add to it"


def gv220_applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    if "GV205" in found:
        return RANDOM
    if not evidence.forward.nodes:
        return NO_FUNCTION
    if any(isinstance(each, Tensor) and is_zerotensor(each) for raw in evidence.worked.raw for each in raw.returned):
        return "a gradient is torch's zeros without memory, to which autograd itself cannot add"
    return None if any(_straight(evidence)) else "no input goes straight into a custom Function"


def gv220(evidence: Evidence) -> Iterator[Finding]:
    try:
        seen: Accumulated = accumulated(evidence.subject, evidence.function, evidence.later, evidence.reusable)
    except UserCodeError as error:
        yield Finding("GV220", f"`.backward(ones)` twice: {error.message}", frames=error.frames)
        return
    if "for_ones" in vars(evidence):        # asked for by GV213, of the base graph
        ones = [torch.ones_like(y) for y in evidence.outputs]
        yield from on_another_graph(evidence, evidence.for_ones[1], seen.first, ones, "made after a call elsewhere")
    for argument, direct, first, both in zip(evidence.inputs, _straight(evidence), seen.first, seen.both, strict=True):
        difference = differing(evidence, argument, _twice(first), both) if direct else None
        if difference is not None:
            given, wanted = difference.numbers
            yield Finding("GV220", f".grad of {argument.name} after two backwards is {given} at {difference.where}, not twice the first: {wanted}",
                          input=argument.name, hint=UNHELD)
    for each in seen.written:
        if each.held.name not in {written.held.name for written in evidence.worked.written}:
            yield Finding("GV220", f"adding to .grad writes into {each.held.name}{changed(each.held.name, each.held.tensor, each.change)}",
                          input=each.held.name, hint=UNHELD)


def _straight(evidence: Evidence) -> list[bool]:
    return straight(evidence.forward.nodes, evidence.forward.leaves)


def _twice(gradient: Tensor | None) -> Tensor | None:
    return None if gradient is None else torch.mul(gradient, 2)


# ---- GV227 single-backward: a second backward of one graph is refused
DAMAGED = ("GV202", "GV203", "GV204")


def gv227_applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    damaged = min(found.intersection(DAMAGED), default=None)
    if damaged is not None:
        return f"{damaged} was found already"
    if not evidence.worked.direct:
        return "torch.autograd.grad is refused, as a re-entrant checkpoint does"
    return torchs_own(evidence)


def gv227(evidence: Evidence) -> Iterator[Finding]:
    refused = evidence.refused
    if refused is not None:
        yield Finding("GV227", f"a second backward of one graph is refused, though it was retained: {refused.message}", frames=refused.frames,
                      hint="a second backward must find on ctx what the first one found; what save_for_backward holds is freed by autograd itself")
