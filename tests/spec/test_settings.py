from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from gradverify.model.case import Budget, Settings
from gradverify.spec.schema import RunSettings
from gradverify.spec.settings import Layer, origins, settle
from spec.marked import loaded

TEXT = (
    "gradverify: 1\ndefaults: {seed: 2}\nchecks:\n  - {function: mul, inputs: [1, 2], seed: 3, "
    "matrix: {seed: [4]}}\n"
)
WITHOUT_MATRIX = TEXT.replace(", matrix: {seed: [4]}", "")
WITHOUT_CHECK = WITHOUT_MATRIX.replace(", seed: 3", "")
WITHOUT_DEFAULTS = WITHOUT_CHECK.replace("defaults: {seed: 2}\n", "")
PROJECT, OPTIONS = Layer("pyproject.toml", {"seed": 1}), Layer("command line", {"seed": 5})


@pytest.mark.parametrize(
    ("text", "project", "options", "seed", "origin"),
    [
        (TEXT, PROJECT, OPTIONS, 5, "command line"),
        (TEXT, PROJECT, None, 4, "s.yaml:4: matrix"),
        (WITHOUT_MATRIX, PROJECT, None, 3, "s.yaml:4"),
        (WITHOUT_CHECK, PROJECT, None, 2, "s.yaml: defaults"),
        (WITHOUT_DEFAULTS, PROJECT, None, 1, "pyproject.toml"),
        (WITHOUT_DEFAULTS, None, None, 0, None),
    ],
)
def test_the_later_layer_counts_and_its_place_is_known(
    text: str,
    project: Layer | None,
    options: Layer | None,
    seed: int,
    origin: str | None,
    tmp_path: Path,
) -> None:
    result = loaded(text, tmp_path, project, options)
    assert result.problems == ()
    assert result.cases[0].settings.seed == seed
    assert origins(*result.layers[result.cases[0].id]).get("seed") == origin


def test_a_layer_holds_only_what_was_said() -> None:
    assert settle(
        Layer("a", {"eps": 1e-6, "outputs": [0]}), Layer("b", {"budget": {"calls": 5}})
    ) == Settings(eps=1e-6, outputs=(0,), budget=Budget(calls=5))


def test_select_and_ignore_are_overridden_apart(tmp_path: Path) -> None:
    text = (
        "gradverify: 1\ndefaults: {rules: {select: [GV1], ignore: [GV101]}}\nchecks: [{function: "
        "mul, inputs: [1, 2], rules: {select: [GV2]}}]\n"
    )
    settings = (
        loaded(text, tmp_path, options=Layer("command line", {"ignore": ("GV202",)}))
        .cases[0]
        .settings
    )
    assert (settings.select, settings.ignore) == (("GV2",), ("GV202",))


def test_what_selects_and_judges_a_check_is_inherited_from_the_defaults(tmp_path: Path) -> None:
    text = (
        "gradverify: 1\ndefaults: {tags: [slow], expect: fail, requires: [cuda], skip: later}\n"
        "checks: [{function: mul, inputs: [1, 2]}, {function: relu, inputs: [1], tags: [], expect: "
        "pass}]\n"
    )
    first, second = loaded(text, tmp_path).cases
    assert (first.tags, first.expect, first.requires, first.skip) == (
        ("slow",),
        "fail",
        ("cuda",),
        "later",
    )
    assert (second.tags, second.expect, second.requires) == ((), "pass", ("cuda",))


def test_the_models_and_the_settings_name_the_same_keys_with_the_same_defaults() -> None:
    """The model's `rules` and `budget` are `select`, `ignore` and a dataclass here."""
    ours = {field.name: getattr(Settings(), field.name) for field in fields(Settings)}
    assert set(RunSettings.model_fields) - {"rules"} == set(ours) - {"select", "ignore"}
    for name, info in RunSettings.model_fields.items():
        if name not in ("rules", "budget"):
            assert info.default == ours[name], name
