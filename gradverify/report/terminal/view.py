"""The whole of what a person sees, and its parts as a run prints them: a line as each check ends, panels and summary at the end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from rich.cells import cell_len
from rich.console import RenderableType
from rich.text import Text

from gradverify.model.report import Report
from gradverify.model.result import CaseResult
from gradverify.report.look import Look
from gradverify.report.names import one_line
from gradverify.report.readable import readable
from gradverify.report.terminal import status
from gradverify.report.terminal.canvas import paint
from gradverify.report.terminal.columns import fitted
from gradverify.report.terminal.details import details
from gradverify.report.terminal.line import line, name_width
from gradverify.report.terminal.panel import panel
from gradverify.report.terminal.shielded import shielded
from gradverify.report.terminal.slowest import slowest
from gradverify.report.terminal.summary import summary


def render(report: Report, look: Look) -> str:
    """Lines, panels, summary: what a run prints from first to last."""
    width = name_width(check.name for check in report.checks)
    return "".join(check_line(check, look, width) for check in report.checks) + closing(report, look)


def check_line(check: CaseResult, look: Look, name_width: int = 0, origins: Mapping[str, str] | None = None) -> str:
    """What is printed as one judged check ends: nothing where a quiet look meets no failure, or a check that was not run meets no verbose one."""
    if look.verbosity < (1 if check.verdict == "not_run" else 0) and not status.is_red(check):
        return ""
    check = readable(check)
    what = f"{status.word(check)}  {check.name}: the rest of its line"
    return paint(shielded(what, lambda: _line(check, look, name_width, origins), look), look)


def _line(check: CaseResult, look: Look, name_width: int, origins: Mapping[str, str] | None) -> Iterator[RenderableType]:
    columns = fitted(name_width or cell_len(one_line(check.name)), look)
    yield from line(check, look, columns)
    if look.verbosity > 0:
        yield from details(check, look, columns.word, origins)


def closing(report: Report, look: Look) -> str:
    """What is printed when the run has ended: a panel per failure, then the summary."""
    return paint(_closing(readable(report), look), look)


def _closing(report: Report, look: Look) -> Iterator[RenderableType]:
    shown = [check for check in report.checks if _has_panel(check, look)]
    if report.checks and not (look.verbosity < 0 and not shown):
        yield Text("")
    for check in shown:
        yield from shielded(f"the panel of {one_line(check.id)}", partial(panel, check, report.argv, look), look)
    yield from slowest(report, look.slowest)
    yield from summary(report, look)


def _has_panel(check: CaseResult, look: Look) -> bool:
    """Failures; under `-v` also what is undecided, under `-vv` every check with findings."""
    return status.is_red(check) or (look.verbosity > 0 and check.verdict == "undecided") or (look.verbosity > 1 and bool(check.findings))
