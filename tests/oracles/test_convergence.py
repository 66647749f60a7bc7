"""What an iteration leaves is a share of the output's reach: told from a missing gradient by its size, from a wrong element by the numbers read."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from live import Oracles, check, codes, message, randn
from torch import Tensor
from torch.autograd import Function

X, START = randn(4), randn(4, seed=1)


def reaching(share: float, *, given: bool = False, factor: float = 0.0, steps: int = 0) -> type[Function]:
    """x² + share · start, whose gradient for `start` is None (`given`: `factor` times what it should be); it reads `steps` numbers on the way."""
    class Reaching(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, start: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            for _ in range(steps):
                assert float(x.norm()) > 0
            return x * x + share * start

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Any:
            x, = ctx.saved_tensors
            return 2 * x * g, factor * share * g if given else None
    return Reaching


@pytest.mark.parametrize("given", [False, True], ids=["None", "zeros"])
def test_an_input_that_moves_the_output_by_next_to_nothing_is_a_warning(given: bool):
    result = check(reaching(7e-12, given=given), X, START)
    assert (result.verdict, codes(result)) == ("pass", {"GV114"})
    assert "d y0 / d start is zero, where the output moves by what is small compared with its row" in message(result, "GV114")


def test_an_iteration_is_named_only_where_one_is_seen():
    found = message(check(reaching(7e-12, steps=5), X, START), "GV114")
    assert "d y0 / d start is off by what an iteration leaves, small compared with its row" in found


@pytest.mark.parametrize("steps", [0, 5], ids=["straight", "iterating"])
@pytest.mark.parametrize(("given", "code"), [(False, "GV102"), (True, "GV101")], ids=["None", "zeros"])
def test_a_missing_gradient_that_matters_stays_an_error(given: bool, code: str, steps: int):
    result = check(reaching(1e-4, given=given, steps=steps), X, START)
    assert result.verdict == "fail" and code in codes(result)


@pytest.mark.parametrize("share", [1e-7, 1e-8])
def test_only_a_function_that_iterates_may_leave_as_much_as_rtol_of_its_row(share: float):
    assert check(reaching(share), X, START).verdict == "fail"
    assert check(reaching(share, steps=5), X, START).verdict == "pass"


def test_a_small_element_that_is_wrong_but_not_zero_is_no_leftover():
    assert "GV101" in codes(check(reaching(1e-10, given=True, factor=1.5), X, START))
    assert check(reaching(1e-10, given=True, factor=1.0), X, START).verdict == "pass"


def lopsided(x: Tensor) -> Tensor:
    """Numbers from 1 to 1e-7, which a share of 2e-8 of the largest is much of."""
    return x.exp() * torch.logspace(0, -7, 4, dtype=x.dtype)


def stopped(steps: int, error: float = 2e-8) -> type[Function]:
    class Stopped(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            for _ in range(steps):
                assert float(x.norm()) > 0
            ctx.save_for_backward(x)
            return lopsided(x) + error

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            return g * lopsided(ctx.saved_tensors[0]) + error * g.sum()
    return Stopped


@pytest.mark.parametrize(("steps", "error", "found"), [(5, 2e-8, set()), (0, 2e-8, {"GV105"}), (5, 1e-4, {"GV105"})],
                         ids=["iterating", "straight", "too much"])
def test_values_are_held_against_a_reference_beside_the_largest(steps: int, error: float, found: set[str]):
    result = check(stopped(steps, error), X, oracles=REFERENCE, select=("GV105",), ignore=("GV0",))
    assert codes(result) == found


@pytest.mark.parametrize(("steps", "error", "found"), [(5, 2e-8, set()), (0, 2e-8, {"GV106"}), (5, 1e-4, {"GV106"})],
                         ids=["iterating", "straight", "too much"])
def test_so_are_gradients(steps: int, error: float, found: set[str]):
    result = check(stopped(steps, error), X, oracles=REFERENCE, select=("GV106",), ignore=("GV0",))
    assert codes(result) == found


REFERENCE = Oracles(reference="oracles.test_convergence:lopsided")


def test_what_was_left_is_within_what_the_pass_says_it_would_have_seen():
    result = check(reaching(7e-12), X, START)
    left = next(each for each in result.comparisons if each.input == "start")
    assert left.mismatched == 0 and left.resolution >= 7e-12
    assert torch.isfinite(torch.tensor(left.max_abs_error))
