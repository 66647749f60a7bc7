"""`gradverify show` and `merge`: JSON reports of earlier runs, read, joined, and shown again."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from gradverify.cli import values
from gradverify.cli.asked import ANY_FORMAT, Asked, Settled, command, settle
from gradverify.cli.output import NotWritten, Output
from gradverify.cli.reports import annotated, promised, summarised, written
from gradverify.model.problem import OK, Problem, ProblemsError
from gradverify.model.report import NoReport, Report, read
from gradverify.report.formats import NAMES

TEXTS = ("table", "plain", "github")
FORMATS = (*TEXTS, *NAMES)


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


def look_of(asked: Asked, out: Output) -> Settled:
    """The options of `show` and `merge`: where reports go is made sure of before anything is read. Raises ProblemsError."""
    values.settled([("--format", asked.format, values.one_of(FORMATS))])
    settled = settle(replace(asked, format=asked.format if asked.format in TEXTS else None), (), out, os.environ, TEXTS)
    return replace(settled, reports=promised(settled.reports))


def drawn(report: Report, format: str | None, text: Callable[[], str]) -> str:
    """The report as the kind of report that `format` names; else `text`."""
    from gradverify.report.formats import renderer
    from gradverify.rules.catalogue import rules

    return text() if format is None or format in TEXTS else renderer(format, rules)(report)


def leave(report: Report, settled: Settled, text: str, out: Output, commands: str = "") -> None:
    """Files first, so that a closed pipe cannot cost them; then stdout, `commands` of a CI service at its end. Raises NotWritten."""
    failures = written(settled.reports, report)
    out.write(text, commands)
    if failures:
        raise NotWritten("\n".join(failures))


OF_LOOK = ("format", "report", "max_rows", "verbose", "quiet", "color", "width")


@command("json_report", *OF_LOOK, format=ANY_FORMAT)
def show_command(asked: Asked, out: Output) -> int:
    """Show a JSON report as a table, or write it as another kind of report. Runs nothing and exits with 0, whatever the report says."""
    from gradverify.report.terminal.view import render

    settled = look_of(asked, out)
    _, found = readable([asked.json_report])[0]
    leave(found, settled, drawn(found, asked.format, lambda: render(found, settled.look)), out, annotated(found) if asked.format == "github" else "")
    return OK


@command("shards", *OF_LOOK, format=ANY_FORMAT)
def merge_command(asked: Asked, out: Output) -> int:
    """Join the JSON reports of all shards of one run (`check --shard I/N`). Refuses if a shard is missing or belongs to another run."""
    from gradverify.model.merge import differing, merged
    from gradverify.report.terminal.view import render

    settled = look_of(asked, out)
    reports = readable(asked.shards)
    whole = merged(reports)
    for note in (*differing([part for _, part in reports]), summarised(whole, os.environ)):
        if note:
            out.say(note)
    commands = annotated(whole) if settled.annotates and asked.format in (None, "github") else ""
    leave(whole, settled, drawn(whole, asked.format, lambda: render(whole, settled.look)), out, commands)
    return whole.exit_code
