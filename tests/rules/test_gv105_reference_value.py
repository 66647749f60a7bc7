from __future__ import annotations

import pytest
import torch
from live import Oracles, check, codes, message, randn


def checked(function, reference, *values):
    return check(function, *values, oracles=Oracles(reference=reference))


def test_a_forward_that_differs_is_found_although_its_gradient_fits_itself():
    result = checked(lambda x: x.sin() + 1e-3, "torch:sin", randn(2, 3))
    assert codes(result) == {"GV105"}
    assert "6 of 6 numbers of y0 differ from reference torch:sin" in message(result, "GV105")


def test_another_shape_is_found():
    assert "shape [2, 3], the reference [3, 2]" in message(checked(torch.sin, "rules.test_gv105_reference_value:transposed", randn(2, 3)), "GV105")


def transposed(x):
    return x.sin().t()


def test_another_order_of_the_same_sum_is_no_difference():
    assert codes(checked(lambda x: x.flip(0).sum(0), "rules.test_gv105_reference_value:summed", randn(50, 2))) == set()


def summed(x):
    return x.sum(0)


def test_without_a_reference_it_does_not_apply():
    run, = (run for run in check(torch.sin, randn(2)).rules if run.code == "GV105")
    assert (run.status, run.reason) == ("not_applicable", "the spec names no `reference`")


# ---- float32: noise of fewer bits, and noise of numbers that cancel
def in_fewer_bits(y):
    """In float32 alone, as where a kernel for float32 takes bfloat16 operands."""
    return y + (y.detach().bfloat16().float() - y.detach()) if y.dtype == torch.float32 else y


def sums(x):
    return x.cumsum(-1)


def varies(x):
    return (x - x.mean(-1, keepdim=True)).square().mean(-1)


def shifted(x):
    return x + x * x


@pytest.mark.parametrize("seed", range(4))
def test_a_float32_forward_that_computes_in_fewer_bits_is_found_by_both_legs(seed):
    """Its values move in steps, a noise that does not let them be compared."""
    result = checked(lambda x: sums(in_fewer_bits(x)), "rules.test_gv105_reference_value:sums", randn(6, 24, seed=seed, dtype=torch.float32))
    assert result.verdict == "fail" and "GV105" in codes(result)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("function", "reference", "at"), [
    (lambda x: x.square().mean(-1) - x.mean(-1).square(), "varies", 200.0), (lambda x: (x + 1e4) - 1e4 + x * x, "shifted", 0.0),
    (lambda x: x.flip(-1).cumsum(-1).flip(-1)[..., :1] - x.flip(-1).cumsum(-1).flip(-1) + x, "before", 0.0)])
def test_a_float32_forward_whose_numbers_cancel_is_not_accused(function, reference, at, seed):
    """It is float32's own noise, in that way to compute it."""
    result = checked(lambda x: function(x), f"rules.test_gv105_reference_value:{reference}", randn(6, 24, seed=seed, dtype=torch.float32) + at)
    assert result.verdict in ("pass", "undecided")


def before(x):
    return x.cumsum(-1)


class OutOfSight(torch.autograd.Function):
    """x + x², in NumPy, where numbers cancel."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        a = x.detach().numpy()
        return torch.from_numpy((a + a.dtype.type(1e4)) - a.dtype.type(1e4) + a * a)

    @staticmethod
    def backward(ctx, grad):
        x, = ctx.saved_tensors
        return grad * (1 + 2 * x)


def test_what_float32_costs_out_of_torchs_sight_is_not_told():
    assert checked(OutOfSight, "rules.test_gv105_reference_value:shifted", randn(6, 24, dtype=torch.float32)).verdict in ("pass", "undecided")
