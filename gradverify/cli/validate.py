"""`gradverify validate`: every problem of every spec, without importing torch or anybody's code."""

from __future__ import annotations

import typer

from gradverify.cli import options as o
from gradverify.cli.output import Output
from gradverify.model.report import NOTHING_CHECKED, OK, USAGE
from gradverify.report.numbers import counted


def validate(ctx: typer.Context, paths: o.Paths = None) -> int:
    """Report all errors of all specs; runs nothing."""
    return run_validate(paths or (), ctx.obj)


def run_validate(paths: list[str] | tuple[str, ...], out: Output) -> int:
    from gradverify.cli.gather import gather

    gathered = gather(paths)
    count = f"{counted(len(gathered.files), 'spec')}, {counted(gathered.written, 'check')}"
    if gathered.problems:
        out.write("".join(f"{problem}\n" for problem in gathered.problems))
        out.write(f"{count}: {counted(len(gathered.problems), 'problem')}\n")
        return USAGE
    if not gathered.files:
        out.say(gathered.message or "no spec was found")
        return NOTHING_CHECKED
    out.write(f"{count}: valid\n")
    return OK
