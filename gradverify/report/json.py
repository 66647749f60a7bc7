"""The JSON report, schema version 1: the model's fields in the order of the published schema."""

from __future__ import annotations

import json

from gradverify.model.codec import to_json
from gradverify.model.element import Element
from gradverify.model.report import Report, as_data, check_data, written

__all__ = ["as_data", "check_data", "render", "render_element"]


def render(report: Report) -> str:
    """Numbers in their shortest form that reads back to the same float (at most 17 digits); ASCII, so that any pipe can carry it."""
    return written(report)


def render_element(element: Element) -> str:
    """One element's evidence, as `explain PATH::NAME --format json` writes it."""
    return json.dumps(to_json(element), indent=2, allow_nan=False) + "\n"
