"""GV208 input-subset: a gradient is wrong or missing when other inputs need none."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import combinations

from gradverify.evidence import Evidence
from gradverify.model.result import Finding
from gradverify.rules.agreement import clearly_differing, outputs_apart
from gradverify.rules.at_forward import at_forward
from gradverify.rules.shown import NO_FUNCTION, RANDOM
from gradverify.subject.failure import UserCodeError

ALL_SUBSETS = 4         # up to so many inputs every subset is tried
PAIRS = 8               # up to so many every two that need none together
HINT = "each gradient must be the same whichever others are wanted: ctx.needs_input_grad[i] is about argument i alone"


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    if "GV205" in found:
        return RANDOM
    if len(evidence.inputs) < 2:
        return "there is one differentiable input"
    return None if evidence.forward.nodes else NO_FUNCTION


def check(evidence: Evidence) -> Iterator[Finding]:
    told = set[str | None]()
    for subset in evidence.spending.some(subsets(len(evidence.inputs)), 1, 1, "subsets"):
        for finding in _alone(evidence, subset):
            if finding.input not in told:
                told.add(finding.input)
                yield finding


def subsets(count: int) -> list[tuple[int, ...]]:
    """Places of the inputs that require a gradient, without none and without all, few first; pairs that require
    none last, as they are most."""
    sizes = range(1, count) if count <= ALL_SUBSETS else (1, count - 1, count - 2) if count <= PAIRS else (1, count - 1)
    return [subset for size in sizes for subset in combinations(range(count), size)]


def _alone(evidence: Evidence, subset: tuple[int, ...]) -> Iterator[Finding]:
    leaves = [leaf.requires_grad_(place in subset) for place, leaf in enumerate(evidence.subject.leaves())]
    when = f"when only {' and '.join(evidence.inputs[place].name for place in subset)} require{'s' if len(subset) == 1 else ''} a gradient"
    v = evidence.worked.cotangents
    try:
        with _recorded() as said:
            graph = evidence.function.graph(leaves)
    except UserCodeError:
        return
    ys = evidence.function.of(graph)
    if said and not any(y.requires_grad for y in ys):
        with _recorded() as usual:
            evidence.function.graph(evidence.subject.leaves())
        own = [text for text in said if text not in usual]
        if own:
            yield Finding("GV208", f"no output has a gradient {when}, and forward warns of it: {own[0]}", severity="warning",
                          input=evidence.inputs[subset[0]].name, hint="let an input of that part need a gradient too")
            return
    if all(y.shape == expected.shape for y, expected in zip(ys, evidence.outputs, strict=True)):
        for apart in outputs_apart(evidence, ys):
            yield at_forward(Finding("GV208", f"forward depends on which inputs need a gradient: {apart.text}, {when}", output=apart.output,
                                     hint="compute the same values whatever ctx.needs_input_grad says"), evidence)
            return
    try:
        gradients = evidence.function.gradients(graph, v)
    except UserCodeError as error:
        yield Finding("GV208", f"{error.message} {when}", input=evidence.inputs[subset[0]].name, hint=HINT, frames=error.frames)
        return
    for place in subset:
        argument, gradient = evidence.inputs[place], gradients[place]
        difference = clearly_differing(evidence, argument, evidence.worked.gradients[place], gradient, v)
        if difference is not None:
            given, wanted = difference.numbers
            seen = "there is none" if gradient is None else f"it is {given}"
            yield Finding("GV208", f"the gradient of {argument.name} depends on which inputs need one: at {difference.where} it is "
                          f"{wanted} when all do, and {seen} {when}", input=argument.name, hint=HINT)


@contextmanager
def _recorded() -> Iterator[list[str]]:
    """The texts of the Python warnings that are given inside."""
    texts = list[str]()
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        yield texts
    texts += [str(each.message).partition("\n")[0] for each in given]
