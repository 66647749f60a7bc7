"""Pictures of a failing check: its wrong Jacobians on a grid, its worst elements on every step, the
source of its backward."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from itertools import islice

import numpy as np

from gradverify.element.explain import worst_of
from gradverify.evidence import Evidence
from gradverify.model.element import Code, Element, Grid, HeatMap, Pictures
from gradverify.model.paths import shown_path
from gradverify.model.result import CaseResult
from gradverify.numerics.pairs.pair import Outcome, Pair
from gradverify.numerics.rungs import Array
from gradverify.rules.catalogue import book
from gradverify.subject.failure import Spent
from gradverify.subject.find import run_folder
from gradverify.subject.subject import Subject

CELLS = 64  # of a map, down and across: one is still some pixels wide on a phone
PAIRS = 4  # that are drawn; the others have their tables
LONGEST = 120  # lines of source


def pictures(evidence: Evidence, result: CaseResult) -> Pictures | None:
    """Of a result that fails; None else, or where there is nothing to draw. Calls the function,
    some 50 times an element."""
    if result.verdict != "fail":
        return None
    wrong = tuple(islice(_wrong(evidence, result), PAIRS))
    maps = tuple(drawn for code, pair in wrong if (drawn := _map(evidence, code, pair)) is not None)
    elements = tuple(each for _, pair in wrong if (each := _element(evidence, pair)) is not None)
    return Pictures(maps, elements, _code(evidence.subject))


def _wrong(evidence: Evidence, result: CaseResult) -> Iterator[tuple[str, Pair]]:
    """The pairs, with their rule, whose elements differ from the finite difference."""
    found = [
        (each.rule, each.input, each.output)
        for each in result.comparisons
        if book()[each.rule].numeric and each.mismatched
    ]
    for rule, name, output in found:
        for pair in evidence.jacobian.pairs.values():
            if (evidence.inputs[pair.input].name, evidence.forward.checked[pair.output]) == (
                name,
                output,
            ):
                yield rule, pair


def _element(evidence: Evidence, pair: Pair) -> Element | None:
    """Not where the budget is spent."""
    try:
        return (
            None
            if evidence.spending.over
            else evidence.spared("the picture of an element", lambda: worst_of(evidence, pair))
        )
    except Spent:
        return None


# ---- a Jacobian on a grid
def _map(evidence: Evidence, rule: str, pair: Pair) -> HeatMap | None:
    """Analytic value, numeric value and error of each cell: of its element with the largest error,
    or where none is wrong the largest value. None where the elements were too many to keep, or
    whole lines were compared."""
    entries, x, y = pair.entries, evidence.inputs[pair.input], evidence.outputs[pair.output]
    if entries is None or not entries.complete or pair.lines:
        return None
    rows, columns = (tensor.numel() * (2 if tensor.is_complex() else 1) for tensor in (y, x.value))
    height, width = -(-rows // CELLS), -(-columns // CELLS)  # of a cell
    down, across = -(-rows // height), -(-columns // width)
    right = (entries.outcome == Outcome.PASS) | (entries.outcome == Outcome.KINK)
    error = np.where(right, 0.0, abs(entries.analytic - entries.numeric))
    cell = entries.output // height * across + entries.input // width
    order = np.lexsort(
        (
            np.fmax(abs(entries.analytic), abs(entries.numeric)),
            np.nan_to_num(error, nan=np.inf),
            cell,
        )
    )
    last = order[np.append(np.diff(cell[order]) > 0, True)]  # of each cell

    def grid(values: Array) -> Grid:
        drawn = np.zeros(down * across)
        drawn[cell[last]] = values[last]
        return tuple(tuple(row) for row in drawn.reshape(down, across).tolist())

    output = evidence.forward.checked[pair.output]
    worst = (pair.worst[0].output_index, pair.worst[0].input_index) if pair.worst else ()
    return HeatMap(
        rule,
        x.name,
        output,
        evidence.name_of(output),
        rows,
        columns,
        grid(entries.analytic),
        grid(entries.numeric),
        grid(error),
        worst,
    )


# ---- source
def _code(subject: Subject) -> Code | None:
    """The definition that findings point to: `backward` of a Function, else of the callable."""
    target = subject.target
    if target.file is None or target.line is None:
        return None
    found = target.subject
    part = getattr(found, "backward", None) if target.kind == "autograd.Function" else found
    try:
        lines, first = inspect.getsourcelines(inspect.unwrap(part))  # type: ignore[arg-type]
    except (OSError, TypeError, ValueError):
        return None
    holds = first <= target.line < first + len(lines)
    return (
        Code(
            shown_path(target.file, run_folder()),
            first,
            tuple(line.rstrip() for line in lines[:LONGEST]),
        )
        if holds
        else None
    )
