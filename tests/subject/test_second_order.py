from __future__ import annotations

import pytest
import torch
from live import evidence, randn
from torch.autograd.function import once_differentiable

from gradverify.subject.failure import UserCodeError
from gradverify.subject.second_order import Backward

X, Y = randn(2, 3), randn(2, 3, seed=1)
V, W, U = randn(2, 3, seed=2), randn(2, 3, seed=3), randn(2, 3, seed=4)


def backward(function, *values) -> Backward:
    seen = evidence(function, *values)
    return Backward(seen.subject, seen.function, seen.forward.checked, (V,))


def test_its_values_are_the_gradients_at_other_points():
    values = backward(lambda x, y: x**2 * y, X, Y).values([X + 1, Y])
    assert torch.allclose(values[0], 2 * (X + 1) * Y * V)
    assert torch.allclose(values[1], (X + 1) ** 2 * V)


def test_the_double_backward_is_torchs_own_to_inputs_and_cotangents():
    second = backward(lambda x, y: x**2 * y, X, Y).second((W, U))
    of_x, of_y = torch.autograd.functional.vhp(lambda x, y: (V * x**2 * y).sum(), (X, Y), (W, U))[1]
    assert torch.allclose(second.inputs[0], of_x)
    assert torch.allclose(second.inputs[1], of_y)
    assert torch.allclose(second.cotangents[0], W * 2 * X * Y + U * X**2)


def test_as_a_function_it_is_differentiated_at_any_point_with_zeros_for_none():
    linear = backward(lambda x, y: 2 * x + y, X, Y)
    assert [gradient.tolist() for gradient in linear.vjp((W, None))] == [torch.zeros_like(X).tolist()] * 2
    quadratic = backward(lambda x, y: x**2 * y, X, Y).vjp((None, U), inputs=[X + 1, Y])
    assert torch.allclose(quadratic[0], U * 2 * (X + 1) * V)
    assert quadratic[1].abs().max() == 0


class Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        return grad_output * 2


def test_once_differentiable_raises_though_its_gradient_does_not_depend_on_x():
    with pytest.raises(UserCodeError, match="the double backward raised RuntimeError: trying to differentiate twice") as raised:
        backward(Once, X).second((W,))
    assert raised.value.code == "GV109"


def test_a_gradient_without_a_graph_is_a_constant():
    class Constant(Once):
        @staticmethod
        def backward(ctx, grad_output):
            return grad_output.detach() * 2

    second = backward(Constant, X).second((W,))
    assert (second.inputs, second.cotangents) == ((None,), (None,))


def test_leaves_of_others_keep_their_gradients_even_where_it_raises():
    theirs = torch.ones(3, dtype=torch.float64, requires_grad=True)
    before = theirs.grad = torch.full_like(theirs, 5.0)
    backward(lambda x: (x * theirs) ** 2, X).second((W,))
    with pytest.raises(UserCodeError):
        backward(lambda x: Once.apply((x * theirs) ** 2), X).second((W,))
    assert theirs.grad is before and before.tolist() == [5.0] * 3


def test_it_counts_one_forward_and_two_backwards():
    seen = evidence(lambda x: x**2, X)
    form = Backward(seen.subject, seen.function, seen.forward.checked, (V,))
    before = seen.subject.calls
    form.second((W,))
    calls = seen.subject.calls - before
    assert (calls.forward, calls.backward) == (1, 2)
