"""specs/gallery: a rule's spec holds its fault, which must be caught, beside the right twin on the same inputs, which must be spared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from gallery.twins import GALLERY as SPECS
from gallery.twins import names


def checks(file: Path) -> list[dict[str, Any]]:
    return yaml.safe_load(file.read_text(encoding="utf-8"))["checks"]


def files(pattern: str) -> list[Path]:
    return sorted(SPECS.glob(pattern))


def module_of(check: dict[str, Any]) -> str:
    return check["function"].partition(".py:")[0]


def conditions(check: dict[str, Any]) -> dict[str, Any]:
    """Everything but the name, the twin and what is expected of it."""
    return {key: value for key, value in check.items() if key not in ("name", "function", "expect")}


@pytest.mark.parametrize("file", [*files("gv1*.yaml"), *files("gv2*.yaml")], ids=lambda file: file.stem)
def test_a_rules_spec_is_faults_beside_their_right_twins_on_the_same_inputs(file):
    every = checks(file)
    code = f"GV{file.stem[2:5]}"
    for faulty, right in zip(every[::2], every[1::2], strict=True):
        assert faulty["function"] == f"{module_of(faulty)}.py:Faulty"
        assert right["function"] == f"{module_of(faulty)}.py:Right"
        assert faulty["expect"] == [code]
        assert "expect" not in right
        assert conditions(faulty) == conditions(right)


@pytest.mark.parametrize("file", files("gv0*.yaml"), ids=lambda file: file.stem)
def test_a_spec_of_what_cannot_be_judged_expects_its_own_code(file):
    expected = [check["expect"] for check in checks(file) if "expect" in check]
    assert expected and all(codes == [f"GV{file.stem[2:5]}"] for codes in expected)


def test_every_file_of_the_gallery_is_checked_by_a_spec_both_faulty_and_right():
    used = {check["function"] for file in files("*.yaml") for check in checks(file)}
    assert {f"{name}.py:{twin}" for name in names() for twin in ("Faulty", "Right")} <= used


def test_the_four_mistakes_of_the_tutorials_are_expected_as_they_are():
    expected = {(module_of(check), check.get("device", "cpu")): check.get("expect") for check in checks(SPECS / "tutorials.yaml")
                if check["function"].endswith(":Faulty")}
    assert expected == {("mul_ignores_grad_output", "cpu"): ["GV201"], ("relu_modifies_grad_output", "cpu"): ["GV202"],
                        ("numpy_sigmoid", "cpu"): None, ("numpy_sigmoid", "cuda"): ["GV002"], ("add_saves_unused", "cpu"): ["GV224"]}


def test_names_are_unique_in_every_file():
    for file in files("*.yaml"):
        every = [check["name"] for check in checks(file)]
        assert len(every) == len(set(every))
