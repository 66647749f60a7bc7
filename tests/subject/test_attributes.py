"""Gradients that backward adds to an attribute of a tensor (`weight.main_grad`)."""

from __future__ import annotations

import pytest
import torch
from live import check, codes, randn
from torch.autograd import Function


def fused(add, returns=None):
    class Linear(Function):
        @staticmethod
        def forward(ctx, x, weight):
            ctx.save_for_backward(x, weight)
            return x @ weight.t()

        @staticmethod
        def backward(ctx, g):
            x, weight = ctx.saved_tensors
            add(weight.main_grad, g.t() @ x)
            return g @ weight, returns

    return Linear


class Module(torch.nn.Module):
    def __init__(self, linear):
        super().__init__()
        self.linear, self.weight = linear, torch.nn.Parameter(randn(4, 3))

    def forward(self, x):
        return self.linear.apply(x, self.weight).tanh()


RIGHT = fused(lambda held, new: held.add_(new))
SCALED = fused(lambda held, new: held.add_(new, alpha=1.01))
OVERWRITES = fused(lambda held, new: held.copy_(new))
MAIN_GRAD = {"weight": "main_grad"}


@pytest.mark.parametrize(
    ("linear", "expected"), [(RIGHT, set()), (SCALED, {"GV101"}), (OVERWRITES, {"GV220"})]
)
@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_a_gradient_in_an_attribute_is_compared_and_must_be_added(linear, expected, dtype):
    x, weight = randn(5, 3, seed=1), randn(4, 3)
    if dtype == "bfloat16":
        x, weight = x.bfloat16(), weight.bfloat16()
    found = check(linear, x, weight, gradients=MAIN_GRAD, dtype=dtype)
    assert codes(found) == expected


@pytest.mark.parametrize(("linear", "verdict"), [(RIGHT, "pass"), (SCALED, "fail")])
def test_that_of_a_parameter(linear, verdict):
    found = check(Module(linear), randn(5, 3), gradients=MAIN_GRAD)
    assert found.verdict == verdict, found.findings
    assert verdict == "pass" or "GV111" in codes(found)


def test_a_name_that_is_no_input_is_refused():
    from gradverify.subject.failure import UserCodeError

    with pytest.raises(UserCodeError, match="no differentiated input 'wieght'") as caught:
        check(RIGHT, randn(5, 3), randn(4, 3), gradients={"wieght": "main_grad"})
    assert caught.value.hint == "did you mean 'weight'?"


def test_without_the_key_the_attribute_is_missing():
    assert "GV003" in codes(check(RIGHT, randn(5, 3), randn(4, 3)))
