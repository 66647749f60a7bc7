"""Convert tallies to comparisons and findings: names of elements, and sentences with numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, cast

from torch import Tensor

from gradverify.evidence import Evidence
from gradverify.model.result import LEFT_OUT, Comparison, Entry, ErrorMap, Finding, Outcome
from gradverify.numerics.function.coordinates import place
from gradverify.numerics.pairs.pair import ElementRecord, Pair
from gradverify.numerics.pairs.pair import Outcome as Seen
from gradverify.numerics.verdict import Limit
from gradverify.report.names import element
from gradverify.report.numbers import pair as in_digits
from gradverify.subject.snapshot import Change
from gradverify.subject.subject import Argument

# ---- A rule is a function `gvNNN(evidence)`. Its preconditions are declared in the catalogue
# (`needs`)
Findings = Iterator[Finding]
RuleResults = Iterator[Finding | Comparison | str]
"""What a rule yields: mistakes (Finding), what was compared (Comparison), and notes (text) that
`-v` prints for a rule that ran."""


DIGITS = (6, 9, 12, 17)
_OPEN = (Seen.UNDECIDED, Seen.JUMP, Seen.STAIRCASE)


def comparison(
    rule: str, argument: Argument, output: int | None, value: Tensor | None, pair: Pair
) -> Comparison:
    """Return the report's entry for one pair: with its worst elements that are not right, or else
    the element nearest to its tolerance. `value` is the output tensor, None where the comparison is
    over all outputs together."""
    bad = [element for element in pair.worst if element.outcome not in (Seen.PASS, Seen.KINK)]
    ratios = pair.ratios
    return Comparison(
        rule,
        argument.name,
        output,
        pair.compared,
        mismatched=pair.count(Seen.MISMATCH),
        kinks=pair.count(Seen.KINK),
        undecided=pair.count(*_OPEN),
        non_finite=pair.count(Seen.NON_FINITE),
        max_abs_error=pair.max_abs_error,
        max_rel_error=pair.max_rel_error,
        resolution=pair.resolution,
        groups=pair.groups,
        row_groups=pair.row_groups,
        lines=pair.lines,
        worst=tuple(_entry(element, argument.value, value) for element in bad or pair.worst[:1]),
        error_map=ErrorMap(tuple(map(tuple, ratios.tolist())))
        if ratios is not None and pair.count(Seen.MISMATCH)
        else None,
    )


def _entry(element: ElementRecord, x: Tensor, y: Tensor | None) -> Entry:
    input_index, input_part = place(x.shape, x.is_complex(), element.input_index)
    output_index, output_part = (
        place(y.shape, y.is_complex(), element.output_index) if y is not None else ((), None)
    )
    size = max(abs(element.analytic), abs(element.numeric))
    return Entry(
        output_index,
        input_index,
        element.analytic,
        element.numeric,
        element.bar,
        element.tolerance,
        element.error,
        element.error / size if size else 0.0,
        cast(Outcome, element.outcome.name.lower()),
        output_part,
        input_part,
    )


class Result(NamedTuple):
    """A checked output (`output`: its place among all outputs) or the gradient of an input
    (`input`: its name), with a tensor of its shape."""

    input: str | None
    output: int | None
    name: str
    tensor: Tensor


def results(evidence: Evidence) -> list[Result]:
    """Return the checked outputs, then the gradients of the inputs."""
    outputs = zip(evidence.forward.checked, evidence.outputs, strict=True)
    return [
        *(Result(None, place, evidence.name_of(place), y) for place, y in outputs),
        *(Result(each.name, None, each.name, each.value) for each in evidence.inputs),
    ]


def element_name(name: str, x: Tensor, coordinate: int) -> str:
    """Return the name of one real coordinate of a tensor: `w[3,1]`, `z[2].imag`."""
    return element(name, *place(x.shape, x.is_complex(), coordinate))


def coordinate_name(names: Sequence[str], tensors: Sequence[Tensor], coordinate: int) -> str:
    """Return the name (`w[3,1]`) of one real coordinate of several tensors that are numbered
    consecutively."""
    for name, tensor in zip(names, tensors, strict=True):
        size = tensor.numel() * (2 if tensor.is_complex() else 1)
        if coordinate < size:
            return element_name(name, tensor, coordinate)
        coordinate -= size
    raise IndexError("a coordinate beyond the tensors")


def apart(mine: float, theirs: float) -> tuple[str, str]:
    """Format two numbers with enough digits to show their difference, at least six; a zero has no
    sign."""
    return in_digits(mine, theirs, DIGITS)


def named(
    evidence: Evidence, pairs: Mapping[tuple[int, int], Pair]
) -> Iterator[tuple[Argument, int, Tensor, Pair]]:
    """Yield each pair with its input, and with the place and the value of its output."""
    for (index, output), pair in pairs.items():
        place = evidence.forward.checked[output]
        yield evidence.inputs[index], place, evidence.outputs[output], pair


def place_name(evidence: Evidence, pair: Pair, element: ElementRecord) -> str:
    """Return the name of an element of a pair: `y0[2] / w[3,1]`."""
    argument, place, y, _ = next(named(evidence, {(pair.input, pair.output): pair}))
    x = element_name(argument.name, argument.value, element.input_index)
    return f"{element_name(evidence.name_of(place), y, element.output_index)} / {x}"


def unfinished(evidence: Evidence, own: Iterable[Pair]) -> Iterator[str]:
    """Yield a note for each part of these pairs that was left out because the budget was spent."""
    elements = sum(count for pair in own for limit, count in pair.limits if limit is Limit.BUDGET)
    if elements:
        yield f"{elements:,} elements {LEFT_OUT}{evidence.spending.ended}"
    if evidence.choice is not None and evidence.choice.left:
        yield (
            f"{evidence.choice.left:,} flagged {evidence.choice.mode.lines} "
            f"{LEFT_OUT}{evidence.spending.ended}"
        )


def differs(
    code: str,
    evidence: Evidence,
    argument: Argument,
    output: int | None,
    y: Tensor | None,
    pair: Pair,
    against: str,
    hint: str | None = None,
    theirs: str = "numeric",
) -> Finding:
    """Return the finding "{57 of 96} elements of d y0 / d weight differ from {the finite
    difference}; worst at …"."""
    worst, what = pair.worst[0], f"the gradient of {argument.name}"
    where = element_name(argument.name, argument.value, worst.input_index)
    if y is not None and output is not None:
        name = evidence.name_of(output)
        what = f"d {name} / d {argument.name}"
        where = f"{element_name(name, y, worst.output_index)} / {where}"
    wrong, total = pair.count(Seen.MISMATCH), pair.compared
    lines = pair.lines or "elements"
    share = (
        f"the one {lines[:-1]}"
        if total == 1
        else f"all {total:,} {lines}"
        if wrong == total
        else f"{wrong:,} of {total:,} {lines}"
    )
    verb = "differs" if wrong == 1 else "differ"
    analytic, numeric = apart(worst.analytic, worst.numeric)
    message = (
        f"{share} of {what} {verb} from {against}; worst at {where}: analytic {analytic}, {theirs} "
        f"{numeric}"
    )
    return Finding(code, message, input=argument.name, output=output, hint=hint)


def changed(name: str, tensor: Tensor, change: Change | None) -> str:
    """Describe the first changed element of a tensor (": x[0,1] was 2 before, 1 after"); return ""
    where `change` is None."""
    if change is None:
        return ""
    coordinate, before, after = change
    return (
        f": {element_name(name, tensor, coordinate) or 'it'} was {before:.6g} before, {after:.6g} "
        "after"
    )
