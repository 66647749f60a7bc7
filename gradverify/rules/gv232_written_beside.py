"""GV232 written-beside: a call writes beside its tensor."""

from __future__ import annotations

from collections.abc import Iterator

from gradverify.evidence import Evidence
from gradverify.model.result import Finding
from gradverify.rules.at_forward import at_forward


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    return None


def check(evidence: Evidence) -> Iterator[Finding]:
    beside = evidence.memory.beside
    if beside is not None:
        who = "backward" if evidence.memory.backward else "forward"
        count = abs(beside.element)
        where = "before the first" if beside.element < 0 else "behind the last"
        found = Finding("GV232", f"{who} writes beside its tensor: {count} element{'s' * (count > 1)} {where} of {beside.tensor} "
                        "there is another number after the call", hint="look at the first and the last index that is written")
        yield found if evidence.memory.backward else at_forward(found, evidence)
