"""GV104 not-a-subgradient: at a kink, backward gives no slope between the left and the right one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gradverify.evidence import Evidence
from gradverify.model.result import Finding
from gradverify.numerics.pairs.pair import ElementRecord, Outcome
from gradverify.numerics.verdict import Limit
from gradverify.rules.shown import place_name, unjudged

SHOWN = 3     # of the elements of a sum
BETWEEN = "at a kink backward may return the slope of either side, or a number between them"
SHARED = "give the gradient to one of the inputs that share the kink, or share it out among them"


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    return unjudged(found) or ("a fixed `eps` has no kink test" if evidence.settings.eps != "auto" else None)


def check(evidence: Evidence) -> Iterator[Finding]:
    for (index, output), pair in evidence.jacobian.pairs.items():
        bad = [element for element in pair.worst if element.outcome is Outcome.MISMATCH and element.at_kink]
        if not bad:
            continue
        together = bad[0].limit is Limit.KINK_SUM
        message = _sum_of(evidence, index, output, bad) if together else _one(evidence, index, output, bad[0])
        yield Finding("GV104", message, input=evidence.inputs[index].name, output=evidence.forward.checked[output],
                      hint=SHARED if together else BETWEEN)


def _one(evidence: Evidence, index: int, output: int, element: ElementRecord) -> str:
    low, high = _slopes(element)
    return (f"at the kink {place_name(evidence, index, output, element)} backward gives {element.analytic:.6g}, which is no slope "
            f"between {low} and {high}, the ones from left and right")


def _sum_of(evidence: Evidence, index: int, output: int, bad: Sequence[ElementRecord]) -> str:
    """Of the kinks of one output: each gradient is a slope, their sum is none."""
    own = [each for each in bad if each.output_index == bad[0].output_index and each.limit is Limit.KINK_SUM]
    names = [place_name(evidence, index, output, each) for each in own[:SHOWN]]
    more = " and others" if len(own) > SHOWN else ""
    low, high = _slopes(own[0])
    slopes = f"is {low}" if low == high else f"lies between {low} and {high}"
    values = ", ".join(f"{each.analytic:.6g}" for each in own[:SHOWN])
    return (f"at the kinks {', '.join(names)}{more} backward gives {values}: each is a slope of f along its own input, but "
            f"their sum is no slope along all of them together, which {slopes}")


def _slopes(element: ElementRecord) -> tuple[str, str]:
    low, high = sorted((element.left + 0.0, element.right + 0.0))        # no −0
    return f"{low:.6g}", f"{high:.6g}"
