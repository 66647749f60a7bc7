from __future__ import annotations

import pytest
import torch
from live import check, codes, fixed, message, randn
from torch import nn
from torch.autograd import Function

from rules.functions import X, Y, product, square
from rules.tricky import InPlace, IntoOut


def clamps(write):
    """clamp(x, max=1)², with the clamped values written into x."""

    class Clamps(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.inside = x < 1
            write(x)
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, grad_output):
            x, = ctx.saved_tensors
            return grad_output * 2 * x * ctx.inside

    return Clamps


def through_pointer(x):
    array = x.detach().numpy()
    array[array > 1] = 1


WRITES = [lambda x: x.data.clamp_(max=1), through_pointer, lambda x: x.detach().view(-1).clamp_(max=1)]


@pytest.mark.parametrize("write", WRITES)
def test_a_write_into_the_input_in_forward_is_found_however_it_is_made(write):
    result = check(clamps(write), X)
    assert (result.verdict, codes(result)) == ("fail", {"GV203"})
    assert message(result, "GV203") == "forward writes into x: x[0,2] was 2 before, 1 after"


@pytest.mark.parametrize("write", [lambda x: x.mul_(2), lambda x: x.data.mul_(2), lambda x: x.detach().numpy().__imul__(2)])
def test_a_write_into_the_input_in_backward_is_found_and_is_no_other_fault(write):
    def backward(x, g):
        gradient = 2 * x * g
        write(x)
        return gradient

    result = check(square(backward), X)
    assert codes(result) == {"GV203"}
    assert "backward writes into x: x[0,0] was 0.5 before, 1 after" in message(result, "GV203")


def test_the_second_input_is_named_and_a_wrong_gradient_beside_it_is_listed():
    def backward(ctx, x, y, g):
        result = g * y, g * x
        y.data.zero_()
        return result

    found, = check(product(backward), X, Y).findings
    assert (found.code, found.input, found.severity) == ("GV203", "y", "error")


def test_a_write_into_statistics_is_a_warning_and_the_next_call_gets_them_as_they_were():
    def normalised(x, mean):
        mean.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
        return (x - mean.clone()) ** 2

    mean = torch.ones(3, dtype=torch.float64)
    result = check(normalised, X, fixed(mean), select=("GV203",), ignore=("GV007",))
    assert [(found.input, found.severity) for found in result.findings] == [("mean", "warning")]
    assert mean.tolist() == [1, 1, 1]


def test_a_module_may_count_in_its_buffers():
    assert codes(check(nn.BatchNorm1d, randn(4, 3), init={"num_features": 3})) == set()


def test_what_is_returned_was_written_on_purpose():
    assert "GV203" not in codes(check(InPlace, X))
    assert "GV203" not in codes(check(IntoOut, X, fixed(torch.zeros_like(X))))
    assert "GV203" not in codes(check(lambda x: x.mul_(2), X))


def test_a_write_beside_the_one_that_is_returned_is_found():
    class Both(InPlace):
        @staticmethod
        def forward(ctx, x, y):
            y.data.zero_()
            return InPlace.forward(ctx, x)

        @staticmethod
        def backward(ctx, grad_output):
            return InPlace.backward(ctx, grad_output), None

    assert [(found.code, found.input) for found in check(Both, X, Y).findings if found.severity == "error"] == [("GV203", "y")]


class Statistics(Function):
    @staticmethod
    def forward(ctx, x, mean):
        mean.copy_(x.mean(0))
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad_output):
        x, = ctx.saved_tensors
        return 2 * x * grad_output, None


INNER = clamps(WRITES[0])


@pytest.mark.parametrize(("call", "severity"), [(lambda x: INNER.apply(x * 3), "error"),
                                                (lambda x: Statistics.apply(x * 3, torch.zeros(3, dtype=torch.float64)), "warning")])
def test_a_function_inside_a_callable_is_watched_around_its_own_arguments(call, severity):
    found, = check(call, X).findings
    assert (found.code, found.severity) == ("GV203", severity)
    assert "writes into its argument" in found.message


def test_a_complex_write_is_seen_without_a_single_number():
    result = check(lambda x: (x.data.mul_(1j), x * 2)[1], randn(2, dtype=torch.complex128), select=("GV203",))
    assert message(result, "GV203") == "forward writes into x"


def test_a_write_by_backward_is_not_answered_with_mark_dirty_which_is_for_forward():
    def backward(x, g):
        return 2 * x.data.mul_(1) * g + 0 * x.data.add_(1)

    hints = [finding.hint for finding in check(square(backward), X).findings if finding.code == "GV203"]
    assert len(hints) == 1 and "mark_dirty" not in hints[0]
    assert "mark_dirty" in next(finding.hint for finding in check(clamps(WRITES[0]), X).findings)


def doubles_a(times):
    """x·y + sin(x), whose backward changes x by `times` before the gradient of y is computed from it, and after that of x."""
    def backward(ctx, x, y, g):
        first = g * y
        x.data.mul_(times)
        return first, g * x
    return product(backward)


def test_wrong_gradients_of_other_inputs_come_from_the_write():
    result = check(doubles_a(2), X, Y)
    assert [(finding.code, finding.input, finding.also) for finding in result.findings] == [("GV203", "x", ("GV101",))]
    assert codes(check(doubles_a(1), X, Y)) == set()
