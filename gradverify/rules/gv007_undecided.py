"""GV007 undecided: the error bar is wider than the tolerance

What. For more elements than max(1, 0.01 %), neither "right" nor "wrong" can be said: the finite difference is known to less than the
tolerance, or does not exist.

Why it matters. A check that cannot decide must not be green by accident: the verdict is `undecided`. It fails the run under
`--undecided fail`, which is the default where `CI` is set.

How it is measured. Each finite difference carries a bar U; an element is undecided where |analytic − numeric| lies within U of the
tolerance, where the step does not move the input (x + eps = x), or where the function is not finite on both sides.

How to repair. Give a larger `rtol` or `atol` if that accuracy is not needed; choose inputs of a moderate size; compute in float64
inside; leave out `eps`, so that the step is chosen for each element.

Example.
    eps: 1e-20                          # 1.0 + 1e-20 is 1.0: the input does not move
"""

from __future__ import annotations

from collections.abc import Iterator

from gradverify.evidence import Evidence
from gradverify.model.result import Finding
from gradverify.numerics.derivative import Outcome
from gradverify.numerics.tally import Tally
from gradverify.rules.shown import element_name

SHARE = 1e-4        # of the elements may stay undecided in a check that passes (command-line.md)
_OPEN = (Outcome.UNDECIDED, Outcome.JUMP, Outcome.STAIRCASE, Outcome.NON_FINITE)


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    wrong = sorted(code for code in found if code.startswith(("GV1", "GV2")))
    return f"{wrong[0]} already stands" if wrong else None


def check(evidence: Evidence) -> Iterator[Finding]:
    total = sum(tally.elements for tally in evidence.jacobian.values())
    undecided = sum(tally.count(*_OPEN) for tally in evidence.jacobian.values())
    if undecided <= max(1.0, SHARE * total) and undecided < total:
        return
    if undecided:
        (index, output), worst = max(evidence.jacobian.items(), key=lambda item: item[1].count(*_OPEN))
        yield Finding("GV007", f"{undecided} of {total} elements could not be decided: {_why(evidence, index, output, worst)}", hint=_hint(evidence))


def _why(evidence: Evidence, index: int, output: int, tally: Tally) -> str:
    element = tally.worst[0]
    argument, y = evidence.inputs[index], evidence.outputs[output]
    x = element_name(argument.name, argument.value, element.input)
    where = f"at {element_name(f'y{evidence.forward.checked[output]}', y, element.output)} / {x}"
    if element.outcome is Outcome.NON_FINITE:
        return f"{where} the function is not finite on both sides"
    if evidence.settings.eps != "auto":
        return f"{where} the step does not move the input: {x} + {evidence.settings.eps:g} = {x} in {evidence.settings.dtype}"
    return f"{where} the numeric value is {element.numeric:.6g} ± {element.bar:.2g}, the tolerance {element.tolerance:.2g}"


def _hint(evidence: Evidence) -> str:
    if evidence.settings.eps != "auto":
        return "leave out `eps`, so that the step is chosen for each element, or give a larger one"
    return "give a larger `rtol` or `atol`, or choose inputs of moderate size inside the function's domain"
