from dataclasses import replace

import pytest
from factories import comparison, failing, passing, raising, report, result, skipped, undecided, warned

from gradverify.model.report import Gate
from gradverify.model.result import Calls, Finding
from gradverify.report.look import Look
from gradverify.report.terminal.line import name_width
from gradverify.report.terminal.view import check_line


def shown(check, look=None, gate=None):
    return check_line(report(check, gate=gate).checks[0], look or Look(120, boxes=False))


def test_a_pass_says_what_it_compared_and_what_it_could_have_seen():
    assert " ".join(shown(passing()).split()) == "PASS linear 62 elements would have seen errors above 3.1e-10 37 calls 0.02 s"


def test_elements_are_those_of_the_jacobian_and_the_weakest_resolution_counts():
    check = passing(comparisons=(comparison(elements=4, resolution=1e-9), comparison(input="w", elements=6, resolution=2e-8),
                                 comparison("GV106", elements=10, resolution=1.0), comparison("GV111", input="bias", elements=1, resolution=0.0)))
    text = shown(check)
    assert "    11 elements  would have seen errors above 2e-08" in text


def test_where_only_other_oracles_compared_their_elements_count():
    assert "    10 elements" in shown(passing(comparisons=(comparison("GV107", elements=10),)))


def test_zero_elements_are_no_claim():
    assert "nothing to compare" in shown(passing(comparisons=(comparison(elements=0, resolution=0.0),)))


def test_a_pass_with_a_few_undecided_elements_says_how_many():
    assert "above 3.1e-10, 1 undecided" in shown(passing(comparisons=(comparison(undecided=1),)))


def test_warnings_stand_below_a_pass():
    assert "warning GV224 saved-unused: `x` is saved for backward and never read" in shown(warned()).splitlines()[1]


def test_an_expected_warning_is_not_shown_again():
    assert "warning" not in shown(replace(warned(), expect=("GV224",)))


@pytest.mark.parametrize("check, word, reason", [
    (undecided(), "UNDECIDED", "20 of 96 elements have a bar above the tolerance."),
    (raising(), "ERROR", "forward raised ValueError: shape '[3]' is invalid for input of size 4"),
    (skipped(), "SKIP", "no CUDA device was found")])
def test_the_reason_is_there(check, word, reason):
    text = shown(check)
    assert text.startswith(word) and reason in text


@pytest.mark.parametrize("check, word, sentence", [
    (failing("f", expect=("GV101",)), "XFAIL", None),
    (failing("f", expect=("GV201",)), "FAIL", "expected GV201; found GV101"),
    (passing("f", expect=("GV201",)), "XPASS", "expected GV201, but passed"),
    (passing("f", expect="fail"), "XPASS", "expected to fail, but passed"),
    (raising("f"), "ERROR", None),
    (result("f", "error", expect="fail", findings=(Finding("GV002", "raised"),)), "ERROR", "expected to fail, but the verdict is error")])
def test_expectations_are_told(check, word, sentence):
    text = shown(check)
    assert text.split()[0] == word
    assert (sentence in text) if sentence else ("expected" not in text)


def test_the_codes_of_a_failure_are_on_its_line():
    check = result(verdict="fail", findings=(Finding("GV101", "a", "jacobian"), Finding("GV101", "b", "jacobian", output=1),
                                             Finding("GV224", "c", "saved-unused", "warning")), calls=Calls(0, 1))
    assert "GV101 jacobian  " in shown(check) and "GV224" not in shown(check) and "    1 call " in shown(check)


def test_a_skip_that_is_not_allowed_is_told_like_any_other_but_counts_as_red():
    coloured = check_line(report(skipped(), gate=Gate(fail_on_skip=True)).checks[0], Look(120, color=True))
    assert coloured.startswith("\x1b[1;31mSKIP")


def test_names_line_up():
    width = name_width(["mm", "square_of_sum", "x" * 300])
    assert width == len("square_of_sum")
    lines = [check_line(report(passing(name)).checks[0], Look(120), width) for name in ("mm", "square_of_sum")]
    assert lines[0].index("elements") == lines[1].index("elements")


def test_wide_characters_are_measured_not_counted():
    assert name_width(["注意"]) == 4


def test_at_80_columns_a_long_name_has_a_line_of_its_own():
    lines = shown(passing("linear without bias, the tutorial's numbers"), Look(80)).splitlines()
    assert lines[0] == "PASS       linear without bias, the tutorial's numbers"
    assert " ".join(lines[1].split()) == "62 elements resolves 3.1e-10 37 calls 0.02 s"
