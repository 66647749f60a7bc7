from dataclasses import replace

from factories import passing

from gradverify.cli.gather import worded
from gradverify.model.event import CheckFinished
from gradverify.model.report import Gate
from gradverify.model.result import Finding, FunctionInfo

TARGET = "/project/ops/act.py:Swish"


def reworded(result, gate=None, names=None):
    event, = worded([CheckFinished(result)], gate or Gate(), names or {})
    return event.result


def test_functions_in_files_are_called_as_a_person_calls_them():
    check = passing(function=FunctionInfo(TARGET), reason=f"{TARGET} raised",
                    findings=(Finding("GV106", f"differs from reference {TARGET}", hint=f"look at {TARGET}"), Finding("GV202", "writes")))
    renamed = reworded(check, names={TARGET: "ops/act.py:Swish"})
    assert renamed.function.target == "ops/act.py:Swish" and renamed.reason == "ops/act.py:Swish raised"
    assert [(finding.message, finding.hint) for finding in renamed.findings] == [
        ("differs from reference ops/act.py:Swish", "look at ops/act.py:Swish"), ("writes", None)]


def test_a_name_that_begins_like_another_is_not_taken_for_it():
    check = passing(reason=f"{TARGET}Again and {TARGET}", function=replace(passing().function, target="m:F"))
    assert reworded(check, names={TARGET: "near", f"{TARGET}Again": "far"}).reason == "far and near"
    assert reworded(check, names={TARGET: "near"}).reason == f"{TARGET}Again and near"
