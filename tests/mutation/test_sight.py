"""Whether damage changes a gradient: at the inputs of a check, and at others."""

from __future__ import annotations

import pytest
import torch
from live import evidence, randn

from gradverify.mutation.mutate import Samples, other_point
from gradverify.subject.damage import damages
from gradverify.subject.subject import Argument


def seen(function, *inputs):
    """Damage → does it change the gradient here, and elsewhere?"""
    samples = Samples(evidence(function, *inputs))
    return {
        damage.name: (samples.changes(damage), samples.changes_elsewhere(damage))
        for damage in damages(inputs)
    }


def test_a_gradient_that_is_zero_here_only_is_changed_elsewhere_only():
    assert seen(torch.relu, -1 - randn(3, 4).abs())["×1.01"] == (False, True)


def test_a_gradient_that_is_zero_everywhere_is_changed_nowhere():
    assert seen(lambda x: x * 0, randn(3, 4))["sign"] == (False, False)


def test_equal_gradients_of_equal_inputs_are_swapped_elsewhere():
    x = randn(3, 4)
    assert seen(torch.mul, x, x.clone())["swap inputs"] == (False, True)
    assert seen(torch.add, x, randn(3, 4, seed=1))["swap inputs"] == (False, False)


def test_a_linear_function_has_no_state_and_another_has():
    assert seen(lambda x: 3 * x, randn(3, 4))["stale state"] == (False, False)
    assert seen(torch.sin, randn(3, 4))["stale state"] == (True, True)


def test_rounding_is_no_change_and_one_part_in_ten_thousand_is():
    x = randn(4, 5, dtype=torch.float32)
    assert seen(lambda x: x.softmax(-1).sum(), x)["sign"] == (False, False)
    assert seen(torch.sin, x)["×(1 + 1e-4)"] == (True, True)


@pytest.mark.parametrize("n", range(2))
def test_other_points_differ_everywhere_and_stay_in_the_domain(n):
    x = torch.tensor([0.0, 0.2, 0.9, 0.5], dtype=torch.float64)
    free = other_point(Argument("x", x, True), n, torch.Generator().manual_seed(0))
    inside = other_point(
        Argument("x", x, True, domain=(0.1, 1.0)), n, torch.Generator().manual_seed(0)
    )
    assert (free != x).all()
    assert ((inside >= 0.1) & (inside <= 1.0)).all()
