"""A finding about what forward does, with the line of that."""

from __future__ import annotations

from dataclasses import replace

from gradverify.evidence import Evidence
from gradverify.model.result import Finding
from gradverify.subject.written_line import forward_line


def at_forward(finding: Finding, evidence: Evidence, written: str | None = None) -> Finding:
    """At the definition of a Function's forward, or its one line that writes into the input called `written`; at that of any other callable."""
    target, positions = evidence.subject.target, evidence.subject.positions
    if target.kind != "autograd.Function":
        return replace(finding, file=target.file, line=target.line, source=target.source)
    number = next((n for n, members in enumerate(positions) if written is not None and members[0].whole == written), None)
    return at_forward_of(finding, target.subject, number)


def at_forward_of(finding: Finding, cls: type, written: int | None = None) -> Finding:
    """The same for a Function inside of what is checked, and for the argument of this number."""
    place = forward_line(cls, written)
    return finding if place is None else replace(finding, file=place[0], line=place[1], source=place[2])
