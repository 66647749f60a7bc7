"""`gradverify explain`: a rule's page, or the evidence for one element of one check."""

from __future__ import annotations

import re
from pathlib import Path

import typer

from gradverify.cli import options as o
from gradverify.cli.output import Output
from gradverify.cli.values import nearest
from gradverify.model.problem import Problem, ProblemsError
from gradverify.model.report import OK

OF_CHECKS = ("element", "eps", "atol", "rtol", "seed", "device", "dtype", "format")


def explain(
    ctx: typer.Context, code: o.CodeOrCheck, element: o.Element = None,
    eps: o.Eps = None, atol: o.Atol = None, rtol: o.Rtol = None, seed: o.Seed = None, device: o.Device = None, dtype: o.Dtype = None,
    format: o.Format = None, color: o.Color = "auto", width: o.Width = None,
) -> int:
    """Print a rule's page (CODE); or show why one element of one check (PATH::NAME) is judged as it is: step against error, and the numbers."""
    from gradverify.cli.evidence import run_evidence

    if names_a_check(code):
        return run_evidence(ctx.params, ctx.obj)
    refuse_options(code, [name for name in OF_CHECKS if ctx.params[name] is not None])
    return run_explain(code, ctx.obj)


def names_a_check(text: str) -> bool:
    """PATH::NAME, or the path of a spec; a code is one short word."""
    return not re.fullmatch(r"(?i)gv\d*", text) and ("::" in text or bool(re.search(r"[/\\.]", text)) or Path(text).exists())


def refuse_options(code: str, given: list[str]) -> None:
    if given:
        raise ProblemsError([Problem(f"--{given[0]} is for a check (PATH::NAME); {code!r} is read as a rule's code, and has a page, no element")])


def run_explain(code: str, out: Output) -> int:
    from gradverify.rules.catalogue import codes, rule

    found = rule(code)
    if found is None:
        known = codes()
        raise ProblemsError([Problem(f"no rule {code!r}; the rules are {', '.join(known)}{nearest(code.upper(), known)}")])
    out.write(f"{found.page.strip()}\n\nseverity: {found.severity}\n")
    return OK
