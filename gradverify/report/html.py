"""The report as one HTML page without network, script or picture: verdicts first, then each failure
with its numbers, then how it was run."""

from __future__ import annotations

from html import escape

from gradverify.model.report import Report
from gradverify.model.result import CaseResult
from gradverify.report.names import readable
from gradverify.report.pages import template


def render(report: Report) -> str:
    """Return one self-contained page."""
    report = readable(report)
    return template("page.html.j2").render(checks=report.checks, report=report)


HEIGHT, TALL = 260, 640  # pixels: for a pass without findings, and for any other check


def cell(check: CaseResult) -> str:
    """Return a check without a spec as HTML to be shown inside another page."""
    page = template("page.html.j2").render(checks=[readable(check)], report=None)
    height = HEIGHT if check.ok and not check.findings else TALL
    return (
        f'<iframe srcdoc="{escape(page)}" style="width:100%;height:{height}px;border:0" '
        'title="gradverify"></iframe>'
    )
