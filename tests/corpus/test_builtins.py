"""Every built-in under every rule, on the inputs of specs/seeds: nothing is found, and not a
warning."""

from __future__ import annotations

from pathlib import Path

import pytest

from gradverify.functions.catalogue import BUILTINS
from gradverify.model.case import Case
from gradverify.rules.catalogue import codes
from gradverify.running.inline import run_case
from gradverify.spec.load import load

SEEDS = Path(__file__).parents[2] / "specs" / "seeds"


def cases() -> list[Case]:
    loaded = load(
        sorted(SEEDS.glob("*.yaml")),
        builtins={name: builtin.parameters for name, builtin in BUILTINS.items()},
        codes=codes(),
    )
    assert not loaded.problems
    return [
        case
        for case in loaded.cases
        if case.target in BUILTINS and case.settings.device == "cpu" and case.expect == "pass"
    ]


def test_every_builtin_is_there_and_no_rule_is_left_out():
    assert {case.target for case in cases()} == set(BUILTINS)
    assert all(not case.settings.ignore and not case.settings.select for case in cases())


@pytest.mark.parametrize(
    "case", {case.target: case for case in reversed(cases())}.values(), ids=lambda case: case.name
)
def test_a_builtin_passes_every_rule_without_a_warning(case: Case):
    result = run_case(case)
    assert (result.verdict, {finding.code for finding in result.findings}) == ("pass", set())
