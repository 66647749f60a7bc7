"""The JSON report, schema version 1: the model's fields in the order of the published schema."""

from __future__ import annotations

import json

from gradverify.model.case import Json
from gradverify.model.codec import to_json
from gradverify.model.element import Element
from gradverify.model.report import Report

RENAMED = {"passed": "pass"}
"""Field names of Summary that Python reserves."""

FINDING_BEGINS = ("code", "name", "severity", "message")
"""The published order; the model's own differs, because its defaults come last."""


def render(report: Report) -> str:
    """Numbers in their shortest form that reads back to the same float (at most 17 digits); ASCII, so that any pipe can carry it."""
    return json.dumps(as_data(report), indent=2, allow_nan=False) + "\n"


def as_data(report: Report) -> Json:
    """Plain data; non-finite numbers are "nan", "inf" and "-inf"."""
    data = to_json(report)
    data["summary"] = {RENAMED.get(name, name): count for name, count in data["summary"].items()}
    for check in data["checks"]:
        check["findings"] = [{name: finding[name] for name in (*FINDING_BEGINS, *finding)} for finding in check["findings"]]
    return data


def render_element(element: Element) -> str:
    """One element's evidence, as `explain PATH::NAME --format json` writes it."""
    return json.dumps(to_json(element), indent=2, allow_nan=False) + "\n"
