from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import gradverify.spec
from gradverify.spec.document import Document, parse
from gradverify.spec.schema import json_schema
from spec.marked import check

SCHEMA = json_schema()
COMMITTED = Path(gradverify.spec.__file__).with_name("schema.json")
VALIDATOR = jsonschema.Draft7Validator(SCHEMA)


def data(text: str) -> Any:
    document = parse("s.yaml", text)
    assert isinstance(document, Document)
    return document.data


def test_the_committed_schema_is_the_generated_one() -> None:
    if os.environ.get("GRADVERIFY_UPDATE_GOLDEN") == "1":
        COMMITTED.write_text(json.dumps(SCHEMA, indent=2) + "\n", encoding="utf-8")
    assert json.loads(COMMITTED.read_text(encoding="utf-8")) == SCHEMA


def test_it_is_draft_07_without_what_draft_07_ignores() -> None:
    text = json.dumps(SCHEMA)
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"] == "http://json-schema.org/draft-07/schema#"
    assert not any(word in text for word in ("prefixItems", "$defs", "discriminator"))
    assert all(set(node) == {"$ref"} for node in nodes(SCHEMA) if "$ref" in node)


def nodes(value: Any) -> Any:
    """Every object of a schema."""
    if isinstance(value, dict):
        yield value
    for item in (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    ):
        yield from nodes(item)


def test_every_key_has_a_description_and_an_example_that_the_schema_accepts() -> None:
    owners = {"": SCHEMA, **SCHEMA["definitions"]}
    keys = [
        (owner, name, body)
        for owner, model in owners.items()
        for name, body in model.get("properties", {}).items()
    ]
    assert len(keys) > 60
    for owner, name, body in keys:
        assert body.get("description") and body.get("examples"), f"{owner}.{name}"
        for example in body["examples"]:
            jsonschema.Draft7Validator({**body, "definitions": SCHEMA["definitions"]}).validate(
                example
            )


GOOD = [
    check(),
    check("eps: auto"),
    check("eps: 1e-6"),
    check("expect: [GV101]"),
    check("expect: fail"),
    check("vmap: true"),
    check(
        "inputs: {x: {shape: [$a, 3]}, y: $b}", "matrix: {a: [1], b: [2], exclude: [{a: 1, b: 3}]}"
    ),
    check("atol: $t", "matrix: {t: [1e-6, 1e-4]}"),
    check("inputs: [{values: [[1, 2], [3, '1+2j']], dtype: complex128}, null]"),
    check("inputs: {x: [{shape: [2]}, {shape: [3]}], y: []}"),
    check("inputs: {x: {shape: [2], avoid: [0, 1], layout: strided, kind: spd}, y: mean}"),
    "gradverify: 1\nchecks: []",
    "gradverify: 1\npath: [../src]\nimport: my_ext\ndefaults: {dtype: float32, tags: [slow]}\n"
    "checks: []",
]


@pytest.mark.parametrize("text", GOOD)
def test_an_editor_accepts_what_is_right(text: str) -> None:
    VALIDATOR.validate(data(text))
