from pathlib import Path

from factories import passing

from gradverify.cli.gather import worded
from gradverify.model.event import CheckFinished
from gradverify.model.report import Gate
from gradverify.model.result import Finding, FunctionInfo

TARGET = "/project/ops/act.py:Swish"


def reworded(result, gate=None):
    (event,) = worded([CheckFinished(result)], gate or Gate())
    return event.result


def test_functions_in_files_are_called_as_a_person_calls_them(monkeypatch):
    monkeypatch.setattr("gradverify.model.paths.Path.cwd", lambda: Path("/project"))
    check = passing(
        function=FunctionInfo(TARGET),
        reason=f"{TARGET} raised",
        findings=(
            Finding("GV106", f"differs from reference {TARGET}", hint=f"look at {TARGET}"),
            Finding("GV202", "writes"),
        ),
    )
    renamed = reworded(check)
    assert (
        renamed.function.target == "ops/act.py:Swish"
        and renamed.reason == "ops/act.py:Swish raised"
    )
    assert [(finding.message, finding.hint) for finding in renamed.findings] == [
        ("differs from reference ops/act.py:Swish", "look at ops/act.py:Swish"),
        ("writes", None),
    ]
