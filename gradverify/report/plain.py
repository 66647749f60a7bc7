"""The plain format: the table format's content in the same order, without frames and colour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gradverify.model.report import Report
from gradverify.model.result import CaseResult
from gradverify.report.look import Look
from gradverify.report.names import inert, readable
from gradverify.report.terminal import view
from gradverify.report.terminal.canvas import paint, shielded
from gradverify.report.terminal.panel import panel

TEXT = Look(boxes=False, wrap=False)
"""The look of text inside other formats."""


def plain(look: Look) -> Look:
    """Return the look without frames and colour."""
    return replace(look, boxes=False, color=False)


def render(report: Report, look: Look) -> str:
    return view.render(report, plain(look))


def panel_text(check: CaseResult, argv: Sequence[str] | None) -> str:
    """Return the full text about one check, for use inside another format."""
    return (
        paint(
            shielded(f"the panel of {check.name!r}", lambda: panel(check, argv, TEXT), TEXT), TEXT
        ).rstrip()
        + "\n"
    )


def check_text(check: CaseResult) -> str:
    """Return the text about one check without a spec: its line, and its panel unless it is a plain
    pass."""
    more = (
        "" if check.verdict == "pass" or not check.findings else panel_text(readable(check), None)
    )
    return inert((view.check_line(check, TEXT) + more).rstrip())
