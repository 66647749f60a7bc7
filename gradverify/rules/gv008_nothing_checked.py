"""GV008 nothing-checked: there is nothing to compare."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor

from gradverify.evidence import Evidence
from gradverify.model.case import Case
from gradverify.model.result import Comparison, Finding, RuleRun
from gradverify.rules.catalogue import asked
from gradverify.subject.containers import out_of_reach
from gradverify.subject.failure import type_name
from gradverify.subject.subject import Subject

DIMENSIONS = 8      # of a shape that is written by hand; a longer list of whole numbers is data
COMPARE = ("finite differences", "reference", "given numbers")     # of what a rule looks for causes in, if it compares gradients


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    return None


def check(evidence: Evidence) -> Iterator[Finding]:
    reason = _reason(evidence)
    if reason is not None:
        yield Finding("GV008", reason, hint=None if evidence.inputs else _meant(evidence.subject))
    for argument in evidence.subject.arguments:
        if not argument.is_tensor and out_of_reach(argument.value):
            kind = type_name(argument.value)
            message = f"the tensors inside {argument.name} (a {kind}) are not differentiated: they cannot be taken out of it"
            yield Finding("GV008", message, severity="warning", input=argument.name,
                          hint="check a function that takes them as arguments, or in a dict, list or dataclass")


def uncompared(evidence: Evidence, runs: Mapping[str, RuleRun], comparisons: Iterable[Comparison]) -> Finding | None:
    """Of a check under all rules that found no error: that it did not compare what it was asked to compare."""
    if all(run.status == "ignored" for code, run in runs.items() if not code.startswith("GV0")):
        return Finding("GV008", "every rule that looks at a gradient is ignored")
    settings, book = evidence.settings, {info.code: info for info in asked()}
    compare = [code for code, info in book.items() if info.causes in COMPARE]
    if not any(not settings.select or code.startswith(settings.select) for code in compare):
        return None
    if any(each.elements and each.rule in compare for each in comparisons) or (evidence.empty and runs["GV221"].status == "ran"):
        return None
    if evidence.empty:
        return Finding("GV008", "there is no element to compare, and GV221, which looks at empty tensors, is not to run",
                       hint="select GV221 too, or give a tensor with elements")
    run = next((runs[code] for code in compare if runs[code].status == "ran"), runs["GV101"])
    if run.status == "ignored":
        return Finding("GV008", "GV101 is ignored, and no other rule compared an element of a gradient",
                       hint="for the other rules alone select them, as in `rules: {select: [GV2]}`")
    return Finding("GV008", f"{run.code} compared no element of a gradient" + (f": {run.reason}" if run.reason else ""))


def _meant(subject: Subject) -> str | None:
    """Suggest tensors in place of plain lists of numbers."""
    plain = {**{a.name: a.value for a in subject.arguments if not a.is_tensor}, **subject.kwargs}
    tensors = [f"`{name}: {{{'shape' if _is_shape(value) else 'values'}: {value}}}`" for name, value in plain.items() if _is_numbers(value)]
    return f"did you mean {' and '.join(tensors)}?" if tensors else None


def _is_numbers(value: Any) -> bool:
    """A list of numbers, nested or not."""
    return type(value) is list and bool(value) and all(_is_numbers(item) or type(item) in (int, float) for item in value)


def _is_shape(value: list[Any]) -> bool:
    return len(value) <= DIMENSIONS and all(type(item) is int and item >= 0 for item in value)


def _may_be_empty(case: Case) -> bool:
    """Does a zero size come from the spec, or from whoever handed the tensors over, and not from a function or a file that the spec names?"""
    recipes = [recipe for argument in (*case.inputs, *case.keywords) for recipe in argument.recipes]
    made = case.inputs_from is not None or any(recipe.draw == "file" for recipe in recipes)
    return not made or any(0 in (recipe.shape or ()) or recipe.arguments == [] for recipe in recipes)


def _graphless(outputs: Sequence[Any]) -> str:
    """Why no output can be differentiated: there is no tensor, none of floating numbers, or none with a graph."""
    tensors = [(place, y) for place, y in enumerate(outputs) if isinstance(y, Tensor)]
    if not tensors:
        kinds = dict.fromkeys("None" if y is None else type_name(y) for y in outputs)
        return f"the function returned no tensor: {', '.join(kinds) or 'nothing at all'}"
    if not any(y.is_floating_point() or y.is_complex() for _, y in tensors):
        place, y = tensors[0]
        return f"no output has floating or complex numbers: y{place} is {str(y.dtype).removeprefix('torch.')}"
    return "no output has a graph that leads back to the inputs"


def _reason(evidence: Evidence) -> str | None:
    if not evidence.inputs:
        return "no input is differentiable: give at least one floating or complex tensor without `requires_grad: false`"
    seen = evidence.forward
    missing = [place for place in evidence.settings.outputs or () if place not in seen.checked and place not in seen.detached]
    if missing:
        returned = "1 output" if len(seen.outputs) == 1 else f"{len(seen.outputs)} outputs"
        return f"outputs: there is no floating output {missing[0]}; the function returned {returned}"
    if not seen.checked and not evidence.moving:
        return _graphless(seen.outputs)
    elements = sum(y.numel() for y in evidence.outputs) * sum(x.numel() for x in evidence.subject.inputs)
    if elements == 0 and seen.checked and not (evidence.empty and _may_be_empty(evidence.subject.case)):
        return "the outputs have no elements, and no input of the spec asks for an empty tensor"
    return None
