"""Which hand-written backwards have a check: a table or JSON."""

from __future__ import annotations

import json

from gradverify.model.codec import to_json
from gradverify.model.coverage import CoverageReport, CoveredFunction
from gradverify.report.listing import rows
from gradverify.report.look import Look
from gradverify.report.numbers import counted

HEADERS = ("backward of", "at", "checked by", "not differentiated")
MOST_CHECKS = 2     # ids in one cell


def render(report: CoverageReport) -> str:
    """The JSON document."""
    return json.dumps(to_json(report), indent=2, allow_nan=False) + "\n"


def text(report: CoverageReport, look: Look) -> str:
    """A row for each Function, those without a check first, then the count."""
    ordered = sorted(report.functions, key=lambda function: function.checked)
    table = rows(HEADERS, [_row(function) for function in ordered], look) if ordered else ""
    return f"{table}\n{_summary(report)}\n" if table and look.boxes else f"{table}{_summary(report)}\n"


def _row(function: CoveredFunction) -> tuple[str, ...]:
    return function.name, f"{function.file}:{function.backward or function.line}", _checks(function), _missing(function)


def _checks(function: CoveredFunction) -> str:
    if not function.checked:
        return f"nothing: {function.note}" if function.note else "nothing"
    known = function.checks or function.through
    more = f" and {len(known) - MOST_CHECKS} more" if len(known) > MOST_CHECKS else ""
    return ("" if function.checks else "through ") + ", ".join(known[:MOST_CHECKS]) + more


def _missing(function: CoveredFunction) -> str:
    if function.undifferentiated is None:
        return "not known" if function.checked else ""
    return ", ".join(function.undifferentiated)


def _summary(report: CoverageReport) -> str:
    if report.percent is None:
        return "no autograd Function was found"
    share = f"{report.checked} of {counted(report.total, 'autograd Function')} {'has' if report.checked == 1 else 'have'} a check"
    under = f", less than {report.fail_under:g} %" if report.percent < report.fail_under else ""
    return f"{share} ({report.percent:.1f} %){under}"
