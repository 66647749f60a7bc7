from __future__ import annotations

import pytest

from gradverify.causes.mistakes import factor, slices
from gradverify.causes.pattern import Side


@pytest.mark.parametrize(
    ("c", "shown"),
    [
        (2.0, "2.0000"),
        (-0.5, "-0.5000"),
        (1 / 3, "0.3333 (1/3)"),
        (-1.000002, "-1.000002"),
        (0.0416667, "0.0416667"),
        (1 + 1.7e-8, "(1 + 1.7e-08)"),
        (1 - 2e-7, "(1 − 2e-07)"),
        (1 + 2e-6, "1.000002"),
    ],
)
def test_a_factor_is_shown_as_exactly_as_it_is_known(c, shown):
    assert factor(c) == shown


@pytest.mark.parametrize(
    ("shape", "axis", "span", "shown"),
    [
        ((4, 6), 0, (2, 2), "row 2 of w"),
        ((4, 6), 1, (0, 3), "columns 0 to 3 of w"),
        ((9,), 0, (4, 8), "elements 4 to 8 of w"),
        ((2, 3, 4), 2, (1, 2), "indices 1 to 2 of axis 2 of w"),
        ((2, 3, 4), None, (16, 23), "elements 16 to 23 of w"),
    ],
)
def test_a_block_is_named_by_rows_columns_and_elements(shape, axis, span, shown):
    assert slices(Side("w", shape), axis, *span) == shown
