"""JSON, JUnit, SARIF, GitLab, JSON Lines, GitHub, Markdown: what each says of every outcome, as
written down in tests/golden and as a reader of that format reads it that is not ours; and which
line of whose code each finding points to."""

import json
import math
import re
import shlex
from dataclasses import replace
from pathlib import Path, PurePath

import jsonschema
import pytest
from factories import (
    ENVIRONMENT,
    comparison,
    entry,
    everything,
    extreme,
    failing,
    passing,
    raising,
    report,
    result,
    skipped,
    undecided,
    warned,
)
from junitparser import Error, Failure, JUnitXml, Skipped

from gradverify.model.report import Gate, as_data
from gradverify.model.result import Fault, Finding, Frame, FunctionInfo
from gradverify.report import github, gitlab, jsonl, junit, markdown, sarif
from gradverify.report.formats import KINDS, meant_by, renderer
from gradverify.report.json import render, report_schema
from gradverify.report.names import Place, folded, in_repository, package
from gradverify.report.reproduce import again
from gradverify.report.troubles import OWN_FAULT, REQUIRED, UNEXPECTED, troubles
from gradverify.rules.catalogue import rules

SARIF = jsonschema.Draft4Validator(
    json.loads((Path(__file__).parents[1] / "schemas" / "sarif-2.1.0-rtm.5.json").read_text())
)
INSTALLED = "../env/lib/python3.11/site-packages/einops/ops.py"
OURS = passing("ours", faults=(Fault("the rule GV101", "KeyError: 'x'", "a.py:1", "trace"),))
KNOWN = replace(
    failing("known"), findings=(replace(failing().findings[0], known=True),), baselined=True
)


def everything_once():
    return report(
        *everything(),
        extreme(),
        OURS,
        failing(expect=("GV201",)),
        interrupted=True,
        crashed="boom",
        environment=replace(ENVIRONMENT, folder="pkg", devices=("A 100",)),
    )


@pytest.mark.parametrize(
    "kind", ["json", "jsonl", "junit", "sarif", "markdown", "gitlab", "github"]
)
def test_every_format_is_as_written_down(golden, kind):
    """The same bytes for the same report; renderers are pure."""
    text = renderer(kind, rules if kind == "sarif" else tuple)(everything_once())
    golden(
        f"everything.{kind}.txt",
        re.sub(
            r"<style>.*?</style>",
            "",
            re.sub(r'"(help|fullDescription)": \{.*?\}', "", text, flags=re.S),
            flags=re.S,
        ),
    )
    assert text.endswith("\n")


@pytest.mark.parametrize("kind", [kind.name for kind in KINDS])
def test_every_kind_renders_every_outcome_and_the_same_twice(kind):
    text = renderer(kind)(everything_once())
    assert text.endswith("\n") and renderer(kind)(everything_once()) == text


# ---- JSON
def data(*checks, **changes):
    return json.loads(render(report(*checks, **changes)), parse_constant=pytest.fail)


def test_the_report_is_as_written_down(golden):
    golden("report.json", render(report(failing(rows=2), passing(), extreme())))


@pytest.mark.parametrize(
    "value, written",
    [(math.nan, "nan"), (math.inf, "inf"), (-math.inf, "-inf"), (0.1 + 0.2, 0.1 + 0.2)],
)
def test_numbers_read_back_and_those_that_are_none_are_strings(value, written):
    compared = data(
        failing(
            "σ \ud800", comparisons=(comparison(worst=(entry(bar=value),), max_abs_error=value),)
        )
    )["checks"][0]["comparisons"][0]
    assert compared["worst"][0]["bar"] == compared["max_abs_error"] == written
    assert render(report(failing("σ \ud800"))).isascii()


def test_rendered_reports_fit_the_schema_and_later_ones_do():
    schema = jsonschema.Draft7Validator(report_schema())
    schema.check_schema(report_schema())
    for checks in (everything(), (extreme(),), (failing(expect=("GV101",)),)):
        schema.validate(data(*checks))
    whole = data(*everything(), interrupted=True, crashed="boom")
    whole["checks"][0]["later"] = whole["later"] = 1
    schema.validate(whole)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda whole: whole.pop("checks"),
        lambda whole: whole.update(schema_version=2),
        lambda whole: whole["summary"].update({"pass": "1"}),
        lambda whole: whole["checks"][0].update(verdict="passed"),
        lambda whole: whole["checks"][0]["comparisons"][0].update(max_abs_error="NaN"),
        lambda whole: whole["checks"][0]["findings"][0].update(also="GV107"),
    ],
)
def test_the_schema_refuses_what_is_not_a_report(spoil):
    whole = data(*everything())
    spoil(whole)
    assert not jsonschema.Draft7Validator(report_schema()).is_valid(whole)


# ---- readers of the formats
def cases(found):
    return {
        case.name: case
        for suite in JUnitXml.fromstring(junit.render(found).encode())
        for case in suite
    }


def test_junit_counts_and_outcomes():
    found = report(*everything())
    whole = JUnitXml.fromstring(junit.render(found).encode())
    assert (whole.tests, whole.failures, whole.errors, whole.skipped) == (9, 2, 1, 3)
    assert {name: [type(each) for each in case.result] for name, case in cases(found).items()} == {
        "swish[rows=7,act=:fire:]": [Failure],
        "linear": [],
        "add": [],
        "mul of the tutorial": [],
        "mul, mended": [Failure],
        "norm[a/b]": [Skipped],
        "op[a=1]": [Error],
        "linear on a GPU": [Skipped],
        "sigmoid": [Skipped],
    }


@pytest.mark.parametrize(
    ("check", "gate", "kind", "message"),
    [
        (undecided(), Gate(), Skipped, "undecided: 20 of 96"),
        (undecided(), Gate("fail"), Error, "GV007 undecided"),
        (skipped(), Gate(fail_on_skip=True), Error, "no CUDA"),
        (replace(undecided(), reason=None), Gate(), Skipped, "undecided"),
    ],
)
def test_what_is_open_is_no_pass_in_junit_and_an_error_where_the_gate_says_so(
    check, gate, kind, message
):
    [found] = cases(report(check, gate=gate))[check.name].result
    assert type(found) is kind and found.message.startswith(message)


def test_junit_has_a_suite_for_each_spec_file():
    other = replace(
        passing("b"), id="specs/b.yaml::b", spec=replace(passing().spec, path="specs/b.yaml")
    )
    whole = JUnitXml.fromstring(junit.render(report(failing(), other, passing())).encode())
    assert [(suite.name, suite.tests) for suite in whole] == [
        ("specs/b.yaml", 1),
        ("specs/ops.yaml", 2),
    ]


def log(found):
    whole = json.loads(sarif.render(found))
    SARIF.validate(whole)
    return whole["runs"][0]


def test_sarif_of_every_outcome_fits_its_schema_and_tells_what_the_run_met():
    run = log(everything_once())
    assert (
        not run["invocations"][0]["executionSuccessful"]
        and len(run["invocations"][0]["toolExecutionNotifications"]) == 3
    )
    assert [one["ruleId"] for one in run["results"]] == [
        "GV101",
        "GV224",
        "expectation",
        "GV007",
        "GV002",
        "GV101",
        "expectation",
        "GV101",
    ]


def test_sarif_quotes_paths_and_names_no_line_outside():
    odd = failing(findings=(replace(failing().findings[0], file="my ops/#1%.py"),))
    assert (
        log(report(odd))["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"][
            "uri"
        ]
        == "my%20ops/%231%25.py"
    )
    nowhere = replace(
        failing(findings=(replace(failing().findings[0], file="/opt/x.py"),)),
        spec=replace(passing().spec, path="/etc/s.yaml"),
        function=replace(passing().function, file=None),
    )
    [place] = log(report(nowhere))["results"][0]["locations"]  # GitHub refuses a result without one
    assert place["physicalLocation"]["artifactLocation"] == {"uri": "/etc/s.yaml"}


def test_a_function_without_source_is_told_at_the_line_of_the_check():
    """Compiled code, and a finding about what the spec says (GV106), which names the spec without a
    line."""
    for file in (None, "specs/ops.yaml"):
        compiled = failing(
            findings=(replace(failing().findings[0], file=file, line=None),),
            function=replace(passing().function, file=None, line=None),
        )
        place = log(report(compiled))["results"][0]["locations"][0]["physicalLocation"]
        assert (
            place["artifactLocation"]["uri"] == "specs/ops.yaml"
            and place["region"]["startLine"] == compiled.spec.line
        )
        [issue] = json.loads(gitlab.render(report(compiled)))
        assert issue["location"] == {
            "path": "specs/ops.yaml",
            "lines": {"begin": compiled.spec.line},
        }


def test_gitlab_has_what_its_format_asks_for():
    for issue in json.loads(gitlab.render(report(*everything()))):
        assert set(issue) == {"description", "check_name", "fingerprint", "severity", "location"}
        assert (
            issue["severity"] in ("info", "minor", "major", "critical", "blocker")
            and issue["location"]["lines"]["begin"] >= 1
        )
    assert (
        json.loads(gitlab.render(report(passing()))) == []
        and github.render(report(passing())) == ""
    )


def test_lines_say_what_the_report_says():
    found = report(*everything())
    lines = [json.loads(line) for line in jsonl.render(found).splitlines()]
    whole = as_data(found)
    assert [line["event"] for line in lines] == [
        "run_started",
        *["check_finished"] * 9,
        "run_finished",
    ]
    assert [line["check"] for line in lines[1:-1]] == whole.pop("checks") and {
        **lines[0],
        **lines[-1],
    }.items() >= whole.items()


def at_line(line, name=None):
    found = replace(failing().findings[0], line=line + 1)
    return failing(name or f"f{line}", findings=(found,))


def test_the_same_code_at_a_line_is_annotated_once():
    found = report(at_line(1, "a"), at_line(1, "b"), at_line(1, "c"), at_line(2))
    one, other = github.render(found).splitlines()
    assert "line=2,title=a and 2 more checks%3A GV101" in one and "title=f2%3A" in other


@pytest.mark.parametrize(
    ("count", "rest"),
    [(10, None), (11, "and 2 more checks: see"), (500, "and 491 more checks: see")],
)
def test_at_most_ten_annotations_none_too_long(count, rest):
    lines = github.render(report(*(at_line(i) for i in range(count)))).splitlines()
    assert len(lines) == 10 and (rest in lines[-1] if rest else "more check" not in lines[-1])
    [line] = github.render(
        report(
            failing(
                findings=(
                    replace(failing().findings[0], message="m" * 10_000, cause=None, hint=None),
                )
            )
        )
    ).splitlines()
    assert len(line) < 5000 and line.endswith(" … cut, 10,000 characters")


def test_the_summary_is_cut_between_two_checks_and_says_so():
    found = report(*(failing(f"f{i}") for i in range(10)), *(undecided(f"u{i}") for i in range(10)))
    whole = markdown.render(found)
    for limit in (2000, 5_000, 9_000, len(whole.encode())):
        text = markdown.render(found, limit)
        shown = re.findall(r"^\| `f(\d+)`", text, re.MULTILINE)
        assert len(text.encode()) <= limit and shown == re.findall(
            r"<summary>FAIL <code>specs/ops.yaml::f(\d+)", text
        )
        assert text.count("<details>") == text.count("</details>") == len(shown) and text.count(
            "```"
        ) == 2 * len(shown)
        left = re.search(
            r"\*\*(?:(\d+) failing checks?)?(?: and )?(?:(\d+) checks? without a verdict)? more: "
            r"left out here",
            text,
        )
        assert (int(left[1] or 0) if left else 0) == 10 - len(shown)
    # Has no ratio
    odd = failing(comparisons=(replace(failing().comparisons[0], worst=(entry(outcome="jump"),)),))
    assert "| jump |" in markdown.render(
        report(odd)
    ) and "| check | finding" not in markdown.render(report(passing()))


@pytest.mark.parametrize(
    "changes",
    [
        {"started_at": "yesterday"},
        {"started_at": ""},
        {"duration_s": float("inf")},
        {"duration_s": 1e300},
    ],
)
def test_times_that_are_none_cost_a_report_nothing_but_the_times(changes):
    """A JSON report that is shown again may hold any."""
    run = log(report(failing(), **changes))
    assert run["results"] and not {"startTimeUtc", "endTimeUtc"} & set(run["invocations"][0])
    for kind in (junit, gitlab, github, markdown):
        assert kind.render(report(failing(), **changes))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *(
            (f"build/Gradients{suffix.upper()}", kind.name)
            for kind in KINDS
            for suffix in kind.suffixes
        ),
        *((name, None) for name in ("report.json", "report", "report.txt", "sarif", "xml/")),
    ],
)
def test_an_ending_tells_its_kind_where_it_can_mean_no_other(name, kind):
    assert meant_by(PurePath(name)) == kind


# ---- what is told, and where
def told(*checks, **changes):
    return [
        (trouble.check.name, trouble.rule, trouble.level)
        for trouble in troubles(report(*checks, **changes))
    ]


@pytest.mark.parametrize(
    ("check", "gate", "rule"),
    [
        (skipped(), Gate(fail_on_skip=True), REQUIRED),
        (undecided(), Gate(undecided="fail"), "GV007"),
        (result("crashes us", "error", reason="gradverify itself failed"), Gate(), OWN_FAULT),
        (passing(expect=("GV101",)), Gate(), UNEXPECTED),
    ],
)
def test_every_red_check_has_an_error(check, gate, rule):
    assert told(check, gate=gate) == [(check.name, rule, "error")]


def test_only_what_was_not_expected_is_told_and_warnings_beside_it():
    found = (
        Finding("GV101", "a", name="jacobian"),
        Finding("GV202", "b", name="grad-output-modified"),
    )
    assert [rule for _, rule, _ in told(failing(findings=found, expect=("GV101",)))] == [
        UNEXPECTED,
        "GV202",
    ]
    assert [
        rule for _, rule, _ in told(failing(findings=(*failing().findings, *warned().findings)))
    ] == ["GV101", "GV224"]
    assert told(failing(expect=("GV101",)), passing()) == []


def at(check, folder=""):
    [found] = troubles(report(check, environment=replace(ENVIRONMENT, folder=folder)))
    return found.where, found.spec


@pytest.mark.parametrize(
    ("folder", "below"), [("", ""), ("packages/ops", "packages/ops/"), (None, "")]
)
def test_places_are_named_from_the_root_of_the_repository(folder, below):
    assert at(failing(), folder) == (
        Place(f"{below}my_ops/act.py", 41),
        Place(f"{below}specs/ops.yaml", 12),
    )


@pytest.mark.parametrize(
    ("file", "folder", "found"),
    [
        ("../lib/op.py", "tests", "lib/op.py"),
        ("../lib/op.py", "", None),
        ("/usr/lib/op.py", "", None),
        ("<string>", "", None),
        (None, "", None),
        (".venv/lib/python3.11/site-packages/einops/ops.py", "", None),
        ("./a//b.py", "x", "x/a/b.py"),
    ],
)
def test_a_file_outside_of_the_repository_has_no_place_in_it(file, folder, found):
    assert in_repository(file, replace(ENVIRONMENT, folder=folder)) == found


def test_what_lies_outside_is_told_at_the_spec_and_what_raised_at_the_innermost_line_of_the_repository():
    foreign = (Finding("GV101", "a", file=INSTALLED, line=3),)
    assert at(
        failing(findings=foreign, function=FunctionInfo("einops:op", None, INSTALLED, 3))
    ) == (None, Place("specs/ops.yaml", 12))
    frames = (
        Frame("my_ops/act.py", 30, "forward"),
        Frame("my_ops/util.py", 7, "f"),
        Frame(INSTALLED, 99, "rearrange"),
    )
    assert at(replace(raising(), findings=(Finding("GV002", "raised", frames=frames),)))[
        0
    ] == Place("my_ops/util.py", 7)


def test_a_fingerprint_outlives_lines_and_numbers_but_no_change_of_rule_pair_or_check():
    def of(*checks):
        return [trouble.fingerprint for trouble in troubles(report(*checks))]

    one = failing()
    moved = replace(
        one,
        findings=(replace(one.findings[0], line=99, message="65 of 96"),),
        spec=replace(one.spec, line=40),
        seconds=9.0,
    )
    assert of(one) == of(moved) and len(set(of(one, one))) == 2
    for change in ({"code": "GV111"}, {"input": "w"}, {"output": 1}):
        assert of(replace(one, findings=(replace(one.findings[0], **change),))) != of(one)
    assert of(replace(one, name="other")) != of(one)


@pytest.mark.parametrize(
    ("file", "owner"),
    [
        ("/a/lib/python3.11/site-packages/numpy/linalg/x.py", "numpy"),
        ("/usr/lib/python3/dist-packages/six.py", "six"),
        ("/usr/lib/python3.11/functools.py", "Python"),
        ("my_ops/lib/python_tools/x.py", None),
        ("my_ops/act.py", None),
        ("C:\\env\\Lib\\site-packages\\numpy\\x.py", "numpy"),
    ],
)
def test_a_file_tells_whose_code_it_is(file, owner):
    assert package(file) == owner


def test_frames_of_other_packages_are_folded_and_those_of_the_checked_one_are_not():
    mine = Frame("my_ops/act.py", 1, "forward")
    theirs = Frame(INSTALLED, 2, "r")
    library = Frame("/usr/lib/python3.11/functools.py", 3, "w")
    assert list(folded((mine, theirs, library, mine, library), "my_ops/act.py")) == [
        mine,
        "2 frames in einops, Python",
        mine,
        "1 frame in Python",
    ]
    assert list(folded((theirs, library), INSTALLED)) == [theirs, "1 frame in Python"]


# ---- the command that shows a check again
@pytest.mark.parametrize(
    "argv, kept",
    [
        ("specs -k x -q --format json --report json:r.json", ""),
        ("--eps 1e-6 a.yaml --atol=1e-4 --strict", "--eps 1e-6 --atol=1e-4 --strict"),
        ("--select GV1 --ignore GV224 --device cuda", "--select GV1 --ignore GV224 --device cuda"),
        ("--fail-on-skip -k skipped", "--fail-on-skip"),
        ("--undecided fail --require-device cuda", "--undecided fail --require-device cuda"),
        ("--eps", "--eps"),
        ("-- --strict", ""),
    ],
)
def test_only_what_changes_a_check_is_repeated(argv, kept):
    assert shlex.split(again(passing(id="a.yaml::n"), ["check", *argv.split()])) == [
        "gradverify",
        "check",
        "a.yaml::n",
        *kept.split(),
    ]


@pytest.mark.parametrize(
    "check_id", ["a.yaml::op[a=1]", "a b.yaml::it's", "a.yaml::$x `y`", "a.yaml::n!"]
)
def test_a_shell_reads_the_id_back(check_id):
    assert shlex.split(again(passing(id=check_id), []))[2] == check_id
