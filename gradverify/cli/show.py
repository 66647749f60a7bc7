"""`gradverify show`: the JSON report of an earlier run, shown again."""

from __future__ import annotations

from pathlib import Path

from gradverify.cli import values
from gradverify.cli.options import SHOWN, Option, Options, command, settle
from gradverify.cli.output import NotWritten, Output
from gradverify.cli.reports import annotated, promised, written
from gradverify.model.problem import OK, ProblemsError
from gradverify.model.report import NoReport, read
from gradverify.report.formats import NAMES

ANY_FORMAT = Option(
    "--format",
    "table|plain|github|KIND",
    "Default: table on a terminal, else plain; or a kind of report, such as json.",
    SHOWN,
    values.one_of(("table", "plain", "github", *NAMES)),
)


@command(
    "json_report",
    "format",
    "report",
    "max_rows",
    "verbose",
    "quiet",
    "color",
    "width",
    format=ANY_FORMAT,
)
def show_command(options: Options, out: Output) -> int:
    """Show a JSON report as a table, or write it as another kind of report. Runs nothing and exits
    with 0, whatever the report says."""
    from gradverify.report.formats import renderer
    from gradverify.report.terminal.view import render
    from gradverify.rules.catalogue import rules

    settled, path = settle(options, out), options.json_report
    # The files to write are checked before anything is read
    files = promised(settled.reports)
    try:
        report = read(Path(path).read_bytes().decode("utf-8-sig"))
    except NoReport as refused:
        raise ProblemsError(f"{path} {refused}") from None
    except UnicodeDecodeError:
        raise ProblemsError(f"{path} is no text in UTF-8") from None
    except (OSError, ValueError) as error:
        raise ProblemsError(
            f"{path} cannot be read: {getattr(error, 'strerror', None) or error}"
        ) from None
    failures = written(files, report)  # before stdout, which may be a closed pipe
    text = (
        renderer(options.format, rules)(report)
        if options.format in NAMES
        else render(report, settled.look)
    )
    out.write(text, annotated(report) if options.format == "github" else "")
    if failures:
        raise NotWritten("\n".join(failures))
    return OK
