"""GV109 double-backward: second derivatives are wrong, and nothing says so."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite

import numpy as np

from gradverify.evidence import Evidence
from gradverify.model.result import Finding, Severity
from gradverify.oracles.along import Along, parts
from gradverify.rules.doubled import backwards
from gradverify.rules.protocol import NotApplicable
from gradverify.rules.second import Cotangents, Inputs, Wrong
from gradverify.rules.shown import apart, coordinate_name
from gradverify.rules.sound import unasked
from gradverify.subject.another import other_points
from gradverify.subject.failure import UserCodeError
from gradverify.subject.graph import function_classes

DIRECTIONS = 2
HINT = ("compute backward with torch operations from ctx.saved_tensors (inputs and outputs of forward only; no .detach(), .data, no_grad or NumPy), "
        "or mark it @once_differentiable, so that it raises")
BY_HAND = ("backward calls {names}, whose own backward makes second derivatives: look there for a wrong or missing gradient, also of grad_output; "
           "give it no detached tensors")
ELSEWHERE = "at another point of the same kind "
NOWHERE = ("an operation of backward has no finite slope there (a root or a norm at 0, a quotient 0/0): give it a harmless number by torch.where, or "
           "mark backward @once_differentiable, so that it raises")


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    reason = unasked(evidence, "second_order", found)
    if reason or evidence.settings.second_order is True:
        return reason
    raised = evidence.modes.double_backward
    return f"it says so itself: {raised.message}" if isinstance(raised, UserCodeError) else None


def check(evidence: Evidence) -> Iterator[Finding]:
    raised = evidence.modes.double_backward
    if isinstance(raised, UserCodeError):
        yield Finding("GV109", f"the spec says `second_order: true`, but {raised.message}", frames=raised.frames,
                      hint="make backward differentiable, or leave out `second_order: true`")
        return
    try:
        wrong = _wrong(evidence)
        if wrong is not None and evidence.modes.spoilt():
            wrong = _wrong(evidence)
    except UserCodeError as error:      # for other weights, or at another point, as the singular vectors of torch
        if evidence.settings.second_order is True or error.code != "GV109":
            raise
        raise NotApplicable(f"it says so itself: {error.message}") from None
    finally:
        evidence.modes.backwards.release()
    if wrong is not None:
        yield _finding(evidence, wrong)
    elif evidence.settings.second_order is True:
        yield from _elsewhere(evidence)


def _elsewhere(evidence: Evidence) -> Iterator[Finding]:
    """The same at the first other point at which everything is finite: what a double backward keeps between calls belongs to the first inputs."""
    for arguments in other_points(evidence.subject):
        there = evidence.at(arguments)
        try:
            if there.infinite > evidence.infinite or isinstance(there.modes.double_backward, UserCodeError):
                continue
            wrong = _wrong(there)
        except UserCodeError:
            continue
        finally:
            there.modes.backwards.release()
        if wrong is not None:
            yield _finding(there, wrong, ELSEWHERE)
        return


def _wrong(evidence: Evidence) -> Wrong | None:
    wrong = Cotangents(evidence).wrong() or _to_inputs(evidence)
    return _by_pair(evidence) if wrong is None and evidence.settings.second_order is True else wrong


def _to_inputs(evidence: Evidence) -> Wrong | None:
    """Along a direction for two choices of weights, or, where the first of them did not agree at once, along two directions for one."""
    inputs = Inputs(evidence, Along(backwards(evidence), evidence.modes.columns))
    directions = [evidence.modes.direction(f"second order {number}") for number in evidence.spending.some(range(DIRECTIONS), 8, 8, "directions")]
    wrong, others = inputs.wrong(directions[0]), evidence.modes.weighing("other gradient weights")
    if wrong is not None or len(directions) == 1:
        return wrong
    off = inputs.off_for(others)
    if off == "no":
        return None
    again = inputs if inputs.w.any() else Inputs(evidence, inputs.along)    # all looked rough along the first, as close to a singular matrix
    wrong = again.wrong(directions[1])
    return Inputs(evidence, inputs.along, others).wrong(directions[0]) if wrong is None and off == "yes" else wrong


def _by_pair(evidence: Evidence) -> Wrong | None:
    """Of each gradient along each input alone: among others that are larger, what is missing of one pair is rounding."""
    columns, size = evidence.modes.columns, evidence.modes.gradient_weights
    own = parts(evidence.subject.inputs)
    if len(own) < 2:
        return None
    inputs, moved = Inputs(evidence, Along(backwards(evidence), columns)), evidence.modes.direction("second order by pair")
    for number in evidence.spending.some(range(len(own)), 8, 8 + len(own), "inputs"):
        direction = np.where(columns.tensor == number, moved, 0.0)
        if (wrong := inputs.wrong(direction)) is not None:
            return wrong
        for part in own:
            w = np.zeros_like(size)
            w[part] = inputs.w[part]
            if w.any() and inputs.off_for(w) != "no" and (wrong := Inputs(evidence, inputs.along, w).wrong(direction)) is not None:
                return wrong
    return None


def _finding(evidence: Evidence, wrong: Wrong, where: str = "") -> Finding:
    names, inputs = [argument.name for argument in evidence.inputs], evidence.subject.inputs
    gradient = coordinate_name([f"grad_{name}" for name in names], inputs, wrong.gradient)
    if wrong.cotangent:
        of = coordinate_name([f"grad_{evidence.name_of(place)}" for place in evidence.forward.checked], evidence.outputs, wrong.place)
        truth = "by backward, which is linear in it"
    else:
        of, truth = coordinate_name(names, inputs, wrong.place), "by finite differences of backward"
    double, right = apart(wrong.double, wrong.truth)
    severity: Severity = "error" if evidence.settings.second_order is True else "warning"
    return Finding("GV109", f"{where}second derivatives are silently wrong: d {gradient} / d {of} is {double} by double backward, but {right} "
                   f"{truth}", severity=severity, hint=_hint(evidence) if isfinite(wrong.double) else NOWHERE)


def _hint(evidence: Evidence) -> str:
    names = evidence.spared("the look for Functions that backward calls", lambda: _called_by_backward(evidence)) or ()
    return BY_HAND.format(names=" and ".join(names)) if names else HINT


def _called_by_backward(evidence: Evidence) -> tuple[str, ...]:
    """The Functions in the graph of the gradients that are not in that of the forward. A forward and a backward."""
    leaves = evidence.subject.leaves()
    cotangents = [v.requires_grad_() for v in evidence.cotangents("base")]
    gradients = evidence.function.gradients(evidence.function.graph(leaves), cotangents, create=True)
    found = function_classes([gradient for gradient in gradients if gradient is not None])
    return tuple(cls.__name__ for cls in found if cls not in evidence.forward.classes)
