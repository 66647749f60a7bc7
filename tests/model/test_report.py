from dataclasses import replace

import pytest

from gradverify.model.case import SpecPlace
from gradverify.model.event import (
    CheckFinished,
    CheckStarted,
    Environment,
    RunFinished,
    RunStarted,
    Selection,
)
from gradverify.model.report import Gate, exit_code, fold, judged
from gradverify.model.result import CaseResult, Finding, FunctionInfo, RuleRun
from gradverify.report.terminal.status import left_open


def result(verdict, expect="pass", findings=(), **changes):
    base = CaseResult(
        "a.yaml::n",
        SpecPlace("a.yaml", 1),
        "n",
        FunctionInfo("f"),
        "cpu",
        "float64",
        0,
        {},
        verdict,
        expect=expect,
        findings=tuple(findings),
    )
    return replace(base, **changes)


ERROR_201, WARN_224 = Finding("GV201", "m"), Finding("GV224", "m", severity="warning")


@pytest.mark.parametrize(
    "verdict, expect, findings, gate, ok",
    [
        ("pass", "pass", [], Gate(), True),
        ("pass", "pass", [WARN_224], Gate(), True),
        ("fail", "pass", [ERROR_201], Gate(), False),
        ("undecided", "pass", [], Gate(undecided="warn"), True),
        ("undecided", "pass", [], Gate(undecided="fail"), False),
        ("fail", "fail", [ERROR_201], Gate(), True),
        ("pass", "fail", [], Gate(), False),
        ("fail", ("GV201",), [ERROR_201], Gate(), True),
        ("fail", ("GV201",), [ERROR_201, WARN_224], Gate(), True),
        ("fail", ("GV201", "GV224"), [ERROR_201, WARN_224], Gate(), True),
        ("fail", ("GV201", "GV224"), [ERROR_201], Gate(), False),
        ("fail", ("GV202",), [ERROR_201], Gate(), False),
        ("pass", ("GV201",), [], Gate(), False),
        ("skip", ("GV201",), [], Gate(), True),
        ("skip", "pass", [], Gate(fail_on_skip=True), False),
    ],
)
def test_ok(verdict, expect, findings, gate, ok):
    assert judged(result(verdict, expect, findings), gate).ok is ok


IGNORED = (RuleRun("GV201", "ignored"), RuleRun("GV224", "ran"))


@pytest.mark.parametrize(
    ("verdict", "expect", "findings", "ok"),
    [
        ("pass", ("GV201",), [], True),
        ("pass", ("GV201", "GV224"), [WARN_224], True),
        ("pass", ("GV201", "GV224"), [], False),
        ("pass", ("GV224",), [], False),
        ("fail", ("GV201",), [Finding("GV202", "m")], False),
        ("fail", ("GV201",), [ERROR_201], True),
        ("pass", "fail", [], False),
        ("error", ("GV201",), [Finding("GV002", "m")], False),
    ],
)
def test_an_expected_code_whose_rule_was_not_to_run_is_not_judged_and_all_else_is(
    verdict, expect, findings, ok
):
    assert judged(result(verdict, expect, findings, rules=IGNORED), Gate()).ok is ok


def test_the_line_says_which():
    told = left_open(result("pass", ("GV201", "GV224"), [WARN_224], rules=IGNORED))
    assert told == "expected GV201, whose rule was not to run: not judged"
    assert (
        left_open(result("fail", ("GV201",), [ERROR_201]))
        is left_open(result("skip", ("GV201",), rules=IGNORED))
        is None
    )


@pytest.mark.parametrize(
    "missing, required, ok",
    [("cuda", ("cuda",), False), ("cuda", (), True), (None, ("cuda",), True)],
)
def test_a_skip_for_a_required_device_is_not_ok(missing, required, ok):
    assert judged(result("skip", missing=missing), Gate(require_device=required)).ok is ok


@pytest.mark.parametrize(
    "verdicts, expected",
    [
        (["pass"], 0),
        (["pass", "fail"], 1),
        (["fail", "error"], 1),
        (["pass", "error"], 3),
        ([], 5),
        (["skip", "skip"], 5),
        (["pass", "skip"], 0),
        (["undecided"], 0),
        (["fail", "not_run"], 1),
        (["not_run"], 5),
    ],
)
def test_exit_codes_of_verdicts(verdicts, expected):
    assert exit_code([judged(result(verdict), Gate()) for verdict in verdicts]) == expected


def test_precedence():
    wrong = [judged(result("fail"), Gate())]
    assert exit_code(wrong, interrupted=130, crashed=True) == 130
    assert exit_code(wrong, crashed=True) == 4
    assert exit_code([judged(result("pass", "fail"), Gate())]) == 1, "expected to fail, but passed"
    assert exit_code([judged(result("undecided"), Gate(undecided="fail"))]) == 3


def test_fold_reads_the_stream():
    environment = Environment("3.11", "2.13", "2.4", "Linux")
    events = [
        RunStarted("2026-01-01T00:00:00+00:00", ("check",), Selection(), environment, 1),
        CheckStarted("a.yaml::n", "n"),
        CheckFinished(result("fail", findings=[ERROR_201, WARN_224])),
        RunFinished(1.5),
    ]
    report = fold(events, Gate(), "1.0")
    assert (report.exit_code, report.summary.fail, report.summary.warnings, report.duration_s) == (
        1,
        1,
        1,
        1.5,
    )
    assert report.checks[0].ok is False and not report.interrupted
