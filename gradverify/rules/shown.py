"""Tallies as comparisons and findings: elements by name and index, sentences with numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from torch import Tensor

from gradverify.evidence import Evidence
from gradverify.model.result import Comparison, Entry, ErrorMap, Finding, Outcome
from gradverify.numerics.derivative import Outcome as Seen
from gradverify.numerics.flat import place
from gradverify.numerics.tally import Element, Tally
from gradverify.subject.subject import Argument

_UNDECIDED = (Seen.UNDECIDED, Seen.JUMP, Seen.STAIRCASE)


def comparison(rule: str, argument: Argument, output: int | None, value: Tensor | None, tally: Tally) -> Comparison:
    """One pair as the report has it. `value` is the output tensor, None where the comparison is over all outputs together."""
    return Comparison(
        rule, argument.name, output, tally.elements, mismatched=tally.count(Seen.MISMATCH), kinks=tally.count(Seen.KINK),
        undecided=tally.count(*_UNDECIDED), non_finite=tally.count(Seen.NON_FINITE), max_abs_error=tally.max_abs_error,
        max_rel_error=tally.max_rel_error, resolution=tally.resolution, groups=argument.value.numel(),
        worst=tuple(_entry(element, argument.value, value) for element in tally.worst), error_map=_map(tally))


def _entry(element: Element, x: Tensor, y: Tensor | None) -> Entry:
    input_index, input_part = place(x.shape, x.is_complex(), element.input)
    output_index, output_part = place(y.shape, y.is_complex(), element.output) if y is not None else ((), None)
    size = max(abs(element.analytic), abs(element.numeric))
    outcome: Outcome = "pass" if element.outcome is Seen.PASS else _NAMES[element.outcome]
    return Entry(output_index, input_index, element.analytic, element.numeric, element.bar, element.tolerance, element.error,
                 element.error / size if size else 0.0, outcome, output_part, input_part)


_NAMES: Mapping[Seen, Outcome] = {
    Seen.MISMATCH: "mismatch", Seen.KINK: "kink", Seen.JUMP: "jump", Seen.STAIRCASE: "staircase", Seen.UNDECIDED: "undecided",
    Seen.NON_FINITE: "non_finite"}


def _map(tally: Tally) -> ErrorMap | None:
    if tally.ratios is None or not tally.count(Seen.MISMATCH):
        return None
    return ErrorMap(tuple(tuple(row) for row in tally.ratios.tolist()))


def element_name(name: str, x: Tensor, coordinate: int) -> str:
    """`w[3,1]`, `z[2].imag`: one real coordinate of a tensor."""
    index, part = place(x.shape, x.is_complex(), coordinate)
    suffix = {None: "", "re": ".real", "im": ".imag"}[part]
    return f"{name}[{','.join(map(str, index))}]{suffix}" if index else f"{name}{suffix}"


def pairs(evidence: Evidence, parameters: bool) -> Iterator[tuple[Argument, int, Tensor, Tally]]:
    """(input, output place, output, tally) of the finite-difference comparison, of parameters or of the other inputs."""
    for (index, output), tally in evidence.jacobian.items():
        argument = evidence.inputs[index]
        if argument.parameter is parameters:
            yield argument, evidence.forward.checked[output], evidence.outputs[output], tally


def differs(code: str, argument: Argument, output: int | None, y: Tensor | None, tally: Tally, against: str, hint: str | None) -> Finding:
    """"{57 of 96} elements of d y0 / d weight differ from {the finite difference}: worst at …"."""
    worst = tally.worst[0]
    where = element_name(argument.name, argument.value, worst.input)
    if y is not None and output is not None:
        where = f"{element_name(f'y{output}', y, worst.output)} / {where}"
    what = f"d y{output} / d {argument.name}" if output is not None else f"the gradient of {argument.name}"
    wrong, total = tally.count(Seen.MISMATCH), tally.elements
    share = "the one element" if total == 1 else f"all {total} elements" if wrong == total else f"{wrong} of {total} elements"
    verb = "differs" if wrong == 1 else "differ"
    message = f"{share} of {what} {verb} from {against}; worst at {where}: analytic {worst.analytic:.6g}, expected {worst.numeric:.6g}"
    return Finding(code, message, input=argument.name, output=output, hint=hint)
