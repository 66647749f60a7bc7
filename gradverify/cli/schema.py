"""`gradverify schema`: the JSON Schema of specs, or of the JSON report."""

from __future__ import annotations

import typer

from gradverify.cli import options as o
from gradverify.model.codec import as_text
from gradverify.model.problem import OK


def schema(ctx: typer.Context, report: o.ReportSchema = False) -> int:
    """Print the JSON Schema of specs for editors; with --report, that of the JSON report."""
    ctx.obj.write(as_text(_report() if report else _spec()))
    return OK


def _spec() -> object:
    from gradverify.spec.schema import json_schema

    return json_schema()


def _report() -> object:
    from gradverify.report.json import report_schema

    return report_schema()
