"""Rules for what a check could not judge: a forward that is not finite, undecided elements, nothing
to compare, and inputs at which nothing could fail."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from gradverify.evidence import Evidence
from gradverify.model.case import Case
from gradverify.model.result import Comparison, Finding, RuleRun
from gradverify.numerics.function.coordinates import flat_all, flat_real
from gradverify.numerics.pairs.pair import (
    Outcome,
    Pair,
)
from gradverify.numerics.verdict import Limit, Verdict
from gradverify.oracles.legs import LEFT_OPEN
from gradverify.rules.catalogue import runnable
from gradverify.rules.shown import (
    Findings,
    element_name,
    place_name,
)
from gradverify.subject.failure import type_name
from gradverify.subject.forms import dtype_name, out_of_reach
from gradverify.subject.wide import sixteen_inside

# ---- GV006 non-finite: the forward is NaN or infinite at the point of the check
STEP = 1e-3  # of each element's size: an infinity that such a step does not change is a mask


def gv006(evidence: Evidence) -> Findings:
    moved = None
    for place, output in zip(evidence.forward.checked, evidence.outputs, strict=True):
        values = flat_real(output)
        # With torch, not NumPy: the first call of abs makes its gelu five times as fast (measured)
        if values.isfinite().all():
            continue
        bad = values.isnan()
        if values.isinf().any():
            moved = (
                evidence.function.values(
                    [(x * (1 + STEP)).requires_grad_() for x in evidence.subject.inputs]
                )
                if moved is None
                else moved
            )
            there = flat_all([moved[evidence.forward.checked.index(place)]])
            bad = bad | (values.isinf() & (there != values))
        if bad.any():
            first = int(bad.nonzero()[0])
            where = element_name(evidence.name_of(place), output, first)
            yield Finding(
                "GV006",
                f"{int(bad.sum())} of {values.numel()} numbers of {evidence.name_of(place)} are "
                f"not finite; first at {where}: {float(values[first])}",
                output=place,
                hint="repair forward, or choose inputs where it is finite (`uniform`, `avoid`)",
            )
        elif values.numel() and bool(torch.isinf(values).all()):
            yield Finding(
                "GV006",
                f"{evidence.name_of(place)} is infinite throughout: there is nothing to compare",
                output=place,
            )


# ---- GV007 undecided: the error bar is wider than the tolerance
CODE = "GV007"
SHARE = 1e-4  # of the elements may stay undecided in a check that passes
INDICES = "whole numbers that are indices or counts need `dtype: int64`"
# Error, as a share of the larger of both numbers, from which an undecided element seems wrong:
# elements that rounding leaves undecided are seldom off by so much
SEEMS = 0.5
STEPS = frozenset(
    {
        Limit.NOISE,
        Limit.TRUNCATION,
        Limit.INCONSISTENT,
        Limit.JUMP,
        Limit.STAIRCASE,
        Limit.CANCELS,
        Limit.INFINITE,
        Limit.ROUNDED,
    }
)
"""Limits that the coarse steps of a narrow dtype can cause."""

ALONE = (
    "it runs in float32 alone, whose rounding is in the way: name a `reference` in torch "
    "operations, or give `atol: {0}` if that will do"
)
INSIDE = (
    "check it with `dtype: {0}`, where the finite differences have float64 for what it casts; or "
    "compute in float64 inside"
)


def not_finished(rule: str, why: object) -> Finding:
    """Return the finding for a comparison of gradients that ended early."""
    return Finding(
        CODE,
        f"{rule} was not finished: {why}",
        hint="check a smaller input, or raise `budget` and `timeout`",
    )


def gv007(evidence: Evidence) -> Findings:
    pairs = evidence.jacobian.pairs
    total = sum(pair.compared for pair in pairs.values())
    undecided = sum(pair.count(*LEFT_OPEN) for pair in pairs.values())
    # One undecided element is forgiven, but not one line: it may be all that was compared
    least = 0.0 if any(pair.lines for pair in pairs.values()) else 1.0
    few = undecided <= max(least, SHARE * total) and undecided < total
    if not undecided or (few and not any(map(_seems_wrong, pairs.values()))):
        return
    worst = max(pairs.values(), key=lambda pair: pair.count(*LEFT_OPEN))
    argument, steps = evidence.inputs[worst.input], any(limit in STEPS for limit, _ in worst.limits)
    # Rounding to a narrow dtype inside may hide the derivative, which a check in that dtype removes
    may_cast = (
        steps
        and evidence.subject.narrow is None
        and evidence.surrogate is None
        and evidence.settings.eps == "auto"
    )
    narrow = sixteen_inside(evidence.subject) if may_cast else ""
    limit = worst.limits[0][0] if worst.limits else Limit.NOISE
    hint = limit.advice
    if (
        limit is Limit.JUMP
        and argument.value.is_floating_point()
        and bool((argument.value == argument.value.round()).all())
    ):
        hint = f"{hint}; {INDICES}"
    if narrow:
        hint = INSIDE.format(narrow)
    # A float32 function that refuses float64
    elif steps and isinstance(evidence.in_float64, str) and evidence.in_float64:
        needed = (
            each.error + each.bar
            for seen in pairs.values()
            for each in seen.worst
            if each.outcome in LEFT_OPEN and math.isfinite(each.error + each.bar)
        )
        largest = max(needed, default=0.0)
        hint = (
            ALONE.format(f"1e{math.ceil(math.log10(largest)):03d}")
            if largest > 0
            else Limit.STAIRCASE.advice
        )
    why = (
        f"forward computes in {narrow} inside, and moves in its steps"
        if narrow
        else _why(evidence, worst)
    )
    yield Finding(
        CODE,
        f"{undecided:,} of {total:,} {worst.lines or 'elements'} could not be decided: {why}",
        input=argument.name,
        output=evidence.forward.checked[worst.output],
        hint=hint,
    )


def _seems_wrong(pair: Pair) -> bool:
    """Return whether an undecided element is off by more than half of its size, bar subtracted.

    Elements at a jump, or on a staircase whose treads are flatter than the gradient, do not count:
    there the bar does not bound a derivative (the imaginary part of a complex logarithm at its
    branch cut).
    """
    measured = (
        each
        for each in pair.worst
        if each.limit is not Limit.STUCK
        and (
            each.outcome is Outcome.UNDECIDED
            or (each.outcome is Outcome.STAIRCASE and abs(each.analytic) < abs(each.numeric))
        )
    )
    return any(
        each.error - each.bar > SEEMS * max(abs(each.analytic), abs(each.numeric))
        for each in measured
    )


def _why(evidence: Evidence, pair: Pair) -> str:
    element = next((each for each in pair.worst if each.outcome in LEFT_OPEN), None)
    if element is None:
        return (pair.limits[0][0] if pair.limits else Limit.NOISE).reason
    where = f"at {place_name(evidence, pair, element)}"
    if element.limit is Limit.STUCK:
        argument = evidence.inputs[pair.input]
        x = element_name(argument.name, argument.value, element.input_index)
        return (
            f"{where} the step does not move the input: {x} + {evidence.settings.eps:g} = {x} in "
            f"{evidence.settings.dtype}"
        )
    reason = element.limit.reason
    if element.outcome is Outcome.UNDECIDED:
        return (
            f"{where} the numeric value is {element.numeric:.6g} ± {element.bar:.2g}, the "
            f"tolerance {element.tolerance:.2g}; {reason}"
        )
    return f"{where} {reason}"


# ---- GV008 nothing-checked: there is nothing to compare
PLAIN = "a list of numbers is no tensor: say `{values: …}` or `{shape: …}`"
# The values of `causes` of the rules that compare gradients
COMPARE = ("finite differences", "reference", "given numbers")


def gv008(evidence: Evidence) -> Findings:
    reason = _reason(evidence)
    if reason is not None:
        yield Finding("GV008", reason, hint=None if evidence.inputs else PLAIN)
    for argument in evidence.subject.arguments:
        if not argument.is_tensor and out_of_reach(argument.value):
            kind = type_name(argument.value)
            message = (
                f"the tensors inside {argument.name} (a {kind}) are not differentiated: they "
                "cannot be taken out of it"
            )
            yield Finding(
                "GV008",
                message,
                severity="warning",
                input=argument.name,
                hint="check a function that takes them as arguments, or in a dict, list or "
                "dataclass",
            )


def uncompared(
    evidence: Evidence, runs: Mapping[str, RuleRun], comparisons: Iterable[Comparison]
) -> Finding | None:
    """Return the finding that a check without errors did not compare what its settings select;
    None where it did."""
    if all(run.status == "ignored" for code, run in runs.items() if not code.startswith("GV0")):
        return Finding("GV008", "every rule that looks at a gradient is ignored")
    settings, book = evidence.settings, {info.code: info for info in runnable()}
    compare = [code for code, info in book.items() if info.causes in COMPARE]
    if not any(not settings.select or code.startswith(settings.select) for code in compare):
        return None
    if any(each.elements and each.rule in compare for each in comparisons) or (
        evidence.empty and runs["GV221"].status == "ran"
    ):
        return None
    if evidence.empty:
        return Finding(
            "GV008",
            "there is no element to compare, and GV221, which looks at empty tensors, is not to "
            "run",
            hint="select GV221 too, or give a tensor with elements",
        )
    run = next((runs[code] for code in compare if runs[code].status == "ran"), runs["GV101"])
    if run.status == "ignored":
        return Finding(
            "GV008",
            "GV101 is ignored, and no other rule compared an element of a gradient",
            hint="for the other rules alone select them, as in `rules: {select: [GV2]}`",
        )
    return Finding(
        "GV008",
        f"{run.code} compared no element of a gradient" + (f": {run.reason}" if run.reason else ""),
    )


def _may_be_empty(case: Case) -> bool:
    """Return whether a zero size comes from the spec, or from the caller who passed the tensors,
    and not from a function or file that the spec names."""
    recipes = [recipe for argument in (*case.inputs, *case.keywords) for recipe in argument.recipes]
    made = case.inputs_from is not None or any(recipe.draw == "file" for recipe in recipes)
    return not made or any(
        0 in (recipe.shape or ()) or recipe.arguments == [] for recipe in recipes
    )


def _graphless(outputs: Sequence[Any]) -> str:
    """Describe why no output can be differentiated: there is no tensor, no floating one, or none
    with a graph."""
    tensors = [(place, y) for place, y in enumerate(outputs) if isinstance(y, Tensor)]
    if not tensors:
        kinds = dict.fromkeys("None" if y is None else type_name(y) for y in outputs)
        return f"the function returned no tensor: {', '.join(kinds) or 'nothing at all'}"
    if not any(y.is_floating_point() or y.is_complex() for _, y in tensors):
        place, y = tensors[0]
        return f"no output has floating or complex numbers: y{place} is {dtype_name(y)}"
    return "no output has a graph that leads back to the inputs"


def _reason(evidence: Evidence) -> str | None:
    if not evidence.inputs:
        return (
            "no input is differentiable: give at least one floating or complex tensor without "
            "`requires_grad: false`"
        )
    seen = evidence.forward
    missing = [
        place
        for place in evidence.settings.outputs or ()
        if place not in seen.checked and place not in seen.detached
    ]
    if missing:
        returned = "1 output" if len(seen.outputs) == 1 else f"{len(seen.outputs)} outputs"
        return (
            f"outputs: there is no floating output {missing[0]}; the function returned {returned}"
        )
    if not seen.checked and not evidence.moving:
        return _graphless(seen.outputs)
    elements = sum(y.numel() for y in evidence.outputs) * sum(
        x.numel() for x in evidence.subject.inputs
    )
    if (
        elements == 0
        and seen.checked
        and not (evidence.empty and _may_be_empty(evidence.subject.case))
    ):
        return "the outputs have no elements, and no input of the spec asks for an empty tensor"
    return None


# ---- GV009 could-not-fail: at these inputs a wrong gradient would pass too
ELSEWHERE = (
    "draw inputs at which the function changes, or check an output that does, if there are any"
)


def gv009(evidence: Evidence) -> Findings:
    pairs = evidence.jacobian.pairs.values()
    largest = max((pair.largest for pair in pairs), default=0.0)
    atol, _ = evidence.settings.tolerances()
    zero = "zero" if all(pair.largest == 0.0 for pair in pairs) else "zero up to rounding"
    rounding = largest <= 1.0 and atol == 0 and all(pair.verdict == Verdict.PASS for pair in pairs)
    if zero == "zero" or rounding:
        yield Finding(
            "GV009",
            f"every gradient is {zero} at these inputs: a backward that returns nothing would pass "
            "too",
            hint=ELSEWHERE,
        )
    elif largest <= 1.0 and atol > 0:
        yield Finding(
            "GV009",
            f"the tolerance (atol {atol:g}) is above every gradient: a backward that returns "
            "zeros would pass too",
            hint="lower `atol`, or leave it out",
        )
