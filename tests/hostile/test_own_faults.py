"""A fault of gradverify's own, wherever it strikes: it costs what it struck, one check at most. The
others run, the report is whole, the exit code is 4 where a rule or a check has no result for it,
and each fault is told once. Faults are put in on purpose, at each place that a check passes."""

import importlib
import json
from dataclasses import replace

import jsonschema
import pytest
from commands import SQUARES, checks, here
from own_fault import raising

from gradverify.report.json import report_schema
from gradverify.rules.catalogue import rules
from gradverify.running import schedule

SPEC = """gradverify: 1
checks:
  - {name: before, function: 'op.py:Square', inputs: {x: {shape: [2]}}, rules: {select: [GV101]}}
  - {name: struck, function: 'op.py:NAME', inputs: {x: {shape: [3]}}}
  - {name: after, function: 'op.py:Square', inputs: {x: {shape: [2]}}, rules: {select: [GV101]}}
  - {name: last, function: 'op.py:Wrong', inputs: {x: {shape: [2]}}, rules: {select: [GV101]}}
"""


class Bug(Exception):  # noqa: N818
    """What gradverify's own code is made to raise."""


@pytest.fixture
def checked(folder):
    """`checked(name)` runs four checks, the second of `name`: (exit code, the checks of the report,
    stdout, stderr)."""
    (folder / "op.py").write_text(SQUARES)

    def call(name="Square", isolated=False):
        (folder / "s.yaml").write_text(SPEC.replace("NAME", name))
        code, stdout, stderr = here(
            "check", "s.yaml", "--report", "json:r.json", *(() if isolated else ("--no-isolate",))
        )
        report = json.loads((folder / "r.json").read_text())
        jsonschema.validate(report, report_schema())
        assert report["exit_code"] == code
        return code, checks(folder / "r.json"), stdout, stderr

    return call


def struck(monkeypatch, place, error=Bug, when=lambda arguments: True):
    """The function at `module:name` raises where its arguments are those of the second check."""
    module, _, name = place.partition(":")
    owner = importlib.import_module(module)
    original = getattr(owner, name)

    def instead(*arguments, **options):
        if when(arguments):
            raising(error("struck"))()
        return original(*arguments, **options)

    monkeypatch.setattr(owner, name, instead)


def is_second(arguments):
    case = (
        arguments[0]
        if hasattr(arguments[0], "spec")
        else arguments[0].case
        if hasattr(arguments[0], "case")
        else arguments[0].subject.case
    )
    return case.name == "struck"


def others_are_whole(found):
    assert [found[name]["verdict"] for name in ("before", "after", "last")] == [
        "pass",
        "pass",
        "fail",
    ]
    assert [finding["code"] for finding in found["last"]["findings"]] == ["GV101"] and not found[
        "last"
    ]["faults"]


WHOLE = [
    "gradverify.subject.prepare:prepare",
    "gradverify.verify:verify",
    "gradverify.subject.machine:compute_on_one_thread",
]


@pytest.mark.parametrize(
    ("place", "error"),
    [*((place, Bug) for place in WHOLE), (WHOLE[0], SystemExit), (WHOLE[1], MemoryError)],
)
def test_a_fault_of_a_whole_check_costs_that_check(checked, monkeypatch, place, error):
    # Elements of the second check's input
    when = is_second if "machine" not in place else lambda arguments: arguments[0] == 3
    struck(monkeypatch, place, error, when)
    code, found, stdout, stderr = checked()
    others_are_whole(found)
    assert code == 4 and found["struck"]["verdict"] == "error" and found["struck"]["ok"] is False
    assert found["struck"]["reason"].startswith(
        f"gradverify itself failed in the check ({error.__name__}: struck)"
    )
    assert (
        stderr.count("Please report it") == 1
        and f"{error.__name__}: struck" in stderr
        and "s.yaml::struck" in stderr
    )
    assert "gradverify itself failed in 1 check" in stdout and "ERROR      struck" in stdout


@pytest.mark.parametrize(
    "code, where",
    [(code, code.lower()) for code in ("GV101", "GV007", "GV203", "GV210")]
    + [("GV108", "_unsupported")],
)
def test_a_fault_of_a_rule_leaves_the_findings_of_the_others(checked, monkeypatch, code, where):
    info = next(info for info in rules() if info.code == code)
    struck(monkeypatch, f"gradverify.rules.{info.file or info.module}:{where}", when=is_second)
    exit_code, found, _, stderr = checked("Wrong")
    others_are_whole(found)
    reached = code in stderr  # a rule that does not apply does not get as far as its check
    told = {finding["code"] for finding in found["struck"]["findings"]}
    assert exit_code == (4 if reached else 1)
    assert found["struck"]["verdict"] == ("error" if code == "GV101" and reached else "fail") and (
        told == {"GV101"}
    ) == (code != "GV101")
    assert [
        rule["reason"]
        for rule in found["struck"]["rules"]
        if "itself failed" in (rule["reason"] or "")
    ] == (["gradverify itself failed here: Bug: struck"] * reached)


def test_the_findings_that_a_rule_had_when_it_failed_are_kept(checked, monkeypatch):
    from gradverify.rules import values

    original = values.gv101

    def fails_afterwards(evidence):
        yield from original(evidence)
        raising(Bug("struck"))()

    monkeypatch.setattr(values, "gv101", fails_afterwards)
    code, found, _, stderr = checked("Wrong")
    assert (
        code == 4
        and found["struck"]["verdict"] == found["last"]["verdict"] == "fail"
        and found["before"]["verdict"] == "error"
    )
    assert (
        stderr.count("Please report it") == 1
        and "s.yaml::before, s.yaml::struck, s.yaml::after and 1 more" in stderr
    )


@pytest.mark.parametrize(
    "place, during",
    [
        ("gradverify.causes.attach:_cause", "the search for the cause of GV101"),
        ("gradverify.rules.values:_meant", "the search for a hint"),
    ],
)
def test_a_cause_or_a_hint_that_fails_costs_no_verdict(checked, monkeypatch, place, during):
    struck(monkeypatch, place)
    code, found, stdout, stderr = checked("Wrong")
    assert code == 1 and [found[name]["verdict"] for name in found] == [
        "pass",
        "fail",
        "pass",
        "fail",
    ]
    assert [
        (fault["during"], fault["what"], fault["costs"]) for fault in found["struck"]["faults"]
    ] == [(during, "Bug: struck", False)]
    assert (
        f"gradverify itself failed in {during} (Bug: struck); the verdict does not depend on it"
        in " ".join(stdout.split())
    )
    assert stderr.count("Please report it") == 1


@pytest.mark.parametrize(
    "place, left",
    [
        ("gradverify.report.terminal.panel:error_map", "the error map"),
        ("gradverify.report.terminal.view:line", "the rest of its line"),
    ],
)
def test_a_picture_that_fails_costs_the_picture(checked, monkeypatch, place, left):
    struck(monkeypatch, place)
    code, _, stdout, _ = checked("Wrong")
    stdout = " ".join(stdout.split())
    assert (
        code == 1
        and left in stdout
        and "failed to draw it (Bug: struck)" in stdout
        and "2 failed, 2 passed" in stdout
    )


def test_a_fault_that_several_rules_share_is_not_measured_by_all_of_them(checked, monkeypatch):
    struck(monkeypatch, "gradverify.subject.base_call:observe_forward")
    code, found, _, stderr = checked()
    assert (
        code == 4
        and stderr.count("Please report it") == 1
        and all(check["verdict"] == "error" for check in found.values())
    )
    reasons = [rule["reason"] for rule in found["struck"]["rules"]]
    assert (
        sum("itself failed" in (reason or "") for reason in reasons) == 3
        and "the check stopped at a fault of gradverify's own" in reasons
    )


@pytest.mark.parametrize(
    ("isolated", "field", "value"),
    [
        (True, "elements", True),
        (True, "worst", 3),
        (False, "elements", True),
        (False, "max_rel_error", object()),
    ],
)
def test_a_result_of_the_wrong_type_costs_its_check(checked, monkeypatch, field, value, isolated):
    """A bool in an integer's place once lost all results of the run."""
    if isolated:
        original = schedule.decoded
        monkeypatch.setattr(
            schedule,
            "decoded",
            lambda case, data: original(
                case, _spoilt(data, field, value) if case.name == "struck" else data
            ),
        )
    else:
        original = schedule.run_case
        monkeypatch.setattr(
            schedule,
            "run_case",
            lambda case, *given, **options: _spoilt_result(
                original(case, *given, **options), field, value
            ),
        )
    code, found, stdout, stderr = checked("Wrong", isolated=isolated)
    others_are_whole(found)
    assert found["struck"]["verdict"] == "error"
    # What a worker sends was read again there: only what ran in it can have changed it since
    if isolated:
        assert (
            code == 1
            and [finding["code"] for finding in found["struck"]["findings"]] == ["GV004"]
            and not stderr
        )
        return
    assert code == 4 and len(found["struck"]["faults"]) == 1
    assert (
        stderr.count("Please report it") == 1
        and "s.yaml::struck" in stderr
        and "gradverify itself failed in 1 check" in stdout
    )


def _spoilt(data, field, value):
    return {**data, "comparisons": [{**each, field: value} for each in data["comparisons"]]}


def _spoilt_result(result, field, value):
    if result.name != "struck":
        return result
    return replace(
        result, comparisons=tuple(replace(each, **{field: value}) for each in result.comparisons)
    )


@pytest.mark.parametrize(
    "kind, place",
    [
        ("junit", "gradverify.report.plain:panel_text"),
        ("markdown", "gradverify.report.markdown:panel_text"),
    ],
)
def test_a_report_that_cannot_be_drawn_costs_no_other(checked, monkeypatch, folder, kind, place):
    struck(monkeypatch, place)
    checked("Wrong")
    code, out, stderr = here(
        "check", "s.yaml", "--report", f"{kind}:r.out", "--report", "json:r.json", "--no-isolate"
    )
    assert (
        code == 4
        and "r.out could not be written: gradverify itself failed to draw it (Bug: struck)"
        in stderr
    )
    assert (
        "2 failed, 2 passed" in out
        and not (folder / "r.out").exists()
        and len(checks(folder / "r.json")) == 4
    )
