"""What keeps an element undecided is said as it is, and what can be decided is: the rounding of larger numbers inside
f, kinks near x, several kinks together, places that nobody gave."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from live import check, codes, evidence, message, randn
from torch.autograd import Function

from gradverify.numerics.verdict import Limit, Verdict


def differentiated(forward, gradient=None):
    """A Function with torch's own gradient of `forward`, or `gradient(grad_output, *inputs)`."""
    class Differentiated(Function):
        @staticmethod
        def forward(ctx, *inputs):
            ctx.save_for_backward(*inputs)
            return forward(*inputs)

        @staticmethod
        def backward(ctx, grad_output):
            if gradient is not None:
                return gradient(grad_output, *ctx.saved_tensors)
            with torch.enable_grad():
                leaves = [x.detach().requires_grad_() for x in ctx.saved_tensors]
                return torch.autograd.grad(forward(*leaves), leaves, grad_output)

    return Differentiated


def double(*numbers):
    return torch.tensor(numbers, dtype=torch.float64)


def pair(function, *inputs):
    return next(iter(evidence(function, *inputs).jacobian.pairs.values()))


# ---- the rounding of larger numbers inside f
@pytest.mark.parametrize("forward", [lambda x: 1 + torch.erf(x), lambda x: 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))])
def test_a_tail_that_cancels_is_undecided_by_its_rounding(forward):
    found = pair(differentiated(forward), double(-5.0, -5.3, -5.5) * (1.0 if forward(double(-1.0)) > 0 else 1.35))
    assert {limit for limit, _ in found.limits} <= {Limit.CANCELS}


def test_a_zero_in_such_a_tail_is_not_right():
    found = pair(differentiated(lambda x: 1 + torch.erf(x), lambda g, x: torch.zeros_like(x)), double(-4.6, -4.2))
    assert found.verdict is not Verdict.PASS


# ---- a kink near x
@pytest.mark.parametrize("gap", [1e-7, 1e-9])
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("pooled", [lambda x: F.max_pool2d(x, 2), lambda x: x.amax(-1)])
def test_the_smaller_of_two_nearly_equal_numbers_has_a_zero_slope(pooled, seed, gap):
    x = randn(1, 1, 4, 4, seed=seed) * 10.0 ** (seed - 1)
    x[0, 0, 0, 0] = x.max() + 0.3
    x[0, 0, 0, 1] = x[0, 0, 0, 0] + gap

    def exchanged(grad_output, x):
        with torch.enable_grad():
            lowered = torch.where(x == x.max(), x - 0.1, x).detach().requires_grad_()
            return torch.autograd.grad(pooled(lowered), lowered, grad_output)

    assert pair(differentiated(pooled), x).verdict is Verdict.PASS
    assert pair(differentiated(pooled, exchanged), x).verdict is Verdict.MISMATCH


# ---- several kinks together
def all_of_them(grad_output, x):
    return grad_output * (x == x.max())


@pytest.mark.parametrize("x", [double(1.0, 1.0, 0.3), double(1.0, 1.0, 1.0, 0.3)])
def test_a_tie_that_gives_every_input_the_whole_gradient_is_no_subgradient(x):
    result = check(differentiated(torch.max, all_of_them), x)
    assert codes(result) == {"GV104"}
    assert "their sum is no slope along all of them together, which is 1" in message(result, "GV104")
    assert check(differentiated(torch.amax), x).verdict == "pass"


@pytest.mark.parametrize("name", ["hardtanh", "maximum", "abs", "overlapping windows", "relu of a product", "sorted differences", "max of abs"])
def test_torchs_own_gradients_at_several_kinks_are_right(name):
    weight = double(1, -1, 0, 1, 1, 0, -1, 1, 0, 0, 1, 1).reshape(2, 6)
    forward = {
        "hardtanh": lambda x: F.hardtanh(x).sum(), "maximum": lambda x: torch.maximum(x[:3], x[3:]).sum(), "abs": lambda x: x.abs().sum(),
        "overlapping windows": lambda x: F.max_pool1d(x[None, None], 2, 1).sum(), "relu of a product": lambda x: (weight @ x).relu().sum(),
        "sorted differences": lambda x: (x[:, None] - x[None]).abs().sum(), "max of abs": lambda x: x.abs().max()}[name]
    assert check(differentiated(forward), double(0.0, 1.0, -1.0, 0.0, 1.0, -1.0)).verdict == "pass"


# ---- places that nobody gave
def lambert_w(left):
    """W₀ by Halley's iteration; `left` of −1/e, where it is not defined."""
    class LambertW(Function):
        @staticmethod
        def forward(ctx, x):
            inside = x.clamp_min(-1 / math.e + 1e-12)
            w = torch.where(inside > 1, 0.8 * inside.clamp_min(1).log(), inside.clamp_min(-0.3678))
            for _ in range(30):
                f = w * w.exp() - inside
                w = w - f / (w.exp() * (w + 1) - (w + 2) * f / (2 * w + 2))
            w = torch.where(x < -1 / math.e, left, w)
            ctx.save_for_backward(w)
            return w

        @staticmethod
        def backward(ctx, grad_output):
            w, = ctx.saved_tensors
            return grad_output / (w.exp() * (1 + w))

    return LambertW


@pytest.mark.population(most=4)
@pytest.mark.parametrize("left", [-1.0, 0.0, -0.999, math.nan])
@pytest.mark.parametrize("seed", [1, 2])
def test_a_gradient_outside_the_domain_is_no_error(left, seed):
    result = check(lambert_w(left), double(-0.36, -0.1, 2.0), seed=seed)
    assert result.verdict == "pass"
    assert all("where forward is constant" in each.message for each in result.findings if each.code == "GV113")


def test_a_wrong_branch_that_moves_there_is_found():
    """|x|·x with the slope of x²: where forward moves, the second point is judged as before."""
    wrong = differentiated(lambda x: x.abs() * torch.where(x.abs() > 1.5, -x, x), lambda g, x: g * 2 * x.abs())
    assert "GV113" in codes(check(wrong, double(-1.4, 0.7, 1.3)))
