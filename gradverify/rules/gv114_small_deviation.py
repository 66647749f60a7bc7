"""GV114 small-deviation: everything is within the tolerance, but off by far more than the error bars."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gradverify.evidence import Evidence
from gradverify.model.result import Finding
from gradverify.numerics.estimate.noise import POINTS
from gradverify.numerics.function.point import Point
from gradverify.numerics.pairs.pair import Outcome, Pair
from gradverify.numerics.pairs.tally import DEVIATES, SMALLEST_DEVIATION
from gradverify.numerics.rungs import Z
from gradverify.oracles.finite_difference import Filled
from gradverify.rules.shown import apart, place_name, unjudged

OPEN = (Outcome.UNDECIDED, Outcome.STAIRCASE, Outcome.JUMP, Outcome.NON_FINITE, Outcome.MISMATCH)
ROWS = 8  # of a pair whose rounding is asked for
HINT = "look for a rounded constant, an approximation, an eps or fewer bits that forward and backward do not share"


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    return unjudged(found) or ("a fixed `eps` has no error bars" if evidence.settings.eps != "auto" else None)


def check(evidence: Evidence) -> Iterator[Finding]:
    for (index, output), pair in evidence.jacobian.left.items():
        yield _left(evidence, index, output, pair)
    for (index, output), pair in evidence.jacobian.pairs.items():
        if (index, output) in evidence.jacobian.left or pair.low_precision:
            continue
        name, place = evidence.inputs[index].name, evidence.forward.checked[output]
        within = f"d {evidence.name_of(place)} / d {name} is within the tolerance, but off by"
        if pair.deviation and not pair.count(Outcome.MISMATCH):
            if not _is_rounding(evidence, pair):
                yield Finding("GV114", f"{within} {pair.deviation:.2g} of its size, more than ten times the error bar", input=name, output=place,
                              hint=HINT)
        elif pair.steady and not pair.count(*OPEN) and not evidence.leftover:
            yield Finding("GV114", f"{within} {pair.steady:.2g} of its largest element from forward's own derivative, at points nearby too",
                          input=name, output=place, hint=HINT)


def _left(evidence: Evidence, index: int, output: int, pair: Pair) -> Finding:
    """What is small compared with its row, whose cause is named where the function is seen to iterate."""
    name, place, worst = evidence.inputs[index].name, evidence.forward.checked[output], pair.worst[0]
    analytic, numeric = apart(worst.analytic, worst.numeric)
    off, hint = "off by what an iteration leaves,", "let the iteration stop later, if these elements matter"
    if not evidence.leftover:
        off, hint = "zero, where the output moves by what is", "return the gradient, if it matters"
    return Finding("GV114", f"d {evidence.name_of(place)} / d {name} is {off} small compared with its row: at "
                   f"{place_name(evidence, index, output, worst)} analytic {analytic}, numeric {numeric}", input=name, output=place, hint=hint)


def _is_rounding(evidence: Evidence, pair: Pair) -> bool:
    """Is each deviation no more than the operations of backward make of their own roundings, as the inverse of a nearly singular matrix?

    Nine backwards a row, of the rows that are off most.
    """
    seen = pair.entries
    if seen is None or evidence.wishes.symmetric[pair.input]:
        return False
    off, size = np.abs(seen.analytic - seen.numeric), np.maximum(np.abs(seen.analytic), np.abs(seen.numeric))
    worst = np.flatnonzero((off > DEVIATES * seen.bar) & (off > SMALLEST_DEVIATION * size) & (seen.outcome == Outcome.PASS))
    worst = worst[np.argsort(-off[worst] / size[worst])]
    point = Point(Filled(evidence.function), evidence.modes.columns)
    column = np.searchsorted(point.columns.coordinate, int(point.starts[pair.input]) + seen.input)
    for row in list(dict.fromkeys(seen.output[worst].tolist()))[:ROWS]:
        own, sigma = worst[seen.output[worst] == row], point.row_rounding(point.parts[pair.output].start + row, POINTS)
        if sigma is None or not (off[own] <= seen.bar[own] + Z * sigma[column[own]]).all():
            return False
    return True
