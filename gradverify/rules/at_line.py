"""Find the line of code that a finding is about."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from gradverify.evidence import Evidence
from gradverify.model.paths import shown_path
from gradverify.model.result import Finding
from gradverify.model.rule import Method
from gradverify.numerics.function.coordinates import numbers, one_hot
from gradverify.numerics.pairs.pair import Outcome, Pair
from gradverify.oracles.finite_difference import WithBackward
from gradverify.rules.catalogue import book
from gradverify.source.modules import LOCALS, Library
from gradverify.subject.differentiable import Differentiable
from gradverify.subject.failure import tried
from gradverify.subject.find import run_folder
from gradverify.subject.graph import Graphs, forward_of
from gradverify.subject.lines import (
    backward_of,
    forward_line,
    inner_backward,
    method_line,
    returned_line,
)
from gradverify.subject.subject import Subject, as_leaves
from gradverify.subject.target import Place


# ---- Findings about forward
def at_forward(finding: Finding, evidence: Evidence, written: str | None = None) -> Finding:
    """Place a finding at the definition of a Function's forward, or at the one line of it that
    writes into the input called `written`; for any other callable at its definition."""
    target, positions = evidence.subject.target, evidence.subject.positions
    if target.kind != "autograd.Function":
        return at(finding, target.place)
    number = next(
        (
            n
            for n, members in enumerate(positions)
            if written is not None and members[0].whole == written
        ),
        None,
    )
    return at_forward_of(finding, target.subject, number)


def at_forward_of(finding: Finding, cls: type, written: int | None = None) -> Finding:
    """Place a finding at the forward of a Function inside the checked one, or at the line that
    writes into its argument of this number."""
    return at(finding, forward_line(cls, written))


def at(finding: Finding, place: Place | None) -> Finding:
    """Return the finding with this place; unchanged where that is None."""
    return replace(finding, **place._asdict()) if place else finding


def at_returned(finding: Finding, subject: Subject, made: bool = True) -> Finding:
    """Place a finding at the definition of the checked function; or, if `made`, at the line of its
    backward that computes the gradient in question."""
    place = returned_line(subject, finding.input) if made and finding.input else None
    return at(finding, place or subject.target.place)


# ---- Which of several Functions inside a callable or module has the wrong backward: the Function
# whose forward, differentiated by torch, repairs the element
MOST = 8  # Functions that are tried, a forward and a backward each


def at_culprit(finding: Finding, evidence: Evidence, function: WithBackward, pair: Pair) -> Finding:
    """Place a finding of a wrong element at the definition of the backward at fault; return it
    unchanged where there is a single Function, or not exactly one of several repairs the
    element."""
    classes = evidence.forward.classes
    if (
        not 2 <= len(classes) <= MOST
        or pair.worst[0].outcome is not Outcome.MISMATCH
        or not isinstance(function, Differentiable)
        or evidence.spending.over
    ):
        return finding
    named = evidence.spared(
        "the line of a finding",
        lambda: [cls for cls in classes if tried(_repairs, cls, function, pair)],
    )
    return at(finding, backward_of(named[0]) if named and len(named) == 1 else None)


def _repairs(cls: type, function: Differentiable, pair: Pair) -> bool:
    """Return whether the element is right when torch differentiates this Function's forward."""
    worst = pair.worst[0]
    graphs = Graphs()
    with forward_of(cls, graphs):
        graph = function.graph(as_leaves(function.inputs))
        graph = replace(graph, outputs=tuple(graphs.put_back(graph.outputs)))
        cotangents = [
            one_hot(y.shape, y.dtype, y.device, worst.output_index)
            if place == pair.output
            else torch.zeros_like(y)
            for place, y in enumerate(function.of(graph))
        ]
        gradient = function.gradients(graph, cotangents, under_modes=True)[pair.input]
    seen = 0.0 if gradient is None else float(numbers(gradient)[worst.input_index])
    return abs(seen - worst.numeric) <= worst.bar + worst.tolerance


# ---- Findings about a method
METHODS: dict[str, Method] = {
    "forward": "forward",
    "backward": "backward",
    "vjp": "backward",
    "jvp": "jvp",
    "vmap": "vmap",
    "setup_context": "saving",
}


def placed(finding: Finding, evidence: Evidence) -> Finding:
    """Return the finding with its file as the report shows it. A finding without a place gets the
    place of the method at fault, or else that of the checked function."""
    rule = book()[finding.code]
    if finding.file is None and finding.code >= "GV1":
        # The method that raised the exception, else the one that the rule declares, else the one
        # that the finding's input and output imply
        names = (frame.function.rpartition(".")[2] for frame in reversed(finding.frames))
        named: Method = (
            "forward" if finding.output is not None and finding.input is None else "backward"
        )
        method = (
            next((METHODS[name] for name in names if name in METHODS), None) or rule.method or named
        )
        finding = _at_method(finding, evidence, method)
        if finding.file is None:
            made = rule.line and method == "backward"
            finding = at_returned(finding, evidence.subject, made)
    if finding.file is None:
        return finding
    target = evidence.subject.own.target
    inside = None if target.kind == "autograd.Function" else _method_at(finding)
    return replace(
        finding,
        file=shown_path(finding.file, run_folder()),
        inside=inside if inside and "." in inside and inside != target.name else None,
    )


def _method_at(finding: Finding) -> str | None:
    """Return the class and the method around the line of a finding, `Swish.backward`; None where
    the source cannot be read."""
    module = Library(()).read(Path(str(finding.file)))
    around = [
        name
        for name, node in (module.definitions.items() if module else ())
        if min([node.lineno, *(each.lineno for each in node.decorator_list)])
        <= (finding.line or 0)
        <= (node.end_lineno or 0)
    ]
    return max(around, key=len).replace(f"{LOCALS}.", "") if around else None


def _at_method(finding: Finding, evidence: Evidence, method: Method) -> Finding:
    """Place a finding at a method of the checked Function, or of the only Function in the graph of
    a callable, module or operator."""
    own = evidence.subject.target.kind == "autograd.Function"
    if method == "forward":
        return at_forward(finding, evidence)
    if method != "backward":
        classes = (evidence.subject.target.subject,) if own else evidence.forward.classes
        found = [line for cls in classes if (line := method_line(cls, method)) is not None]
        return at(finding, found[0] if len(found) == 1 else None)
    place = evidence.place_of(finding.input)
    if own or (place is None and finding.input is not None):
        return finding
    if (
        place is not None
        and book()[finding.code].numeric
        and finding.output in evidence.forward.checked
    ):
        pair = evidence.jacobian.pairs[place, evidence.forward.checked.index(finding.output)]
        finding = at_culprit(finding, evidence, evidence.measured, pair)
        if finding.file is not None:
            return finding
    return at(
        finding,
        evidence.spared("the line of a finding", lambda: inner_backward(evidence.forward, place)),
    )
