"""Where another opinion and backward differ: whose fault it is, as far as finite differences tell."""

from __future__ import annotations

from dataclasses import replace

from gradverify.evidence import Evidence
from gradverify.model.result import Finding
from gradverify.numerics.pairs.pair import Outcome, Pair
from gradverify.subject.target import Target


def blamed(finding: Finding, evidence: Evidence, index: int, output: int | None, name: str, target: Target | None = None) -> Finding:
    """The finding with the oracle to blame in its place, where backward agrees with finite differences on every element of the pair.

    `index`, `output`: among the differentiable inputs and the checked outputs, None for all of these; `target`: where the oracle stands.
    """
    if _differs(evidence, index, output):
        return replace(finding, hint=f"{evidence.difference} differs from backward too: look at backward first")
    if not _agrees(evidence, index, output):
        return finding
    spec = evidence.subject.case.spec
    file, line, source = (spec.path, spec.line, None) if target is None else (target.file or spec.path, target.line, target.source)
    return replace(finding, message=f"{name} is wrong, not backward: {finding.message}", file=file, line=line, source=source,
                   hint=f"backward agrees with {evidence.difference} on every element: correct {name}")


def _agrees(evidence: Evidence, index: int, output: int | None) -> bool:
    pairs = _pairs(evidence, index, output)
    return all(pair.count(Outcome.PASS, Outcome.KINK) == pair.compared for pair in pairs)


def _differs(evidence: Evidence, index: int, output: int | None) -> bool:
    return any(pair.count(Outcome.MISMATCH) for pair in _pairs(evidence, index, output))


def _pairs(evidence: Evidence, index: int, output: int | None) -> list[Pair]:
    return [pair for (i, o), pair in evidence.jacobian.pairs.items() if i == index and output in (None, o)]
