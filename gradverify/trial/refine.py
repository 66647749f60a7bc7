"""A check from a call that runs: tensors without a gradient are marked, plain values varied, optional arguments left out."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product

from gradverify.model.case import InputRecipe, Json
from gradverify.source.functions import arguments_of, without_gradient
from gradverify.subject.lines import source_of
from gradverify.subject.target import Target
from gradverify.trial.attempt import Attempts, Level
from gradverify.trial.choices import Assignment, all_choices, default_value, first_choices, shape_of, values
from gradverify.trial.wanted import Wanted, kinds

MOST_CASES = 8      # of one matrix
OPTIONAL_TRIES = 40     # values for an optional tensor
LEFT_ALONE = re.compile(r"eps|tol|seed|iter|steps|group|head|world|rank|block|chunk|inplace", re.IGNORECASE)
"""Parts of names whose other values would show nothing, take long, or divide other sizes by chance only."""


def within_range(assignment: Assignment, attempts: Attempts) -> Assignment:
    """Whole numbers whose largest one runs as well: a draw that did not come to it runs by luck, and not with another seed."""
    for name, recipe in assignment.items():
        drawn = recipe.tensor
        if drawn is None or drawn.draw != "integers":
            continue
        low, high = drawn.arguments
        for top in range(high, low + 1, -1):
            narrower, largest = (replace(recipe, tensor=replace(drawn, arguments=each)) for each in ([low, top], [top - 1, top]))
            if min(attempts.run({**assignment, name: each}).level for each in (narrower, largest)) > Level.RAISED:
                assignment = {**assignment, name: narrower}
                break
    return assignment


def without_gradients(assignment: Assignment, nothing: Sequence[str], found: Target) -> tuple[Assignment, dict[str, str]]:
    """Tensors that get no gradient are marked so, with how that was seen."""
    said, changed, remarks = _said_none(found), dict(assignment), dict[str, str]()
    for name in nothing:
        recipe = assignment.get(name)
        if recipe is None or recipe.tensor is None:
            continue
        changed[name] = replace(recipe, tensor=replace(recipe.tensor, requires_grad=False))
        remarks[name] = said.get(name, "no gradient arrived for it when it was tried")
    return changed, remarks


def _said_none(found: Target) -> dict[str, str]:
    """Argument → where the source of backward says None for it."""
    if found.kind != "autograd.Function":
        return {}
    forward, backward = source_of(found.subject.forward), source_of(found.subject.backward)
    if forward is None or backward is None:
        return {}
    names = [parameter.name for parameter in found.parameters or ()]
    taken = arguments_of(forward.tree, 0)
    taken = tuple(each for each in taken if each.name in names)
    marked = without_gradient(taken, backward.tree)
    lines = {each.name: backward.first + each.no_gradient - 1 for each in marked if each.no_gradient}
    return {name: f"backward returns None for it ({backward.file}:{line})" for name, line in lines.items()}


def with_optional(assignment: Assignment, attempts: Attempts) -> tuple[Assignment, tuple[str, ...]]:
    """Optional tensors are given where a value for them is found; those that may be left out too are named."""
    left_out = []
    for each in attempts.wanted:
        given = assignment.get(each.name)
        if each.init or each.variadic or "none" not in kinds(each) or not {"tensor", "index", "mask"} & set(kinds(each)):
            continue
        if given is not None and given.recipes:
            if attempts.run({**assignment, each.name: InputRecipe(each.name)}).level == Level.WHOLE:
                left_out.append(each.name)
        elif (filled := _filled(assignment, each, attempts)) is not None:
            assignment = filled
            left_out.append(each.name)
    return assignment, tuple(left_out)


def _filled(assignment: Assignment, wanted: Wanted, attempts: Attempts) -> Assignment | None:
    """With a tensor for an argument that is None so far."""
    shapes = [shape for recipe in assignment.values() if (shape := shape_of(recipe)) is not None]
    likely = [recipe for recipe in first_choices(wanted, shapes[0], False) if recipe.recipes] if shapes else []
    others = [recipe for recipe in all_choices(wanted, shapes, None) if recipe.recipes]
    for recipe in [*likely, *others][:OPTIONAL_TRIES]:
        outcome = attempts.run({**assignment, wanted.name: recipe})
        if outcome.level == Level.WHOLE and wanted.name not in outcome.nothing:
            return {**assignment, wanted.name: recipe}
    return None


def varied(assignment: Assignment, attempts: Attempts) -> Mapping[str, tuple[Json, ...]]:
    """Numbers, words and truth values that forward accepts other ones of: argument → values, few enough for all combinations, which all run."""
    found: dict[str, tuple[Json, ...]] = {}
    for each in sorted(attempts.wanted, key=_worth):
        recipe = assignment.get(each.name)
        if recipe is None or recipe.recipes or recipe.value is None or each.init or LEFT_ALONE.search(each.name):
            continue
        accepted = [recipe.value, *(value for value in _others(each, recipe.value) if _runs(assignment, {each.name: value}, attempts))]
        size = math.prod(len(values) for values in found.values())
        accepted = accepted[:max(1, MOST_CASES // size)]
        if len(accepted) > 1 and _all_run(assignment, {**found, each.name: tuple(accepted)}, attempts):
            found[each.name] = tuple(accepted)
    return found


def _worth(wanted: Wanted) -> int:
    """Words first, then truth values, then numbers."""
    return next((place for place, kind in enumerate(("word", "bool", "int", "float")) if kind in kinds(wanted)), 4)


def _others(wanted: Wanted, value: Json) -> list[Json]:
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, str):
        return [word for word in values(wanted, "word") if word != value]
    if isinstance(value, float):
        return [0.5 if value == 0 else float(f"{(1 + value) / 2 if 0.5 <= value < 1 else 1.5 * value:.6g}")]
    if isinstance(value, int):
        return [0] if wanted.name in ("dim", "axis") and value != 0 else [value + 1]
    return []


def _runs(assignment: Assignment, given: Mapping[str, Json], attempts: Attempts) -> bool:
    changed = {name: InputRecipe(name, value=value) for name, value in given.items()}
    return attempts.run({**assignment, **changed}).level == Level.WHOLE


def _all_run(assignment: Assignment, matrix: Mapping[str, tuple[Json, ...]], attempts: Attempts) -> bool:
    return all(_runs(assignment, dict(zip(matrix, each, strict=True)), attempts) for each in product(*matrix.values()))


def shortened(assignment: Assignment, wanted: Sequence[Wanted], matrix: Mapping[str, tuple[Json, ...]], keep_all: bool) -> Assignment:
    """Without what is at its default at the end of the arguments; `keep_all` of an autograd Function, whose apply takes no keywords."""
    kept = dict(assignment)
    for each in reversed(wanted):
        recipe = kept.get(each.name)
        if each.required or each.init or recipe is None or each.name in matrix or recipe.recipes or keep_all:
            if not each.keyword and recipe is not None:
                break
            continue
        says, value = default_value(each)
        if not says or value != recipe.value:
            if not each.keyword:
                break
            continue
        del kept[each.name]
    return kept
