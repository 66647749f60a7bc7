"""What a build's reader has to see, and where: the class of faults is a finding that is told nowhere, twice, or at a line of somebody else's code."""

from dataclasses import replace

import pytest
from factories import ENVIRONMENT, everything, failing, passing, raising, report, result, skipped, undecided, warned

from gradverify.model.report import Gate
from gradverify.model.result import Finding, Frame, FunctionInfo
from gradverify.report.names import Place, folded, in_repository, package
from gradverify.report.troubles import OWN_FAULT, REQUIRED, UNEXPECTED, troubles

INSTALLED = "../env/lib/python3.11/site-packages/einops/ops.py"


def told(*checks, **changes):
    return [(trouble.check.name, trouble.rule, trouble.level) for trouble in troubles(report(*checks, **changes))]


def test_failures_and_warnings_are_told_and_what_was_expected_is_not():
    assert told(*everything()) == [
        ("swish[rows=7,act=:fire:]", "GV101", "error"), ("add", "GV224", "warning"), ("mul, mended", UNEXPECTED, "error"),
        ("norm[a/b]", "GV007", "warning"), ("op[a=1]", "GV002", "error")]


@pytest.mark.parametrize(("check", "gate", "rule"), [
    (skipped(), Gate(fail_on_skip=True), REQUIRED), (undecided(), Gate(undecided="fail"), "GV007"),
    (result("crashes us", "error", reason="gradverify itself failed"), Gate(), OWN_FAULT),
    (passing(expect=("GV101",)), Gate(), UNEXPECTED)])
def test_every_red_check_has_an_error(check, gate, rule):
    assert told(check, gate=gate) == [(check.name, rule, "error")]


def test_of_a_broken_expectation_only_what_was_not_expected_is_told():
    found = (Finding("GV101", "a", "jacobian"), Finding("GV202", "b", "grad-output-modified"))
    assert [rule for _, rule, _ in told(failing(findings=found, expect=("GV101",)))] == [UNEXPECTED, "GV202"]


def at(check, folder=""):
    [found] = troubles(report(check, environment=replace(ENVIRONMENT, folder=folder)))
    return found.where, found.spec


@pytest.mark.parametrize(("folder", "where", "spec"), [
    ("", "my_ops/act.py", "specs/ops.yaml"), ("packages/ops", "packages/ops/my_ops/act.py", "packages/ops/specs/ops.yaml"),
    (None, "my_ops/act.py", "specs/ops.yaml")])
def test_places_are_named_from_the_root_of_the_repository(folder, where, spec):
    assert at(failing(), folder) == (Place(where, 41), Place(spec, 12))


@pytest.mark.parametrize(("file", "folder", "found"), [
    ("../lib/op.py", "tests", "lib/op.py"), ("../lib/op.py", "", None), ("/usr/lib/op.py", "", None), ("<string>", "", None), (None, "", None),
    (".venv/lib/python3.11/site-packages/einops/ops.py", "", None), ("./a//b.py", "x", "x/a/b.py")])
def test_a_file_outside_of_the_repository_has_no_place_in_it(file, folder, found):
    assert in_repository(file, replace(ENVIRONMENT, folder=folder)) == found


def test_what_lies_outside_is_told_at_the_spec():
    foreign = (Finding("GV101", "a", file=INSTALLED, line=3),)
    assert at(failing(findings=foreign, function=FunctionInfo("einops:op", None, INSTALLED, 3))) == (None, Place("specs/ops.yaml", 12))


def test_what_raised_is_told_at_the_innermost_line_of_the_repository():
    frames = (Frame("my_ops/act.py", 30, "forward"), Frame("my_ops/util.py", 7, "f"), Frame(INSTALLED, 99, "rearrange"))
    where, _ = at(raising().__class__(**{**vars_of(raising()), "findings": (Finding("GV002", "raised", frames=frames),)}))
    assert where == Place("my_ops/util.py", 7)


def vars_of(check):
    return {name: getattr(check, name) for name in check.__dataclass_fields__}


def test_a_fingerprint_outlives_lines_and_numbers_but_no_change_of_rule_pair_or_check():
    def of(*checks):
        return [trouble.fingerprint for trouble in troubles(report(*checks))]

    one = failing()
    moved = replace(one, findings=(replace(one.findings[0], line=99, message="65 of 96"),), spec=replace(one.spec, line=40), seconds=9.0)
    assert of(one) == of(moved) and len(set(of(one, one))) == 2
    for change in ({"code": "GV111"}, {"input": "w"}, {"output": 1}):
        assert of(replace(one, findings=(replace(one.findings[0], **change),))) != of(one)
    assert of(replace(one, name="other")) != of(one)


@pytest.mark.parametrize(("file", "owner"), [
    ("/a/lib/python3.11/site-packages/numpy/linalg/x.py", "numpy"), ("/usr/lib/python3/dist-packages/six.py", "six"),
    ("/usr/lib/python3.11/functools.py", "Python"), ("my_ops/lib/python_tools/x.py", None), ("my_ops/act.py", None),
    ("C:\\env\\Lib\\site-packages\\numpy\\x.py", "numpy")])
def test_a_file_tells_whose_code_it_is(file, owner):
    assert package(file) == owner


def test_frames_of_other_packages_are_folded_and_those_of_the_checked_one_are_not():
    mine, theirs = Frame("my_ops/act.py", 1, "forward"), Frame(INSTALLED, 2, "rearrange")
    library = Frame("/usr/lib/python3.11/functools.py", 3, "wrapper")
    assert list(folded((mine, theirs, library, mine, library), "my_ops/act.py")) == [mine, "2 frames in einops, Python", mine, "1 frame in Python"]
    assert list(folded((theirs, library), INSTALLED)) == [theirs, "1 frame in Python"]


def test_warnings_of_a_failing_check_are_told_beside_it():
    both = failing(findings=(*failing().findings, *warned().findings))
    assert [rule for _, rule, _ in told(both)] == ["GV101", "GV224"]
