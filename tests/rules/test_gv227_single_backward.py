"""What a second backward needs is dropped by the first: an attribute deleted, a list emptied, a storage freed, a flag raised on purpose.

Scratch that is written on ctx, saved tensors, and a second backward that works another way are right.
"""

from __future__ import annotations

import pytest
import torch
from live import check, codes, message
from torch.autograd import Function
from torch.utils.checkpoint import checkpoint

from rules.functions import Right, RightProduct, X, Y, square


def squaring(backward):
    """x² whose context holds x as `ctx.x`, in the list `ctx.xs`, and saved."""

    class Squares(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            ctx.x, ctx.xs, ctx.used = x.clone(), [x.clone()], False
            return x * x

        @staticmethod
        def backward(ctx, g):
            return backward(ctx, g)

    return Squares


def deletes(ctx, g):
    gradient = 2 * g * ctx.x
    del ctx.x
    return gradient


def sets_to_none(ctx, g):
    gradient, ctx.x = 2 * g * ctx.x, None
    return gradient


def pops(ctx, g):
    return 2 * g * ctx.xs.pop()


def frees(ctx, g):
    if not ctx.x.untyped_storage().nbytes():
        raise RuntimeError("the storage was freed")
    gradient = 2 * g * ctx.x
    ctx.x.untyped_storage().resize_(0)
    return gradient


def refuses(ctx, g):
    if ctx.used:
        raise RuntimeError("used already")
    ctx.used = True
    return 2 * g * ctx.saved_tensors[0]


def scratch(ctx, g):
    ctx.g, ctx.used = g, True
    return 2 * g * ctx.saved_tensors[0]


def rebuilds(ctx, g):
    x = ctx.saved_tensors[0] if ctx.x is None else ctx.x
    ctx.x = None
    return 2 * g * x


@pytest.mark.parametrize("backward", [deletes, sets_to_none, pops, frees, refuses])
def test_a_second_backward_that_raises_is_a_warning(backward):
    result = check(squaring(backward), X, second_order=False, ignore=("GV224",))
    assert (result.verdict, [(found.code, found.severity) for found in result.findings]) == ("pass", [("GV227", "warning")])
    assert message(result, "GV227").startswith("a second backward of one graph is refused, though it was retained: backward raised ")


@pytest.mark.parametrize("backward", [scratch, rebuilds])
def test_scratch_and_a_second_way_are_left_alone(backward):
    assert "GV227" not in codes(check(squaring(backward), X))


@pytest.mark.parametrize("function", [Right, lambda x: Right.apply(Right.apply(x)), lambda x: RightProduct.apply(x, x)])
def test_right_functions_are_left_alone_at_no_cost(function):
    result = check(function, X)
    assert codes(result) == set()
    run = next(run for run in result.rules if run.code == "GV227")
    assert (run.status, run.calls.forward) == ("ran", 0)


def test_it_is_found_inside_a_callable_and_a_module():
    drops = squaring(deletes)

    class Layer(torch.nn.Module):
        def forward(self, x):
            return drops.apply(x).sin()

    assert codes(check(lambda x: drops.apply(x) + 1, X, second_order=False)) == {"GV227"}
    assert codes(check(Layer, X, init={}, second_order=False)) == {"GV227"}


def test_torchs_own_operators_and_what_refuses_autograd_grad_are_not_for_this_rule():
    runs = {name: next(run for run in check(function, X).rules if run.code == "GV227").reason
            for name, function in (("own", torch.sin), ("checkpoint", lambda x: checkpoint(Right.apply, x, use_reentrant=True)))}
    assert runs == {"own": "no custom Function is in the graph", "checkpoint": "torch.autograd.grad is refused, as a re-entrant checkpoint does"}
    assert codes(check(lambda x: checkpoint(Right.apply, x, use_reentrant=False), X)) == set()


def test_a_backward_that_overwrites_what_it_needs_is_told_by_another_rule():
    assert codes(check(square(lambda x, g: x.mul_(2).mul_(g)), X, select=("GV2",))) & {"GV203", "GV204"}
    assert "GV227" not in codes(check(square(lambda x, g: x.mul_(2).mul_(g)), X))


def test_several_inputs_and_outputs():
    class Two(Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.xy = x, y
            return x * y, x + y

        @staticmethod
        def backward(ctx, g, h):
            x, y = ctx.xy
            ctx.xy = ()
            return g * y + h, g * x + h

    assert "GV227" in codes(check(Two, X, Y, second_order=False))
