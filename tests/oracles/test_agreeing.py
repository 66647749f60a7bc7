"""`witness: always`: of gradients that finite differences decide, whether torch's own derivative of forward is the same. No verdict depends on it."""

import pytest
import torch
from live import check, randn
from torch.autograd import Function


def sine(factor=1.0, forward=torch.sin):
    class Sine(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return forward(x)

        @staticmethod
        def backward(ctx, grad):
            return grad * ctx.saved_tensors[0].cos() * factor
    return Sine


def told(function, **settings):
    result = check(function, randn(3, 2), **settings)
    comparison = next(each for each in result.comparisons if each.rule == "GV101")
    return result, comparison, next(run.reason for run in result.rules if run.code == "GV101")


@pytest.mark.parametrize(("factor", "apart"), [(1.0, 0.0), (1 + 1e-15, 0.0), (1 + 1e-11, 1e-11), (1 + 1e-8, 1e-8)])
def test_how_far_backward_is_from_it_is_told_below_what_finite_differences_see(factor, apart):
    result, comparison, _ = told(sine(factor), witness="always")
    assert result.verdict == "pass"
    assert comparison.witness_apart == pytest.approx(apart, rel=1e-3)
    assert (comparison.witnessed, comparison.evidence) == (0, "")


@pytest.mark.parametrize("forward", [lambda x: x.detach().sin() + 0 * x, lambda x: torch.from_numpy(x.detach().numpy()).sin()])
def test_where_it_is_absent_a_right_gradient_passes_and_the_reason_is_told(forward):
    result, comparison, reason = told(sine(forward=forward), witness="always")
    assert result.verdict == "pass" and comparison.witness_apart is None
    assert reason == "forward has no derivative of its own to ask: detach"


def test_each_input_and_output_has_its_own():
    class Two(Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(x, y)
            return x * y, x + y

        @staticmethod
        def backward(ctx, g, h):
            x, y = ctx.saved_tensors
            return g * y + h, g * x * (1 + 1e-9) + h

    result = check(Two, randn(3), randn(3, seed=1), witness="always", ignore=("GV114",))
    apart = {(each.input, each.output): each.witness_apart for each in result.comparisons if each.rule == "GV101"}
    assert {key: value == 0 for key, value in apart.items()} == {("x", 0): True, ("x", 1): True, ("y", 0): False, ("y", 1): True}


# ---- GV114
def warned(function, *inputs, **settings):
    result = check(function, *(inputs or (randn(3, 2),)), **settings)
    return result.verdict, [finding.message for finding in result.findings if finding.code == "GV114"]


@pytest.mark.parametrize("factor", [1 + 1e-11, 1 - 1e-10])
def test_a_rounded_constant_is_warned_of_down_to_rounding_where_the_witness_is_always_asked(factor):
    verdict, messages = warned(sine(factor), witness="always")
    assert verdict == "pass" and len(messages) == 1 and "from forward's own derivative, at points nearby too" in messages[0]
    assert "off by 1e-" in messages[0] and not warned(sine(factor))[1]


@pytest.mark.parametrize("size", [1e2, 1e6])
def test_rounding_of_backward_is_not_warned_of(size):
    """A large number is added in backward and taken away again, which costs up to 1e-10 of the gradient."""
    class Rounds(sine()):
        @staticmethod
        def backward(ctx, grad):
            return (grad * ctx.saved_tensors[0].cos() + size) - size

    result, comparison, _ = told(Rounds, witness="always", select=("GV1",))
    assert result.verdict == "pass" and (comparison.witness_apart > 1e-12) == (size >= 1e4)
    assert not warned(Rounds, witness="always", select=("GV1",))[1]
