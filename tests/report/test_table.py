import math

import pytest
from factories import comparison, entry

from gradverify.report.look import Look
from gradverify.report.terminal.canvas import paint
from gradverify.report.terminal.table import table


def shown(compared, look=None):
    return paint(table(compared, look or Look(120, boxes=False)), look or Look(120, boxes=False))


def row(**changes):
    return shown(comparison(worst=(entry(**changes),))).splitlines()[2].split()


def test_one_row_says_everything_about_one_element():
    assert row() == ["y0[0]", "x[3,1]", "-0.785398", "0.785398", "±1.2e-11", "1.57", "2", "2e+06"]


def test_headers_name_the_seven_columns():
    words = " ".join(shown(comparison(worst=(entry(),))).splitlines()[:2])
    for word in ("output", "input", "analytic", "numeric ± bar", "absolute", "relative", "error ÷", "tolerance"):
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
