"""A finding with the line of the method that it is about."""

from __future__ import annotations

from dataclasses import replace

from gradverify.evidence import Evidence
from gradverify.model.paths import shown_path
from gradverify.model.result import Finding
from gradverify.model.rule import Method
from gradverify.rules.at_forward import at_forward
from gradverify.rules.catalogue import book
from gradverify.rules.culprit import at_culprit
from gradverify.subject.find import run_folder
from gradverify.subject.inner_backward import inner_backward
from gradverify.subject.returned_line import returned_line
from gradverify.subject.written_line import method_line

METHODS: dict[str, Method] = {
    "forward": "forward", "backward": "backward", "vjp": "backward", "jvp": "jvp", "vmap": "vmap", "setup_context": "saving"}


def placed(finding: Finding, evidence: Evidence) -> Finding:
    """With its file as it is shown; one that names no place of its own gets that of the method at fault, else that of what is checked."""
    target, rule = evidence.subject.target, book()[finding.code]
    if finding.file is None and finding.code >= "GV1":
        method = _method(finding)
        finding = _at_method(finding, evidence, method)
        if finding.file is None and target.file:
            made = returned_line(evidence.subject, finding.input) if finding.input and rule.line and method == "backward" else None
            line, source = (made.number, made.text) if made else (target.line, target.source)
            finding = replace(finding, file=target.file, line=line, source=source)
    return finding if finding.file is None else replace(finding, file=shown_path(finding.file, run_folder()))


def _method(finding: Finding) -> Method:
    """Of an exception the method that raised it, else the one that the rule declares, else what the finding names."""
    names = (frame.function.rpartition(".")[2] for frame in reversed(finding.frames))
    raised = next((METHODS[name] for name in names if name in METHODS), None)
    return raised or book()[finding.code].method or ("forward" if finding.output is not None and finding.input is None else "backward")


def _at_method(finding: Finding, evidence: Evidence, method: Method) -> Finding:
    """Of the checked Function, or of the one Function in the graph of a callable, module or operator."""
    own = evidence.subject.target.kind == "autograd.Function"
    if method == "forward":
        return at_forward(finding, evidence)
    if method != "backward":
        found = _declared(evidence, method)
        return finding if found is None else replace(finding, file=found[0], line=found[1], source=found[2])
    place = next((n for n, argument in enumerate(evidence.inputs) if argument.name == finding.input), None)
    if own or (place is None and finding.input is not None):
        return finding
    if place is not None and book()[finding.code].numeric and finding.output in evidence.forward.checked:
        output = evidence.forward.checked.index(finding.output)
        finding = at_culprit(finding, evidence, evidence.measured, place, output, evidence.jacobian.pairs[place, output].worst[0])
        if finding.file is not None:
            return finding
    inner = evidence.spared("the line of a finding", lambda: inner_backward(evidence.forward, place))
    return replace(finding, file=inner.file, line=inner.line, source=inner.source) if inner else finding


def _declared(evidence: Evidence, method: Method) -> tuple[str, int, str] | None:
    """(file, line, source) of that method, where one Function alone can be meant."""
    if evidence.subject.target.kind == "autograd.Function":
        return method_line(evidence.subject.target.subject, method)
    found = [line for cls in evidence.forward.classes if (line := method_line(cls, method)) is not None]
    return found[0] if len(found) == 1 else None
