"""`gradverify show`: the JSON report of an earlier run as a table again, or in any other form of report."""

from __future__ import annotations

import typer

from gradverify.cli import options as o
from gradverify.cli.again import drawn, leave, look_of, readable
from gradverify.model.problem import OK


def show(ctx: typer.Context, report_file: o.ReportFile, format: o.AnyFormat = None, report: o.Reports = None, max_rows: o.MaxRows = 10,
         verbose: o.Verbose = 0, quiet: o.Quiet = False, color: o.Color = "auto", width: o.Width = None) -> int:
    """Show a JSON report as a table, or write it as another kind of report. Runs nothing and exits with 0, whatever the report says."""
    from gradverify.cli.github import annotated
    from gradverify.report.terminal.view import render

    path = ctx.params.pop("report_file")
    settled = look_of(ctx.params, ctx.obj)
    _, found = readable([path])[0]
    leave(found, settled, drawn(found, format, lambda: render(found, settled.look)), ctx.obj, annotated(found) if format == "github" else "")
    return OK
