from __future__ import annotations

import pytest
import torch
from live import check, codes, message


def with_slope_at_zero(forward, slope):
    """A function with a kink at 0 whose backward gives `slope` there, torch's gradient elsewhere."""

    class Kinked(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return forward(x)

        @staticmethod
        def backward(ctx, grad_output):
            x = ctx.saved_tensors[0].detach().requires_grad_()
            with torch.enable_grad():
                gradient, = torch.autograd.grad(forward(x).sum(), x)
            return grad_output * torch.where(x == 0, torch.full_like(x, slope), gradient)

    return Kinked


X = torch.tensor([-1.5, 0.0, 2.0], dtype=torch.float64)


@pytest.mark.parametrize(("forward", "slope", "right"), [
    (torch.relu, 0.0, True), (torch.relu, 1.0, True), (torch.relu, 0.5, True), (torch.relu, 1.1, False), (torch.relu, -0.1, False),
    (torch.abs, 1.0, True), (torch.abs, 0.0, True), (torch.abs, 1.5, False), (lambda x: -x.abs(), -1.0, True), (lambda x: -x.abs(), 2.0, False),
    (lambda x: x.clamp_max(0), 1.0, True), (lambda x: x.clamp_max(0), -0.5, False)])
def test_between_the_slopes_is_right_and_outside_is_not(forward, slope, right):
    result = check(with_slope_at_zero(forward, slope), X)
    assert (result.verdict, codes(result)) == (("pass", set()) if right else ("fail", {"GV104"}))
    assert sum(comparison.kinks for comparison in result.comparisons) == (1 if right else 0)


def test_the_message_names_the_element_and_both_slopes():
    text = message(check(with_slope_at_zero(torch.relu, 1.1), X), "GV104")
    assert "at the kink y0[1] / x[1] backward gives 1.1" in text
    assert "between 0 and 1" in text


def test_a_fixed_step_has_no_kink_test():
    result = check(with_slope_at_zero(torch.relu, 1.1), X, eps=1e-6)
    assert codes(result) == {"GV101"}


def test_ties_of_max_and_clamp_at_its_bound_pass_as_torch_differentiates_them():
    tied = torch.tensor([1.0, 1.0, 0.2], dtype=torch.float64)
    for function in (torch.max, torch.amax, lambda x: x.clamp(-1, 1), torch.nn.functional.relu6):
        assert codes(check(function, tied)) == set()
