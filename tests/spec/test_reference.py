from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from docs.spec_reference import reference

from gradverify.spec.schema import Check, Spec, Tensor
from spec.marked import loaded

PAGE = Path(__file__).parents[2] / "docs" / "spec.md"


def test_the_committed_reference_is_the_generated_one() -> None:
    if os.environ.get("GRADVERIFY_UPDATE_GOLDEN") == "1":
        PAGE.write_text(reference(), encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == reference()


@pytest.mark.parametrize("model", [Spec, Check, Tensor])
def test_every_key_of_the_format_has_a_row(model: type[Spec] | type[Check] | type[Tensor]) -> None:
    rows = set(re.findall(r"^\| `([^`]+)` \|", reference(), re.MULTILINE))
    assert {info.alias or name for name, info in model.model_fields.items()} <= rows


def test_every_table_row_has_the_columns_of_its_head() -> None:
    for table in re.findall(r"(?:^\|.*\n)+", reference(), re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1, table


def test_its_examples_are_specs(tmp_path: Path) -> None:
    *examples, wrong = re.findall(r"```yaml\n(.*?)```", reference(), re.DOTALL)
    assert len(examples) == 2 and len(loaded(wrong, tmp_path).problems) == 2
    for example in examples:
        problems = loaded(example.replace("function: mm", "function: my:mm"), tmp_path).problems
        assert problems == (), "\n".join(map(str, problems))
