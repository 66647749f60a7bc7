"""GV007 undecided: the error bar is wider than the tolerance."""

from __future__ import annotations

import math
from collections.abc import Iterator

from gradverify.evidence import Evidence
from gradverify.model.result import Finding
from gradverify.numerics.pairs.pair import Outcome, Pair
from gradverify.numerics.verdict import Limit
from gradverify.rules.limits import WORDS
from gradverify.rules.shown import element_name, place_name
from gradverify.subject.arguments import Argument
from gradverify.subject.wide import sixteen_inside

CODE = "GV007"
INDICES = "whole numbers that are indices or counts need `dtype: int64`"
SHARE = 1e-4        # of the elements may stay undecided in a check that passes (command-line.md)
SEEMS = 0.5         # of the larger of both: what rounding leaves open is seldom off by so much
STEPS = frozenset({Limit.NOISE, Limit.TRUNCATION, Limit.INCONSISTENT, Limit.JUMP, Limit.STAIRCASE, Limit.CANCELS, Limit.INFINITE, Limit.ROUNDED})
"""What the steps of a narrow type look like."""

ALONE = "it runs in float32 alone, whose rounding is in the way: name a `reference` in torch operations, or give `atol: {0}` if that will do"
INSIDE = "check it with `dtype: {0}`, where the finite differences have float64 for what it casts; or compute in float64 inside"
_OPEN = (Outcome.UNDECIDED, Outcome.JUMP, Outcome.STAIRCASE, Outcome.NON_FINITE)


def unfinished(rule: str, why: object) -> Finding:
    """Of a comparison of gradients that ended early: nothing is known of the rest."""
    return Finding(CODE, f"{rule} was not finished: {why}", hint="check a smaller input, or raise `budget` and `timeout`")


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    wrong = sorted(code for code in found if code.startswith(("GV1", "GV2")))
    return f"{wrong[0]} was found already" if wrong else None


def check(evidence: Evidence) -> Iterator[Finding]:
    pairs = evidence.jacobian.pairs
    total = sum(pair.compared for pair in pairs.values())
    undecided = sum(pair.count(*_OPEN) for pair in pairs.values())
    least = 0.0 if any(pair.lines for pair in pairs.values()) else 1.0      # a single line may be all that was compared
    few = undecided <= max(least, SHARE * total) and undecided < total
    if not undecided or (few and not any(map(_seems_wrong, pairs.values()))):
        return
    (index, output), worst = max(pairs.items(), key=lambda item: item[1].count(*_OPEN))
    narrow = sixteen_inside(evidence.subject) if _may_step(evidence, worst) else ""
    why = f"forward computes in {narrow} inside, and moves in its steps" if narrow else _why(evidence, index, output, worst)
    yield Finding(CODE, f"{undecided:,} of {total:,} {worst.lines or 'elements'} could not be decided: {why}",
                  input=evidence.inputs[index].name, output=evidence.forward.checked[output],
                  hint=INSIDE.format(narrow) if narrow else _of_float32(evidence, worst) or _hint(worst, evidence.inputs[index]))


def _may_step(evidence: Evidence, pair: Pair) -> bool:
    """Return whether rounding to a narrow type inside may hide the derivative. Not in a 16-bit check, which removes it."""
    own = evidence.subject.narrow is None and evidence.surrogate is None and evidence.settings.eps == "auto"
    return own and any(limit in STEPS for limit, _ in pair.limits)


def _of_float32(evidence: Evidence, pair: Pair) -> str | None:
    """The remedy for a float32 function that refuses float64: a reference, or a tolerance of the size that its values resolve."""
    if not isinstance(evidence.in_float64, str) or not evidence.in_float64 or not any(limit in STEPS for limit, _ in pair.limits):
        return None
    needed = [each.error + each.bar for seen in evidence.jacobian.pairs.values() for each in seen.worst if each.outcome in _OPEN]
    largest = max((each for each in needed if math.isfinite(each)), default=0.0)
    return ALONE.format(f"1e{math.ceil(math.log10(largest)):03d}") if largest > 0 else WORDS[Limit.STAIRCASE].advice


def _seems_wrong(pair: Pair) -> bool:
    """Is an open element off by half and more, and by more than the bar of the finite difference that it is held against?

    At a jump, and on treads too flat for the gradient, that bar bounds no derivative: the imaginary part of a complex logarithm, at its branch cut.
    """
    measured = (each for each in pair.worst if each.limit is not Limit.STUCK and (
        each.outcome is Outcome.UNDECIDED or (each.outcome is Outcome.STAIRCASE and abs(each.analytic) < abs(each.numeric))))
    return any(each.error - each.bar > SEEMS * max(abs(each.analytic), abs(each.numeric)) for each in measured)


def _why(evidence: Evidence, index: int, output: int, pair: Pair) -> str:
    if not pair.worst:
        return WORDS[pair.limits[0][0] if pair.limits else Limit.NOISE].reason
    element = pair.worst[0]
    where = f"at {place_name(evidence, index, output, element)}"
    if element.limit is Limit.STUCK:
        x = element_name(evidence.inputs[index].name, evidence.inputs[index].value, element.input_index)
        return f"{where} the step does not move the input: {x} + {evidence.settings.eps:g} = {x} in {evidence.settings.dtype}"
    reason = WORDS[element.limit].reason
    if element.outcome is Outcome.UNDECIDED:
        return f"{where} the numeric value is {element.numeric:.6g} ± {element.bar:.2g}, the tolerance {element.tolerance:.2g}; {reason}"
    return f"{where} {reason}"


def _hint(pair: Pair, argument: Argument) -> str | None:
    """What the reader can do about the most frequent limit."""
    limit = pair.limits[0][0] if pair.limits else Limit.NOISE
    whole = limit is Limit.JUMP and argument.value.is_floating_point() and bool((argument.value == argument.value.round()).all())
    return f"{WORDS[limit].advice}; {INDICES}" if whole else WORDS[limit].advice
