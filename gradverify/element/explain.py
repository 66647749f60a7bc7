"""One element of a Subject's Jacobian: found by its name as in `--element`, measured, and its
verdict in a sentence; a name of no element is rejected with a message."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from torch import Tensor

from gradverify.evidence import Evidence
from gradverify.model.element import Element, Measured, Part, Place
from gradverify.model.problem import ProblemsError
from gradverify.numerics.choose import Choice
from gradverify.numerics.explain import fixed_step, measure
from gradverify.numerics.function.coordinates import mirror_of, place
from gradverify.numerics.pairs.pair import ElementRecord, Outcome, Pair
from gradverify.numerics.pairs.pair import Requested as PairElement
from gradverify.numerics.verdict import Limit, Verdict
from gradverify.oracles.finite_difference import Filled, Jacobian
from gradverify.report.names import element as named
from gradverify.rules.chosen import could_miss
from gradverify.spec.fault import allowed
from gradverify.subject.failure import UserCodeError
from gradverify.subject.subject import Subject
from gradverify.verify import described, evidence_of

SUFFIXES: dict[str, Part] = {".real": "re", ".imag": "im"}
INDEX = re.compile(r"(?P<name>.+?)\[(?P<index>-?\d+(?:,-?\d+)*)?\]", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Found:
    """A tensor among the differentiable inputs or the compared outputs, one of its real
    coordinates, and its displayed name."""

    name: str
    tensor: int
    coordinate: int
    value: Tensor

    @property
    def place(self) -> Place:
        index, part = place(self.value.shape, self.value.is_complex(), self.coordinate)
        return Place(self.name, index, part)


def input_element(evidence: Evidence, text: str) -> Found:
    """Return an element of a differentiable input by its name. Raises ProblemsError."""
    tensors = {
        argument.name: argument for argument in evidence.subject.arguments if argument.is_tensor
    }
    name, index, part = _taken_apart(text, tuple(tensors))
    argument = tensors.get(name)
    if argument is None:
        raise _refused(f"no input {name!r}; {allowed(name, tuple(tensors), 'inputs')}")
    if not argument.differentiable:
        why = (
            "`requires_grad: false`"
            if argument.value.is_floating_point() or argument.value.is_complex()
            else str(argument.value.dtype)[6:]
        )
        others = [each.name for each in evidence.inputs]
        raise _refused(
            f"{name} is not differentiated "
            f"({why}){'; inputs that are: ' + ', '.join(others) if others else ''}"
        )
    found = Found(
        name,
        evidence.inputs.index(argument),
        _coordinate(name, argument.value, index, part),
        argument.value,
    )
    if argument.symmetric and evidence.settings.eps == "auto":
        # Of each pair of a symmetric input one element is moved, and the other with it
        mirror = _mirrored(found)
        if mirror is None:
            raise _refused(f"{_shown(found.place)} is 0 in a Hermitian matrix: it does not move")
        if found.coordinate > mirror.coordinate:
            raise _refused(
                f"{name} is `symmetric`: {_shown(found.place)} moves together with "
                f"{_shown(mirror.place)}; ask for that one"
            )
    # Only the elements that a sparse input holds are moved
    held = None if argument.form is None else argument.form.specified
    number = found.coordinate // (2 if found.value.is_complex() else 1)
    if held is not None and not held.reshape(-1)[number]:
        first = named(name, tuple(held.nonzero()[0].tolist()), found.place.part)
        raise _refused(
            f"{_shown(found.place)} is not held by the sparse tensor, so it is not moved: ask for "
            f"one of its {int(held.sum())} elements, such as {first}"
        )
    return found


def output_element(evidence: Evidence, text: str) -> Found:
    """Return an element of a compared output, by its path or its number: `y.loss` of a dict is also
    `y0`, and `y`. Raises ProblemsError."""
    outputs = [n for n, value in enumerate(evidence.forward.outputs) if isinstance(value, Tensor)]
    named = {evidence.name_of(n): n for n in outputs}
    places = {f"y{n}": n for n in outputs} | named
    name, index, part = _taken_apart(text, tuple(places))
    name = "y0" if name == "y" and "y" not in places else name
    if name not in places:
        raise _refused(f"no output {name!r}; {allowed(name, tuple(named), 'outputs')}")
    name = evidence.name_of(places[name])
    value = evidence.forward.outputs[places[name]]
    if places[name] not in evidence.forward.checked:
        raise _refused(f"{name} is not compared: {_why_left_out(evidence, places[name], value)}")
    return Found(
        name,
        evidence.forward.checked.index(places[name]),
        _coordinate(name, value, index, part),
        value,
    )


def _why_left_out(evidence: Evidence, output: int, value: Tensor) -> str:
    if not (value.is_floating_point() or value.is_complex()):
        return f"it is {str(value.dtype)[6:]}"
    return "it has no graph" if output in evidence.forward.detached else "`outputs` leaves it out"


def _taken_apart(text: str, names: tuple[str, ...]) -> tuple[str, tuple[int, ...], Part | None]:
    """Return name, index and part of `z[2,0].imag`; a name may itself end in brackets or a suffix.
    Raises ProblemsError."""
    whole, part = text.strip(), None
    if whole not in names and whole[-5:] in SUFFIXES:
        whole, part = whole[:-5], SUFFIXES[whole[-5:]]
    matched = None if whole in names else INDEX.fullmatch(re.sub(r"\s", "", whole))
    if matched is None:
        if whole not in names and "[" in whole:
            raise _refused(
                f"{text.strip()!r}: an index is whole numbers in brackets, such as [3,1]"
            )
        return whole, (), part
    index = tuple(int(number) for number in (matched["index"] or "").split(",") if number)
    return matched["name"], index, part


def _coordinate(name: str, value: Tensor, index: tuple[int, ...], part: Part | None) -> int:
    """Return the real coordinate of an element. Raises ProblemsError where the tensor has no such
    element."""
    shape = tuple(value.shape)
    shown = f"{name}[{','.join(map(str, index))}]" if index else name
    if len(index) != len(shape) or not all(
        0 <= i < size for i, size in zip(index, shape, strict=True)
    ):
        raise _refused(
            f"{shown} is no element: {name} has shape {list(shape)}{_which(name, shape)}"
        )
    if value.is_complex() and part is None:
        raise _refused(f"{shown} is complex: say {shown}.real or {shown}.imag")
    if not value.is_complex() and part is not None:
        raise _refused(f"{shown} is real: leave out {'.real' if part == 're' else '.imag'}")
    flat = int(np.ravel_multi_index(index, shape)) if shape else 0
    return 2 * flat + (part == "im") if value.is_complex() else flat


def _which(name: str, shape: tuple[int, ...]) -> str:
    if not shape:
        return f", so it is {name} without an index"
    if 0 in shape:
        return ", and no elements"
    first = ",".join("0" for _ in shape)
    last = ",".join(str(size - 1) for size in shape)
    return f", from {name}[{first}] to {name}[{last}]"


def _mirrored(found: Found) -> Found | None:
    """Return the place of this coordinate in the (conjugate) transpose; None where the coordinate
    may not move."""
    mirror, sign = mirror_of(found.value)
    other = int(mirror[found.coordinate])
    if other == found.coordinate and sign[other] < 0:
        return None
    return replace(found, coordinate=other)


def pair_of(evidence: Evidence, found: Found) -> Place | None:
    """Return the element of a symmetric input that moves with this one, or None."""
    symmetric = evidence.inputs[found.tensor].symmetric and evidence.settings.eps == "auto"
    mirror = _mirrored(found) if symmetric else None
    return None if mirror is None or mirror.coordinate == found.coordinate else mirror.place


def _shown(element: Place) -> str:
    return named(element.name, element.index, element.part)


def _refused(message: str) -> ProblemsError:
    return ProblemsError(f"--element: {message}")


# ---- The verdict on one element in a sentence
Excuse = Literal["", "leftover", "sum"]


def conclusion(m: Measured, excuse: Excuse = "") -> str:
    """Return one sentence that states the comparison and its result. `m.limit` is still the name of
    a `Limit`.

    `excuse`: why the pair passes although the finite difference alone would not; "sum": the element
    is wrong together with those at other kinks.
    """
    if m.fixed:
        return _by_fixed_step(m)
    if m.limit:
        return f"neither right nor wrong: {_undecided(m, Limit(m.limit))}"
    if m.outcome == "mismatch" and excuse == "sum":
        return (
            f"wrong: {m.analytic:.6g} is a slope of f along this input, but the gradients at "
            "several kinks add up to no slope along all of them together"
        )
    if m.sides:
        slopes = (
            f"f has a kink here, with slope {m.sides.left.value:.6g} on the left and "
            f"{m.sides.right.value:.6g} on the right"
        )
        return (
            f"{slopes}: {m.analytic:.6g} "
            f"{'lies between them' if m.outcome == 'kink' else 'does not lie between them'}"
        )
    if m.outcome == "pass" and excuse == "leftover" and m.error > m.tolerance.value:
        return (
            f"right: {m.error:.2g} away from the finite difference, as an iteration may leave it, "
            "small compared with its row"
        )
    if m.outcome == "pass":
        return (
            f"right: within {m.tolerance.value:.2g} of the finite difference, whose bar is "
            f"{m.bar:.2g}"
        )
    if not m.error < float("inf"):
        return "wrong: the analytic value is not finite, and f is on both sides"
    times = m.error / m.tolerance.value if m.tolerance.value else float("inf")
    return (
        f"wrong: {m.error:.3g} away from a finite difference that is known to {m.bar:.2g}; that is "
        f"{times:.3g} times the tolerance"
    )


def in_words(m: Measured) -> Measured:
    """Return the measurement with the limit's text in place of its name."""
    return replace(m, limit=Limit(m.limit).whole) if m.limit else m


def _undecided(m: Measured, limit: Limit) -> str:
    """Return the limit, with numbers where available, and what would decide the element."""
    if limit is Limit.MASKED:
        return limit.explained
    if not math.isfinite(m.analytic):
        why = (
            f"the analytic value is {m.analytic:g}, where f has no values on one side, or no "
            "finite slope"
        )
    elif m.outcome == "undecided" and math.isfinite(m.bar):
        why = (
            f"the numeric value is {m.numeric:.6g} ± {m.bar:.2g}, the tolerance "
            f"{m.tolerance.value:.2g}; {limit.explained}"
        )
    else:
        why = limit.explained
    return f"{why}; {limit.advice}" if limit.advice else why


def _by_fixed_step(m: Measured) -> str:
    """Return gradcheck's verdict, and the conclusion of the ladder."""
    assert m.fixed is not None
    ladder = replace(m, fixed=None)
    if m.fixed.outcome == "undecided":
        start = f"the step {m.fixed.step:g} does not move the input"
    else:
        verdict = {"pass": "accepts", "mismatch": "rejects"}.get(m.fixed.outcome, "cannot judge")
        start = f"torch.autograd.gradcheck's rule {verdict} this element at eps {m.fixed.step:g}"
    return f"{start}; under `eps: auto`: {conclusion(ladder)}"


# ---- One element of a Subject's Jacobian: found, measured, and its verdict in words
ABSENT = "backward gives None for this input: taken as zero"
WORST = "no element was named: this is the worst of the check"
PASSES = (
    "in the whole check this element passes: as far as its structure shows, f does not depend on "
    "the input there"
)
BY_ITSELF = "the check compares {}, each as a sum; here the element is judged by itself"


@dataclass(frozen=True, slots=True)
class Requested:
    """The two parts of `--element`, as written: `w[3,1]` and `y0[2]`."""

    input: str
    output: str


def explain(subject: Subject, requested: Requested | None = None) -> Element:
    """Measure and explain the requested element, or the worst of the check.

    Raises ProblemsError where there is no such element, UserCodeError where the user's code raises
    or there is nothing to compare.
    """
    evidence, before = evidence_of(subject), subject.calls
    with evidence.first_leg.mode():
        if requested is not None:
            moved = input_element(evidence, requested.input)
            seen = output_element(evidence, requested.output)
            found = evidence.compared(_of(moved, seen))
            record = found.pairs[moved.tensor, seen.tensor].requested
            element = _element(evidence, moved, seen, found, record)
        else:
            moved, seen, record = _worst(evidence)
            element = _element(evidence, moved, seen, evidence.jacobian, record)
            element = replace(element, notes=(WORST, *element.notes))
    spent = subject.calls - before
    return replace(
        element, measured=replace(element.measured, forward=spent.forward, backward=spent.backward)
    )


def _of(moved: Found, seen: Found) -> PairElement:
    return PairElement(moved.tensor, seen.tensor, moved.coordinate, seen.coordinate)


def _element(
    evidence: Evidence, moved: Found, seen: Found, found: Jacobian, record: ElementRecord | None
) -> Element:
    """Return an element's explanation. `record`: its record in the check; None under a fixed step,
    where f is the same infinity."""
    subject, key = evidence.subject, (moved.tensor, seen.tensor)
    measured = _measured(evidence, moved, seen, record)
    pair = found.pairs[key]
    by_itself = BY_ITSELF.format(pair.lines) if pair.lines and pair.by_itself else ""
    notes = (ABSENT if key in found.absent else "", by_itself, evidence.numeric_precision)
    result = described(subject.case, subject)
    return Element(
        result.id,
        result.name,
        f"{result.spec.path}:{result.spec.line}",
        result.function,
        result.device,
        result.dtype,
        moved.place,
        seen.place,
        in_words(measured),
        conclusion(measured, _excused(found, key, record)),
        pair_of(evidence, moved),
        _otherwise(measured, pair, found.choice) if pair.by_itself else None,
        tuple(note for note in notes if note),
    )


def _excused(found: Jacobian, key: tuple[int, int], record: ElementRecord | None) -> Excuse:
    """Return the reason why an element passes that the finite difference alone would not pass."""
    if record is not None and record.outcome is Outcome.MISMATCH and record.limit is Limit.KINK_SUM:
        return "sum"
    return "leftover" if key in found.left else ""


def _measured(
    evidence: Evidence, moved: Found, seen: Found, record: ElementRecord | None
) -> Measured:
    function, settings = Filled(evidence.measured), evidence.settings
    if settings.eps == "auto":
        return measure(
            function,
            _of(moved, seen),
            checked=record,
            atol=settings.atol or 0.0,
            rtol=settings.rtol,
            domains=evidence.constraints.domains,
            symmetric=evidence.constraints.symmetric,
            specified=evidence.constraints.specified,
            seed=evidence.constraints.seed,
        )
    atol, rtol = settings.tolerances()
    return replace(
        measure(function, _of(moved, seen), seed=evidence.constraints.seed),
        fixed=fixed_step(record, settings.eps, atol=atol, rtol=rtol),
    )


def _otherwise(measured: Measured, pair: Pair, choice: Choice | None) -> str | None:
    """Return the result of the check where it did not judge the element individually and passes an
    element that is wrong by itself."""
    if choice is None or measured.verdict != "mismatch" or pair.verdict is not Verdict.PASS:
        return None
    if pair.lines:
        return (
            f"in the whole check the {pair.lines[:-1]} that holds it passes. {could_miss(choice)}"
        )
    return PASSES


def worst_of(evidence: Evidence, pair: Pair) -> Element | None:
    """Return the worst element of one pair, on every step; None where the pair has none."""
    if not pair.worst:
        return None
    moved, seen = _found(evidence, pair, pair.worst[0])
    return _element(evidence, moved, seen, evidence.jacobian, pair.worst[0])


def _worst(evidence: Evidence) -> tuple[Found, Found, ElementRecord | None]:
    """Return the worst element of all pairs, or the first where no output moves with an input.
    Raises UserCodeError where there is none."""
    pairs = evidence.jacobian.pairs.values()
    found = [(pair.worst[0], pair) for pair in pairs if pair.worst]
    if found:
        worst, pair = max(found, key=lambda item: item[0].rank[:2])
        return (*_found(evidence, pair, worst), worst)
    first = next((pair for pair in pairs if pair.elements), None)
    if first is None:
        raise UserCodeError(
            "GV008",
            "no element of this check is compared: it has no differentiable input, or no output "
            "depends on one",
        )
    return (*_found(evidence, first, None), None)


def _found(evidence: Evidence, pair: Pair, element: ElementRecord | None) -> tuple[Found, Found]:
    """Return an element of a pair, or its first."""
    x, y = evidence.inputs[pair.input], evidence.outputs[pair.output]
    moved, seen = (element.input_index, element.output_index) if element else (0, 0)
    return Found(x.name, pair.input, moved, x.value), Found(
        evidence.name_of(evidence.forward.checked[pair.output]), pair.output, seen, y
    )
