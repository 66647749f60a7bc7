from __future__ import annotations

import torch
from live import check, codes, message, randn

from rules.functions import X, Y, product


def test_none_for_an_input_that_moves_the_output_is_found_and_explains_the_jacobian():
    result = check(product(lambda ctx, x, y, g: (g * y, None)), X, Y)
    assert codes(result) == {"GV102"}
    assert result.findings[0].also == ("GV101",)
    assert "the gradient of y is None, but y0 depends on it" in message(result, "GV102")


def test_an_input_is_told_once_whatever_the_number_of_outputs():
    class Rotates(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, c):
            ctx.save_for_backward(c)
            return x * c, x + c

        @staticmethod
        def backward(ctx, g, h):
            return g * ctx.saved_tensors[0] + h, None

    result = check(Rotates, X, Y)
    assert [(finding.code, finding.input, finding.output) for finding in result.findings] == [("GV102", "c", None)]
    assert "the gradient of c is None, but y0 and y1 depend on it: the finite difference at y0[" in message(result, "GV102")


def test_none_for_an_input_without_influence_is_right():
    class IgnoresSecond(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            return x * 2

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output * 2, None

    assert codes(check(IgnoresSecond, X, Y)) == set()


def test_zeros_instead_of_none_are_a_wrong_number_not_a_missing_one():
    assert codes(check(product(lambda ctx, x, y, g: (g * y, torch.zeros_like(y))), X, Y)) == {"GV101"}


def test_a_detached_output_that_the_spec_names_is_found():
    result = check(lambda x: (x * 2, (x * 3).detach()), randn(2), outputs=(0, 1))
    assert codes(result) == {"GV102"}
    assert result.findings[0].output == 1
    assert codes(check(lambda x: (x * 3).detach(), randn(2), outputs=(0,))) == {"GV102"}


def test_a_detached_output_that_stands_still_or_is_not_named_is_right():
    assert codes(check(lambda x: (x * 2, torch.ones(3)), randn(2), outputs=(0, 1))) == set()
    assert codes(check(lambda x: (x * 2, (x * 3).detach()), randn(2))) == set()
