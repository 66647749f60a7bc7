"""A note of forward's own derivative where an element does not pass: the number, or what cut its path; none where it passes or nobody asks."""

import pytest
import torch
from torch.autograd import Function

from gradverify.element.explain import Asked, explain
from tests import live

X = torch.tensor([2.5, 0.3], dtype=torch.float64)
LARGE = 1.5 * 2.0**26
ASKED = Asked("x[0]", "y0[0]")


class Coarse(Function):
    """tanh in steps of the rounding of a large number: 1.5e-8, two parts in 1e7 of its slope at 2.5."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return (x.tanh() + LARGE) - LARGE

    @staticmethod
    def backward(ctx, grad_output):
        x, = ctx.saved_tensors
        return grad_output * (1 - x.tanh() ** 2)


class Off(Coarse):
    """Off by less than the steps show, and by more than rounding: forward's own derivative does not confirm it."""

    @staticmethod
    def backward(ctx, grad_output):
        return Coarse.backward(ctx, grad_output) * (1 + 1e-7)


class CutOff(Coarse):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return (x.detach().tanh() + LARGE) - LARGE


@pytest.mark.parametrize(("checked", "note"), [
    (Off, "forward's own derivative, by torch: "), (CutOff, "has no derivative of its own to ask: detach")])
def test_an_undecided_element_says_what_forwards_own_derivative_is(checked, note):
    found = explain(live.subject(checked, X), ASKED)
    assert found.measured.verdict == "undecided" and any(note in each for each in found.notes), found.notes


def test_of_a_wrong_element_it_is_told_too_and_of_a_right_one_where_it_is_asked_always():
    class Wrong(Function):
        forward = staticmethod(lambda ctx, x: x * x)
        backward = staticmethod(lambda ctx, grad: grad * 3)

    class Right(Function):
        forward = staticmethod(lambda ctx, x: x * 3)
        backward = staticmethod(lambda ctx, grad: grad * 3)

    assert "forward's own derivative, by torch: 5" in explain(live.subject(Wrong, X), ASKED).notes
    assert "forward's own derivative, by torch: 3" in explain(live.subject(Right, X, witness="always"), ASKED).notes


def test_none_where_it_passes_or_nobody_asks():
    assert not explain(live.subject(lambda x: x.tanh(), X), ASKED).notes
    assert not explain(live.subject(Coarse, X, witness=False), ASKED).notes
    assert not explain(live.subject(Coarse, X), ASKED).notes     # which it confirms
