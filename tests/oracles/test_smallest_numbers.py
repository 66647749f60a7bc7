"""Numbers near the end of what a dtype holds: what underflows is rounded absolutely, so a right
gradient is not accused there, and none passes."""

import pytest
import torch
from live import check, codes
from torch import tensor

LEAST = {torch.float64: (1e-310, 5e-324, 3e-320), torch.float32: (1e-42, 1e-45, 3e-44)}
NAMES = {torch.float64: "float64", torch.float32: "float32"}


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad_output):
        return 2 * ctx.saved_tensors[0] * grad_output


class Wrong(Square):
    @staticmethod
    def backward(ctx, grad_output):
        return 3 * Square.backward(ctx, grad_output)


@pytest.mark.parametrize("function", [Square.apply, torch.sigmoid, lambda x: 3 * x])
@pytest.mark.parametrize("dtype", LEAST)
def test_of_denormal_inputs_none_is_accused_and_no_rule_fails(function, dtype):
    result = check(function, tensor(LEAST[dtype], dtype=dtype), dtype=NAMES[dtype])
    assert (
        result.verdict in ("pass", "undecided")
        and not codes(result) - {"GV007"}
        and not result.faults
    ), result.reason


@pytest.mark.parametrize("dtype", LEAST)
def test_of_denormal_inputs_no_wrong_gradient_passes(dtype):
    assert (
        check(Wrong.apply, tensor(LEAST[dtype], dtype=dtype), dtype=NAMES[dtype]).verdict
        == "undecided"
    )


@pytest.mark.parametrize(("dtype", "small"), [(torch.float64, 1e-200), (torch.float32, 1e-30)])
def test_an_element_whose_square_underflows_is_judged_with_the_others(dtype, small):
    x = tensor([small, 1.0], dtype=dtype)
    assert check(Square.apply, x, dtype=NAMES[dtype]).verdict == "pass"
    assert codes(check(Wrong.apply, x, dtype=NAMES[dtype])) >= {"GV101"}
