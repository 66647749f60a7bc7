"""A report inside of a notebook: the whole page in a frame of its own, so that neither style reaches the other."""

from __future__ import annotations

from html import escape

from gradverify.model.report import Report
from gradverify.model.result import CaseResult
from gradverify.report.html.page import of_one, render

HEIGHT, TALL = 260, 640     # pixels: of a pass, and of what has more to tell


def cell(shown: CaseResult | Report) -> str:
    """HTML to stand inside of another page."""
    page = render(shown) if isinstance(shown, Report) else of_one(shown)
    height = HEIGHT if shown.ok and isinstance(shown, CaseResult) and not shown.findings else TALL
    return f'<iframe srcdoc="{escape(page)}" style="width:100%;height:{height}px;border:0" title="gradverify"></iframe>'
