from __future__ import annotations

import pytest
import torch
from live import evidence, randn
from torch.autograd.function import once_differentiable

from gradverify.subject.differentiable import Backward
from gradverify.subject.failure import UserCodeError

X, Y = randn(2, 3), randn(2, 3, seed=1)
V, W, U = randn(2, 3, seed=2), randn(2, 3, seed=3), randn(2, 3, seed=4)


def backward(function, *values) -> Backward:
    seen = evidence(function, *values)
    return Backward(seen.subject, seen.function, (V,))


class Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        return grad_output * 2


def test_leaves_of_others_keep_their_gradients_even_where_it_raises():
    theirs = torch.ones(3, dtype=torch.float64, requires_grad=True)
    before = theirs.grad = torch.full_like(theirs, 5.0)
    backward(lambda x: (x * theirs) ** 2, X).second((W,))
    with pytest.raises(UserCodeError):
        backward(lambda x: Once.apply((x * theirs) ** 2), X).second((W,))
    assert theirs.grad is before and before.tolist() == [5.0] * 3
