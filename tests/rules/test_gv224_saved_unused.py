from __future__ import annotations

import torch
from live import check, codes, fixed, message, randn

from rules.functions import Right, RightProduct, X, Y


class Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x + y

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output, grad_output


class ReadsWhenNeeded(torch.autograd.Function):
    """x · y² reads x only where y needs a gradient; for x alone it would be enough to keep y."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        ctx.y = y
        return x * y * y

    @staticmethod
    def backward(ctx, grad_output):
        of_x = grad_output * ctx.y * ctx.y
        if not ctx.needs_input_grad[1]:
            return of_x, None
        x, y = ctx.saved_tensors
        return of_x, 2 * grad_output * x * y


class WritesAndSaves(torch.autograd.Function):
    """Its first forward is repeated on clones; what it saves is counted once, and read."""

    @staticmethod
    def forward(ctx, x):
        ctx.inside = x < 0.5
        x.data.clamp_(max=0.5)
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad_output):
        x, = ctx.saved_tensors
        return grad_output * 2 * x * ctx.inside


class WritesAndForgets(WritesAndSaves):
    @staticmethod
    def backward(ctx, grad_output):
        return torch.zeros_like(grad_output)


def test_saving_for_nothing_is_a_warning():
    result = check(Sum, X, Y)
    assert [(found.code, found.severity) for found in result.findings] == [("GV224", "warning")]
    assert "forward saves 2 tensors" in message(result, "GV224")
    assert result.verdict == "pass"
    assert check(Sum, X, Y, strict=True).verdict == "fail"


def test_reading_what_was_saved_is_fine():
    assert codes(check(Right, X)) == set()
    assert codes(check(RightProduct, X, Y)) == set()
    assert "GV224" not in codes(check(ReadsWhenNeeded, X, Y))


def test_where_an_input_needs_no_gradient_backward_may_rightly_not_read():
    assert codes(check(ReadsWhenNeeded, X, fixed(Y))) == set()
    run, = (run for run in check(ReadsWhenNeeded, X, fixed(Y)).rules if run.code == "GV224")
    assert run.status == "not_applicable"


def test_a_function_that_writes_into_its_input_is_counted_once():
    x = torch.tensor([-1.0, 0.25, 2.0], dtype=torch.float64)
    assert "GV224" not in codes(check(WritesAndSaves, x))
    assert "forward saves 1 tensor for" in message(check(WritesAndForgets, x), "GV224")


def test_a_callable_saves_what_it_likes():
    assert "GV224" not in codes(check(lambda x, y: Sum.apply(x, y), randn(2), randn(2, seed=1)))
