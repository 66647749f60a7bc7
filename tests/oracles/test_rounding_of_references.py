"""A right float32 gradient is not accused of what its reference rounds, where that is the same at
all points nearby; a wrong one is.

At −5.1 float32 rounds 1 + tanh to one number or to none: the slope of the composed GELU is 1.07e-6
there or 0. The truth is that in float64, 7.4e-7.
"""

import math

import pytest
import torch
from live import Oracles, evidence
from torch.autograd import Function

from gradverify.numerics.pairs.pair import Outcome


def composed(x):
    return 0.5 * x * (1 + (math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)).tanh())


def gelu(damage):
    class GELU(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return composed(x)

        @staticmethod
        def backward(ctx, g):
            x = ctx.saved_tensors[0].detach().double().requires_grad_()
            with torch.enable_grad():
                (dx,) = torch.autograd.grad(composed(x), x, g.double())
            return damage(dx, x.detach()).to(g.dtype)

    return GELU


def mismatches(damage, at):
    x = torch.tensor([[-2.0, -0.7, 0.4, 1.3], [2.0, 0.1, -1.1, at]])
    (pair,) = evidence(
        gelu(damage), x, oracles=Oracles(reference=f"{__name__}:composed")
    ).reference.rows.values()
    return pair.count(Outcome.MISMATCH)


SATURATED = [-5.01, -5.1, -5.2, -5.3]


@pytest.mark.parametrize("at", SATURATED)
def test_a_right_one_is_not_accused(at):
    assert mismatches(lambda dx, x: dx, at) == 0


DAMAGES = {
    "1 % off": lambda dx, x: 1.01 * dx,
    "other sign": lambda dx, x: -dx,
    "zeroed row": lambda dx, x: dx * torch.tensor([[0.0], [1.0]]),
    "one element": lambda dx, x: dx * (1 + 0.01 * (torch.arange(8).reshape(2, 4) == 0)),
    "more than rounding": lambda dx, x: torch.where(x < -4.9, -2e-5, dx),
}


@pytest.mark.parametrize("how", list(DAMAGES))
@pytest.mark.parametrize("at", SATURATED[:2])
def test_a_wrong_one_is_caught(how, at):
    assert mismatches(DAMAGES[how], at) > 0
