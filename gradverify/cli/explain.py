"""`gradverify explain`: a rule's page, or the evidence for one element of one check."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from gradverify.cli.asked import Asked, Settled, command, settle, shown_as
from gradverify.cli.check import refuse
from gradverify.cli.gather import gather, in_words, named, with_torch
from gradverify.cli.output import Output
from gradverify.cli.values import nearest
from gradverify.model.case import Case
from gradverify.model.element import Element
from gradverify.model.paths import is_file, is_folder
from gradverify.model.problem import NOT_JUDGED, OK, Problem, ProblemsError
from gradverify.model.result import CaseResult
from gradverify.report.look import Look

OF_CHECKS = ("element", "eps", "atol", "rtol", "seed", "device", "dtype", "format")


@command("code", *OF_CHECKS, "color", "width")
def explain_command(asked: Asked, out: Output) -> int:
    """Explain a rule (CODE or name), or how one element of a check (PATH::NAME) came to its verdict. Without either, list all rules."""
    if asked.code is not None and names_a_check(asked.code):
        return run_evidence(asked.code, asked, out)
    refuse_options(asked.code, [name for name in OF_CHECKS if getattr(asked, name) is not None])
    shown = shown_as(out, asked)
    return list_rules(shown, out) if asked.code is None else run_explain(asked.code, shown, out)


def names_a_check(text: str) -> bool:
    """PATH::NAME, or the path of a spec; a code or a rule's name is one word, and counts where a file is called so too."""
    from gradverify.rules.catalogue import names

    is_rule = re.fullmatch(r"(?i)gv\d*", text) or text.lower() in names()
    return not is_rule and ("::" in text or bool(re.search(r"[/\\.]", text)) or is_file(text) or is_folder(text))


def refuse_options(code: str | None, given: list[str]) -> None:
    if given:
        read = f"{code!r} is read as a rule's code, and has a page, no element" if code else "name one"
        raise ProblemsError([Problem(f"--{given[0]} is for a check (PATH::NAME); {read}")])


def list_rules(shown: Look, out: Output) -> int:
    """Codes, names, and what each is about in a line."""
    from gradverify.report.listing import rules_text
    from gradverify.rules.catalogue import rules

    out.write(rules_text([(rule.code, rule.name, rule.severity, rule.message) for rule in rules()], shown))
    return OK


def run_explain(code: str, shown: Look, out: Output) -> int:
    from gradverify.report.look import wrapped
    from gradverify.rules.catalogue import codes, names, rule

    found = rule(code)
    if found is None:
        known = codes() if re.match(r"(?i)gv\d", code) else names()
        near = nearest(code.upper() if known == codes() else code.lower(), known)
        raise ProblemsError([Problem(f"no rule {code!r}{near or '; `gradverify explain` lists them, and a check is named PATH::NAME'}")])
    out.write(f"{wrapped(found.page.strip(), shown.columns)}\nseverity: {found.severity}\n")
    return OK


MOST_NAMED = 5
FORM = "must be INPUT:OUTPUT, such as w[3,1]:y[0]"


def run_evidence(id: str, asked: Asked, out: Output) -> int:
    """Show the evidence of one element. Bad arguments are refused before torch is imported."""
    from gradverify.rules.catalogue import codes

    settled = settle(asked, codes(), out, os.environ)
    element = halves(asked.element) if asked.element is not None else None
    gathered = gather((id,), settled.said)
    if gathered.problems:
        return refuse(gathered, out)
    case = one(gathered.cases, id)
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
