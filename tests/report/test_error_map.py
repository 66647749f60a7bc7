import math

import pytest

from gradverify.model.result import ErrorMap
from gradverify.report.look import Look
from gradverify.report.terminal.canvas import paint
from gradverify.report.terminal.table import RAMP, error_map, glyph


@pytest.mark.parametrize("ratio, drawn", [(0.0, " "), (0.009, " "), (0.01, "."), (1.0, "."), (1.001, ":"), (10.0, ":"), (10.1, "-"), (1e3, "="),
                                          (1e8, "@"), (1e300, "@"), (math.inf, "@"), (math.nan, "?")])
def test_the_glyph_of_a_ratio(ratio, drawn):
    assert glyph(ratio) == drawn


def test_a_larger_error_never_has_a_fainter_glyph():
    places = [RAMP.index(glyph(10.0 ** (exponent / 7))) for exponent in range(-30, 90)]
    assert places == sorted(places) and set(places) == set(range(len(RAMP)))


def test_rows_are_outputs_and_columns_inputs():
    text = paint(error_map(ErrorMap(((0.0, 0.5, 5.0), (50.0, math.nan, 0.0))), Look(80)), Look(80)).splitlines()
    assert text[0] == "error map: 2 output elements down, 3 input elements across"
    assert text[1:3] == ["| .:|", "|-? |"]


@pytest.mark.parametrize("ratio", [((1.0,) * 90,), ((1.0,),) * 60, (), ((),)])
def test_a_map_that_does_not_fit_is_left_out(ratio):
    assert list(error_map(ErrorMap(ratio), Look(80))) == []
