from __future__ import annotations

import pytest
import torch
from live import check, codes, message, randn

from rules.functions import X, Y, product, square


@pytest.mark.parametrize(("backward", "said"), [
    (lambda ctx, x, y, g: g * y, "returns 1 gradient, but forward has 2 arguments"),
    (lambda ctx, x, y, g: (g * y, g * x, g), "returns 3 gradients, but forward has 2 arguments"),
    (lambda ctx, x, y, g: (g * y, (g * x).float()), "a float32 gradient for y, which is float64"),
    (lambda ctx, x, y, g: ((g * y).t(), g * x), "a gradient of shape [3, 2] for x, which has [2, 3]"),
    (lambda ctx, x, y, g: (g * y, (g * x).sum()), "a gradient of shape [] for y, which has [2, 3]"),
    (lambda ctx, x, y, g: (g * y, 3.0), "returns 3.0 for y, which is no tensor"),
    (lambda ctx, x, y, g: ((g * y).to("meta"), g * x), "a gradient on meta for x, which is on cpu"),
])
def test_a_wrong_number_dtype_shape_type_or_device_is_an_error(backward, said):
    result = check(product(backward), X, Y)
    assert (result.verdict, codes(result)) == ("fail", {"GV212"})
    assert said in message(result, "GV212")


def test_a_gradient_that_autograd_sums_down_is_a_warning():
    class Adds(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, bias):
            return x + bias

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output, grad_output

    result = check(Adds, randn(3, 2), randn(2))
    assert [(found.code, found.severity, found.input) for found in result.findings] == [("GV212", "warning", "bias")]
    assert "autograd sums it down" in message(result, "GV212")
    assert result.verdict == "pass"
    assert check(Adds, randn(3, 2), randn(2), strict=True).verdict == "fail"


@pytest.mark.parametrize("backward", [
    lambda ctx, x, y, g: (g * y, g * x),
    lambda ctx, x, y, g: (g * y, g * x, None),         # trailing Nones are allowed
    lambda ctx, x, y, g: ((g * y).t().contiguous().t(), g * x),
])
def test_what_autograd_takes_as_it_is_is_fine(backward):
    assert codes(check(product(backward), X, Y)) == set()


def test_a_function_inside_a_callable_is_seen_and_named():
    bad = square(lambda x, g: (2 * x * g).float())
    result = check(lambda x: bad.apply(x.sin()).sum(0), X)
    assert "GV212" in codes(result)
    assert "backward of Unary returns a float32 gradient for argument 0" in message(result, "GV212")


def test_an_argument_after_one_without_a_gradient_is_told_rightly():
    class Scales(torch.autograd.Function):
        @staticmethod
        def forward(ctx, factor, index, x):
            ctx.factor = factor
            return x * factor

        @staticmethod
        def backward(ctx, grad_output):
            return None, None, (grad_output * ctx.factor).float()

    assert "a float32 gradient for x, which is float64" in message(check(Scales, 2.0, torch.tensor([1]), X), "GV212")


def test_an_apply_with_other_arguments_than_forward_is_not_misread():
    class Wraps(torch.autograd.Function):
        @classmethod
        def apply(cls, x):
            return super().apply(2.0, x)

        @staticmethod
        def forward(ctx, factor, x):
            ctx.factor = factor
            return x * factor

        @staticmethod
        def backward(ctx, grad_output):
            return None, grad_output * ctx.factor

    class Halves(Wraps):
        @staticmethod
        def backward(ctx, grad_output):
            return None, (grad_output * ctx.factor).float()

    result = check(Wraps, X)
    assert (result.verdict, codes(result)) == ("pass", set())
    assert [each.name for each in result.inputs] == ["x"]
    assert "a float32 gradient for x, which" in message(check(Halves, X), "GV212")


def test_without_a_custom_function_it_does_not_apply():
    run, = (run for run in check(torch.sin, randn(2)).rules if run.code == "GV212")
    assert (run.status, run.reason) == ("not_applicable", "no custom Function is in the graph")


@pytest.mark.parametrize("function", [square(lambda x, g: [2 * x * g]), product(lambda ctx, x, y, g: [g * y, g * x])], ids=["one", "two"])
def test_a_list_of_gradients_is_no_tuple_of_them(function):
    result = check(function, *(X, Y)[:1 + (function.__name__ == "Product")])
    assert (result.verdict, codes(result)) == ("fail", {"GV212"})
    assert "returns a list of" in message(result, "GV212") and "return a tuple" in result.findings[0].hint
