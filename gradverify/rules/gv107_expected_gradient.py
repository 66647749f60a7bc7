"""GV107 expected-gradient: backward differs from the gradient that the spec gives."""

from __future__ import annotations

from collections.abc import Iterator

from gradverify.evidence import Evidence
from gradverify.model.result import Comparison, Finding
from gradverify.numerics.pairs.pair import Outcome
from gradverify.oracles.given import Given
from gradverify.rules.oracle import blamed
from gradverify.rules.shown import comparison, differs, unjudged


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    return unjudged(found) if _given(evidence) else "the spec gives neither `expected` nor `gradient`"


def check(evidence: Evidence) -> Iterator[Finding | Comparison]:
    for oracle in _given(evidence):
        for (index, _), pair in oracle.pairs.items():
            argument = evidence.inputs[index]
            yield comparison("GV107", argument, None, None, pair)
            if pair.count(Outcome.MISMATCH):
                finding = differs("GV107", argument, None, None, pair, oracle.says, "check these numbers")
                yield blamed(finding, evidence, index, None, oracle.name, oracle.target)


def _given(evidence: Evidence) -> list[Given]:
    return [oracle for oracle in evidence.oracles.values() if isinstance(oracle, Given)]
