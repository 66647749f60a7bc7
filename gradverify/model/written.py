"""A report as the text of its JSON file, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping

from gradverify.model.case import Json
from gradverify.model.codec import from_json, to_json
from gradverify.model.report import SCHEMA_VERSION, Report, Tool
from gradverify.model.result import CaseResult

RENAMED = {"passed": "pass"}
"""Field names of Summary that Python reserves."""

FINDING_BEGINS = ("code", "name", "severity", "message")
"""The published order; the model's own differs, because its defaults come last."""


class NoReport(ValueError):  # noqa: N818 - it carries the sentence to show
    """A text is no JSON report that this version reads; says why, as the end of a sentence that begins with the file's name."""


def written(report: Report) -> str:
    """Numbers in their shortest form that reads back to the same float (at most 17 digits); ASCII, so that any pipe can carry it."""
    return json.dumps(as_data(report), indent=2, allow_nan=False) + "\n"


def as_data(report: Report) -> Json:
    """Plain data; non-finite numbers are "nan", "inf" and "-inf"."""
    data = to_json(report)
    data["summary"] = {RENAMED.get(name, name): count for name, count in data["summary"].items()}
    data["checks"] = [check_data(check) for check in report.checks]
    return data


def check_data(check: CaseResult) -> Json:
    """One entry of `checks`."""
    data = to_json(check)
    data["findings"] = [{name: finding[name] for name in (*FINDING_BEGINS, *finding)} for finding in data["findings"]]
    return data


def read(text: str) -> Report:
    """The inverse of `written`; fields that a later version added are left out. Raises NoReport."""
    data = _parsed(text)
    if not isinstance(data, Mapping) or not {"schema_version", "tool", "checks"} <= set(data):
        raise NoReport("is JSON, but no report of `gradverify check`")
    if data["schema_version"] != SCHEMA_VERSION:
        raise NoReport(f"has schema version {data['schema_version']!r}{_by(data['tool'])}; this gradverify reads version {SCHEMA_VERSION}")
    own = {name: given for given, name in RENAMED.items()}
    summary = data.get("summary")
    try:
        if isinstance(summary, Mapping):
            data = {**data, "summary": {own.get(name, name): count for name, count in summary.items()}}
        return from_json(Report, data, later=True)
    except (ValueError, RecursionError) as error:
        raise NoReport(f"is no report of `gradverify check`: {error}") from None


def _parsed(text: str) -> Json:
    if not text.strip():
        raise NoReport("is empty")
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        if _ends_early(text, error):
            raise NoReport(f"is cut off: it ends in line {text.rstrip().count(chr(10)) + 1}, inside of the report") from None
        raise NoReport(f"is no JSON: {error}") from None
    except (ValueError, RecursionError):        # an integer of more digits than Python reads, brackets deeper than it follows
        raise NoReport("is JSON, but no report of `gradverify check`") from None


def _ends_early(text: str, error: json.JSONDecodeError) -> bool:
    """Is what is there the beginning of an object, which more text would complete?"""
    return text.lstrip().startswith("{") and (error.pos >= len(text.rstrip()) - len("Infinity") or error.msg.startswith("Unterminated string"))


def _by(tool: Json) -> str:
    try:
        return f", written by gradverify {from_json(Tool, tool, later=True).version}"
    except ValueError:
        return ""
