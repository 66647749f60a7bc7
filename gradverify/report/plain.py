"""The plain format: the table format's content in the same order, without frames and colour."""

from __future__ import annotations

from dataclasses import replace

from gradverify.model.report import Report
from gradverify.report.look import Look
from gradverify.report.terminal import view


def plain(look: Look) -> Look:
    """The same look without frames and colour."""
    return replace(look, boxes=False, color=False)


def render(report: Report, look: Look) -> str:
    return view.render(report, plain(look))
