from __future__ import annotations

import pytest
import torch
from live import check, codes, message, randn

from rules.functions import X, square


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_a_gradient_that_is_no_number_is_found_and_explains_the_jacobian(bad):
    result = check(square(lambda x, g: torch.where(x == 2.0, bad, 2 * x) * g), X)
    assert codes(result) == {"GV103"}
    assert result.findings[0].also == ("GV101",)
    assert "x[0,2]" in message(result, "GV103")


@pytest.mark.parametrize("settings", [{"atol": 1e9}, {"rtol": 1e9}, {"eps": 1e-6, "atol": 1e9, "rtol": 1e9}])
def test_no_tolerance_lets_nan_pass(settings):
    assert "GV103" in codes(check(square(lambda x, g: g * torch.nan), X, **settings))


def test_the_norm_at_zero_is_no_fault_of_a_gradient_of_zero():
    assert codes(check(square(lambda x, g: 2 * x * g), torch.zeros(3, dtype=torch.float64))) <= {"GV009"}


def test_finite_gradients_have_no_such_finding():
    assert codes(check(torch.exp, randn(4))) == set()
