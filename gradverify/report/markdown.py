"""Markdown for a job summary or a comment: the counts, the failed checks with their errors, the
checks that were not judged, and the full text of each failure."""

from __future__ import annotations

import re

from gradverify.model.report import Report
from gradverify.report.names import one_line, readable
from gradverify.report.pages import template
from gradverify.report.plain import panel_text
from gradverify.report.terminal import status

LIMIT = 900 * 1024
"""Bytes: GitHub drops a step's summary above 1 MiB, and other programs of the same step may have
written to it."""

SPAN = re.compile(r"[^`|\n]*[^`|\n\\ ]")
"""Text that can be in a code span unescaped, also in a table."""

ENTITIES = str.maketrans({mark: f"&#{ord(mark)};" for mark in "\\`*_[]<>&|~$!:@\"'#()"})


def render(report: Report, limit: int = LIMIT) -> str:
    """Return at most `limit` bytes of UTF-8. Checks beyond the limit are left out, and counted."""
    report = readable(report)
    red = [
        (check, fenced(panel_text(check, report.argv)))
        for check in report.checks
        if status.is_red(check)
    ]
    open = [check for check in report.checks if status.is_open(check)]
    most = len(red) + len(open)
    while True:
        failing, others = red[:most], open[: max(0, most - len(red))]
        text = template("summary.md.j2").render(
            report=report,
            red=failing,
            open=others,
            code=code,
            limit=limit,
            missing={"red": len(red) - len(failing), "open": len(open) - len(others)},
        )
        size = len(text.encode())
        if size <= limit or not most:
            return text
        most = min(most - 1, most * limit // size)


def code(text: str) -> str:
    """Return untrusted text as code on one line, in which nothing is Markdown: no emphasis, link,
    column, emoji or mention."""
    text = one_line(text)
    return (
        f"`{text}`"
        if SPAN.fullmatch(text)
        else f"<code>{text.translate(ENTITIES)}</code>"
        if text
        else ""
    )


def fenced(text: str) -> str:
    """Return untrusted text of several lines as a code block."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{fence}text\n{text.rstrip()}\n{fence}\n"
