"""`gradverify list`: what would run, without running it; or the built-in functions."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from gradverify.cli import options as o
from gradverify.cli.asked import shown_as
from gradverify.cli.nearby import nothing_selected
from gradverify.cli.output import Output
from gradverify.model.problem import NOTHING_CHECKED, OK
from gradverify.report.look import Look


def list_(ctx: typer.Context, paths: o.Paths = None, functions: o.Functions = False, keyword: o.Keyword = None, tags: o.Tags = None,
          format: o.Format = None, width: o.Width = None, color: o.Color = "auto") -> int:
    """List checks with their tags, device and input sizes; with --functions, the built-in functions."""
    shown = shown_as(ctx.obj, format, color, width)
    if functions:
        return list_functions(shown, format == "json", ctx.obj)
    return list_cases(paths or [], keyword, tags, shown, format == "json", ctx.obj)


def list_functions(shown: Look, as_json: bool, out: Output) -> int:
    from gradverify.functions.catalogue import BUILTINS
    from gradverify.report.listing import functions_json, functions_text

    rows = [(builtin.name, builtin.parameters, builtin.summary) for builtin in BUILTINS.values()]
    out.write(functions_json(rows) if as_json else functions_text(rows, shown))
    return OK


def list_cases(paths: Sequence[str], keyword: str | None, tags: str | None, shown: Look, as_json: bool, out: Output) -> int:
    from gradverify.cli.gather import gather, sound
    from gradverify.report.listing import cases_json, cases_text
    from gradverify.running.select import select

    gathered = sound(gather(paths))
    cases = select(gathered.cases, keyword=keyword, tags=tags)
    message = gathered.message or (None if cases else nothing_selected(gathered.cases, keyword, tags))
    if message:
        out.say(message)
    out.write(cases_json(cases, gathered.names) if as_json else cases_text(cases, shown, gathered.names) if cases else "")
    return OK if cases else NOTHING_CHECKED
