"""JUnit, SARIF, GitLab, JSON Lines, GitHub, Markdown: what each has to say of every outcome, checked by a reader of that format that is not ours."""

import json
import re
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from factories import ENVIRONMENT, entry, everything, extreme, failing, passing, report, skipped, undecided
from junitparser import Error, Failure, JUnitXml, Skipped

from gradverify.model.report import Gate, as_data
from gradverify.model.result import Fault
from gradverify.report import github, gitlab, jsonl, junit, markdown, sarif
from gradverify.rules.catalogue import rules

SARIF = jsonschema.Draft4Validator(json.loads((Path(__file__).parents[1] / "schemas" / "sarif-2.1.0-rtm.5.json").read_text()))


# ---- JUnit
def cases(found):
    return {case.name: case for suite in JUnitXml.fromstring(junit.render(found).encode()) for case in suite}


def test_junit_counts_and_outcomes():
    found = report(*everything())
    whole = JUnitXml.fromstring(junit.render(found).encode())
    assert (whole.tests, whole.failures, whole.errors, whole.skipped) == (9, 2, 1, 3)
    outcomes = {name: [type(each) for each in case.result] for name, case in cases(found).items()}
    assert outcomes == {
        "swish[rows=7,act=:fire:]": [Failure], "linear": [], "add": [], "mul of the tutorial": [], "mul, mended": [Failure], "norm[a/b]": [Skipped],
        "op[a=1]": [Error], "linear on a GPU": [Skipped], "sigmoid": [Skipped]}


def test_junit_names_the_fault_its_kind_and_its_place():
    case = cases(report(failing()))["swish[rows=7,act=:fire:]"]
    [failure] = case.result
    assert failure.type == "mismatch" and failure.message.startswith("GV101 jacobian: 64 of 96") and "y0[0]   x[0,0]" in failure.text
    assert case.classname == "specs.ops" and case._elem.get("file") == "specs/ops.yaml" and case._elem.get("line") == "12"
    properties = {each.get("name"): each.get("value") for each in case._elem.iter("property")}
    assert properties["max_abs_err"] == "1.57" and properties["device"] == "cpu" and properties["seed"] == "0" and properties["eps"] == "auto"
    assert "nan seen" in case.system_out and "\x1b" not in case.system_out


def test_junit_has_a_suite_for_each_spec_file():
    other = replace(passing("b"), id="specs/b.yaml::b", spec=replace(passing().spec, path="specs/b.yaml"))
    whole = JUnitXml.fromstring(junit.render(report(failing(), other, passing())).encode())
    assert [(suite.name, suite.tests) for suite in whole] == [("specs/b.yaml", 1), ("specs/ops.yaml", 2)]


def test_an_undecided_check_is_no_pass_in_junit_and_an_error_where_the_gate_says_so():
    assert [type(each) for each in cases(report(undecided()))["norm[a/b]"].result] == [Skipped]
    assert [type(each) for each in cases(report(undecided(), gate=Gate(undecided="fail")))["norm[a/b]"].result] == [Error]
    assert [type(each) for each in cases(report(skipped(), gate=Gate(fail_on_skip=True)))["linear on a GPU"].result] == [Error]


# ---- SARIF
def log(found, book=()):
    whole = json.loads(sarif.render(found, book))
    SARIF.validate(whole)
    return whole["runs"][0]


def test_sarif_stands_at_the_line_of_backward_and_points_to_the_check():
    [one] = log(report(failing(), environment=replace(ENVIRONMENT, folder="pkg")))["results"]
    place = one["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "pkg/my_ops/act.py", "uriBaseId": "%SRCROOT%"} and place["region"]["startLine"] == 41
    assert one["relatedLocations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "pkg/specs/ops.yaml"
    assert one["level"] == "error" and set(one["partialFingerprints"]) == {"gradverify/v1"}
    assert one["properties"]["worst"]["analytic"] == -0.785398163


def test_sarif_rules_carry_the_page_of_the_book():
    run = log(report(failing()), rules())
    [rule] = run["tool"]["driver"]["rules"]
    assert rule["id"] == "GV101" and "How it is measured" in rule["help"]["text"] and run["results"][0]["ruleIndex"] == 0


def test_sarif_of_every_outcome_fits_its_schema_and_tells_what_the_run_met():
    broken = passing("ours", faults=(Fault("the rule GV101", "KeyError: 'x'", "a.py:1", "trace"),))
    run = log(report(*everything(), extreme(), broken, interrupted=True))
    assert not run["invocations"][0]["executionSuccessful"] and len(run["invocations"][0]["toolExecutionNotifications"]) == 2
    assert run["invocations"][0]["startTimeUtc"] == "2026-01-02T03:04:05.000Z" and run["invocations"][0]["endTimeUtc"] == "2026-01-02T03:04:08.400Z"
    assert [one["ruleId"] for one in run["results"]] == ["GV101", "GV224", "expectation", "GV007", "GV002", "GV101"]


def test_sarif_quotes_paths_and_names_no_line_outside():
    odd = failing(findings=(replace(failing().findings[0], file="my ops/#1%.py"),))
    assert log(report(odd))["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "my%20ops/%231%25.py"
    nowhere = replace(failing(findings=(replace(failing().findings[0], file="/opt/x.py"),)), spec=replace(passing().spec, path="/etc/s.yaml"),
                      function=replace(passing().function, file=None))
    [place] = log(report(nowhere))["results"][0]["locations"]       # GitHub refuses a result without one
    assert place["physicalLocation"]["artifactLocation"] == {"uri": "/etc/s.yaml"}


def test_sarif_of_a_function_without_source_stands_at_the_line_of_the_check():
    """Compiled code, and a finding about what the spec says (GV106), which names the spec without a line."""
    for file in (None, "specs/ops.yaml"):
        compiled = failing(findings=(replace(failing().findings[0], file=file, line=None),),
                           function=replace(passing().function, file=None, line=None))
        [one] = log(report(compiled))["results"]
        place = one["locations"][0]["physicalLocation"]
        assert place["artifactLocation"]["uri"] == "specs/ops.yaml" and place["region"]["startLine"] == compiled.spec.line
        [issue] = json.loads(gitlab.render(report(compiled)))
        assert issue["location"] == {"path": "specs/ops.yaml", "lines": {"begin": compiled.spec.line}}


# ---- GitLab
def test_gitlab_has_what_its_format_asks_for():
    issues = json.loads(gitlab.render(report(*everything())))
    for issue in issues:
        assert set(issue) == {"description", "check_name", "fingerprint", "severity", "location"}
        assert issue["severity"] in ("info", "minor", "major", "critical", "blocker") and issue["location"]["lines"]["begin"] >= 1
        assert not issue["location"]["path"].startswith(("/", "./"))
    assert [issue["severity"] for issue in issues] == ["critical", "minor", "major", "minor", "major"]
    assert json.loads(gitlab.render(report(passing()))) == []


# ---- JSON Lines
def test_lines_say_what_the_report_says():
    found = report(*everything())
    lines = [json.loads(line) for line in jsonl.render(found).splitlines()]
    assert [line["event"] for line in lines] == ["run_started", *["check_finished"] * 9, "run_finished"]
    whole = as_data(found)
    assert [line["check"] for line in lines[1:-1]] == whole["checks"]
    said = {**lines[0], **lines[-1]}
    assert {name: said[name] for name in whole if name != "checks"} == {name: whole[name] for name in whole if name != "checks"}


# ---- GitHub
def test_annotations_come_errors_first_one_for_each_check():
    lines = github.render(report(*everything())).splitlines()
    assert [line.split(" ")[0] for line in lines] == ["::error"] * 3 + ["::warning"] * 2
    assert lines[0].startswith("::error file=my_ops/act.py,line=41,title=swish[rows=7%2Cact=%3Afire%3A]%3A GV101 jacobian::64 of 96")
    assert "%0Acause: scaled" in lines[0] and github.render(report(passing())) == ""


@pytest.mark.parametrize(("count", "lines", "rest"), [(10, 10, None), (11, 10, "and 2 more checks: see"), (500, 10, "and 491 more checks: see")])
def test_at_most_ten_annotations(count, lines, rest):
    told = github.render(report(*(failing(f"f{i}") for i in range(count)))).splitlines()
    assert len(told) == lines and (rest is None or rest in told[-1])


def test_a_long_message_is_cut_in_an_annotation():
    [line] = github.render(report(failing(findings=(replace(failing().findings[0], message="m" * 10_000, cause=None, hint=None),)))).splitlines()
    assert len(line) < 5000 and line.endswith(" … cut, 10,000 characters")


# ---- Markdown
def test_the_summary_says_what_failed_by_how_much_and_what_was_not_judged():
    text = markdown.render(report(*everything()))
    assert text.startswith("### gradverify: 1 failed, 1 passed unexpectedly, 1 could not be judged, 1 undecided, 2 passed")
    assert "| `swish[rows=7,act=:fire:]` | `GV101 jacobian` | `y0[0] / x[0,0]` | -0.785398 | 0.785398 ±1.2e-11 | 2e+06 |" in text
    assert "| `linear on a GPU` | skip | `no CUDA device was found` |" in text and "this again: gradverify check" in text
    assert "| check | finding" not in markdown.render(report(passing()))


def test_the_summary_is_cut_between_two_checks_and_says_so():
    found = report(*(failing(f"f{i}") for i in range(100)), *(undecided(f"u{i}") for i in range(100)))
    whole = markdown.render(found)
    for limit in (2000, 10_000, 40_000, len(whole.encode())):
        text = markdown.render(found, limit)
        shown = re.findall(r"^\| `f(\d+)`", text, re.MULTILINE)
        assert len(text.encode()) <= limit and shown == re.findall(r"<summary>FAIL <code>specs/ops.yaml::f(\d+)", text)
        assert text.count("<details>") == text.count("</details>") == len(shown) and text.count("```") == 2 * len(shown)
        left = re.search(r"\*\*(?:(\d+) failing checks?)?(?: and )?(?:(\d+) checks? without a verdict)? more: left out here", text)
        assert (int(left[1] or 0) if left else 0) == 100 - len(shown)
    assert len(markdown.render(report(*(failing(f"f{i}", captured="x" * 60_000) for i in range(40)))).encode()) <= 900 * 1024


@pytest.mark.parametrize("changes", [{"started_at": "yesterday"}, {"started_at": ""}, {"duration_s": float("inf")}, {"duration_s": 1e300}])
def test_times_that_are_none_cost_a_report_nothing_but_the_times(changes):
    """A JSON report that is shown again may hold any."""
    [run] = json.loads(sarif.render(report(failing(), **changes)))["runs"]
    assert run["results"] and not {"startTimeUtc", "endTimeUtc"} & set(run["invocations"][0])
    for kind in (junit, gitlab, github, markdown):
        assert kind.render(report(failing(), **changes))


def test_markdown_gives_no_ratio_for_an_element_without_a_verdict():
    """As the tables of the other formats: what such an element is stands in its place."""
    found = failing(comparisons=(replace(failing().comparisons[0], worst=(entry(outcome="jump"),)),))
    [row] = [line for line in markdown.render(report(found)).splitlines() if line.startswith("| `swish")]
    assert row.endswith("| jump |")


def test_junit_gives_a_word_where_there_is_no_reason():
    assert cases(report(replace(undecided(), reason=None)))["norm[a/b]"].result[0].message == "undecided"
