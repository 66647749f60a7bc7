"""`gradverify explain`: a rule's page, or the evidence for one element of one check."""

from __future__ import annotations

import re

import typer

from gradverify.cli import options as o
from gradverify.cli.asked import shown_as
from gradverify.cli.output import Output
from gradverify.cli.values import nearest
from gradverify.model.paths import is_file, is_folder
from gradverify.model.problem import OK, Problem, ProblemsError
from gradverify.report.look import Look

OF_CHECKS = ("element", "eps", "atol", "rtol", "seed", "device", "dtype", "format")


def explain(
    ctx: typer.Context, code: o.CodeOrCheck = None, element: o.Element = None,
    eps: o.Eps = None, atol: o.Atol = None, rtol: o.Rtol = None, seed: o.Seed = None, device: o.Device = None, dtype: o.Dtype = None,
    format: o.Format = None, color: o.Color = "auto", width: o.Width = None,
) -> int:
    """Explain a rule (CODE or name), or how one element of a check (PATH::NAME) came to its verdict. Without either, list all rules."""
    from gradverify.cli.evidence import run_evidence

    if code is None:
        refuse_options(None, [name for name in OF_CHECKS if ctx.params[name] is not None])
        return list_rules(shown_as(ctx.obj, None, color, width), ctx.obj)
    if names_a_check(code):
        return run_evidence(ctx.params, ctx.obj)
    refuse_options(code, [name for name in OF_CHECKS if ctx.params[name] is not None])
    return run_explain(code, shown_as(ctx.obj, None, color, width), ctx.obj)


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
