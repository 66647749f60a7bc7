"""JSON Lines: one line with an object for each event of a run, as it occurs."""

from __future__ import annotations

import json

from gradverify.model.case import Json
from gradverify.model.codec import to_json
from gradverify.model.event import CheckFinished, CheckStarted, Event, RunStarted
from gradverify.model.report import SCHEMA_VERSION, Gate, Report, Tool, as_data, judged
from gradverify.model.result import CaseResult

IN_OTHER_LINES = (
    "schema_version",
    "tool",
    "started_at",
    "argv",
    "environment",
    "selection",
    "checks",
)
"""Fields of the report that are in other lines than the last."""


def render(report: Report) -> str:
    """Return the lines of a finished run, with its checks in the order of the report."""
    begun = RunStarted(
        report.started_at,
        report.argv,
        report.selection,
        report.environment,
        report.summary.total,
        tuple(check.id for check in report.checks),
    )
    return "".join(
        [
            _started(begun, report.tool.version),
            *(_finished(check) for check in report.checks),
            last_line(report),
        ]
    )


def line(event: Event, gate: Gate, version: str) -> str:
    """Return the line of an event; empty for the end of a run, whose line is `last_line`."""
    if isinstance(event, RunStarted):
        return _started(event, version)
    if isinstance(event, CheckStarted):
        return _line("check_started", to_json(event))
    if isinstance(event, CheckFinished):
        return _finished(judged(event.result, gate))
    return ""


def last_line(report: Report) -> str:
    """Return the line for the end of a run: the fields of the report that no other line has."""
    whole = as_data(report)
    return _line(
        "run_finished", {name: value for name, value in whole.items() if name not in IN_OTHER_LINES}
    )


def _started(event: RunStarted, version: str) -> str:
    return _line(
        "run_started",
        {
            "schema_version": SCHEMA_VERSION,
            "tool": to_json(Tool(version=version)),
            **to_json(event),
        },
    )


def _finished(check: CaseResult) -> str:
    return _line("check_finished", {"check": to_json(check)})


def _line(name: str, data: Json) -> str:
    return json.dumps({"event": name, **data}, allow_nan=False) + "\n"
