"""GV203 input-modified: forward or backward writes into an input."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from torch import Tensor

from gradverify.evidence import Evidence
from gradverify.model.result import Finding, Severity
from gradverify.rules.at_forward import at_forward, at_forward_of
from gradverify.rules.shown import changed
from gradverify.subject.custody import Written, given_back
from gradverify.subject.differentiable import Differentiable
from gradverify.subject.forms import Form, own_numbers
from gradverify.subject.graph import Wrote
from gradverify.subject.outputs import leaves
from gradverify.subject.snapshot import same
from gradverify.subject.subject import Argument

HINTS = {"forward": "write into a copy; if it is meant to work in place, ctx.mark_dirty(x) and return x itself",
         "backward": "backward must leave what forward was given as it is: write into a copy"}


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    return None


def check(evidence: Evidence) -> Iterator[Finding]:
    yield from _given_back(evidence)
    told = set()
    for who, written in (("forward", evidence.forward.written), ("backward", evidence.worked.written)):
        for each in written:
            if each.held.kind == "argument" and each.held.name not in told:
                told.add(each.held.name)
                yield _of_argument(evidence, who, each)
    if evidence.subject.target.kind == "autograd.Function" and any(argument.form is not None for argument in evidence.inputs):
        yield from _of_odd(evidence)
    if not told:
        yield from (_of_inner(each) for each in {(each.cls, each.place): each for each in evidence.inner_writes}.values())


def _hint(evidence: Evidence, who: str, differentiable: bool = True) -> str:
    """Only a Function has a ctx to mark what it writes into; what is not differentiated may be state, as running statistics are."""
    if not differentiable:
        return "write into a copy, unless it is state that is meant to be updated"
    return HINTS[who] if who == "backward" or evidence.subject.target.kind == "autograd.Function" else "write into a copy"


def _given_back(evidence: Evidence) -> Iterator[Finding]:
    """Inputs without memory after forward; those that have none after backward either are lost."""
    if not evidence.forward.freed:
        return
    lost = given_back(evidence.subject, evidence.forward.called) if evidence.worked.direct else ()
    for name in evidence.forward.freed:
        if name in lost:
            found = Finding("GV203", f"forward gives the memory of {name} back, and backward does not rebuild it: the caller's tensor is lost",
                            input=name, hint="leave the caller's tensors alone, or rebuild them in backward")
        else:
            found = Finding("GV203", f"forward gives the memory of {name} back until backward rebuilds it: whatever reads it in between reads "
                            "nothing, or memory that is not its own", severity="warning", input=name,
                            hint="right inside a chain of reversible layers; the first one's input must be kept")
        yield at_forward(found, evidence, name)


def _of_argument(evidence: Evidence, who: str, each: Written) -> Finding:
    differentiable = any(argument.name == each.held.name for argument in evidence.inputs)
    found = Finding("GV203", f"{who} writes into {each.held.name}{changed(each.held.name, each.held.tensor, each.change)}", input=each.held.name,
                    severity=_severity(differentiable), hint=_hint(evidence, who, differentiable))
    return at_forward(found, evidence, each.held.name) if who == "forward" else found


def _of_odd(evidence: Evidence) -> Iterator[Finding]:
    """What is written into sparse and jagged inputs, which every call gets anew: one more call, whose own are kept."""
    kept = dict[str, tuple[Tensor, Tensor]]()

    def watched(argument: Argument, form: Form) -> Argument:
        def built(x: Tensor) -> Tensor:
            made = form.built(x)
            kept[argument.name] = made, own_numbers(made).detach().clone()
            return made
        return replace(argument, form=replace(form, built=built))

    def called(*given: Any, **named: Any) -> Any:
        found = target.call(*given, **named)
        returned[:] = leaves(found)
        return found

    target, returned = evidence.subject.target, list[Any]()
    twin = evidence.subject.twin([watched(a, a.form) if a.form is not None else a for a in evidence.subject.arguments],
                                 target=replace(target, call=called))
    function = Differentiable(twin, evidence.forward.checked)
    graph = function.graph(twin.leaves())
    seen = set[str]()
    for who in ("forward", "backward"):
        if who == "backward":
            function.gradients(graph, evidence.cotangents("base"))
        for name, (made, before) in kept.items():
            if not (name in seen or any(each is made for each in returned) or same(own_numbers(made).detach(), before)):
                seen.add(name)
                found = Finding("GV203", f"{who} writes into {name}", input=name, hint=_hint(evidence, who))
                yield at_forward(found, evidence, name) if who == "forward" else found


def _of_inner(each: Wrote) -> Finding:
    before_after = "" if each.change is None else f": an element was {each.change[1]:.6g} before, {each.change[2]:.6g} after"
    found = Finding("GV203", f"forward of {each.cls.__name__} writes into its argument {each.place}{before_after}",
                    severity=_severity(each.differentiable), hint=HINTS["forward"])
    return at_forward_of(found, each.cls, each.place)


def _severity(differentiable: bool) -> Severity:
    return "error" if differentiable else "warning"
