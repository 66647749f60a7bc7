"""docs/spec.md from the models: every key with its meaning, type, default and an example, so that text and program cannot part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gradverify.model.case import Json
from gradverify.spec.expand import MAX_CASES
from gradverify.spec.fault import flow
from gradverify.spec.reference_text import CLOSING, FORMS, FUNCTION_FORMS, INTRODUCTION, MATRIX, NUMBERS, STRUCTURES
from gradverify.spec.schema import Check, Spec
from gradverify.spec.schema_inputs import Nested, Sparse, Tensor
from gradverify.spec.schema_json import AsWritten
from gradverify.spec.schema_settings import Budget, Matrix, Rules, Settings
from gradverify.spec.values import Strict

Schema = Mapping[str, Any]
LIMITS = {"exclusiveMinimum": "> {}", "minimum": "≥ {}"}
INPUTS = "mapping of names to tensors or plain values, or list of them"
MANY = {"integer": "integers", "number": "numbers", "text": "texts", "check": "checks", "mapping": "mappings"}
HUGE = 2**62  # a bound beyond it is int64's own, and says nothing to a reader


def reference() -> str:
    """The whole reference as Markdown."""
    sections = (
        INTRODUCTION,
        _section("The file", Spec),
        _section("A check", Check, without=tuple(Settings.model_fields)),
        FUNCTION_FORMS,
        _section("A tensor input", Tensor),
        NUMBERS,
        STRUCTURES,
        _section("`sparse`", Sparse, level=3),
        _section("`nested`", Nested, level=3),
        FORMS,
        _section("Settings", Settings),
        _section("`rules`", Rules, level=3),
        _section("`budget`", Budget, level=3),
        _section("`matrix`", Matrix, level=3),
        MATRIX.replace("MAX_CASES", f"{MAX_CASES:,}"),
        CLOSING,
    )
    return "\n\n".join(section.strip() for section in sections) + "\n"


def _section(
    title: str, model: type[Strict], *, without: tuple[str, ...] = (), level: int = 2,
) -> str:
    schema = model.model_json_schema(schema_generator=AsWritten)
    keys = {name: body for name, body in schema["properties"].items() if name not in without}
    rows = [_row(name, body, schema) for name, body in keys.items()]
    head = ("| key | value | default | meaning | example |", "| --- | --- | --- | --- | --- |")
    return "\n".join((f"{'#' * level} {title}", "", schema["description"], "", *head, *rows))


def _row(name: str, body: Schema, schema: Schema) -> str:
    required = name in schema.get("required", ())
    default = "required" if required else "–" if body.get("default") in (None, [], {}) else _code(body["default"])
    meaning = body.get("description", "")
    example = _code(body["examples"][0]) if "examples" in body else ""
    words = INPUTS if name == "inputs" else _type(body, schema)
    return "| " + " | ".join(_cell(text) for text in (f"`{name}`", words, default, meaning, example)) + " |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _code(value: Json) -> str:
    """A value as it is written in YAML's flow style."""
    return f"`{_flow(value)}`"


def _flow(value: Json) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_flow(item) for item in value) + "]"
    return value if isinstance(value, str) else flow(value)


def _type(body: Schema, schema: Schema) -> str:
    """What a key accepts, in words."""
    return ", or ".join(dict.fromkeys(_words(body, schema)))


def _words(body: Schema, schema: Schema) -> Iterator[str]:
    branches = body.get("anyOf") or body.get("oneOf") or body.get("allOf")
    if branches:
        for branch in branches:
            yield from _words(branch, schema)
    elif "$ref" in body:
        yield body["$ref"].rsplit("/", 1)[-1].lower()
    elif "enum" in body or "const" in body:
        yield ", ".join(_code(value) for value in body.get("enum", [body.get("const")]))
    else:
        yield _plain_words(body, schema)


def _many(items: Schema, schema: Schema) -> str:
    first, *rest = _type(items, schema).split(" ") if items else ["values"]
    return " ".join((MANY.get(first, first), *rest))


def _plain_words(body: Schema, schema: Schema) -> str:
    kind = body.get("type", "any value")
    if isinstance(kind, list):
        return "plain value"
    if kind == "array":
        count = f"{body['minItems']} " if body.get("minItems") == body.get("maxItems") and "minItems" in body else ""
        return f"list of {count}{_many(body.get('items', {}), schema)}"
    if kind == "object":
        inner = body.get("additionalProperties")
        return f"mapping of names to {_type(inner, schema)}" if isinstance(inner, dict) else "mapping"
    limits = [text.format(body[key]) for key, text in LIMITS.items() if key in body and abs(body[key]) < HUGE]
    words = {"string": "text", "boolean": "`true`, `false`", "number": "number", "integer": "integer", "numbers": "nested numbers"}
    return " ".join((words.get(str(kind), str(kind)), *limits))
