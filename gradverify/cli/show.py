"""`gradverify show` and `merge`: JSON reports of earlier runs, read, joined, and shown again."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gradverify.cli import values
from gradverify.cli.options import SHOWN, Option, Options, Settled, command, settle
from gradverify.cli.output import NotWritten, Output, is_read_on_github
from gradverify.cli.reports import annotated, promised, summarised, written
from gradverify.model.problem import OK, Problem, ProblemsError
from gradverify.model.report import NoReport, Report, read
from gradverify.report.formats import NAMES

ANY_FORMAT = Option("--format", "table|plain|github|KIND", "Default: table on a terminal, else plain; or a kind of report, such as json.", SHOWN,
                    values.one_of(("table", "plain", "github", *NAMES)))
OF_LOOK = ("format", "report", "max_rows", "verbose", "quiet", "color", "width")


def readable(paths: Sequence[str]) -> list[tuple[str, Report]]:
    """Each report with its path. Raises ProblemsError with a sentence for each file that holds none."""
    reports, problems = [], []
    for path in paths:
        try:
            reports.append((path, read(Path(path).read_bytes().decode("utf-8-sig"))))
        except NoReport as refused:
            problems.append(Problem(f"{path} {refused}"))
        except UnicodeDecodeError:
            problems.append(Problem(f"{path} is no text in UTF-8"))
        except (OSError, ValueError) as error:
            problems.append(Problem(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}"))
    if problems:
        raise ProblemsError(problems)
    return reports


def look_of(options: Options, out: Output) -> Settled:
    """The options of `show` and `merge`: where reports go is made sure of before anything is read. Raises ProblemsError."""
    settled = settle(options, out)
    return replace(settled, reports=promised(settled.reports))


def leave(report: Report, settled: Settled, out: Output, annotates: bool) -> None:
    """Files first, so that a closed pipe cannot cost them; then stdout, annotations at its end. Raises NotWritten."""
    from gradverify.report.formats import renderer
    from gradverify.report.terminal.view import render
    from gradverify.rules.catalogue import rules

    failures = written(settled.reports, report)
    text = renderer(settled.options.format, rules)(report) if settled.options.format in NAMES else render(report, settled.look)
    out.write(text, annotated(report) if annotates else "")
    if failures:
        raise NotWritten("\n".join(failures))


@command("json_report", *OF_LOOK, format=ANY_FORMAT)
def show_command(options: Options, out: Output) -> int:
    """Show a JSON report as a table, or write it as another kind of report. Runs nothing and exits with 0, whatever the report says."""
    settled = look_of(options, out)
    leave(readable([options.json_report])[0][1], settled, out, options.format == "github")
    return OK


@command("shards", *OF_LOOK, format=ANY_FORMAT)
def merge_command(options: Options, out: Output) -> int:
    """Join the JSON reports of all shards of one run (`check --shard I/N`). Refuses if a shard is missing or belongs to another run."""
    from gradverify.model.merge import differing, merged

    settled = look_of(options, out)
    reports = readable(options.shards)
    whole = merged(reports)
    for note in (*differing([part for _, part in reports]), summarised(whole, os.environ)):
        if note:
            out.say(note)
    leave(whole, settled, out, is_read_on_github(options.format, os.environ))
    return whole.exit_code
