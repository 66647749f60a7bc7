"""Rules, pages and specs/gallery match one to one; every rule catches its fault and spares its
twin."""

from __future__ import annotations

import functools
import importlib
from dataclasses import replace
from pathlib import Path

import pytest
import standin

import gradverify
from gradverify.functions.catalogue import BUILTINS
from gradverify.model.case import Case
from gradverify.model.result import CaseResult
from gradverify.rules.catalogue import PAGES, codes, rule, rules, runnable
from gradverify.running.inline import run_case
from gradverify.spec.load import load

PACKAGE = Path(gradverify.__file__).parent
SPECS = PACKAGE.parent / "specs" / "gallery"
TESTS = Path(__file__).parents[1]
PARTS = ("What.", "Why it matters.", "How it is measured.", "How to repair.", "Example.")
# Found where user code is called, not by a rule of their own
RAISED = {"GV001", "GV002", "GV003"}
# Found by the process that supervises the one that runs the rules
OUTSIDE = {"GV004", "GV005"}


@functools.cache
def cases() -> list[Case]:
    loaded = load(
        sorted(SPECS.glob("*.yaml")),
        builtins={name: builtin.parameters for name, builtin in BUILTINS.items()},
        codes=codes(),
    )
    assert not loaded.problems
    return list(loaded.cases)


@pytest.mark.parametrize("info", rules(), ids=lambda info: info.code)
def test_a_page_begins_with_the_code_and_the_name_of_its_rule_and_has_all_parts(info):
    assert info.message and info.page.startswith(f"{info.code} {info.name}: {info.message}\n\n")
    assert [info.page.count(f"\n{part}") for part in PARTS] == [1] * len(PARTS)
    assert [info.page.index(f"\n{part}") for part in PARTS] == sorted(
        info.page.index(f"\n{part}") for part in PARTS
    )


def test_pages_files_and_rows_match_one_to_one():
    assert (
        codes()
        == tuple(info.code for info in rules())
        == tuple(sorted({info.code for info in rules()}))
    )
    assert sorted(path.stem for path in PAGES.glob("*")) == [info.module for info in rules()]
    assert {info.code for info in rules()} - {info.code for info in runnable()} == RAISED | OUTSIDE
    assert rule("gv101") == rule("GV101") == rule("jacobian") != rule("GV102")
    assert rule("GV999") is None


def test_every_asked_rule_has_its_function():
    for info in runnable():
        assert callable(
            getattr(
                importlib.import_module(f"gradverify.rules.{info.file or info.module}"),
                info.code.lower(),
            )
        )


def test_every_rule_on_values_and_contracts_names_its_own_fault_in_the_gallery():
    caught = {info.code: info.catches for info in rules() if not info.code.startswith("GV0")}
    assert all((SPECS / f"{name}.py").is_file() for name in caught.values())
    assert len(set(caught.values())) == len(caught)
    assert all(info.catches is None for info in rules() if info.code.startswith("GV0"))


def test_every_rule_has_its_specs_and_every_rules_spec_its_rule():
    assert sorted(path.stem for path in SPECS.glob("gv*.yaml")) == [info.module for info in rules()]


def test_every_rule_has_its_tests():
    tested = "".join(
        path.read_text(encoding="utf-8") for path in (TESTS / "rules").glob("test_*.py")
    )
    assert [info.code for info in rules() if f'"{info.code}"' not in tested] == []


def ran(case: Case) -> CaseResult:
    """On a stand-in where it wants a GPU, which keeps references: what GV214 looks for."""
    if case.settings.device == "cpu":
        return run_case(case)
    with standin.cuda():
        return run_case(replace(case, settings=replace(case.settings, ignore=("GV214",))))


@pytest.mark.parametrize(
    "info", [info for info in rules() if info.catches], ids=lambda info: info.code
)
def test_a_rule_catches_its_fault_with_exactly_its_code_and_spares_the_twin(info):
    own = [case for case in cases() if Path(case.spec.path).stem == info.module]
    faulty = [case for case in own if case.target == f"{SPECS / info.catches}.py:Faulty"]
    right = [case for case in own if case.target == f"{SPECS / info.catches}.py:Right"]
    assert faulty and right
    for case in faulty:
        assert {(finding.code, finding.severity) for finding in ran(case).findings} == {
            (info.code, info.severity)
        }
    for case in right:
        result = ran(case)
        assert (result.verdict, result.findings) == ("pass", ())
