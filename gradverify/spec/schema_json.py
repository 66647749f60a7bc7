"""From the models to the published JSON Schema: draft-07, which editors understand, with `$name` wherever a matrix may put a value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from gradverify.spec.values import COMPLEX_NUMBER, NESTED

Schema = dict[str, Any]
DIALECT = "http://json-schema.org/draft-07/schema#"
NUMBERS = {
    "description": "A number, a complex number as text, or lists of them nested like the tensor.",
    "anyOf": [
        {"type": ["number", "boolean"]},
        {"type": "string", "pattern": f"^{COMPLEX_NUMBER.pattern}$"},
        {"type": "array", "items": {"$ref": "#/definitions/numbers"}},
    ],
}
VARIABLE = {"type": "string", "pattern": r"^\$[A-Za-z_][A-Za-z0-9_]*$", "description": "A matrix variable."}
OPEN = ("Check", "Tensor", "Sparse", "Nested", "Rules", "Budget")  # the definitions inside a check, where `$name` may stand
CLOSED = {"Check": {"name", "matrix"}}  # and the keys of them where it may not
ANNOTATIONS = ("description", "examples", "default")
CHILD_LISTS, CHILDREN = ("anyOf", "allOf"), ("items", "additionalProperties")


class AsWritten(GenerateJsonSchema):
    """Keeps the order in which keys and examples are written: inputs are passed in order, so an example's order has a meaning."""

    def sort(self, value: JsonSchemaValue, parent_key: str | None = None) -> JsonSchemaValue:
        return value


def published(model: type[BaseModel]) -> Schema:
    """The draft-07 schema of a model and all it holds."""
    schema = _draft7(model.model_json_schema(schema_generator=AsWritten))
    definitions = schema.pop("definitions") | {"numbers": NUMBERS, "variable": VARIABLE}
    opened = {name: _opened(name, body) if name in OPEN else body for name, body in definitions.items()}
    return {"$schema": DIALECT, "title": "gradverify spec", **schema, "definitions": dict(sorted(opened.items()))}


def _draft7(node: Any) -> Any:
    """`$defs` renamed, references freed of siblings (draft-07 ignores those), pydantic's titles and unsaid defaults dropped."""
    if isinstance(node, list):
        return [_draft7(item) for item in node]
    if not isinstance(node, dict):
        return node.replace("#/$defs/", "#/definitions/") if isinstance(node, str) else node
    kept = {key: value for key, value in node.items() if not _noise(key, value)}
    renamed = {{"$defs": "definitions", "oneOf": "anyOf"}.get(key, key): _draft7(value) for key, value in kept.items()}
    if renamed.get("type") == NESTED:
        renamed["$ref"] = "#/definitions/" + renamed.pop("type")
    if "$ref" in renamed and len(renamed) > 1:
        renamed["allOf"] = [{"$ref": renamed.pop("$ref")}]
    return renamed


def _noise(key: str, value: Any) -> bool:
    return (key == "title" and isinstance(value, str)) or (key == "default" and value is None)


def _opened(name: str, body: Schema) -> Schema:
    closed = CLOSED.get(name, set())
    return body | {"properties": {key: value if key in closed else _or_variable(value) for key, value in body["properties"].items()}}


def _or_variable(schema: Schema) -> Schema:
    """The same schema, or a variable in its place or in the place of any part; descriptions stay on top, where editors look."""
    notes = {key: value for key, value in schema.items() if key in ANNOTATIONS}
    rest = _each_child({key: value for key, value in schema.items() if key not in ANNOTATIONS}, _or_variable)
    choices = rest["anyOf"] if set(rest) == {"anyOf"} else [rest]
    variable = {"$ref": "#/definitions/variable"}
    return notes | {"anyOf": [choice for choice in choices if choice != variable] + [variable]} if rest else notes


def _each_child(schema: Schema, change: Callable[[Schema], Schema]) -> Schema:
    changed = dict(schema)
    for key in CHILDREN:
        if isinstance(changed.get(key), dict):
            changed[key] = change(changed[key])
    if "anyOf" in changed:
        changed["anyOf"] = [_each_child(choice, change) for choice in changed["anyOf"]]
    return changed
