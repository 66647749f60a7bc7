"""Rules that repeat calls: identical ones, several of one graph, calls after one with other inputs,
and calls that accumulate gradients."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import NamedTuple

import torch
from torch import Tensor

from gradverify.evidence import Evidence
from gradverify.model.case import Settings
from gradverify.model.result import Finding, Reproduced, Severity
from gradverify.numerics.function.coordinates import UNITS, flat_real
from gradverify.rules.at_line import at_forward
from gradverify.rules.differ import (
    ANOTHER,
    Difference,
    Repeats,
    differences,
    dust,
    equal,
    flat,
    in_words,
    largest,
    on_another_graph,
    other_gradient,
)
from gradverify.rules.engine import NotApplicable, refused
from gradverify.rules.shown import Findings, RuleResults, apart, changed, element_name
from gradverify.subject.another import leaf_elsewhere
from gradverify.subject.differentiable import Gradients, Graph, Returned, copied
from gradverify.subject.failure import UserCodeError, attempted, tried
from gradverify.subject.snapshot import change, overlaps, same
from gradverify.subject.vmapped import Accumulated, accumulated, straight
from gradverify.torch_private import is_zerotensor

# ---- Identical calls: what may differ, and how severe that is
ATOMIC = 2.0**10  # roundings of a tensor's size: sums in another order
NONDETERMINISM = ("GV205", "GV206")
LEFT = (
    "that is what an iteration leaves that starts from other numbers, or rounds in another order: "
    "within `rtol`"
)
ORDER_OF_SUMS = (
    "that is what a sum in another order does (atomic adds, split-k); `deterministic: true` makes "
    "it an error"
)
DRAWS = (
    "it draws from torch's generator: leave out `reseed: false`, and every forward draws the same "
    "numbers"
)


def explained(evidence: Evidence, off: float, size: float, rounding: float) -> tuple[Severity, str]:
    """Return the severity of a difference `off` between two identical calls, for a tensor of this
    size and rounding, and a hint."""
    if off <= ATOMIC * rounding:
        return "warning", ORDER_OF_SUMS
    if off <= evidence.rtol * size and off <= evidence.leftover * size:
        return "warning", LEFT
    return "error", ANOTHER


def graded(findings: Iterable[Finding], settings: Settings) -> tuple[Finding, ...]:
    """Return all findings with the severity that the spec asks for: under `strict` all are errors,
    under `deterministic` those of differences between identical calls."""
    return tuple(
        replace(finding, severity="error")
        if settings.strict or (settings.deterministic and finding.code in NONDETERMINISM)
        else finding
        for finding in findings
    )


# ---- GV205 forward-deterministic: the forward gives other values when it is called again
MORE = 3  # further calls, to count the different results of a forward that has several
ACCEPTS = {
    ORDER_OF_SUMS: ", `nondeterminism` accepts it",
    ANOTHER: "; `nondeterminism` accepts small differences",
}


def gv205(evidence: Evidence) -> RuleResults:
    """Differences of a few roundings are reported after all calls: a later one may differ by
    more."""
    before = torch.default_generator.get_state()
    counts = [Repeats(evidence.name_of(place)) for place in evidence.forward.checked]
    accepted = 0.0 if evidence.settings.deterministic else evidence.settings.nondeterminism
    slight = list[Finding]()

    def count(outputs: Sequence[Tensor]) -> None:
        for each, y in zip(counts, outputs, strict=True):
            each.add(y)

    count(evidence.outputs)
    for again in _forwards(evidence):
        count(again)
        for place, first, second in zip(
            evidence.forward.checked, evidence.outputs, again, strict=True
        ):
            name = evidence.name_of(place)
            if first.shape != second.shape:
                worst = math.inf
                words = (
                    f"{name} had shape {list(first.shape)}, and {list(second.shape)} when called "
                    "again"
                )
            elif same(first, second):
                continue
            else:
                a, b = flat_real(first), flat_real(second)
                away = _off(a, b)
                element = int(away.argmax())
                worst = float(away[element])
                was, now = apart(float(a[element]), float(b[element]))
                words = (
                    f"{element_name(name, first, element)} was {was}, and {now} when called again "
                    "with the same input"
                )
            if worst <= accepted:
                continue
            size = largest(flat_real(first))
            severity, hint = explained(evidence, worst, size, evidence.precision * size)
            drawn = not evidence.settings.reseed and not torch.equal(
                before, torch.default_generator.get_state()
            )
            found = Finding(
                "GV205",
                f"the forward is not deterministic: {words}",
                severity=severity,
                output=place,
                hint=DRAWS if drawn and severity == "error" else f"{hint}{ACCEPTS.get(hint, '')}",
            )
            if hint != ORDER_OF_SUMS:
                yield found
                return
            slight.append(found)
    # A forward that differs is called a few times more
    for _ in range(MORE if any(each.summary(1.0).distinct > 1 for each in counts) else 0):
        count(evidence.function.here())
    results = [each.summary(evidence.precision) for each in counts]
    evidence.reproduced += results
    yield from slight[:1]
    if in_words(results):
        yield in_words(results)


def _forwards(evidence: Evidence) -> Iterator[Sequence[Tensor]]:
    """Yield the outputs of further calls: of the first call of the process, where that was another
    one, and of two more. In the second of these the generators start with another seed, unless the
    function draws random numbers."""
    if evidence.poisoned.earliest is not None:
        yield evidence.poisoned.earliest
    yield evidence.function.here()
    if evidence.forward.random:
        yield evidence.function.values(evidence.subject.leaves())
        return
    again = evidence.reseeded
    if not evidence.draws:
        yield again


def _off(a: Tensor, b: Tensor) -> Tensor:
    """Return |a − b|, 0 where both are NaN or the same infinity."""
    equal = (a == b) | (a.isnan() & b.isnan())
    return torch.where(equal, torch.zeros_like(a), (a - b).abs().nan_to_num(nan=torch.inf))


# ---- GV206 backward-deterministic: backward gives other gradients when it is called again
# Compared calls: a fault of every twentieth call shows. The rules before this one compare theirs,
# which have the same numbers, too
CALLS = 20
# Calls of a backward that draws: a mask that drops 5 % of three elements is missed once in 10,000
SEEDS = 60
ULPS = 4
DRAWN = (
    "backward must be the derivative of the forward that ran: what that drew must be saved, and "
    "nothing drawn anew"
)


class Odd(NamedTuple):
    """The calls in which an input's gradient differs from that of the second call, with the worst
    difference: the numbers `here` and `there` at `where`, `off` apart."""

    place: int
    calls: tuple[int, ...]
    where: str
    here: float
    there: float
    off: float
    size: float
    rounding: float

    def sentence(self, number: int, what: str = "") -> str:
        which = (
            "the first call of all"
            if self.calls == (1,)
            else f"call {self.calls[0]}"
            if len(self.calls) == 1
            else f"{len(self.calls)} of the calls"
        )
        return (
            f"of {number} calls with the same grad_output{what} {which} "
            f"differ{'' if len(self.calls) > 1 else 's'} from the second; at "
            f"{self.where} {' and '.join(apart(self.here, self.there))}"
        )


def gv206(evidence: Evidence) -> RuleResults:
    before, worked = evidence.poisoned.repeats, evidence.worked.gradients
    same = [*evidence.reused, *(returned.values for returned in evidence.repeats or ())]
    steady = all(all(map(equal, worked, each)) for each in (*before, *same))
    doubtful = (
        evidence.doubted
        or evidence.settings.deterministic
        or not steady
        or "jacobian" in vars(evidence)  # whose calls have other cotangents
    )
    more = CALLS - (0 if doubtful else evidence.subject.calls.backward)
    planned = evidence.spending.some(range(more), 0, 1, "repeats") if more > 0 else ()
    further = (
        evidence.function.vjp(evidence.cotangents("base"))
        for _ in planned
        if evidence.function.reusable
    )
    odd, number, counted = _compared(evidence, chain(same, further), before)
    if odd and evidence.repeats is not None:
        first = odd[0].calls[0]
        odd, number, counted = _compared(
            evidence,
            (evidence.function.once(evidence.cotangents("base"))[1] for _ in range(CALLS)),
            before,
        )
        if not odd:
            yield f"call {first} of one graph differs, but fresh graphs agree: not for this rule"
    for each in odd:
        severity, hint = explained(evidence, each.off, each.size, each.rounding)
        yield Finding(
            "GV206",
            f"backward is not deterministic: {each.sentence(number)}",
            input=evidence.inputs[each.place].name,
            severity=severity,
            hint=hint,
        )
    drawn, ended = evidence.worked.drawn
    if (
        not odd
        and evidence.settings.reseed
        and drawn != ended
        and (evidence.function.reusable or not evidence.draws)
    ):
        evidence.function.here()  # a forward that draws is not run with another seed
        others = (
            evidence.subject.seeded_elsewhere(
                lambda: evidence.function.vjp(evidence.cotangents("base")), number
            )
            for number in evidence.spending.some(range(SEEDS), 0, 1, "other seeds")
        )
        found, seeds, _ = _compared(evidence, others)
        for each in found:
            within = each.off <= evidence.rtol * each.size
            message = (
                "backward draws random numbers, and its gradient depends on them: "
                f"{each.sentence(seeds, ' and other seeds')}"
            )
            yield Finding(
                "GV206",
                message,
                severity="warning" if within else "error",
                input=evidence.inputs[each.place].name,
                hint="the differences are within `rtol`" if within else DRAWN,
            )
    evidence.reproduced += counted
    yield f"{number} identical calls compared, the first of the process among them"
    if in_words(counted):
        yield in_words(counted)


def _compared(
    evidence: Evidence, repeats: Iterator[Gradients], before: Sequence[Gradients] = ()
) -> tuple[list[Odd], int, list[Reproduced]]:
    """Compare the base call and its repeats with the second call: return the inputs whose gradients
    differ, the number of calls, and the different results of each input. `before`: the gradients of
    the first call of the process, and of others before the base call."""
    calls = chain([*before[:1], evidence.worked.gradients, *before[1:]], repeats)
    first, given = next(calls), copied(next(calls))
    inputs = evidence.inputs
    second = [flat(argument, gradient) for argument, gradient in zip(inputs, given, strict=True)]
    counts = [Repeats(f"grad of {argument.name}") for argument in inputs]
    units = [max(evidence.precision, UNITS[argument.value.dtype]) for argument in inputs]
    for count, each in zip(counts, second, strict=True):
        count.add(each)
    found, number = dict[int, Odd](), 2
    for number, returned in chain([(1, first)], enumerate(calls, 3)):
        for place, (argument, gradient) in enumerate(zip(inputs, returned, strict=True)):
            if equal(given[place], gradient):
                counts[place].again()
                continue
            other, wanted = flat(argument, gradient), second[place]
            counts[place].add(other)
            away, size = _off(wanted, other), largest(wanted)
            worst, rounding = int(away.argmax()), units[place] * size
            off = float(away[worst])
            if not off or not (
                evidence.settings.deterministic
                or off > max(2 * ULPS * rounding, dust(evidence, argument.value))
            ):
                continue
            odd = Odd(
                place,
                (number,),
                element_name(argument.name, argument.value, worst),
                float(other[worst]),
                float(wanted[worst]),
                off,
                size,
                rounding,
            )
            earlier = found.get(place, odd)
            numbers = earlier.calls + odd.calls * (earlier is not odd)
            worse = max(earlier, odd, key=lambda each: each.off)
            found[place] = worse._replace(calls=numbers)
    return (
        list(found.values()),
        max(number, 2),
        [count.summary(unit) for count, unit in zip(counts, units, strict=True)],
    )


# ---- GV207 reentrant: a call changes what an earlier call returned or will return
OF_ONE_CALL = (
    "what belongs to one call must not be kept where other calls reach it: on the class, in a "
    "module, in a shared buffer"
)
AGAIN = (
    "backward must leave what it reads as it is (ctx, the class, buffers), so that the next call "
    "of it finds the same"
)
FRESH = "return fresh tensors: what was handed out is the caller's"
REMEMBERED = (
    "compute it from the tensor in every call, or let what is remembered depend on its `_version`, "
    "which every write in place raises: a tensor's address, `id` and shape stay as they are"
)
UPDATED = "after the inputs were updated in place, as an optimizer does,"


def gv207(evidence: Evidence) -> Findings:
    yield from islice(_seen(evidence), 1)


def _seen(evidence: Evidence) -> Findings:
    """Yield the findings of each step of the sequence."""
    for again in evidence.repeats or ():
        yield from _other(
            other_gradient(evidence, again.values),
            "backward of one graph gives another gradient when it is called again",
            AGAIN,
        )
    first = evidence.usable()
    watched = [
        *_outputs(evidence, first),
        *(each for returned in evidence.repeats or () for each in _handed_out(evidence, returned)),
    ]
    leaves = [
        leaf_elsewhere(argument, leaf)
        for argument, leaf in zip(evidence.inputs, evidence.forward.leaves, strict=True)
    ]

    def works() -> bool:
        graph = evidence.function.graph(leaves)
        watched.extend(_outputs(evidence, graph))
        gradients = evidence.function.gradients(graph, evidence.worked.cotangents)
        watched.extend(_handed_out(evidence, Returned.now(gradients)))
        return True

    # A function that is not defined there raises, which is no finding
    defined = tried(works)
    with refused(
        "GV207",
        "a forward and backward with other inputs breaks the backward of an earlier call, which "
        "works without them:",
        OF_ONE_CALL,
    ):
        changed_it = other_gradient(evidence, _backward(evidence, first))
    yield from _other(
        changed_it,
        "a forward and backward with other inputs changes the gradient of an earlier call",
    )
    # Only where the leaves are laid out in memory as those of the base call, and still own their
    # memory; a function that writes into its inputs gets clones
    alike = all(
        leaf.stride() == own.stride()
        for leaf, own in zip(leaves, evidence.forward.leaves, strict=True)
    )
    if defined and alike and not evidence.subject.writes and not evidence.forward.freed:
        # What shares memory with the leaves changes rightly when these are updated
        watched = [each for each in watched if not any(overlaps(each[1], leaf) for leaf in leaves)]
        yield from tried(list, _updated(evidence, leaves)) or ()
    for found in _other(
        _other_values(evidence, evidence.later),
        "forward gives other values after a call with other inputs",
    ):
        yield at_forward(found, evidence)
    for name, now, then in watched:
        if not same(then, now):
            how = changed("", now, change(then, now))
            yield Finding(
                "GV207",
                f"{name}, returned by an earlier call, is overwritten by a later one{how}",
                hint=FRESH,
            )


Watched = tuple[str, Tensor, Tensor]
"""A name, the tensor that was returned, and a copy of its numbers at that time."""


def _outputs(evidence: Evidence, graph: Graph) -> list[Watched]:
    named = zip(
        map(evidence.name_of, evidence.forward.checked), evidence.function.of(graph), strict=True
    )
    return [(name, y, y.detach().clone()) for name, y in named if y.layout == torch.strided]


def _handed_out(evidence: Evidence, returned: Returned) -> list[Watched]:
    triples = zip(evidence.inputs, returned.handed_out, returned.values, strict=True)
    return [
        (f"the gradient of {argument.name}", tensor, value)
        for argument, tensor, value in triples
        if tensor is not None and value is not None and tensor.layout == torch.strided
    ]


def _backward(evidence: Evidence, graph: Graph) -> Gradients:
    return evidence.function.gradients(
        graph, evidence.worked.cotangents, retain=evidence.repeats is not None
    )


def _other(difference: Difference | None, what: str, hint: str = OF_ONE_CALL) -> Findings:
    if difference is not None:
        expected, seen = apart(difference.expected, difference.seen)
        yield Finding(
            "GV207", f"{what}: {expected} at {difference.where} was first, {seen} then", hint=hint
        )


def _other_values(evidence: Evidence, graph: Graph) -> Difference | None:
    """Return where the outputs of a graph with the base call's inputs differ from those of the base
    call; None where they do not."""
    ys = evidence.function.of(graph)
    if any(y.shape != usual.shape for y, usual in zip(ys, evidence.outputs, strict=True)):
        return None
    return next(differences(evidence, evidence.outputs, ys, outputs=True), None)


def _updated(evidence: Evidence, leaves: Sequence[Tensor]) -> Findings:
    """Call the function with tensors that held other numbers in an earlier call, and now hold those
    of the base call. The update is at fault, if new tensors with these numbers do not show the
    same. Raises UserCodeError where forward refuses them."""
    with torch.no_grad():
        for leaf, x in zip(leaves, evidence.subject.inputs, strict=True):
            leaf.copy_(x)
    graph, seen = _called(evidence, leaves)
    if seen is None:
        if evidence.repeats is not None:
            evidence.later = graph
        return
    others = _called(evidence, evidence.subject.leaves())[1]
    found = others or seen
    raised = isinstance(found, UserCodeError)
    who = "forward" if isinstance(found, Difference) and found.output is not None else "backward"
    text = found.message if isinstance(found, UserCodeError) else found.text
    if others is None and _called(evidence, leaves)[1] is None:
        yield Finding(
            "GV205" if who == "forward" else "GV206",
            f"{who} is not deterministic: {text}; the same call again is as the first one",
            hint=ANOTHER,
        )
        return
    when, hint, kept = "after a call with other inputs", OF_ONE_CALL, ""
    if others is None:
        when, hint = UPDATED, REMEMBERED
        kept = (
            ""
            if raised
            else (
                f", which it is with new tensors of the same numbers: {who} goes on with what was "
                "kept of the old ones"
            )
        )
    one = Finding(
        "GV207",
        f"{when} {text}{kept}",
        hint=hint,
        frames=found.frames if isinstance(found, UserCodeError) else (),
    )
    yield at_forward(one, evidence) if who == "forward" else one


def _called(
    evidence: Evidence, leaves: Sequence[Tensor]
) -> tuple[Graph, Difference | UserCodeError | None]:
    """Run a forward and a backward with the numbers of the base call, and return the graph, with
    the difference from the base call, or the error of backward. Raises UserCodeError where forward
    raises."""
    graph = evidence.function.graph(leaves)
    return graph, attempted(
        lambda: (
            _other_values(evidence, graph) or other_gradient(evidence, _backward(evidence, graph))
        )
    )


# ---- GV220 accumulation: gradients that accumulate in .grad come out wrong
UNHELD = (
    "return grad_output itself or a tensor that nothing else holds: autograd may keep what it gets "
    "as .grad, and add to it"
)


def gv220(evidence: Evidence) -> Findings:
    if any(
        isinstance(each, Tensor) and is_zerotensor(each)
        for raw in evidence.worked.raw
        for each in raw.returned
    ):
        raise NotApplicable(
            "a gradient is torch's zeros without memory, to which autograd itself cannot add"
        )
    direct = straight(evidence.forward.nodes, evidence.forward.leaves)
    if not any(direct):
        raise NotApplicable("no input goes straight into a custom Function")
    with refused("GV220", "`.backward(ones)` twice:"):
        seen: Accumulated = accumulated(
            evidence.subject, evidence.function, evidence.later, evidence.reusable
        )
    if "for_ones" in vars(evidence):  # measured by GV213, on the base graph
        ones = [torch.ones_like(y) for y in evidence.outputs]
        yield from on_another_graph(
            evidence, evidence.for_ones[1], seen.first, ones, "made after a call elsewhere"
        )
    own = dict(zip((argument.name for argument in evidence.inputs), direct, strict=True))
    twice = [None if gradient is None else torch.mul(gradient, 2) for gradient in seen.first]
    for difference in differences(evidence, twice, seen.both):
        if own[str(difference.input)]:
            given, wanted = difference.numbers
            yield Finding(
                "GV220",
                f".grad of {difference.input} after two backwards is {given} at "
                f"{difference.where}, not twice the first: {wanted}",
                input=difference.input,
                hint=UNHELD,
            )
    for each in seen.written:
        if each.held.name not in {written.held.name for written in evidence.worked.written}:
            yield Finding(
                "GV220",
                "adding to .grad writes into "
                f"{each.held.name}{changed(each.held.name, each.held.tensor, each.change)}",
                input=each.held.name,
                hint=UNHELD,
            )


# ---- GV227 single-backward: a second backward of one graph is refused
def gv227(evidence: Evidence) -> Findings:
    if not evidence.worked.direct:
        raise NotApplicable("torch.autograd.grad is refused, as a re-entrant checkpoint does")
    refused = evidence.refused
    if refused is not None:
        yield Finding(
            "GV227",
            f"a second backward of one graph is refused, though it was retained: {refused.message}",
            frames=refused.frames,
            hint="a second backward must find on ctx what the first one found; what "
            "save_for_backward holds is freed by autograd itself",
        )
