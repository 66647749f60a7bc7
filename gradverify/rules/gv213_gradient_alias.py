"""GV213 gradient-alias: backward returns memory that somebody else goes on using."""

from __future__ import annotations

from collections.abc import Iterator

from gradverify.evidence import Evidence
from gradverify.model.result import Finding
from gradverify.rules.raw import input_at
from gradverify.rules.shown import NO_FUNCTION
from gradverify.subject.alias import Shared
from gradverify.subject.failure import UserCodeError
from gradverify.subject.graph import RawReturn


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    if "GV201" in found:
        return "backward is not linear"     # what ignores grad_output returns what it saved
    if evidence.settings.looks_for("GV207") and evidence.repeats is not None and not evidence.reusable:
        return "backward of one graph gives another gradient each time"     # what adds up in a buffer returns that
    return None if evidence.forward.nodes else NO_FUNCTION


def check(evidence: Evidence) -> Iterator[Finding]:
    told = set[tuple[type | str, int]]()
    returns = [(raw, "") for raw in evidence.worked.raw] + [(raw, " for a grad_output of ones") for raw in _for_ones(evidence)]
    for (raw, when), share in ((each, share) for each in returns for share in each[0].shares):
        if (raw.cls, share.place) not in told:
            told.add((raw.cls, share.place))
            yield _finding(evidence, raw, share, when)


def _for_ones(evidence: Evidence) -> tuple[RawReturn, ...]:
    """Nothing where backward raises for ones, which is another rule's."""
    try:
        return evidence.for_ones[0]
    except UserCodeError:
        return ()


def _finding(evidence: Evidence, raw: RawReturn, share: Shared, when: str) -> Finding:
    own, twin = input_at(evidence, raw, share.place), share.twin
    name = own or f"argument {share.place}"
    other = share.name if twin is None else f"the gradient for {input_at(evidence, raw, twin) or f'argument {twin}'}"
    return Finding("GV213", f"the gradient that backward of {raw.name} returns for {name} shares memory with {other}{when}", input=own,
                   severity="warning" if twin is not None else "error", hint="return a tensor of its own: .clone() where nothing is computed")
