"""What the format has but this version does not run is refused in one sentence, at its place; nothing else is said about it."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest
import yaml

from gradverify.spec.schema import json_schema
from spec.marked import check, loaded, unmarked


def tensor(text: str) -> str:
    return check(f"inputs: {{x: {text}, y: 1}}")


REFUSED = [
    tensor("{shape: [2], dtype: «bfloat16}"), tensor("[{shape: [2]}, {shape: [2], dtype: «float16}]"),
    check("dtype: «bfloat16"), check("dtype: «float16"),
    check("matrix: {dtype: [float64, «float16]}"),
]


@pytest.mark.parametrize("text", REFUSED)
def test_it_is_valid_in_the_schema_and_refused_in_one_sentence(text: str, tmp_path: Path) -> None:
    text, places = unmarked(text)
    jsonschema.Draft7Validator(json_schema()).validate(yaml.safe_load(text.replace("1e-6", "0.000001")))
    problems = loaded(text, tmp_path).problems
    assert [(problem.line, problem.column) for problem in problems] == places
    assert "not supported yet" in problems[0].message
