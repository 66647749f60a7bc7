"""The JSON report, schema version 1, and its JSON Schema (draft-07), which pydantic reads off the
type hints of the model."""

from __future__ import annotations

from typing import get_args

from gradverify.model.case import Json
from gradverify.model.decisive import Decisive, RunVerdict
from gradverify.model.report import RENAMED, SCHEMA_VERSION, Report, written

ADDED = {
    "Environment": ("folder", "reduced_precision"),
    "Selection": ("shard",),
    "Summary": ("baselined",),
    "Report": ("forgiven", "verdict", "decisive"),
    "Finding": ("known",),
    "CaseResult": ("baselined", "interpreter", "reproducibility", "device_memory"),
}
"""Fields that reports of earlier versions lack."""

NUMBER = {"anyOf": [{"type": "number"}, {"enum": ["nan", "inf", "-inf"]}]}


def report_schema() -> dict[str, Json]:
    """Return the JSON Schema of reports. Unknown keys are allowed: later versions may add
    fields."""
    from pydantic import TypeAdapter
    from pydantic.json_schema import GenerateJsonSchema
    from pydantic_core.core_schema import FloatSchema

    class Schema(GenerateJsonSchema):
        def float_schema(self, schema: FloatSchema) -> dict[str, Json]:
            return dict(NUMBER)

    whole = TypeAdapter(Report).json_schema(
        ref_template="#/definitions/{model}", schema_generator=Schema
    )
    decisive = TypeAdapter(Decisive | None).json_schema(
        ref_template="#/definitions/{model}", schema_generator=Schema
    )
    definitions = whole.pop("$defs") | decisive.pop("$defs") | {"Report": whole}
    head = {"verdict": {"enum": list(get_args(RunVerdict))}, "decisive": decisive}
    whole["properties"] = head | whole["properties"]
    for name, found in definitions.items():
        shown = {RENAMED.get(key, key): value for key, value in found["properties"].items()}
        required = [key for key in shown if key not in ADDED.get(name, ())]
        found |= {"properties": shown, "required": required, "additionalProperties": True}
    definitions["Report"]["properties"]["schema_version"] = {"const": SCHEMA_VERSION}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "gradverify report",
        "allOf": [{"$ref": "#/definitions/Report"}],
        "definitions": dict(sorted(definitions.items())),
    }


def render(report: Report) -> str:
    """Return the text of the JSON report: ASCII, with each number in the shortest form that reads
    back as the same float."""
    return written(report)
