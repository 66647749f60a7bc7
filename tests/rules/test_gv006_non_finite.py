from __future__ import annotations

import pytest
import torch
from live import check, codes, message


def at(*numbers):
    return torch.tensor(numbers, dtype=torch.float64)


@pytest.mark.parametrize(("function", "x", "said"), [
    (torch.log, at(1.0, -1.0), "1 of 2 numbers of y0 are not finite; first at y0[1]: nan"),
    (lambda x: 1 / x - 1 / x, at(0.0, 1.0), "y0[0]: nan"),
    (lambda x: x * torch.inf, at(1.0, 2.0), "infinite throughout"),
])
def test_nan_and_moving_or_total_infinity_are_errors(function, x, said):
    result = check(function, x)
    assert (result.verdict, codes(result)) == ("error", {"GV006"})
    assert said in message(result, "GV006")


def test_an_overflow_that_stays_is_judged_by_what_backward_gives_the_others():
    assert codes(check(torch.exp, at(1.0, 1e4))) == {"GV103"}       # 0 · inf: the row of y[0] holds NaN at x[1]


def test_an_infinity_that_a_small_step_ends_is_an_error():
    result = check(lambda x: torch.where(x == 1, torch.inf, x), at(1.0, 2.0))
    assert codes(result) == {"GV006"}


def test_a_mask_of_minus_infinity_is_left_out_and_counted_out():
    mask = at(0.0, -torch.inf)
    result = check(lambda x: x * 3 + mask, at(1.0, 2.0))
    assert (result.verdict, codes(result)) == ("pass", set())
    assert [each.elements for each in result.comparisons] == [2]


def test_a_softmax_of_a_masked_row_is_found():
    mask = torch.full((3,), -torch.inf, dtype=torch.float64)
    assert codes(check(lambda x: (x + mask).softmax(0), at(1.0, 2.0, 3.0))) == {"GV006"}
