"""specs/gallery is green because every expectation holds: without any one of them the run is red, for a warning under --strict.

One run of all specs; each expectation is taken away from its report, which is judged again. Two specs lose theirs for real.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
import yaml

from gallery.twins import GALLERY as SPECS
from gradverify.cli.boundary import run
from gradverify.cli.output import Output
from gradverify.model.codec import from_json
from gradverify.model.problem import NOT_JUDGED, OK, WRONG
from gradverify.model.report import Gate, exit_code, judged
from gradverify.model.result import CaseResult

GATE = Gate()


def gradverify(*arguments: object) -> int:
    return run(Output(("check", "--no-progress", *map(str, arguments)), StringIO(), StringIO()))


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> Mapping[bool, tuple[CaseResult, ...]]:
    """The checks as they came out; True: those of the specs that expect a warning, under --strict."""

    def checks(*asked: object) -> tuple[CaseResult, ...]:
        path = tmp_path_factory.mktemp("report") / "report.json"
        assert gradverify(*asked, "--report", f"json:{path}") == OK
        return tuple(from_json(CaseResult, check) for check in json.loads(path.read_text())["checks"])

    usual = checks(SPECS)
    return {False: usual, True: checks(*sorted({check.spec.path for check in expecting(usual, "warning")}), "--strict")}


def without(checks: tuple[CaseResult, ...], one: CaseResult, gate: Gate = GATE) -> int:
    """The exit code where this check expects nothing."""
    return exit_code([judged(replace(check, expect="pass") if check.id == one.id else check, gate) for check in checks])


def expecting(checks: tuple[CaseResult, ...], severity: str) -> list[CaseResult]:
    """The checks that ran and whose expected finding is of that severity."""
    with_expect = [check for check in checks if check.expect != "pass" and check.verdict != "skip"]
    return [check for check in with_expect if {finding.severity for finding in check.findings if finding.code in check.expect} == {severity}]


def test_no_expectation_of_an_error_can_be_taken_away(report):
    errors = expecting(report[False], "error")
    assert len(errors) >= 50
    codes = {check.id: without(report[False], check) for check in errors if not check.expect[0].startswith("GV0")}
    assert set(codes.values()) == {WRONG}, [name for name, code in codes.items() if code != WRONG]


def test_what_could_not_be_judged_is_told_apart(report):
    unjudged = [check for check in expecting(report[False], "error") if check.expect[0].startswith("GV0")]
    assert {without(report[False], check) for check in unjudged if check.expect != ("GV007",)} == {NOT_JUDGED}
    undecided, = (check for check in unjudged if check.expect == ("GV007",))
    assert without(report[False], undecided) == OK          # the gate's default is --undecided warn
    assert without(report[False], undecided, Gate(undecided="fail")) == NOT_JUDGED


def test_no_expectation_of_a_warning_can_be_taken_away_under_strict(report):
    warnings = expecting(report[False], "warning")
    assert len(warnings) >= 9
    assert {without(report[False], check) for check in warnings} == {OK}
    strict = {check.id: check for check in report[True]}
    codes = {check.expect: without(report[True], strict[check.id]) for check in warnings}
    assert codes.pop(("GV009",)) == NOT_JUDGED
    assert set(codes.values()) == {WRONG}


def test_every_expectation_is_looked_at(report):
    expected = [check for path in SPECS.glob("*.yaml") for check in yaml.safe_load(path.read_text(encoding="utf-8"))["checks"] if "expect" in check]
    skipped = [check for check in report[False] if check.verdict == "skip" and check.expect != "pass"]
    assert len(expecting(report[False], "error")) + len(expecting(report[False], "warning")) + len(skipped) == len(expected)


@pytest.mark.parametrize(("name", "options", "code"), [
    ("gv202_grad_output_modified", (), WRONG), ("gv224_saved_unused", (), OK), ("gv224_saved_unused", ("--strict",), WRONG)])
def test_a_spec_without_its_expectation_is_red_on_the_command_line(tmp_path: Path, name: str, options: tuple[str, ...], code: int):
    text = (SPECS / f"{name}.yaml").read_text(encoding="utf-8").replace("function: ", f"function: {SPECS}/")
    bare = "\n".join(line for line in text.splitlines() if not line.strip().startswith("expect:"))
    assert bare != text
    (tmp_path / "with.yaml").write_text(text)
    (tmp_path / "without.yaml").write_text(bare)
    assert gradverify(tmp_path / "with.yaml", *options) == OK
    assert gradverify(tmp_path / "without.yaml", *options) == code
