"""One fault, one code: which finding stands where several rules found the same, from most to least specific, by the ranks that rules declare."""

from __future__ import annotations

import math
from dataclasses import replace

from gradverify.model.result import Finding
from gradverify.rules.catalogue import book
from gradverify.rules.protocol import Findings


def specific(findings: Findings) -> tuple[Finding, ...]:
    """One fault, one code: at one (input, output) the most specific finding stands and lists the others in `also`."""
    kept: list[Finding] = []
    for finding in sorted(findings, key=_rank):
        better = next((i for i, other in enumerate(kept) if _explains(other, finding)), None)
        if better is None:
            kept.append(finding)
        elif finding.code not in (kept[better].code, *kept[better].also):
            kept[better] = replace(kept[better], also=(*kept[better].also, finding.code))
    return tuple(kept)


def _rank(finding: Finding) -> float:
    rank = book()[finding.code].rank
    return math.inf if rank is None else rank


def _explains(better: Finding, finding: Finding) -> bool:
    """Do both stand for one pair, and is `better` of a more specific rank? A finding without input or output stands for all of them."""
    if _rank(better) >= _rank(finding) or _rank(finding) == math.inf or better.severity == "warning":
        return False
    if book()[better.code].apart or book()[finding.code].apart:
        return False
    spread = book()[better.code].spreads and book()[finding.code].numeric
    same_input = spread or better.input == finding.input or better.input is None or finding.input is None
    return same_input and (better.output == finding.output or better.output is None or finding.output is None)
