"""One fault, one code: which finding stands where several rules found the same, from most to least specific, by the ranks that rules declare."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace

from gradverify.evidence import Evidence
from gradverify.model.result import Finding
from gradverify.rules.catalogue import book
from gradverify.subject.layout import LAID

STANDS = re.compile(r"(GV\d{3}) (?:was found already|has to be repaired first)")


def specific(findings: Iterator[Finding], contiguous: bool = False) -> tuple[Finding, ...]:
    """One fault, one code: at one (input, output) the most specific finding stands and lists the others in `also`. `contiguous`: all tensors of the
    call at the point are, so that no other layout explains its numbers."""
    kept: list[Finding] = []
    for finding in sorted(findings, key=_rank):
        better = next((i for i, other in enumerate(kept) if _explains(other, finding, contiguous)), None)
        if better is None:
            kept.append(finding)
        elif finding.code not in (kept[better].code, *kept[better].also):
            kept[better] = replace(kept[better], also=(*kept[better].also, finding.code))
    return tuple(kept)


def contiguous_throughout(evidence: Evidence) -> bool:
    """Are all tensors of the call at the point? What a Function inside a callable gets is not known."""
    tensors = [argument for argument in evidence.subject.arguments if argument.is_tensor]
    if evidence.subject.target.kind != "autograd.Function" or not all(each.layout in LAID and each.value.is_contiguous() for each in tensors):
        return False
    return "forward" in vars(evidence) and evidence.odd is None and all(y.is_contiguous() for y in evidence.returned)


def _rank(finding: Finding) -> float:
    rank = book()[finding.code].rank
    return math.inf if rank is None else rank


def _explains(better: Finding, finding: Finding, contiguous: bool) -> bool:
    """Do both stand for one pair, and is `better` of a more specific rank? A finding without input or output stands for all of them."""
    if _rank(better) >= _rank(finding) or _rank(finding) == math.inf or better.severity == "warning":
        return False
    if book()[better.code].apart or book()[finding.code].apart:
        return False
    if contiguous and book()[better.code].layout and book()[finding.code].numeric:
        return False
    spread = book()[better.code].spreads and book()[finding.code].numeric
    same_input = spread or better.input == finding.input or better.input is None or finding.input is None
    return same_input and (better.output == finding.output or better.output is None or finding.output is None)


def in_sight(reason: str | None, findings: tuple[Finding, ...]) -> str | None:
    """Why a rule did not run, by the code of a finding that is shown, where the one that it gives way to stands under another (`also`)."""
    found = STANDS.match(reason or "")
    if reason is None or found is None or any(finding.code == found[1] for finding in findings):
        return reason
    shown = next((finding.code for finding in findings if found[1] in finding.also), found[1])
    return f"{shown}{reason[found.end(1):]}"
