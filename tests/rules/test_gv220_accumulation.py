from __future__ import annotations

import pytest
import torch
from live import check, codes, message
from torch.autograd import Function

from rules.functions import Right, RightProduct, X, Y
from rules.tricky import Flat, InPlace, Packed, Sum, Used


def total(gradients, refuses=False):
    """x + y with `gradients(grad_output)`."""

    class Total(Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.used = False
            return x + y

        @staticmethod
        def backward(ctx, grad_output):
            if ctx.used and refuses:
                raise RuntimeError("used")
            ctx.used = True
            return gradients(grad_output)

    return Total


def two_views(g):
    return g.view_as(g), g.view_as(g)


@pytest.mark.parametrize("refuses", [False, True])
def test_two_views_of_grad_output_become_one_grad(refuses):
    result = check(total(two_views, refuses), X, Y)
    assert {(found.code, found.severity) for found in result.findings} - {("GV227", "warning")} == {("GV220", "error")}
    assert "after two backwards is 3 at" in result.findings[0].message
    assert "not twice the first: 2" in result.findings[0].message


def test_autograd_does_add_them_twice_and_gradcheck_does_not_see_it():
    x, y = X.clone().requires_grad_(), Y.clone().requires_grad_()
    for _ in range(2):
        total(two_views).apply(x, y).backward(torch.ones_like(x))
    assert x.grad.eq(3).all() and y.grad.eq(3).all()
    assert torch.autograd.gradcheck(total(two_views).apply, (X.clone().requires_grad_(), Y.clone().requires_grad_()))


@pytest.mark.parametrize("gradients", [lambda g: (g, g), lambda g: (g.clone(), g.clone()), lambda g: (g.view_as(g), g.clone()), lambda g: (g * 1, g)])
def test_one_tensor_twice_and_copies_are_fine(gradients):
    assert codes(check(total(gradients), X, Y)) == set()


def test_an_argument_that_is_added_to_is_named():
    class Weighted(Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(x, y)
            return (x * y).sum()

        @staticmethod
        def backward(ctx, grad_output):
            x, y = ctx.saved_tensors
            return (y.detach(), grad_output * x) if grad_output == 1 else (grad_output * y, grad_output * x)

    assert "adding to .grad writes into y" in message(check(Weighted, X, Y, select=("GV220",)), "GV220")
    assert codes(check(Weighted, X, Y)) == {"GV213", "GV220"}       # of x the alias; of y, which is written to, the write


@pytest.mark.parametrize(("function", "values"), [(Right, (X,)), (RightProduct, (X, Y)), (Sum, (X, Y)), (Flat, (X,)), (Packed, (X, Y)), (Used, (X,))])
def test_right_functions_add_up(function, values):
    assert codes(check(function, *values)) == ({"GV227"} if function is Used else set())      # which refuses a second backward


def test_a_backward_that_raises_for_ones_is_this_rules_finding():
    def particular(g):
        if g.eq(1).all():
            raise ValueError("ones")
        return g, g

    result = check(total(particular), X, Y)
    assert (result.verdict, codes(result)) == ("fail", {"GV220"})
    assert message(result, "GV220") == "`.backward(ones)` twice: backward raised ValueError: ones"


def test_zeros_without_memory_are_right_though_autograd_cannot_add_to_them():
    """What torch.sgn gives for a gradient; a second `.backward()` of torch.sgn itself raises."""
    class Signed(Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(x)
            return x.sgn() * y

        @staticmethod
        def backward(ctx, g):
            x, = ctx.saved_tensors
            return torch._efficientzerotensor(g.shape, dtype=g.dtype), g * x.sgn()

    result = check(Signed, X, Y)
    assert (result.verdict, codes(result)) == ("pass", set())
    reason = next(run.reason for run in result.rules if run.code == "GV220")
    assert reason == "a gradient is torch's zeros without memory, to which autograd itself cannot add"


def test_only_inputs_that_go_straight_into_a_function_are_judged():
    """Behind a view of torch's own it is torch that hands out views."""
    def reason(function, *values):
        return next(run.reason for run in check(function, *values).rules if run.code == "GV220")

    assert codes(check(lambda x, y: total(two_views).apply(x.view(-1), y.view(-1)), X, Y)) == set()
    assert reason(lambda x: Right.apply(x * 2), X) == reason(InPlace, X) == "no input goes straight into a custom Function"
    assert codes(check(lambda x, y: total(two_views).apply(x, y) * 1, X, Y)) == {"GV220"}
