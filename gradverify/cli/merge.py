"""`gradverify merge`: the shards of one run as one report, with its closing view and its exit code."""

from __future__ import annotations

import os

import typer

from gradverify.cli import options as o
from gradverify.cli.again import drawn, leave, look_of, readable


def merge(ctx: typer.Context, shards: o.ShardReports, format: o.AnyFormat = None, report: o.Reports = None, max_rows: o.MaxRows = 10,
          verbose: o.Verbose = 0, quiet: o.Quiet = False, color: o.Color = "auto", width: o.Width = None) -> int:
    """Join the JSON reports of all shards of one run (`check --shard I/N`). Refuses if a shard is missing or belongs to another run."""
    from gradverify.cli.github import annotated, summarised
    from gradverify.model.merge import differing, merged
    from gradverify.report.terminal.view import render

    paths = ctx.params.pop("shards")
    settled = look_of(ctx.params, ctx.obj)
    reports = readable(paths)
    whole = merged(reports)
    notes = [*differing([part for _, part in reports]), summarised(whole, os.environ)]
    for note in notes:
        if note:
            ctx.obj.say(note)
    commands = annotated(whole) if settled.annotates and format in (None, "github") else ""
    leave(whole, settled, drawn(whole, format, lambda: render(whole, settled.look)), ctx.obj, commands)
    return whole.exit_code
