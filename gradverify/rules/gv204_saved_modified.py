"""GV204 saved-modified: backward writes into what forward saved or returned."""

from __future__ import annotations

from collections.abc import Iterator

from gradverify.evidence import Evidence
from gradverify.model.result import Finding
from gradverify.rules.shown import NO_FUNCTION, changed


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    return None if evidence.forward.nodes else NO_FUNCTION


def check(evidence: Evidence) -> Iterator[Finding]:
    for each in evidence.worked.written:
        if each.held.kind != "argument":
            name = f"the {each.held.name}" if each.held.kind == "saved" else each.held.name
            label = "" if each.held.kind == "saved" else each.held.name
            yield Finding("GV204", f"backward writes into {name}{changed(label, each.held.tensor, each.change)}", output=each.held.place,
                          hint="work out of place or on a clone: what forward saved or returned is read again by others")
