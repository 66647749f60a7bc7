"""JSON reports of earlier runs, read and shown again: what `show` and `merge` share."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gradverify.cli.asked import Asked, Settled, settle
from gradverify.cli.output import NotWritten, Output
from gradverify.cli.reports import promised, written
from gradverify.model.problem import Problem, ProblemsError
from gradverify.model.report import Report
from gradverify.report.formats import NAMES

TEXTS = ("table", "plain", "github")
FORMATS = (*TEXTS, *NAMES)


def readable(paths: Sequence[str]) -> list[tuple[str, Report]]:
    """Each report with its path. Raises ProblemsError with a sentence for each file that holds none."""
    from gradverify.model.report import NoReport, read

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


def look_of(options: dict[str, Any], out: Output) -> Settled:
    """The options of `show` and `merge`: where reports go is made sure of before anything is read. Raises ProblemsError."""
    from dataclasses import replace

    from gradverify.cli import values

    format = options.pop("format")
    values.settled([("--format", format, values.one_of(FORMATS))])
    settled = settle(Asked(**options, format=format if format in TEXTS else None), (), out, os.environ, TEXTS)
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
