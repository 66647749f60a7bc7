"""`gradverify explain PATH::NAME`: one check, one element, everything its verdict rests on."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from gradverify.cli.asked import Asked, Settled, settle
from gradverify.cli.check import refuse
from gradverify.cli.environment import with_torch
from gradverify.cli.gather import gather
from gradverify.cli.output import Output
from gradverify.cli.words import in_words, named
from gradverify.model.case import Case
from gradverify.model.element import Element
from gradverify.model.problem import NOT_JUDGED, OK, Problem, ProblemsError
from gradverify.model.result import CaseResult

MOST_NAMED = 5
FORM = "must be INPUT:OUTPUT, such as w[3,1]:y[0]"


def run_evidence(given: Mapping[str, Any], out: Output) -> int:
    """Show the evidence of one element. Bad arguments are refused before torch is imported."""
    from gradverify.rules.catalogue import codes

    own = {field.name for field in fields(Asked)}
    settled = settle(Asked(paths=(given["code"],), **{name: value for name, value in given.items() if name in own}), codes(), out, os.environ)
    element = halves(given["element"]) if given["element"] is not None else None
    gathered = gather((given["code"],), settled.said)
    if gathered.problems:
        return refuse(gathered, out)
    case = one(gathered.cases, given["code"])
    with_torch([case])
    return _shown(case, element, gathered.names, settled, out)


def halves(text: str) -> tuple[str, str]:
    """The input's and the output's element: `w[3,1]:y[0]`, or as a report names them, `y0[0] / w[3,1]`. Raises ProblemsError."""
    moved, _, seen = text.rpartition(":")
    if not moved:
        seen, _, moved = text.partition(" / ")
    if not moved.strip() or not seen.strip():
        raise ProblemsError([Problem(f"--element {text!r}: {FORM}")])
    return moved.strip(), seen.strip()


def one(cases: Sequence[Case], asked: str) -> Case:
    """The only case there is. Raises ProblemsError where there are several, or none."""
    if len(cases) == 1:
        return cases[0]
    if not cases:
        raise ProblemsError([Problem(f"{asked}: there is no check to explain")])
    more = f" and {len(cases) - MOST_NAMED} more" if len(cases) > MOST_NAMED else ""
    raise ProblemsError([Problem(f"{asked} names {len(cases)} checks; name one: {', '.join(case.id for case in cases[:MOST_NAMED])}{more}")])


def _shown(case: Case, element: tuple[str, str] | None, names: Mapping[str, str], settled: Settled, out: Output) -> int:
    from gradverify.model.codec import as_text
    from gradverify.report.terminal.element import not_run, render
    from gradverify.running.explained import explained

    if settled.as_json:
        out.keep_stdout()
    found = explained(case, element)
    if isinstance(found, CaseResult):
        out.say(not_run(named(found, names), settled.look))
        return NOT_JUDGED
    found = _worded(found, names)
    out.write(as_text(found) if settled.as_json else render(found, settled.look))
    return OK


def _worded(element: Element, names: Mapping[str, str]) -> Element:
    target = in_words(element.function.target, names) or element.function.target
    return replace(element, function=replace(element.function, target=target))
