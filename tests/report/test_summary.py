from dataclasses import replace

import pytest
from factories import ARGV, failing, passing, raising, report, result, skipped, undecided, warned

from gradverify.model.event import Selection
from gradverify.model.report import Gate
from gradverify.report.look import Look
from gradverify.report.terminal.canvas import paint
from gradverify.report.terminal.view import summary


def shown(*checks, **changes):
    return paint(summary(report(*checks, **changes), Look(80)), Look(80)).splitlines()


def test_undecided_checks_are_in_the_last_line_of_a_green_run():
    assert shown(passing(), undecided(), warned()) == [
        "1 undecided, 2 passed, 1 warning in 3.40 s",
        "1 undecided: not checked. The exit code is 0; where CI is set, or with --undecided fail, it is 3"]


@pytest.mark.parametrize("checks, changes", [
    ([undecided(), failing()], {}), ([undecided()], {"gate": Gate("fail"), "exit_code": 3}), ([undecided()], {"argv": ("check", "--exit-zero")}),
    ([replace(undecided(), expect=("GV007",))], {}), ([passing()], {})])
def test_what_ci_would_say_is_said_where_it_says_something_else(checks, changes):
    assert not any("not checked" in line for line in shown(*checks, **changes))


def test_a_red_run_ends_with_the_first_failure_again():
    lines = shown(passing(), raising("op[a=1]"), failing())
    assert lines == ["1 failed, 1 could not be judged, 1 passed in 3.40 s", "the first failure again:",
                     "  gradverify check 'specs/ops.yaml::op[a=1]' --eps 1e-6 --strict"]


def test_the_command_of_a_lone_failure_stands_below_its_panel_and_is_not_repeated():
    assert shown(passing(), failing()) == ["1 failed, 1 passed in 3.40 s"]


def test_warnings_are_counted_as_they_are_shown():
    expected = replace(warned(), expect=tuple(finding.code for finding in warned().findings))
    assert shown(warned(), expected)[0] == "2 passed, 1 warning in 3.40 s"
    quiet = Look(80, verbosity=-1)
    assert paint(summary(report(warned(), passing()), quiet), quiet) == "2 passed, 1 warning (1 not shown) in 3.40 s\n"


def test_expected_failures_are_told_apart():
    assert shown(failing(expect=("GV101",)), passing(expect="fail"))[0] == "1 passed unexpectedly, 1 failed as expected in 3.40 s"


@pytest.mark.parametrize("checks, line", [([skipped(), skipped()], "nothing was checked, 2 skipped in 3.40 s")])
def test_all_skipped_is_said_to_be_nothing(checks, line):
    assert shown(*checks) == [line]


def test_an_empty_run_is_said_to_be_nothing():
    empty = report(passing(), checks=())
    assert paint(summary(empty, Look(80)), Look(80)) == "nothing was checked in 3.40 s\n"


def test_what_was_deselected_is_counted():
    assert shown(passing(), selection=Selection(deselected=7)) == ["1 passed, 7 deselected in 3.40 s"]


def test_an_interrupt_is_said_first():
    lines = shown(passing(), result(verdict="not_run"), interrupted=True)
    assert lines == ["interrupted: 1 passed, 1 not run in 3.40 s"]


def test_a_fault_of_our_own_is_owned():
    assert shown(passing(), crashed="KeyError: 'x'")[0] == "gradverify itself failed: KeyError: 'x'"


def test_the_command_is_one_line_however_narrow():
    long = failing("n" * 200)
    assert shown(long, failing())[-1].strip() == f"gradverify check specs/ops.yaml::{'n' * 200} --eps 1e-6 --strict"
    assert "--eps" in ARGV


def test_a_skip_that_is_not_allowed_is_counted_apart():
    gate = Gate(require_device=("cuda",))
    assert shown(passing(), skipped(), result("other", "skip", reason="slow"), gate=gate)[0] == (
        "1 skipped though required, 1 passed, 1 skipped in 3.40 s")
    assert shown(skipped(), gate=gate)[0] == "nothing was checked, 1 skipped though required in 3.40 s"
