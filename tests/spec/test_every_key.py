"""specs/ as the format's living proof: every key that is not refused occurs in a spec that runs, and the published schema accepts them all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from gradverify.functions.catalogue import BUILTINS
from gradverify.model.case import Case
from gradverify.rules.catalogue import rules
from gradverify.spec.document import Document, parse
from gradverify.spec.load import load
from gradverify.spec.schema import Budget, Check, Matrix, Rules, Settings, Spec, Tensor, json_schema

ROOT = Path(__file__).parents[2]
SPECS = sorted((ROOT / "specs").rglob("*.yaml"))
OF_BUDGET = {"calls"}           # `mode: auto` does not choose by it yet
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
        yield from (item for item in (value if isinstance(value, list) else [value]) if isinstance(item, dict))


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
        assert names(model) - OF_BUDGET <= {inner for check in every for inner in check.get(key, {})}, key


@pytest.mark.parametrize("key", ["kind", "layout"])
def test_every_kind_and_layout_occurs(key: str) -> None:
    every = [check for data in documents() for check in running(data)]
    said = {tensor[key] for check in every for tensor in tensors(check) if key in tensor}
    said |= {value for check in every for value in check.get("matrix", {}).get(key, ())}
    (allowed,) = [part["enum"] for part in [Tensor.model_json_schema()["properties"][key]] if "enum" in part]
    assert said == set(allowed)


def cases() -> list[Case]:
    paths = [path.relative_to(ROOT) for path in sorted((ROOT / "specs" / "features").glob("*.yaml"))]
    loaded = load(paths, builtins={name: entry.parameters for name, entry in BUILTINS.items()}, codes=[rule.code for rule in rules()], cwd=ROOT)
    assert loaded.problems == ()
    return list(loaded.cases)


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.id.removeprefix("specs/features/"))
def test_every_feature_runs_as_its_spec_expects(case: Case) -> None:
    from gradverify.model.report import Gate, judged
    from gradverify.running.inline import run_case
    from gradverify.running.requirements import lack, placed

    if lack(case, None) is not None:
        assert "not_installed" in str(case.requires) or case.skip
        return
    result = judged(run_case(placed(case, None)), Gate())
    assert result.ok, [finding.message for finding in result.findings]
    assert result.verdict == ("pass" if case.expect == "pass" else "fail")
