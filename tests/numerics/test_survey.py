"""What is measured before anything is compared: noise, size, what moves nothing, what is linear."""

import numpy as np
import pytest
import torch

from gradverify.numerics.survey import linear_inputs
from numerics.differentiable import DOUBLE, Differentiable, normal
from numerics.windows import prepared


def noisy(amount, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return lambda x: x.exp() + amount * torch.randn(x.shape, generator=generator, dtype=DOUBLE)


@pytest.mark.parametrize("amount", [1e-12, 1e-9, 1e-6])
def test_noise_is_found_within_a_factor(amount):
    _, known = prepared(Differentiable(noisy(amount), normal(1, 50)))
    assert 0.3 * amount < np.median(known.sigma) < 4 * amount


def test_where_one_input_leaves_what_f_is_defined_on_each_is_asked_by_itself():
    x, y = torch.zeros(40, dtype=DOUBLE), normal(2, 40)
    _, known = prepared(Differentiable(lambda x, y: x.sqrt() + y + 1e-9 * (1e13 * y).sin(), x, y))
    assert known.forward > 2 * (9 + 2)
    assert (known.sigma > 1e-10).all()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("power", [2, 3, 4])
@pytest.mark.parametrize("n", [3, 40])
def test_a_bend_about_x_of_any_power_is_no_straight_line(power, n, seed):
    """Odd powers do not show in steps of one size to both sides."""
    x = normal(seed, n)
    centre = x.clone()
    _, known = prepared(
        Differentiable(
            lambda x: 1 + x + 1e-9 * (x - centre) ** power / centre.abs() ** (power - 1), x
        )
    )
    assert linear_inputs(known, thrifty=True) == {}
    _, known = prepared(Differentiable(lambda x: 1 + x, x))
    assert set(linear_inputs(known, thrifty=True)) == {0}
