"""Markdown for a job summary or a comment: the counts, what failed by how much, what was not judged, everything that is told of each failure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape
from itertools import accumulate, takewhile

from gradverify.model.report import Report
from gradverify.model.result import CaseResult, Comparison, Finding
from gradverify.report import numbers
from gradverify.report.look import Look
from gradverify.report.names import one_line, readable, title_of
from gradverify.report.plain import panel_text
from gradverify.report.terminal import status
from gradverify.report.terminal.panel import comparisons_of
from gradverify.report.terminal.table import cells_of, value_of
from gradverify.report.terminal.view import counts

LIMIT = 900 * 1024
"""Bytes: GitHub drops a step's summary above 1 MiB, and other programs of the same step may have written to it."""

CUT = 300
"""Bytes kept for the sentence that says what was left out."""

LOOK = Look()
SLOWEST = 5
SPAN = re.compile(r"[^`|\n]*[^`|\n\\ ]")
"""What can stand in a code span, in a table too, as it is."""

ENTITIES = str.maketrans({mark: f"&#{ord(mark)};" for mark in "\\`*_[]<>&|~$!:@\"'#()"})
FAILED = "| check | finding | worst element | analytic | {value} | error ÷ tolerance |\n| --- | --- | --- | ---: | ---: | ---: |\n"
OPEN = ("| check | | why |\n| --- | --- | --- |\n")


def render(report: Report, limit: int = LIMIT) -> str:
    """At most `limit` bytes of UTF-8: checks that would lie beyond are left out whole, and counted."""
    report = readable(report)
    head, foot = f"### gradverify: {counts(report).plain}\n\n", f"{_slowest(report)}{_environment(report)}"
    failed = FAILED.format(value=_values(report))
    left = limit - CUT - len((head + failed + OPEN + foot).encode())
    red = [(_row(check), _details(check, report)) for check in report.checks if status.is_red(check)]
    shown = _fitting(red, left)
    left -= sum(len(text.encode()) for unit in shown for text in unit)
    rest = [(_reason_row(check),) for check in report.checks if _is_open(check)]
    others = _fitting(rest, left)
    tables = "".join([failed, *(row for row, _ in shown), "\n"] if shown else []) + "".join([OPEN, *(row for row, in others), "\n"] if others else [])
    missing = _left_out(len(red) - len(shown), len(rest) - len(others), limit)
    return "".join([head, tables, missing, *(details for _, details in shown), foot])


def code(text: str) -> str:
    """Text from outside, in one line, where nothing in it means anything: no emphasis, link, column, emoji or mention."""
    text = one_line(text)
    return f"`{text}`" if SPAN.fullmatch(text) else f"<code>{text.translate(ENTITIES)}</code>" if text else ""


def fenced(text: str) -> str:
    """The same for several lines."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{fence}text\n{text.rstrip()}\n{fence}\n"


def _fitting(units: Sequence[tuple[str, ...]], left: int) -> Sequence[tuple[str, ...]]:
    """Up to the first that does not fit into so many bytes."""
    ends = accumulate(sum(len(text.encode()) for text in unit) for unit in units)
    return units[:sum(1 for end in takewhile(lambda end: end <= left, ends))]


def _left_out(failing: int, others: int, limit: int) -> str:
    parts = [numbers.counted(failing, "failing check")] * bool(failing) + [numbers.counted(others, "check") + " without a verdict"] * bool(others)
    if not parts:
        return ""
    return f"**{' and '.join(parts)} more: left out here, where {numbers.memory(limit)} is the most. A JSON or HTML report has all of them.**\n\n"


def _row(check: CaseResult) -> str:
    found = _first_error(check)
    told = status.broken_expectation(check) or (None if found else check.reason)
    what = title_of(found) if found and not told else told or ""
    return f"| {code(check.name)} | {code(what)} | {' | '.join(_worst(found, check))} |\n"


def _worst(found: Finding | None, check: CaseResult) -> tuple[str, str, str, str]:
    """The worst element of a finding as cells."""
    comparison = _compared(found, check)
    if comparison is None:
        return ("", "", "", "")
    *names, analytic, numeric, _, _, ratio = cells_of(comparison.worst[0], comparison, LOOK)
    return code(" / ".join(names)), analytic, numeric, ratio


def _compared(found: Finding | None, check: CaseResult) -> Comparison | None:
    return next((each for each in (comparisons_of(found, check) if found else ()) if each.worst), None)


def _values(report: Report) -> str:
    """What the elements of the table's rows are compared with."""
    red = ((check, _first_error(check)) for check in report.checks if status.is_red(check))
    headed = {value_of(comparison) for check, found in red if (comparison := _compared(found, check)) is not None}
    return " or ".join(sorted(headed, reverse=True)) or "numeric"


def _first_error(check: CaseResult) -> Finding | None:
    return next((finding for finding in check.findings if finding.severity == "error"), None)


def _is_open(check: CaseResult) -> bool:
    return not status.is_red(check) and (check.verdict in ("skip", "not_run") or status.word(check) in ("UNDECIDED", "KNOWN"))


def _reason_row(check: CaseResult) -> str:
    return f"| {code(check.name)} | {status.word(check).lower()} | {code(status.excuse(check))} |\n"


def _details(check: CaseResult, report: Report) -> str:
    """All that is told of a check, folded away."""
    summary = f"{status.word(check)} <code>{escape(check.id)}</code>"
    return f"<details><summary>{summary}</summary>\n\n{fenced(panel_text(check, report.argv))}\n</details>\n\n"


def _slowest(report: Report) -> str:
    ran: Iterable[CaseResult] = (check for check in report.checks if check.verdict not in ("skip", "not_run"))
    slowest = sorted(ran, key=lambda check: -check.seconds)[:SLOWEST]
    if len(slowest) < 2:
        return ""
    return "Slowest: " + ", ".join(f"{code(check.name)} {numbers.seconds(check.seconds)}" for check in slowest) + ".\n\n"


def _environment(report: Report) -> str:
    about = report.environment
    devices = f", {', '.join(map(code, about.devices))}" if about.devices else ""
    failed = f"**gradverify itself failed**: {code(report.crashed)}\n\n" if report.crashed else ""
    versions = f"gradverify {report.tool.version}, torch {code(about.torch or '-')}, Python {code(about.python)}"
    return f"{failed}{versions}, {code(about.platform)}{devices}\n"
