from __future__ import annotations

import gc

import pytest
import torch
from live import check, codes, message, randn
from torch import nn
from torch.autograd import Function

from rules.functions import Right, X, Y
from rules.tricky import Flat, SavesOutput


class OutputOnCtx(SavesOutput):
    @staticmethod
    def forward(ctx, x):
        ctx.y = x.exp()
        return ctx.y

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.y


class InputOnCtx(Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.x = x
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx, grad_output):
        x, y = ctx.saved_tensors
        return grad_output * y, grad_output * x


class SelfOnCtx(Right):
    """No tensor of the caller's is kept, but the node is."""

    @staticmethod
    def forward(ctx, x):
        ctx.again = ctx
        return Right.forward(ctx, x)


def test_an_output_on_ctx_is_a_circle():
    result = check(OutputOnCtx, X)
    assert [(found.code, found.severity) for found in result.findings] == [("GV214", "warning")]
    assert "y0 and the node of OutputOnCtx stay in memory" in message(result, "GV214")
    assert (result.verdict, check(OutputOnCtx, X, strict=True).verdict) == ("pass", "fail")


def test_a_node_alone_is_seen():
    assert message(check(SelfOnCtx, X), "GV214").startswith("the node of SelfOnCtx stays in memory")


def test_an_input_that_lives_as_long_as_the_output_is_named():
    found, = check(InputOnCtx, X, Y).findings
    assert (found.code, found.input) == ("GV214", "x")
    assert "x stays in memory as long as the output" in found.message


def test_a_cache_of_outputs_is_seen_in_a_callable_but_inputs_are_not_looked_at():
    kept = []

    def keeps(x):
        y = Right.apply(x)
        kept.append(y)
        return y

    assert "y0 and the node of Unary stay" in message(check(keeps, X, select=("GV214",)), "GV214")
    assert codes(check(lambda x, y: InputOnCtx.apply(x, y), X, Y)) == set()


@pytest.mark.parametrize("function", [Right, SavesOutput, Flat])
def test_what_is_saved_and_what_is_a_view_is_fine(function):
    assert codes(check(function, X)) == set()


def test_a_module_may_keep_its_weights():
    class Keeps(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))

        def forward(self, x):
            self.last = self.weight
            return Right.apply(x * self.weight)

    assert codes(check(Keeps, X)) == set()


def test_state_between_calls_is_told_by_its_own_rule():
    class OnTheClass(Right):
        @staticmethod
        def forward(ctx, x):
            OnTheClass.x = x
            return x * x

        @staticmethod
        def backward(ctx, grad_output):
            return 2 * grad_output * OnTheClass.x.detach()

    assert codes(check(OnTheClass, X)) == {"GV207"}


@pytest.mark.parametrize("on", [True, False])
def test_the_collector_is_left_as_it_was(on):
    before = gc.isenabled()
    try:
        gc.enable() if on else gc.disable()
        check(Right, randn(2), select=("GV214",))
        assert gc.isenabled() is on
    finally:
        gc.enable() if before else gc.disable()
