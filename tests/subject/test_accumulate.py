from __future__ import annotations

import pytest
import torch
from live import evidence, randn
from rules.functions import Right, RightProduct
from torch.autograd import Function

from gradverify.subject.accumulate import accumulated, straight
from gradverify.subject.graph import function_nodes

X, Y = randn(2, 3), randn(2, 3, seed=1)


class ReturnsArgument(Function):
    """x · y, right for ones and nothing else; its gradients lie in the arguments' memory."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx, grad_output):
        x, y = ctx.saved_tensors
        return y.detach(), grad_output * x


@pytest.mark.parametrize("reusable", [True, False])
def test_two_backwards_leave_twice_the_gradient(reusable):
    seen = evidence(RightProduct, X, Y)
    found = accumulated(seen.subject, seen.function, seen.later, reusable)
    assert [torch.equal(a, b) for a, b in zip(found.first, (Y, X), strict=True)] == [True, True]
    assert [torch.equal(a, 2 * b) for a, b in zip(found.both, (Y, X), strict=True)] == [True, True]
    assert found.written == ()


def test_an_argument_that_became_a_gradient_is_written_to():
    seen = evidence(ReturnsArgument, X, Y)
    found = accumulated(seen.subject, seen.function, seen.later, True)
    assert [each.held.name for each in found.written] == ["y"]


def test_leaves_that_go_straight_into_a_function_are_told_from_those_behind_another_operation():
    x, y, z = (randn(2).requires_grad_() for _ in range(3))
    nodes = function_nodes([RightProduct.apply(x, y * 2) + Right.apply(z)])
    assert straight(nodes, [x, y, z]) == [True, False, True]
    assert straight(nodes, [randn(2).requires_grad_()]) == [False]
