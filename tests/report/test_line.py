from dataclasses import replace

import pytest
from factories import comparison, failing, passing, raising, report, result, skipped, undecided, warned
from rich.cells import cell_len

from gradverify.model.report import Gate
from gradverify.model.result import Calls, Finding
from gradverify.report.look import Look
from gradverify.report.terminal.line import name_width
from gradverify.report.terminal.view import check_line, render


def shown(check, look=None, gate=None):
    return check_line(report(check, gate=gate).checks[0], look or Look(120, boxes=False))


def test_a_pass_says_what_it_compared_and_what_it_could_have_seen():
    assert " ".join(shown(passing()).split()) == "PASS linear 62 elements would catch any absolute error above 3.1e-10 37 calls 0.02 s"


def test_elements_are_those_of_the_jacobian_and_the_weakest_resolution_counts():
    check = passing(comparisons=(comparison(elements=4, resolution=1e-9), comparison(input="w", elements=6, resolution=2e-8),
                                 comparison("GV106", elements=10, resolution=1.0), comparison("GV111", input="bias", elements=1, resolution=0.0)))
    text = shown(check)
    assert "    11 elements  would catch any absolute error above 2e-08" in text


def test_where_only_other_oracles_compared_their_elements_count():
    assert "    10 elements" in shown(passing(comparisons=(comparison("GV107", elements=10),)))


def test_zero_elements_are_no_claim():
    assert "nothing to compare" in shown(passing(comparisons=(comparison(elements=0, resolution=0.0),)))


def test_what_passed_by_forwards_own_derivative_is_counted_apart():
    text = shown(passing(comparisons=(comparison(witnessed=312, evidence="witness"), comparison(input="w", witnessed=1000, undecided=2))))
    assert text.splitlines()[0].endswith("  1,312 by forward's own derivative, 2 undecided")


@pytest.mark.parametrize(("apart", "said"), [((0.0, 0.0), True), ((0.0, 1e-9), False), ((0.0, None), False)])
def test_where_forwards_own_derivative_agrees_with_all_of_it_a_phrase_says_so(apart, said):
    text = shown(passing(comparisons=tuple(comparison(input=f"x{n}", witness_apart=each) for n, each in enumerate(apart))))
    assert text.splitlines()[0].endswith("  as does forward's own derivative, by torch") == said


@pytest.mark.parametrize("counts, said", [({"undecided": 1}, "1 undecided"), ({"kinks": 1}, "1 kink"), ({"non_finite": 2}, "2 undecided"),
                                          ({"kinks": 3, "undecided": 13, "non_finite": 1}, "3 kinks, 14 undecided")])
def test_a_pass_ends_with_the_elements_that_are_neither_right_nor_wrong(counts, said):
    check = passing(comparisons=(comparison(**counts),))
    assert shown(check).splitlines()[0].endswith(f"0.02 s  {said}")
    assert shown(check, Look(80)).rstrip().endswith(said)


def test_open_elements_that_do_not_fit_stand_below():
    check = passing("n" * 40, comparisons=(comparison(kinks=3, undecided=14),))
    first, second = shown(check, Look(80)).splitlines()
    assert "96 elements" in first and second == "      would catch any absolute error above 3.1e-10; 3 kinks, 14 undecided"


def test_a_resolution_of_0_is_no_claim():
    text = shown(passing(comparisons=(comparison(resolution=0.0),)))
    assert "62 elements" not in text and "96 elements" in text and "error" not in text


def test_a_failure_counts_what_the_failed_rule_compared():
    compared = (comparison(elements=36), comparison("GV107", output=None, elements=2, mismatched=1))
    numbers = result(verdict="fail", comparisons=compared, findings=(Finding("GV107", "m", "expected-gradient", input="x"),))
    both = replace(numbers, findings=(*numbers.findings, Finding("GV101", "m", "jacobian", input="x", output=0)))
    contract = replace(numbers, findings=(Finding("GV202", "m", "grad-output-modified"),))
    assert [shown(check).split()[2] for check in (numbers, both, contract)] == ["2", "36", "36"]


def test_warnings_stand_below_a_pass():
    assert "warning GV224 saved-unused: `x` is saved for backward and never read" in shown(warned()).splitlines()[1]


def test_a_warning_says_its_remedy_on_its_line():
    text = " ".join(shown(passing(findings=(Finding("GV109", "silently wrong", "double-backward", "warning", hint="mark it"),))).split())
    assert "warning GV109 double-backward: silently wrong. Remedy: mark it" in text


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
def test_expectations_are_told_once(check, word, sentence):
    text = render(report(check), Look(120, boxes=False))
    assert text.split()[0] == word
    assert text.count(sentence) == 1 if sentence else "expected " not in text.replace("as expected", "")


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


SENTENCE = "would catch any absolute error above 3.1e-10"
TYPICAL = "linear at other shapes[rows=5,in=4,out=3]"


@pytest.mark.parametrize("width, expected", [
    (80, f"PASS  {TYPICAL}      62 elements\n      {SENTENCE}"),
    (100, f"PASS  {TYPICAL}      62 elements                   37 calls   0.02 s\n      {SENTENCE}"),
    (120, f"PASS  {TYPICAL}      62 elements  {SENTENCE}   0.02 s"),
    (140, f"PASS       {TYPICAL}      62 elements  {SENTENCE}     37 calls   0.02 s")])
def test_the_sentence_stands_on_the_line_or_below_it(width, expected):
    assert shown(passing(TYPICAL), Look(width)) == expected + "\n"


@pytest.mark.parametrize("width", [72, 80, 100, 120])
@pytest.mark.parametrize("longest", [4, 14, 30, 41, 48])
def test_the_lines_of_a_run_align_and_stay_within_the_terminal(width, longest):
    checks = [passing(name) for name in ("a", "b" * longest)] + [replace(undecided(), name="c"), skipped("d"), failing("e")]
    lines = [check_line(report(check).checks[0], Look(width), longest).splitlines() for check in checks]
    ends = {(line[0] if "elements" in line[0] else line[1]).index(" elements") for line in (lines[0], lines[1], lines[2], lines[4])}
    assert len(ends) == 1
    assert all(cell_len(text) <= width for found in lines for text in found)


def test_a_skips_reason_begins_where_the_other_lines_say_what_they_see():
    width = name_width(["linear[device=cpu]", "linear[device=cuda]"])
    passed = check_line(report(passing("linear[device=cpu]")).checks[0], Look(100), width)
    missed = check_line(report(skipped("linear[device=cuda]")).checks[0], Look(100), width)
    assert missed.index("no CUDA") == passed.index("would catch ")


def test_a_long_reason_begins_further_left():
    check = replace(skipped("d"), reason="no CUDA device, required by --require-device cuda")
    assert shown(check, Look(80)).rstrip().endswith(check.reason) and len(shown(check, Look(80)).splitlines()) == 1


def test_a_name_without_room_has_a_line_of_its_own():
    first, second, third = shown(passing("n" * 60), Look(80)).splitlines()
    assert first == "PASS  " + "n" * 60 and second.split() == ["62", "elements"] and third.strip() == SENTENCE


def test_a_function_whose_kernels_were_interpreted_says_so():
    assert "on cpu, under Triton's interpreter" in shown(passing(interpreter="triton"))
    assert "on cpu" not in shown(passing())
