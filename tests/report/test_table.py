import math
import re

import pytest
from factories import comparison, entry, failing, of_every_outcome, report

from gradverify.model.result import Finding
from gradverify.report import markdown
from gradverify.report.html import page as html
from gradverify.report.look import Look
from gradverify.report.terminal.canvas import paint
from gradverify.report.terminal.table import table
from gradverify.report.terminal.view import render


def shown(compared, look=None):
    return paint(table(compared, look or Look(120, boxes=False)), look or Look(120, boxes=False))


def row(**changes):
    return shown(comparison(worst=(entry(**changes),))).splitlines()[2].split()


def test_one_row_says_everything_about_one_element():
    assert row() == ["y0[0]", "x[3,1]", "-0.785398", "0.785398", "±1.2e-11", "1.57", "2", "2e+06"]


@pytest.mark.parametrize(("width", "errors"), [(80, ("abs.", "rel.", "÷tol.")), (120, ("absolute", "relative", "error ÷", "tolerance"))])
def test_headers_name_the_seven_columns(width, errors):
    words = " ".join(shown(comparison(worst=(entry(),)), Look(width, boxes=False)).splitlines()[:2])
    for word in ("output", "input", "analytic", "numeric ± bar", *errors):
        assert word in words


def test_parts_of_complex_numbers_are_named():
    assert row(output_part="re", input_part="im")[:2] == ["y0[0].real", "x[3,1].imag"]


def test_a_0_dim_tensor_has_no_brackets():
    assert row(output_index=(), input_index=())[:2] == ["y0", "x"]


def test_numbers_that_differ_do_not_look_alike():
    cells = row(analytic=1.0, numeric=1.000000001)
    assert cells[2] != cells[3] and float(cells[3]) == 1.000000001


@pytest.mark.parametrize("tolerance, analytic, expected", [(0.0, 2.0, "inf"), (0.5, 2.0, "2")])
def test_a_ratio_to_no_tolerance_is_infinite(tolerance, analytic, expected):
    assert row(analytic=analytic, numeric=1.0, tolerance=tolerance)[-1] == expected


@pytest.mark.parametrize("outcome", ["undecided", "kink", "jump", "staircase"])
def test_an_outcome_that_has_no_ratio_is_named_instead(outcome):
    assert row(outcome=outcome)[-1] == outcome


@pytest.mark.parametrize("width", [80, 100])
def test_every_outcome_reads_well(golden, width):
    golden(f"outcomes-{width}.txt", render(report(of_every_outcome()), Look(width, verbosity=1)))


def test_the_place_of_the_ratio_is_red_only_where_something_is_wrong():
    coloured = Look(80, color=True)
    assert "\x1b[33mstaircase" in shown(comparison(worst=(entry(outcome="staircase"),)), coloured)
    assert re.search(r"\x1b\[1;31m *2e\+06", shown(comparison(worst=(entry(),)), coloured))


def test_given_numbers_have_no_output_and_are_what_was_expected():
    lines = shown(comparison("GV107", output=None, worst=(entry((), (1,), 0.5, 0.6, bar=5.3e-16),))).splitlines()
    assert lines[1].split() == ["input", "analytic", "expected", "error", "error", "tolerance"]
    assert lines[2].split()[:3] == ["x[1]", "0.5", "0.6"]


@pytest.mark.parametrize(("rule", "header"), [("GV101", "numeric ± bar"), ("GV106", "expected ± bar"), ("GV108", "numeric ± bar")])
def test_the_gradient_of_a_reference_is_what_was_expected(rule, header):
    compared = comparison(rule, worst=(entry(bar=1e-9),))
    check = failing(comparisons=(compared,), findings=(Finding(rule, "differs", input=compared.input, output=compared.output),))
    other = header.replace("numeric", "expected") if "numeric" in header else header.replace("expected", "numeric")
    assert header in shown(compared) and header in html.render(report(check)) and other not in html.render(report(check))
    assert f"| analytic | {header.split()[0]} | error ÷ tolerance |" in markdown.render(report(check))


def test_given_numbers_that_are_uncertain_have_their_bar():
    text = shown(comparison("GV107", output=None, worst=(entry((), (1,), 0.5, 0.6, bar=1e-4),)))
    assert "expected ± bar" in text and "0.6 ±0.0001" in text


@pytest.mark.parametrize("bar, is_shown", [(7e-13, False), (9e-13, True), (math.inf, True), (math.nan, True)])
def test_of_a_given_number_a_bar_of_rounding_only_is_not_shown(bar, is_shown):
    text = shown(comparison("GV107", output=None, worst=(entry((), (1,), bar=bar),)))
    assert ("±" in text.splitlines()[-1]) is is_shown and ("expected ± bar" in text) is is_shown


def test_a_finite_difference_shows_its_bar_however_small():
    assert "numeric ± bar" in shown(comparison(worst=(entry(bar=1e-15),)))
    assert "±" not in shown(comparison(worst=(entry(bar=0.0),))), "a fixed step has none"


@pytest.mark.parametrize("width", [72, 80, 120])
def test_a_long_input_without_an_output_folds(width):
    compared = comparison("GV107", input="projection_weight_of_the_second_attention_head", output=None, worst=(entry((), (1023, 4095)),))
    text = paint(table(compared, Look(width)), Look(width))
    assert "0.785398" in text and all(len(line) <= width for line in text.splitlines())


def test_nan_and_inf_are_written_out():
    cells = row(analytic=math.nan, numeric=math.inf, bar=math.inf, outcome="non_finite")
    assert cells[2:5] == ["nan", "inf", "±inf"] and cells[-1] == "non-finite"


def test_no_bar_is_drawn_where_there_is_none():
    assert row(bar=0.0)[2:4] == ["-0.785398", "0.785398"] and "±0" not in row(bar=0.0)


def test_rows_are_capped_and_the_rest_counted():
    compared = comparison(mismatched=64, worst=tuple(entry((i,)) for i in range(12)))
    lines = shown(compared).splitlines()
    assert len(lines) == 2 + 10 + 1 and lines[-1] == "… and 54 more of 96"
    assert shown(compared, Look(120, boxes=False, max_rows=3)).splitlines()[-1] == "… and 61 more of 96"


def test_only_elements_that_came_out_alike_are_counted():
    compared = comparison(mismatched=1, kinks=50, undecided=3, worst=(entry(), entry(outcome="jump")))
    assert shown(compared).splitlines()[-1] == "… and 2 more of 96"


def test_nothing_more_is_not_mentioned():
    assert "more" not in shown(comparison(mismatched=1, worst=(entry(),)))


def test_no_elements_no_table():
    assert shown(comparison()) == ""


def test_worst_come_in_the_order_given():
    lines = shown(comparison(mismatched=2, worst=(entry((7,)), entry((2,))))).splitlines()
    assert [line.split()[0] for line in lines[2:]] == ["y0[7]", "y0[2]"]
