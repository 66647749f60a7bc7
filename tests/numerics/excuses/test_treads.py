"""Functions that round to a grid, at inputs whose tread is as wide as all steps. Truth: the
function without its rounding."""

import pytest
import torch

from gradverify.numerics.choose import Mode
from gradverify.numerics.compare import compare
from gradverify.numerics.pairs.pair import Outcome
from numerics.differentiable import Differentiable, with_backward

X = torch.tensor([0.02243327798230821, 0.7, -1.2, 0.31], dtype=torch.float64)


def to_grid(y):
    return torch.round(y * 1e3) / 1e3


def mismatches(forward, backward, x=X):
    (pair,) = compare(Differentiable(with_backward(forward, backward), x), mode=Mode.ENTRIES).pairs
    return pair.count(Outcome.MISMATCH), pair.count(Outcome.PASS)


def test_a_right_gradient_is_not_wrong_on_a_tread_that_holds_all_steps_of_one_side():
    found, passed = mismatches(lambda x: to_grid(x * x), lambda x, g: 2 * x * g)
    assert (found, passed) == (0, 12)  # the zeros off the diagonal


def test_a_wrong_gradient_of_a_staircase_is_found():
    assert mismatches(lambda x: to_grid(x * x), lambda x, g: 4 * x * g)[0] >= 2
    assert mismatches(lambda x: to_grid(x * x), lambda x, g: 2 * x * g + g.sum())[0] >= 2


def test_a_slope_where_f_is_constant_is_wrong_also_beside_steps():
    for forward in (lambda x: x.clamp(0.1, 0.1001), torch.round):
        assert (
            mismatches(
                forward, lambda x, g: g, torch.tensor([-0.9, 0.7, -1.2, -0.8], dtype=torch.float64)
            )[0]
            >= 1
        )


@pytest.mark.parametrize("last", [-4.0, -4.6, -4.8, -5.0, -5.1, -5.5])
def test_an_output_that_rounds_to_zero_is_open_where_others_of_its_tensor_move_in_steps(last):
    x = torch.tensor([1.57, -0.89, -1.28, last], dtype=torch.float64)
    clean = lambda x: (3 * x).softmax(0).tanh()  # noqa: E731
    rounded = lambda x: (torch.round((3 * x).softmax(0) * 1e5) / 1e5).tanh()  # noqa: E731
    right = lambda x, g: torch.autograd.functional.vjp(clean, x, g)[1]  # noqa: E731
    assert mismatches(rounded, right, x)[0] == 0
    assert mismatches(rounded, lambda x, g: right(x, g) + 0.1 * g.sum(), x)[0] >= 4
