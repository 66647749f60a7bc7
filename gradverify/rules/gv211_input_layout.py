"""GV211 input-layout: an input that is not contiguous gives other numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from torch import Tensor

from gradverify.evidence import Evidence
from gradverify.model.result import Finding, Frame
from gradverify.rules.agreement import gradients_apart, outputs_apart, random_backward, unsteady
from gradverify.rules.at_forward import at_forward
from gradverify.rules.protocol import NotApplicable
from gradverify.rules.repeats import ANOTHER
from gradverify.subject.differentiable import Differentiable
from gradverify.subject.failure import UserCodeError
from gradverify.subject.layout import expanded
from gradverify.subject.subject import Argument
from gradverify.subject.variants import permuted, sliced

LAYOUTS: tuple[tuple[str, Callable[[Tensor], Tensor]], ...] = (
    ("sliced (every second column of wider rows)", sliced), ("permuted (its dimensions in another order in memory)", permuted))
HINT = "call .contiguous() on it before its memory is read, or refuse what is not contiguous"


@dataclass(frozen=True)
class Fault:
    """What a layout did: to an element (of an output, of the gradient of an input), or what backward raised."""

    text: str
    input: str | None = None
    output: int | None = None
    frames: tuple[Frame, ...] = ()


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    if evidence.forward.freed:
        return "forward gives the memory of its input back, which a view shares"
    tensors = [a.value for a in evidence.subject.arguments if a.is_tensor]
    if evidence.odd is not None:
        return evidence.odd
    if all(x.numel() < 2 for x in tensors):
        return "no input has two elements"
    return "it draws random numbers, which fall on other elements in another layout" if evidence.draws else unsteady(found)


def check(evidence: Evidence) -> Iterator[Finding | str]:
    wanted = _as_wanted(evidence)
    if wanted is not None:
        yield wanted
        return
    refused: list[str] = []
    layouts = evidence.spending.some(LAYOUTS, 1, 1, "layouts")
    for what, layout in layouts:
        arguments = [_laid(argument, layout) for argument in evidence.subject.arguments]
        if all(a.value.is_contiguous() for a in arguments if a.is_tensor):
            continue
        try:
            fault = _fault(evidence, arguments)
        except UserCodeError as error:
            refused.append(f"with inputs {what} {error.message}")
            continue
        if fault is not None:
            yield _named(evidence, what, layout, fault) if _comes_again(evidence, arguments) else _now_and_then(what, fault)
            return
    if len(refused) == len(layouts):
        raise NotApplicable(refused[0])
    yield from refused


def _as_wanted(evidence: Evidence) -> Finding | None:
    """The Jacobian of `layout: expanded` is measured on separate elements; elements that share memory must give the same.

    Raises UserCodeError (GV002) where forward refuses what the spec asks for.
    """
    subject = evidence.subject
    names = " and ".join(a.name for a in subject.arguments if a.layout == "expanded")
    if not names:
        return None
    if subject.writes:
        raise UserCodeError("GV002", f"the function writes into its inputs, which {names}, expanded, cannot take: its elements share memory")
    try:
        fault = _fault(evidence, [_laid(a, expanded) if a.layout == "expanded" else a for a in subject.arguments])
    except UserCodeError as error:
        raise UserCodeError(error.code, f"with {names} expanded (stride 0) {error.message}", error.frames, error.hint) from error
    if fault is None:
        return None
    return _found(evidence, f"{names} expanded (stride 0)", fault.input, fault)


def _laid(argument: Argument, layout: Callable[[Tensor], Tensor]) -> Argument:
    return replace(argument, value=layout(argument.value), layout=None) if argument.is_tensor else argument


def _fault(evidence: Evidence, arguments: Sequence[Argument]) -> Fault | None:
    """What differs from the base call with these arguments. Raises UserCodeError where forward refuses them, NotApplicable where it is random."""
    v = evidence.cotangents("base")
    function = Differentiable(evidence.subject.twin(arguments), evidence.forward.checked)
    try:
        outputs, gradients = function.once(v)
    except UserCodeError as error:
        if error.code != "GV003":
            raise
        return Fault(error.message, frames=error.frames)
    apart = next(chain(outputs_apart(evidence, outputs), gradients_apart(evidence, evidence.worked.gradients, gradients, v)), None)
    if apart is None:
        return None
    if apart.input is not None and (why := random_backward(evidence)):
        raise NotApplicable(why)
    return Fault(f"{apart.text} as with the same numbers {_usual(evidence)}", apart.input, apart.output)


def _comes_again(evidence: Evidence, arguments: Sequence[Argument]) -> bool:
    """Does it come twice more, an odd call between? What is wrong at every nth call does not."""
    try:
        if _fault(evidence, arguments) is None:
            return False
        evidence.function.once(evidence.cotangents("base"))
        return _fault(evidence, arguments) is not None
    except UserCodeError:
        return True


def _now_and_then(what: str, fault: Fault) -> Finding:
    code, who = ("GV206", "backward") if fault.output is None else ("GV205", "forward")
    return Finding(code, f"{who} is not deterministic: with inputs {what}, {fault.text}; and the same call again gives these", input=fault.input,
                   output=fault.output, hint=ANOTHER)


def _usual(evidence: Evidence) -> str:
    """How the inputs of the base call lie in memory."""
    contiguous = all(a.layout in ("contiguous", "expanded") for a in evidence.subject.arguments)
    return "contiguous" if contiguous else "laid out as the spec says"


def _named(evidence: Evidence, what: str, layout: Callable[[Tensor], Tensor], fault: Fault) -> Finding:
    """The finding, with the first argument that does it alone."""
    own, name = evidence.subject.arguments, None
    for place, argument in enumerate(own):
        if not argument.is_tensor or argument.value.numel() < 2:
            continue
        try:
            alone = _fault(evidence, [_laid(a, layout) if i == place else a for i, a in enumerate(own)])
        except UserCodeError:
            continue
        if alone is not None:
            fault, name = alone, argument.name
            break
    return _found(evidence, f"{name or 'all inputs'} {what}", name, fault)


def _found(evidence: Evidence, laid: str, name: str | None, fault: Fault) -> Finding:
    """The finding; at forward, where an output is another."""
    found = Finding("GV211", f"with {laid}, {fault.text}", input=name, output=fault.output, hint=HINT, frames=fault.frames)
    return found if fault.output is None else at_forward(found, evidence)
