"""One fault, one code: which finding stands where several rules found the same, from most to least specific (command-line.md)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gradverify.model.result import Finding

SPECIFIC = (("GV002", "GV003", "GV006"), ("GV205", "GV206"), ("GV212",), ("GV102", "GV103"), ("GV201",), ("GV202", "GV203", "GV204"), ("GV213",),
            ("GV207",), ("GV220",), ("GV208",), ("GV218",), ("GV209", "GV210", "GV211"), ("GV104",), ("GV107", "GV106"),
            ("GV101", "GV111", "GV114"))    # from most to least
DAMAGING = frozenset({"GV202", "GV203", "GV204"})      # what they write into enters the gradients of other inputs too
DAMAGED = frozenset({"GV101", "GV111", "GV114"})


def specific(findings: Iterator[Finding]) -> tuple[Finding, ...]:
    """One fault, one code: at one (input, output) the most specific finding stands and lists the others in `also`."""
    kept: list[Finding] = []
    for finding in sorted(findings, key=_rank):
        better = next((i for i, other in enumerate(kept) if _explains(other, finding)), None)
        if better is None:
            kept.append(finding)
        elif finding.code not in (kept[better].code, *kept[better].also):
            kept[better] = replace(kept[better], also=(*kept[better].also, finding.code))
    return tuple(kept)


def _rank(finding: Finding) -> int:
    return next((rank for rank, codes in enumerate(SPECIFIC) if finding.code in codes), len(SPECIFIC))


def _explains(better: Finding, finding: Finding) -> bool:
    """Do both stand for one pair, and is `better` of a more specific rank? A finding without input or output stands for all of them."""
    if _rank(better) >= _rank(finding) or _rank(finding) == len(SPECIFIC) or better.severity == "warning":
        return False
    spread = better.code in DAMAGING and finding.code in DAMAGED
    same_input = spread or better.input == finding.input or better.input is None or finding.input is None
    return same_input and (better.output == finding.output or better.output is None or finding.output is None)
