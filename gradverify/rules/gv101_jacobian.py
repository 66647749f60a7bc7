"""GV101 jacobian: backward differs from the finite difference."""

from __future__ import annotations

from collections.abc import Iterator

from gradverify.evidence import Evidence
from gradverify.model.result import Comparison, Finding
from gradverify.numerics.pairs.pair import Outcome
from gradverify.rules.meant import meant
from gradverify.rules.shown import against, comparison, differs, fixed_step, pairs, unfinished, unjudged


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    if unjudged(found):
        return unjudged(found)
    if all(argument.parameter for argument in evidence.inputs):
        return "all differentiable inputs are parameters (GV111)"
    return None


def check(evidence: Evidence) -> Iterator[Finding | Comparison | str]:
    yield from unfinished(evidence, [pair for *_, pair in pairs(evidence, parameters=False)])
    for argument, output, y, pair in pairs(evidence, parameters=False):
        yield comparison("GV101", argument, output, y, pair)
        if pair.count(Outcome.MISMATCH):
            hint = meant(evidence, output, pair) or fixed_step(evidence)
            yield differs("GV101", argument, output, y, pair, against(evidence, pair), hint, "numeric", evidence.name_of(output))
