"""The native error and what is told by it, on numbers made for it. The truth is torch's own
rounding."""

import pytest
import torch
from live import randn

from gradverify.numerics.sixteen_bit import Legs, judge


def legs(kernel, exact):
    """Of a computation that rounds its result once and is not moved by its inputs."""
    runs = torch.stack([exact * (1 + k / 100) for k in range(6)])
    return Legs(kernel[None].double(), exact[None], runs.bfloat16().double() - runs, 0 * runs, runs)


EXACT = randn(40, 32) * torch.logspace(-3, 1, 40, dtype=torch.float64)[:, None]
KERNEL = EXACT.bfloat16().double()


def zeroed(rows, columns):
    kernel = KERNEL.clone()
    kernel[rows, columns] = 0
    return kernel


def test_one_rounding_is_right():
    found = judge(legs(KERNEL, EXACT), torch.bfloat16)
    assert (found.miss, found.wrong) == ("", 0) and 0.5 < found.ratio < 2


@pytest.mark.parametrize(
    ("kernel", "miss", "row"),
    [
        (zeroed(0, slice(None)), "element", 0),
        (zeroed(slice(None), slice(28, None)), "element", None),
        (KERNEL * 1.03, "element", None),
        (
            EXACT.to(torch.float16).double() * (1 + 0.008 * randn(40, 32, seed=3).sign()),
            "row",
            None,
        ),
        (EXACT * 1.006, "gain", None),
    ],
    ids=["a small row", "a tail", "a factor", "noise", "a small factor"],
)
def test_what_is_more_is_wrong(kernel, miss, row):
    found = judge(legs(kernel, EXACT), torch.bfloat16)
    assert found.miss
    assert row is None or found.row == row
    assert miss == "element" or found.wrong == 0


def test_what_is_lost_though_it_fits_is_an_overflow_and_what_does_not_fit_is_left_out():
    kernel = KERNEL.clone()
    kernel[3, 4] = torch.inf
    assert (
        judge(legs(kernel, EXACT), torch.bfloat16).miss,
        judge(legs(kernel, EXACT), torch.bfloat16).index,
    ) == ("overflow", 3 * 32 + 4)
    exact = EXACT.clone()
    exact[3, 4] = 1e39
    found = judge(legs(kernel, exact), torch.bfloat16)
    assert (found.miss, found.beyond) == ("", 1)


def test_dust_in_a_row_that_is_zero_is_no_fault_and_more_is():
    exact = EXACT.clone()
    exact[7] = 0
    kernel = exact.bfloat16().double()
    kernel[7] = 1e-2 * randn(32)
    assert not judge(legs(kernel, exact), torch.bfloat16).miss
    kernel[7] = randn(32)
    assert judge(legs(kernel, exact), torch.bfloat16).miss == "element"


@pytest.mark.parametrize(("times", "miss"), [(1, ""), (-1.5, ""), (4, "element")])
def test_an_error_that_the_computation_itself_had_in_a_run_is_none_and_a_multiple_is(times, miss):
    """Errors of one sign in all elements of a row: one random number decides how large they are,
    and the largest of nine is far above their mean."""
    vector = 0.01 * EXACT.abs().mean(1, keepdim=True) * randn(40, 32, seed=5)
    sizes = torch.tensor([0.1, 0.2, 0.1, 0.1, 0.3, 0.1, 0.1, 0.2, 6.0], dtype=torch.float64)
    runs = EXACT.expand(9, -1, -1)
    found = judge(
        Legs(
            (EXACT + 6 * times * vector)[None],
            EXACT[None],
            sizes[:, None, None] * vector,
            0 * runs[:6],
            runs,
        ),
        torch.bfloat16,
    )
    assert found.miss == miss
