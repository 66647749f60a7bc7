"""Inputs that forward forgot, and get zeros; inputs that are still where the check looks only (dead regions, bounds, a zero beside) are right."""

from __future__ import annotations

import pytest
import torch
from live import check, codes, fixed, message, randn
from torch.autograd import Function

from rules.functions import X


def ignoring(gradient):
    """sin(x) of x and w, with `gradient(w)` for w."""

    class Ignores(Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return x.sin()

        @staticmethod
        def backward(ctx, g):
            x, w = ctx.saved_tensors
            return g * x.cos(), gradient(w)

    return Ignores


def reading(forward):
    """`forward` of x and w, differentiated by torch inside a Function: all zeros are handed out as zeros."""

    class Reads(Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return forward(x, w)

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, g):
            with torch.enable_grad():
                x, w = (t.detach().requires_grad_() for t in ctx.saved_tensors)
                y = forward(x, w)
            found = torch.autograd.grad(y, (x, w), g, allow_unused=True)
            return tuple(torch.zeros_like(t) if gradient is None else gradient for t, gradient in zip((x, w), found, strict=True))

    return Reads


W = torch.tensor([0.5, 1.5, 1.0], dtype=torch.float64)


def test_an_input_that_moves_nothing_and_gets_zeros_is_a_warning():
    result = check(ignoring(torch.zeros_like), X, W)
    assert (result.verdict, [(found.code, found.severity, found.input) for found in result.findings]) == ("pass", [("GV229", "warning", "w")])
    assert message(result, "GV229") == "w moves no output at any point looked at, and backward returns zeros for it"


def test_a_parameter_too():
    ignores = ignoring(torch.zeros_like)

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.gain = torch.nn.Parameter(torch.ones(3))

        def forward(self, x):
            return ignores.apply(x, self.gain)

    assert [(found.code, found.input) for found in check(Layer, X, init={}).findings] == [("GV229", "gain")]


def test_none_says_honestly_that_there_is_no_gradient():
    assert codes(check(ignoring(lambda w: None), X, W)) == set()


STILL = {
    "a dead relu": (lambda x, w: x.sin() + w.clamp_min(0), -W),
    "a dead relu of one number": (lambda x, w: x.sin() + w.clamp_min(0), torch.tensor([-0.3], dtype=torch.float64)),
    "an upper bound that clamps nothing": (lambda x, w: torch.minimum(x, w), 50 * W),
    "a lower bound that clamps nothing": (lambda x, w: torch.maximum(x, w), -50 * W),
    "a threshold far away": (lambda x, w: torch.where(w > -100, x.sin(), x.cos()), W),
    "rounded": (lambda x, w: x.sin() + w.round(), W),
    "its sign only": (lambda x, w: x * w.sign(), W),
}


@pytest.mark.parametrize("name", STILL)
def test_an_input_that_is_still_here_only_is_left_alone(name):
    forward, w = STILL[name]
    assert "GV229" not in codes(check(reading(forward), X, w, second_order=False))


def test_the_first_factor_of_a_product_whose_second_starts_at_zero_moves_elsewhere():
    """An adapter (x A) B with B = 0, as they all start."""
    adapter = reading(lambda a, b: randn(5, 4) @ a @ b)
    result = check(adapter, randn(4, 2), torch.zeros(2, 3, dtype=torch.float64), second_order=False)
    assert "GV229" not in codes(result)


def test_where_every_gradient_is_zero_that_is_said_once():
    dead = reading(lambda x, w: x.clamp_min(0) * 1.0 + w.detach().clamp_min(0))
    assert codes(check(dead, -X.abs(), -W, second_order=False)) == {"GV009"}


def test_empty_tensors_indices_and_torchs_own_operators_are_not_for_this_rule():
    run = {name: next(run for run in check(*call).rules if run.code == "GV229") for name, call in (
        ("own", (lambda x, w: x.sin() + 0 * w, X, W)), ("empty", (reading(lambda x, w: x[:, :0] * w[:0]), X, W[:0])))}
    assert run["own"].reason == "no custom Function is in the graph"
    assert run["empty"].reason == "the spec asks for an empty tensor"
    assert "GV229" not in codes(check(lambda x, i: ignoring(torch.zeros_like).apply(x, W)[i], X, fixed(torch.tensor([0, 1]))))


def test_it_costs_nothing_where_no_gradient_is_zero():
    run = next(run for run in check(reading(lambda x, w: x * w), X, W, second_order=False).rules if run.code == "GV229")
    assert (run.status, run.calls.forward, run.calls.backward) == ("ran", 0, 0)


def widened(forward, grads):
    class Op(Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return forward(x, w)

        @staticmethod
        def backward(ctx, g):
            x, w = ctx.saved_tensors
            return grads(x, w, g)

    return Op


def softmax_gradients(x, w, g):
    y = x.softmax(-1)
    u = g * w
    return y * (u - (u * y).sum(-1, keepdim=True)), (g * y).reshape(-1, len(w)).sum(0)


@pytest.mark.parametrize("shape", [(1,), (7, 1), (2, 1, 1)])
def test_a_softmax_over_one_element_is_still_because_of_its_size(shape):
    assert check(widened(lambda x, w: x.softmax(-1) * w, softmax_gradients), randn(*shape), randn(1, seed=1)).findings == ()


@pytest.mark.parametrize("shape", [(1,), (3, 1), (1, 4)])
def test_an_input_of_one_element_that_is_forgotten_is_a_warning_all_the_same(shape):
    forgets = widened(lambda x, w: w.tanh() + 0 * x.detach().sum(), lambda x, w, g: (torch.zeros_like(x), g * (1 - w.tanh() ** 2)))
    assert codes(check(forgets, randn(*shape), randn(5, seed=1))) == {"GV229"}
