"""specs/ as the format's living proof: every key that is not refused occurs in a spec that runs,
and the published schema accepts them all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from gradverify.spec.document import Document, parse
from gradverify.spec.schema import Budget, Check, Matrix, Rules, Settings, Spec, Tensor, json_schema

ROOT = Path(__file__).parents[2]
SPECS = sorted((ROOT / "specs").rglob("*.yaml"))
OF_BUDGET = {"calls"}  # `mode: auto` does not choose by it yet
VALIDATOR = jsonschema.Draft7Validator(json_schema())


def documents() -> Iterator[Any]:
    for path in SPECS:
        document = parse(path.name, path.read_text(encoding="utf-8"))
        assert isinstance(document, Document), path
        yield document.data


def running(data: Any) -> Iterator[dict[str, Any]]:
    return (check for check in data["checks"] if "skip" not in check)


def tensors(check: dict[str, Any]) -> Iterator[dict[str, Any]]:
    inputs = check.get("inputs", {})
    for value in inputs.values() if isinstance(inputs, dict) else inputs:
        yield from (
            item
            for item in (value if isinstance(value, list) else [value])
            if isinstance(item, dict)
        )


def names(model: Any) -> set[str]:
    return {info.alias or name for name, info in model.model_fields.items()}


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_the_published_schema_accepts_every_spec(path: Path) -> None:
    document = parse(path.name, path.read_text(encoding="utf-8"))
    assert isinstance(document, Document)
    assert [error.message for error in VALIDATOR.iter_errors(document.data)] == []


def test_every_key_of_a_file_a_check_and_a_setting_occurs_in_a_check_that_runs() -> None:
    top = {key for data in documents() for key in data}
    checks = {key for data in documents() for check in running(data) for key in check}
    checks |= {key for data in documents() for key in data.get("defaults", {})}
    assert names(Spec) <= top
    assert names(Check) | names(Settings) == checks | {"skip"}


def test_every_key_of_a_tensor_and_of_the_nested_settings_occurs() -> None:
    every = [check for data in documents() for check in running(data)]
    assert names(Tensor) == {key for check in every for tensor in tensors(check) for key in tensor}
    for key, model in (("rules", Rules), ("budget", Budget), ("matrix", Matrix)):
        assert names(model) - OF_BUDGET <= {
            inner for check in every for inner in check.get(key, {})
        }, key


@pytest.mark.parametrize("key", ["kind", "layout"])
def test_every_kind_and_layout_occurs(key: str) -> None:
    every = [check for data in documents() for check in running(data)]
    said = {tensor[key] for check in every for tensor in tensors(check) if key in tensor}
    said |= {value for check in every for value in check.get("matrix", {}).get(key, ())}
    (allowed,) = [
        part["enum"] for part in [Tensor.model_json_schema()["properties"][key]] if "enum" in part
    ]
    assert said == set(allowed)
