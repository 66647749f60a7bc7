"""A finding with the line of backward, of forward, or of the definition, that it is about."""

from __future__ import annotations

from dataclasses import replace

from gradverify.evidence import Evidence
from gradverify.model.paths import shown_path
from gradverify.model.result import Finding
from gradverify.rules.at_forward import at_forward
from gradverify.rules.catalogue import book
from gradverify.subject.find import run_folder
from gradverify.subject.inner_backward import inner_backward
from gradverify.subject.returned_line import returned_line


def placed(finding: Finding, evidence: Evidence) -> Finding:
    """With its file as it is shown; one that names no place of its own gets that of what it is about."""
    target, about_backward = evidence.subject.target, book()[finding.code].line
    if finding.file is None and finding.code >= "GV1" and about_backward:
        finding = _at_inner_backward(finding, evidence)
    if finding.file is None and book()[finding.code].forward:
        finding = at_forward(finding, evidence)
    if finding.file is None and finding.code >= "GV1" and target.file:
        made = returned_line(evidence.subject, finding.input) if finding.input and about_backward else None
        line, source = (made.number, made.text) if made else (target.line, target.source)
        finding = replace(finding, file=target.file, line=line, source=source)
    return finding if finding.file is None else replace(finding, file=shown_path(finding.file, run_folder()))


def _at_inner_backward(finding: Finding, evidence: Evidence) -> Finding:
    """A wrong gradient of a callable, module or operator stands at the backward of the one Function that it comes through, where there is one."""
    place = next((n for n, argument in enumerate(evidence.inputs) if argument.name == finding.input), None)
    if place is None or evidence.subject.target.kind == "autograd.Function":
        return finding
    found = evidence.spared("the line of a finding", lambda: inner_backward(evidence.forward, place))
    return replace(finding, file=found.file, line=found.line, source=found.source) if found else finding
