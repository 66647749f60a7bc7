"""The JSON report, schema version 1, and its JSON Schema (draft-07), read off the type hints of the model."""

from __future__ import annotations

import inspect
import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from gradverify.model.case import Json
from gradverify.model.report import RENAMED, SCHEMA_VERSION, Report, written

ADDED = {"Environment": ("folder", "reduced_precision"), "Selection": ("shard",), "Summary": ("baselined",), "Report": ("forgiven",),
         "Finding": ("known",),
         "CaseResult": ("baselined", "saved", "unsaved", "interpreter", "reproducibility", "device_memory")}
"""Fields that reports of earlier versions lack."""

NUMBER = {"anyOf": [{"type": "number"}, {"enum": ["nan", "inf", "-inf"]}]}
SIMPLE: dict[Any, dict[str, Json]] = {float: NUMBER, int: {"type": "integer"}, str: {"type": "string"}, bool: {"type": "boolean"},
                                      type(None): {"type": "null"}, Any: {}}


def report_schema() -> dict[str, Json]:
    """Unknown keys are allowed: later versions may add fields."""
    definitions: dict[str, Json] = {}
    _describe(Report, definitions)
    definitions["Report"]["properties"]["schema_version"] = {"const": SCHEMA_VERSION}
    return {"$schema": "http://json-schema.org/draft-07/schema#", "title": "gradverify report", "allOf": [{"$ref": "#/definitions/Report"}],
            "definitions": dict(sorted(definitions.items()))}


def _describe(cls: type, definitions: dict[str, Json]) -> dict[str, Json]:
    """A reference to `cls`, which is described in `definitions` with all it refers to."""
    if cls.__name__ not in definitions:
        definitions[cls.__name__] = {}
        hints = get_type_hints(cls)
        names = {field.name: RENAMED.get(field.name, field.name) for field in fields(cls)}
        required = [shown for name, shown in names.items() if name not in ADDED.get(cls.__name__, ())]
        definitions[cls.__name__] = {
            "type": "object", "description": inspect.getdoc(cls) or "", "additionalProperties": True, "required": required,
            "properties": {shown: _schema_of(hints[name], definitions) for name, shown in names.items()}}
    return {"$ref": f"#/definitions/{cls.__name__}"}


def _schema_of(hint: Any, definitions: dict[str, Json]) -> dict[str, Json]:
    origin, arguments = get_origin(hint), get_args(hint)
    if hint in SIMPLE:
        return dict(SIMPLE[hint])
    if is_dataclass(hint) and isinstance(hint, type):
        return _describe(hint, definitions)
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [_schema_of(argument, definitions) for argument in arguments]}
    if origin is tuple:
        return {"type": "array", "items": _schema_of(arguments[0], definitions)}
    if origin is Mapping:
        return {"type": "object", "additionalProperties": _schema_of(arguments[1], definitions)}
    raise TypeError(f"the report has a field of type {hint}, which has no JSON Schema here")


def render(report: Report) -> str:
    """Numbers in their shortest form that reads back to the same float; ASCII, so that any pipe can carry it."""
    return written(report)
