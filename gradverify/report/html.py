"""The report as one HTML page without network, script or picture: verdicts first, then each failure
with its numbers, then how it was run."""

from __future__ import annotations

from html import escape

from gradverify.model.report import Report
from gradverify.model.result import CaseResult
from gradverify.report.names import readable
from gradverify.report.pages import template


def render(report: Report) -> str:
    """One self-contained page."""
    report = readable(report)
    return template("page.html.j2").render(checks=report.checks, report=report)


def of_one(check: CaseResult) -> str:
    """The page of a check that no spec describes."""
    return template("page.html.j2").render(checks=[readable(check)], report=None)


HEIGHT, TALL = 260, 640  # pixels: of a pass, and of what has more to tell


def cell(shown: CaseResult | Report) -> str:
    """HTML to stand inside of another page."""
    page = render(shown) if isinstance(shown, Report) else of_one(shown)
    height = HEIGHT if shown.ok and isinstance(shown, CaseResult) and not shown.findings else TALL
    return (
        f'<iframe srcdoc="{escape(page)}" style="width:100%;height:{height}px;border:0" '
        'title="gradverify"></iframe>'
    )
