from __future__ import annotations

import torch
from live import evidence, randn

from gradverify.numerics.pairs.pair import Outcome
from gradverify.oracles.finite_difference import Wishes, jacobian


def mismatches(function, **settings):
    seen = evidence(function, randn(3), **settings)
    return sum(pair.count(Outcome.MISMATCH) for pair in jacobian(seen.function, seen.settings, Wishes((None,), (False,))).pairs.values())


class Off(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * 2 * (1 + 1e-4)


def test_the_settings_reach_the_comparison():
    assert mismatches(torch.sin) == 0
    assert mismatches(Off) == 3
    assert mismatches(Off, rtol=1e-3) == 0
    assert mismatches(Off, atol=1e-3) == 0
    assert mismatches(Off, eps=1e-6) == 0                   # gradcheck's own tolerances
    assert mismatches(Off, eps=1e-6, rtol=1e-6) == 3
