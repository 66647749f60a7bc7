from __future__ import annotations

import pytest
import torch
from live import check, codes, message, randn
from torch import nn
from torch.autograd import Function

from rules.functions import X, square
from rules.tricky import Used


def on_the_class(once=False):
    """x² that keeps x on the class; `once`: a graph serves one backward."""

    class OnTheClass(Function):
        x = None

        @staticmethod
        def forward(ctx, x):
            OnTheClass.x = x.detach().clone()
            ctx.used = False
            return x * x

        @staticmethod
        def backward(ctx, grad_output):
            if once and ctx.used:
                raise RuntimeError("used")
            ctx.used = True
            return grad_output * 2 * OnTheClass.x

    return OnTheClass


@pytest.mark.parametrize("once", [False, True])
def test_state_on_the_class_is_named_as_that_and_not_as_a_wrong_gradient(once):
    result = check(on_the_class(once), X)
    assert (result.verdict, codes(result) - {"GV227"}) == ("fail", {"GV207"})      # read once: no second backward either
    assert "a forward and backward with other inputs changes the gradient of an earlier call" in message(result, "GV207")


def test_gradcheck_accepts_state_on_the_class_that_is_read_once():
    class LastMask(Function):
        mask = None

        @staticmethod
        def forward(ctx, x):
            LastMask.mask = x > 0
            return x * LastMask.mask

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output * LastMask.mask

    assert torch.autograd.gradcheck(LastMask.apply, X.clone().requires_grad_())
    assert codes(check(LastMask, X)) == {"GV207"}


def test_an_output_buffer_that_is_used_again_is_found():
    class Reuses(Function):
        buffer = torch.zeros(2, 3, dtype=torch.float64)

        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.mul(x, x, out=Reuses.buffer).detach()

        @staticmethod
        def backward(ctx, grad_output):
            x, = ctx.saved_tensors
            return 2 * grad_output * x

    assert "y0, returned by an earlier call, is overwritten by a later one" in message(check(Reuses, X, select=("GV207",)), "GV207")


def test_a_gradient_buffer_that_no_object_of_the_call_holds_is_found():
    buffer = torch.zeros(2, 3, dtype=torch.float64)
    result = check(square(lambda x, g: torch.mul(g, 2 * x.detach(), out=buffer)), X)
    assert codes(result) == {"GV207"}
    assert "the gradient of x, returned by an earlier call, is overwritten by a later one" in message(result, "GV207")


def test_scratch_that_adds_up_is_found_at_the_second_backward():
    class AddsUp(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            ctx.sum = torch.zeros_like(x)
            return x * x

        @staticmethod
        def backward(ctx, grad_output):
            x, = ctx.saved_tensors
            ctx.sum.add_(2 * x.detach() * grad_output)
            return ctx.sum.clone()

    assert "backward of one graph gives another gradient when it is called again" in message(check(AddsUp, X, select=("GV207",)), "GV207")


def test_values_that_depend_on_an_earlier_call_are_found():
    seen = []

    def function(x):
        if not seen or not torch.equal(seen[0], x):
            seen.append(x.detach().clone())
        return x * len(seen)

    assert "forward gives other values after a call with other inputs" in message(check(function, X, select=("GV207",)), "GV207")


def test_a_module_that_remembers_is_found():
    class Remembers(nn.Module):
        def forward(self, x):
            self.last = x.detach().clone()
            return Reads.apply(x, self)

    class Reads(Function):
        @staticmethod
        def forward(ctx, x, module):
            ctx.module = module
            return x * x

        @staticmethod
        def backward(ctx, grad_output):
            return 2 * grad_output * ctx.module.last, None

    assert codes(check(Remembers(), X)) == {"GV207"}


def test_a_function_that_is_not_defined_elsewhere_is_left_alone():
    def picky(x):
        if not torch.allclose(x, X, atol=0.3):
            raise ValueError("not here")
        return x * x

    assert codes(check(picky, X)) == set()


def test_random_functions_are_told_by_their_seed_and_others_are_not_judged():
    assert "GV207" not in codes(check(torch.nn.functional.dropout, randn(20)))
    run, = (run for run in check(lambda x: x * torch.rand(3, generator=OWN, dtype=torch.float64), randn(3)).rules if run.code == "GV207")
    assert run.reason == "the forward is not deterministic"


OWN = torch.Generator().manual_seed(0)


def test_where_a_second_backward_is_refused_each_graph_gets_one():
    assert codes(check(Used, X)) == {"GV227"}      # a warning


def test_it_costs_two_forwards_and_two_backwards_beside_the_repeats_that_others_asked_for():
    run, = (run for run in check(torch.sin, X).rules if run.code == "GV207")
    assert (run.calls.forward, run.calls.backward) == (2, 2)
