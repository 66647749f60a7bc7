from __future__ import annotations

import pytest
import torch
from live import check, codes, message
from torch import nn
from torch.autograd import Function

from rules.functions import X
from rules.tricky import Scratch


def exponential(write, keep=lambda y: y):
    """exp(x), whose backward does something to what forward saved."""

    class Exponential(Function):
        @staticmethod
        def forward(ctx, x):
            y = x.exp()
            ctx.save_for_backward(keep(y))
            return y

        @staticmethod
        def backward(ctx, grad_output):
            y, = ctx.saved_tensors
            gradient = grad_output * y
            write(y.detach())
            return gradient

    return Exponential


@pytest.mark.parametrize("write", [lambda y: y.mul_(2), lambda y: y.data.mul_(2), lambda y: y.numpy().__imul__(2)])
def test_a_write_into_the_output_in_backward_is_that_and_no_other_fault(write):
    found, = check(exponential(write), X).findings
    assert (found.code, found.severity, found.output) == ("GV204", "error", 0)
    assert "backward writes into y0: y0[0,0] was 1.64872 before, 3.29744 after" in found.message


@pytest.mark.parametrize("write", [lambda y: y.mul_(2), lambda y: y.data.mul_(2)])
def test_a_write_into_a_saved_intermediate_is_found_too(write):
    result = check(exponential(write, torch.clone), X)
    assert codes(result) == {"GV204"}
    assert "backward writes into the saved tensor 0 of Exponential: [0,0] was 1.64872 before" in message(result, "GV204")


def test_inside_a_callable_as_well():
    result = check(lambda x: exponential(lambda y: y.mul_(2), torch.clone).apply(x * 2).sum(), X)
    assert codes(result) == {"GV204"}


def test_an_input_is_named_by_its_own_rule():
    def backward(ctx, grad_output):
        x, = ctx.saved_tensors
        gradient = grad_output * 2 * x
        x.data.zero_()
        return gradient

    assert codes(check(type("Saves", (Scratch,), {"backward": staticmethod(backward)}), X)) == {"GV203"}


class Counts(Function):
    @staticmethod
    def forward(ctx, x, seen):
        ctx.seen = seen
        return x * 2

    @staticmethod
    def backward(ctx, grad_output):
        ctx.seen += 1
        return grad_output * 2, None


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        return Counts.apply(x, self.seen)


def test_a_buffer_may_change_in_forward_only():
    found, = check(Layer, X).findings
    assert found.code == "GV204"
    assert "backward writes into seen: seen was 0 before, 1 after" in found.message


def test_out_of_place_and_scratch_are_fine():
    assert codes(check(exponential(lambda y: y.mul(2)), X)) == set()
    assert codes(check(exponential(lambda y: y.mul_(1)), X)) == {"GV227"}      # right once: torch refuses the second backward
    assert codes(check(Scratch, X)) == set()
