"""`poison: true`: a call that reads unwritten memory or writes beside its tensors away from the inputs
of the check is found; right functions of the same form are left alone."""

from __future__ import annotations

import ctypes

import pytest
import torch
from gallery.twins import twins
from live import check, codes, randn
from torch.autograd import Function


class Sine(Function):
    """sin(x), with results in memory of its own."""

    @classmethod
    def away(cls, x):
        """Whether x differs from that of the first call."""
        cls.first = getattr(cls, "first", x.detach().clone())
        return not torch.equal(x.detach(), cls.first)

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.empty_like(x).copy_(x).sin_()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return torch.mul(g, x.cos(), out=torch.empty_like(g))


def unwritten():
    class Unwritten(Sine):
        """The first element stays unwritten, unless memory holds it already."""

        @staticmethod
        def forward(ctx, x):
            y = Sine.forward(ctx, x)
            if Unwritten.away(x):
                z = torch.empty_like(y)
                lost = bool(z[0].abs() > 1) or bool(z[0].isnan())
                z[lost:] = y[lost:]
                return z
            return y

    return Unwritten


def beside():
    class Beside(Sine):
        """A number behind x is overwritten."""

        @staticmethod
        def forward(ctx, x):
            if Beside.away(x):
                ctypes.c_double.from_address(x.data_ptr() + 8 * x.numel()).value = 1.0
            return Sine.forward(ctx, x)

    return Beside


@pytest.mark.parametrize(("of", "code"), [(unwritten, "GV231"), (beside, "GV232")])
def test_memory_is_guarded_in_every_call_that_is_compared(of, code):
    result = check(of(), randn(4), poison=True)
    assert (result.verdict, codes(result)) == ("fail", {code})


@pytest.mark.parametrize("name", ["leaves_half_unwritten", "writes_one_too_many"])
def test_right_functions_are_left_alone(name):
    assert codes(check(twins(name)[1], randn(4), poison=True)) == set()


def test_a_right_function_of_this_form_is_left_alone():
    assert codes(check(Sine, randn(4), poison=True)) == set()


def test_a_result_that_is_nan_for_another_reason_is_no_unwritten_memory():
    def root(x):
        return x.sqrt()

    found = codes(check(root, torch.tensor([0.0, 4.0], dtype=torch.float64), poison=True))
    assert not {"GV231", "GV232"} & found
