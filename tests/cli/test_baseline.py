"""`--baseline`: a finding is known by its check, code, input and output, and by nothing else. Both
ways: what is known fails no run however its numbers change; what is new fails it, in the same
check, by the same code at another pair, or a second time. What did not run is not forgotten."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from factories import passing, result, skipped

from gradverify.cli.output import NotWritten
from gradverify.model.result import Fault, Finding, RuleRun

SPEC = """gradverify: 1
checks:
  - {name: a, function: mul, inputs: [1, 2]}
  - {name: b, function: mul, inputs: [1, 2]}
  - {name: "c[n=1]", function: mul, inputs: [1, 2]}
"""
X = Finding("GV101", "6 of 36 elements differ", name="jacobian", input="x", output=0)
Y = Finding("GV101", "2 of 4 elements differ", name="jacobian", input="y", output=0)
SHAPE = Finding("GV212", "backward returned 1 gradient for 2 inputs", name="gradient-metadata")
OPEN = Finding("GV007", "9 of 9 elements are undecided", name="undecided")
RAISED = Finding("GV002", "forward raised ValueError: no", name="forward-raised")
WARNED = Finding(
    "GV224", "x is saved and never read", name="saved-unused", severity="warning", input="x"
)
RAN = tuple(RuleRun(code, "ran") for code in ("GV007", "GV101", "GV212", "GV224"))
FAULT = Fault("the rule GV110", "KeyError: 'x'", "a.py:3", "")


def fail(name="a", *findings, verdict="fail", **changes):
    return result(
        name,
        verdict,
        id=f"specs/ops.yaml::{name}",
        **{"findings": findings, "rules": RAN, **changes},
    )


def right(name="a", **changes):
    return passing(name, **{"rules": RAN, "findings": (), **changes})


@pytest.fixture
def specs(folder):
    (folder / "specs").mkdir()
    (folder / "specs" / "ops.yaml").write_text(SPEC)
    return folder


@pytest.fixture
def known(specs):
    """`known(*entries)` writes b.json; an entry: (check, finding)."""

    def write(*entries):
        (specs / "b.json").write_text(
            json.dumps(
                {
                    "gradverify_baseline": 1,
                    "known": [
                        {
                            "check": f"specs/ops.yaml::{check}",
                            "code": found.code,
                            **({"input": found.input} if found.input else {}),
                            **({"output": f"y{found.output}"} if found.output is not None else {}),
                            "message": "as it was",
                        }
                        for check, found in entries
                    ],
                }
            )
        )
        return specs / "b.json"

    return write


@pytest.fixture
def check(gradverify, specs, engine):
    """`check(*options, results=…)` with the baseline b.json: (exit code, stdout, stderr)."""

    def call(*options, results):
        engine(*results)
        return gradverify("check", "--baseline", "b.json", *options)

    return call


def entries(path):
    return [
        (each["check"].partition("::")[2], each["code"], each.get("input"), each.get("output"))
        for each in json.loads(path.read_text())["known"]
    ]


KNOWN = [("a", X), ("a", SHAPE), ("b", OPEN), ("c[n=1]", RAISED)]


@pytest.mark.parametrize(
    ("results", "options", "code"),
    [
        ([fail("a", X)], (), 0),
        (
            [
                fail(
                    "a",
                    replace(X, message="5 of 7 elements differ, by far more", hint="other", line=7),
                )
            ],
            (),
            0,
        ),
        ([fail("a", SHAPE, X), right("b")], (), 0),
        ([fail("a", X, Y)], (), 1),
        ([fail("a", X, X)], (), 1),
        ([fail("a", replace(X, output=1))], (), 1),
        ([fail("a", replace(X, output_name="y.loss"))], (), 1),
        ([fail("a", replace(X, code="GV102"))], (), 1),
        ([fail("b", X)], (), 1),
        ([fail("b", OPEN, verdict="undecided")], ("--undecided", "fail"), 0),
        ([fail("a", OPEN, verdict="undecided")], ("--undecided", "fail"), 3),
        ([fail("c[n=1]", RAISED, verdict="error")], (), 0),
        ([fail("c[n=1]", replace(RAISED, code="GV003"), verdict="error")], (), 3),
        ([fail("a", RAISED, verdict="error")], (), 3),
        ([fail("c[n=1]", RAISED, verdict="error", faults=(FAULT,))], (), 4),
        ([fail("a", X, replace(WARNED, severity="error"))], (), 1),
        ([fail("a", X, WARNED)], (), 0),
        ([skipped("a")], ("--fail-on-skip",), 3),
        ([fail("a", X), fail("b", X)], (), 1),
        ([fail("a", X), fail("b", RAISED, verdict="error")], (), 3),
        ([fail("a", X, expect=("GV201",))], (), 1),
        ([fail("a", X, replace(X, code="GV201"), expect=("GV201",))], (), 0),
        ([fail("a", Y, replace(X, code="GV201"), expect=("GV201",))], (), 1),
        ([fail("a", X, expect=("GV101",))], (), 0),
        ([right("a", expect="fail")], (), 1),
        ([fail("c[n=1]", RAISED, verdict="error", expect="fail")], (), 0),
    ],
    ids=lambda value: None,
)
def test_the_exit_code_counts_what_is_not_known(check, known, results, options, code):
    known(*KNOWN)
    assert check(*options, results=results)[0] == code


def test_what_is_known_is_shown_marked_and_counted(check, known):
    known(("a", X))
    code, out, err = check(results=[fail("a", X), fail("b", Y, X), right("c[n=1]")])
    assert code == 1 and err == ""
    lines = out.splitlines()
    assert (
        lines[0].split()[:2] == ["KNOWN", "a"]
        and "known GV101 jacobian: 6 of 36 elements differ" in lines[1]
    )
    assert "1 failed, 1 passed, 1 known" in out
    assert out.count("== FAIL  b ==") == 1 and "== KNOWN" not in out


def test_in_a_check_that_fails_all_the_same_the_known_finding_is_marked(check, known):
    known(("a", X))
    out = check(results=[fail("a", X, Y)])[1]
    assert "GV101 jacobian  y0 / x  known\n" in out and "GV101 jacobian  y0 / y\n" in out


def test_the_json_report_says_so(check, known):
    known(("a", X))
    code, out, _ = check("--format", "json", results=[fail("a", X), fail("b", X)])
    report = json.loads(out)
    assert [
        (
            each["verdict"],
            each["ok"],
            each["baselined"],
            [found["known"] for found in each["findings"]],
        )
        for each in report["checks"]
    ] == [("fail", True, True, [True]), ("fail", False, False, [False])]
    assert (
        report["summary"]["fail"],
        report["summary"]["ok"],
        report["summary"]["baselined"],
        report["exit_code"],
    ) == (2, 1, 1, code)


def test_a_run_stops_at_what_is_new(gradverify, specs, known):
    """-x goes on past known failures: real checks, because it is the scheduler that stops."""
    (specs / "ops.py").write_text(
        "import torch\n\n\nclass Twice(torch.autograd.Function):\n    @staticmethod\n    def "
        "forward(ctx, x):\n"
        "        return x * 1\n\n    @staticmethod\n    def backward(ctx, g):\n        return g * "
        "2\n"
    )
    rows = "\n".join(
        (
            f"  - {{name: {name}, function: ops:Twice, inputs: {{x: {{shape: [2]}}}}, rules: "
            "{select: [GV101]}}"
        )
        for name in "abcd"
    )
    (specs / "specs" / "ops.yaml").write_text(f"gradverify: 1\nchecks:\n{rows}\n")
    known(("a", X), ("b", X))
    code, out, _ = gradverify("check", "--baseline", "b.json", "-x")
    assert code == 1 and "1 failed, 2 known, 1 not run" in out
    code, out, _ = gradverify("check", "--baseline", "b.json", "-x", "--baseline-update")
    assert (
        code == 0
        and "4 known" in out
        and entries(specs / "b.json") == [(name, "GV101", "x", "y0") for name in "abcd"]
    )


def test_update_writes_what_fails_now_and_the_run_passes(check, specs):
    results = [
        fail("a", Y, X, WARNED),
        fail("b", OPEN, verdict="undecided"),
        fail("c[n=1]", RAISED, verdict="error"),
    ]
    code, _, err = check("--baseline-update", results=results)
    assert (code, err) == (0, "b.json: 4 findings recorded; 4 findings known\n")
    assert entries(specs / "b.json") == [
        ("a", "GV101", "x", "y0"),
        ("a", "GV101", "y", "y0"),
        ("b", "GV007", None, None),
        ("c[n=1]", "GV002", None, None),
    ]
    text = (specs / "b.json").read_text()
    assert check("--undecided", "fail", results=results)[0] == 0
    changed = [replace(results[0], findings=(replace(X, message="all of them"), Y)), *results[1:]]
    assert check("--baseline-update", results=changed[::-1])[0] == 0
    assert (specs / "b.json").read_text() == text, (
        "neither numbers nor the order of checks make a difference to review"
    )


def test_update_records_a_second_finding_that_is_like_a_known_one(check, specs, known):
    known(("a", X))
    assert check("--baseline-update", results=[fail("a", X, X)])[0] == 0
    assert entries(specs / "b.json") == [("a", "GV101", "x", "y0")] * 2


@pytest.mark.parametrize(
    "after",
    [
        fail("a", X, expect="fail"),
        fail("a", X, expect=("GV101",)),
        right("a", expect="fail"),
        fail("a", X, expect=("GV101", "GV212")),
        fail("a", X, verdict="error", faults=(FAULT,)),
    ],
    ids=[
        "expected to fail",
        "expected code",
        "unexpected pass",
        "an expected code is missing",
        "a fault of ours",
    ],
)
def test_update_records_nothing_that_an_entry_would_not_excuse(check, specs, after):
    code, out, err = check("--baseline-update", "--format", "json", results=[after])
    assert (
        err.splitlines()[-1] == "b.json: 0 findings recorded; 0 findings known"
        and entries(specs / "b.json") == []
    )
    assert code == check(results=[after])[0]
    assert not any(
        found["known"] for each in json.loads(out)["checks"] for found in each["findings"]
    )


def test_update_keeps_what_did_not_run_and_takes_out_what_ran_clean(check, known):
    path = known(("a", X), ("a", SHAPE), ("b", X), ("c[n=1]", RAISED))
    code, _, err = check(results=[fail("a", X, Y)])
    assert code == 1 and err == (
        "b.json: 1 known finding does not occur any more (GV212 of specs/ops.yaml::a): "
        "--baseline-update takes it out\n"
    )
    assert len(entries(path)) == 4
    code, _, err = check("--baseline-update", results=[fail("a", X, Y)])
    assert (code, err) == (0, "b.json: 1 finding recorded, 1 finding removed; 4 findings known\n")
    assert [name for name, *_ in entries(path)] == ["a", "a", "b", "c[n=1]"]


def of_101(status, reason=None):
    return (RuleRun("GV101", status, reason), RuleRun("GV212", "ran"))


@pytest.mark.parametrize(
    "after",
    [
        skipped("a"),
        result("a", "not_run"),
        fail("a", RAISED, verdict="error", rules=()),
        right("a", rules=of_101("ignored")),
        fail("a", SHAPE, rules=of_101("not_applicable", "backward is not linear")),
        right("a", rules=of_101("not_applicable", "left out: the budget does not afford it")),
    ],
    ids=[
        "skipped",
        "not run",
        "ended before its rules",
        "rule ignored",
        "behind another finding",
        "budget",
    ],
)
def test_what_was_not_judged_is_never_taken_for_gone(check, known, after):
    known(("a", X))
    assert "any more" not in check(results=[after])[2]


@pytest.mark.parametrize(
    ("after", "gone"),
    [
        (right("a"), True),
        (right("a", rules=of_101("not_applicable", "nothing to compare")), True),
        (right("a", rules=of_101("ran", "left out: 3 of 4 samples")), False),
        (fail("a", Y), True),
        (fail("a", X), False),
    ],
)
def test_what_was_judged_and_not_found_is_gone(check, known, after, gone):
    known(("a", X))
    assert ("(GV101 of specs/ops.yaml::a)" in check(results=[after])[2]) is gone


def test_checks_that_exist_no_more_are_gone_and_other_specs_are_left_alone(check, specs, known):
    path = known(("renamed", X))
    (specs / "other.yaml").write_text("gradverify: 1\nchecks: []\n")
    data = json.loads(path.read_text())
    data["known"] += [
        {"check": "other.yaml::z", "code": "GV101"},
        {"check": "specs/deleted.yaml::z", "code": "GV101"},
    ]
    path.write_text(json.dumps(data))
    err = check(results=[right("a")])[2]
    assert (
        "2 known findings do not occur any more (GV101 of specs/ops.yaml::renamed, GV101 of "
        "specs/deleted.yaml::z)"
    ) in err
    check("--baseline-update", results=[right("a")])
    assert [each["check"] for each in json.loads(path.read_text())["known"]] == ["other.yaml::z"]


def test_a_reason_that_a_person_wrote_stays(check, known):
    path = known(("a", X))
    data = json.loads(path.read_text())
    data["known"][0]["reason"] = "kept until the kernel is replaced"
    path.write_text(json.dumps(data))
    check("--baseline-update", results=[fail("a", X, Y)])
    assert [each.get("reason") for each in json.loads(path.read_text())["known"]] == [
        "kept until the kernel is replaced",
        None,
    ]


def test_checks_are_the_same_from_every_folder(gradverify, specs, known, engine, monkeypatch):
    known(("a", X))
    monkeypatch.chdir(specs / "specs")
    engine(result("a", "fail", id="ops.yaml::a", findings=(X,), rules=RAN))
    assert gradverify("check", "ops.yaml", "--baseline", "../b.json")[0] == 0
    engine(result("b", "fail", id="ops.yaml::b", findings=(X,), rules=RAN))
    assert gradverify("check", "ops.yaml", "--baseline", "../b.json", "--baseline-update")[0] == 0
    assert (
        entries(specs / "b.json")[-1][0] == "b"
        and "specs/ops.yaml::b" in (specs / "b.json").read_text()
    )


def test_the_project_may_name_the_file(gradverify, specs, known, engine, monkeypatch):
    known(("a", X))
    (specs / "pyproject.toml").write_text("[tool.gradverify]\nbaseline = 'b.json'\n")
    engine(fail("a", X))
    assert gradverify("check")[0] == 0
    assert gradverify("check", "--baseline", "")[0] == 1


def test_an_interrupted_run_changes_nothing(gradverify, specs, engine):
    engine(fail("a", X), interrupted=130)
    code, _, err = gradverify("check", "--baseline", "b.json", "--baseline-update")
    assert code == 130 and "left as it is" in err and not (specs / "b.json").exists()


def test_a_file_that_cannot_be_written_is_told_after_the_report(check, specs, monkeypatch):
    def full(path, text):
        raise NotWritten(f"{path.name} could not be written: no space left on device")

    monkeypatch.setattr("gradverify.cli.baseline.keep", full)
    code, out, err = check("--baseline-update", results=[fail("a", X)])
    assert (code, err) == (
        4,
        "b.json could not be written: no space left on device\n",
    ) and "1 known" in out


def test_strict_failures_are_recorded_too(check, specs):
    assert (
        check(
            "--strict", "--baseline-update", results=[fail("a", replace(WARNED, severity="error"))]
        )[0]
        == 0
    )
    assert entries(specs / "b.json") == [("a", "GV224", "x", None)]
    assert check("--strict", results=[fail("a", replace(WARNED, severity="error"))])[0] == 0
    code, out, err = check(results=[right("a", findings=(WARNED,))])
    assert (code, err) == (0, "") and "warning GV224" in out


@pytest.mark.parametrize("options", [(), ("--baseline-update",)])
def test_a_report_never_replaces_the_baseline(gradverify, specs, engine, known, options):
    known(("a", X))
    before = (specs / "b.json").read_text()
    asked = engine(fail("a", X))
    code, _, err = gradverify(
        "check", "--baseline", "b.json", "--report", "json:specs/../b.json", *options
    )
    assert code == 2 and not asked and "b.json, which is the baseline" in err
    assert (specs / "b.json").read_text() == before


def test_a_spec_whose_name_is_no_utf8_cannot_be_recorded_and_is_told_so(
    gradverify, specs, engine, known
):
    (specs / "specs" / "ops.yaml").rename(specs / "specs" / "ops\udcff.yaml")
    known(("a", X))
    before = (specs / "b.json").read_text()
    engine(replace(fail("a", X), id="specs/ops\udcff.yaml::a"))
    code, _, err = gradverify("check", "--baseline", "b.json", "--baseline-update")
    assert (
        code == 4
        and "b.json could not be written: " in err
        and "no UTF-8" in err
        and "Traceback" not in err
    )
    assert (specs / "b.json").read_text() == before


@pytest.mark.parametrize("spec", ["n" * 300, "a\0b"])
def test_an_entry_of_what_can_be_no_file_is_one_of_a_spec_that_is_gone(check, specs, spec):
    (specs / "b.json").write_text(
        json.dumps({"gradverify_baseline": 1, "known": [{"check": f"{spec}::a", "code": "GV101"}]})
    )
    code, _, err = check("--baseline-update", results=[right("a")])
    assert code == 0 and "1 finding removed" in err
