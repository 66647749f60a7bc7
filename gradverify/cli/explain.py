"""`gradverify explain`: a rule's page, or the evidence for one element of one check."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from gradverify.cli.gather import gather, named, shown_target, sound, with_torch
from gradverify.cli.options import Options, Settled, command, settle
from gradverify.cli.output import Output
from gradverify.cli.values import nearest
from gradverify.model.case import Case
from gradverify.model.paths import is_file, is_folder
from gradverify.model.problem import NOT_JUDGED, OK, ProblemsError
from gradverify.model.result import CaseResult
from gradverify.report.look import Look
from gradverify.report.numbers import some

OF_CHECKS = ("element", "eps", "atol", "rtol", "seed", "device", "dtype", "format")


@command("code", *OF_CHECKS, "color", "width")
def explain_command(options: Options, out: Output) -> int:
    """Explain a rule (CODE or name), or how one element of a check (PATH::NAME) came to its
    verdict. Without either, list all rules."""
    from gradverify.report.listing import rules_text
    from gradverify.rules.catalogue import rules

    code, settled = options.code, settle(options, out)
    if code is not None and names_a_check(code):
        return run_evidence(code, settled, out)
    given = next((name for name in OF_CHECKS if getattr(options, name) is not None), None)
    if given:
        read = (
            f"{code!r} is read as a rule's code, and has a page, no element" if code else "name one"
        )
        raise ProblemsError(f"--{given} is for a check (PATH::NAME); {read}")
    if code is not None:
        return run_explain(code, settled.look, out)
    out.write(
        rules_text(
            [(rule.code, rule.name, rule.severity, rule.message) for rule in rules()], settled.look
        )
    )
    return OK


def names_a_check(text: str) -> bool:
    """Return whether a text is PATH::NAME or the path of a spec. The code or name of a rule, which
    is one word, has precedence over a file of that name."""
    from gradverify.rules.catalogue import names

    is_rule = re.fullmatch(r"(?i)gv\d*", text) or text.lower() in names()
    return not is_rule and (
        "::" in text or bool(re.search(r"[/\\.]", text)) or is_file(text) or is_folder(text)
    )


def run_explain(code: str, shown: Look, out: Output) -> int:
    from gradverify.report.look import wrapped
    from gradverify.rules.catalogue import codes, names, rule

    found = rule(code)
    if found is None:
        known = codes() if re.match(r"(?i)gv\d", code) else names()
        near = nearest(code.upper() if known == codes() else code.lower(), known)
        advice = "; `gradverify explain` lists them, and a check is named PATH::NAME"
        raise ProblemsError(f"no rule {code!r}{near or advice}")
    out.write(f"{wrapped(found.page.strip(), shown.columns)}\nseverity: {found.severity}\n")
    return OK


MOST_NAMED = 5
FORM = "must be INPUT:OUTPUT, such as w[3,1]:y[0]"


def run_evidence(id: str, settled: Settled, out: Output) -> int:
    """Show the evidence for one element. Invalid arguments are rejected before torch is
    imported."""
    from gradverify.model.codec import as_text
    from gradverify.report.terminal.element import not_run, render
    from gradverify.running.inline import devices, explain_case, placed, skipped

    element = None if settled.options.element is None else halves(settled.options.element)
    gathered = sound(gather((id,), settled.settings))
    case = one(gathered.cases, id)
    with_torch([case])
    if settled.for_programs:
        out.keep_stdout()
    machine = devices()
    found = skipped(case, machine) or explain_case(placed(case, machine), element)
    if isinstance(found, CaseResult):
        out.say(not_run(named(found), settled.look))
        return NOT_JUDGED
    found = replace(
        found, function=replace(found.function, target=shown_target(found.function.target))
    )
    out.write(as_text(found) if settled.for_programs else render(found, settled.look))
    return OK


def halves(text: str) -> tuple[str, str]:
    """Return the elements of input and output from `w[3,1]:y[0]`, or as in reports `y0[0] /
    w[3,1]`. Raises ProblemsError."""
    moved, _, seen = text.rpartition(":")
    if not moved:
        seen, _, moved = text.partition(" / ")
    if not moved.strip() or not seen.strip():
        raise ProblemsError(f"--element {text!r}: {FORM}")
    return moved.strip(), seen.strip()


def one(cases: Sequence[Case], id: str) -> Case:
    """Return the only case. Raises ProblemsError if there are several, or none."""
    if len(cases) == 1:
        return cases[0]
    if not cases:
        raise ProblemsError(f"{id}: there is no check to explain")
    known = some([case.id for case in cases], MOST_NAMED)
    raise ProblemsError(f"{id} names {len(cases)} checks; name one: {known}")
