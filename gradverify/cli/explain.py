"""`gradverify explain`: a rule's page."""

from __future__ import annotations

import typer

from gradverify.cli import options as o
from gradverify.cli.output import Output
from gradverify.cli.values import nearest
from gradverify.model.problem import Problem, ProblemsError
from gradverify.model.report import OK


def explain(ctx: typer.Context, code: o.Code) -> int:
    """Print a rule's page: what it looks at, why it matters, what to change."""
    return run_explain(code, ctx.obj)


def run_explain(code: str, out: Output) -> int:
    from gradverify.rules.catalogue import codes, rule

    found = rule(code)
    if found is None:
        known = codes()
        raise ProblemsError([Problem(f"no rule {code!r}; the rules are {', '.join(known)}{nearest(code.upper(), known)}")])
    out.write(f"{found.page.strip()}\n\nseverity: {found.severity}\n")
    return OK
