import math

import pytest
import torch

from gradverify.functions.activations import ReLU, Sigmoid, Softmax


def given(*numbers):
    return torch.tensor(numbers, dtype=torch.float64, requires_grad=True)


def test_relu_keeps_what_is_positive_and_lets_its_gradient_through():
    x = given(-1.0, 2.0)
    output = ReLU.apply(x)
    assert output.tolist() == [0.0, 2.0]
    assert torch.autograd.grad(output, x, given(5.0, 7.0))[0].tolist() == [0.0, 7.0]


def test_relu_at_0_gives_a_subgradient():
    x = given(0.0)
    assert 0 <= torch.autograd.grad(ReLU.apply(x), x)[0].item() <= 1


def test_an_infinite_cotangent_does_not_leak_through_a_closed_relu():
    x = given(-1.0)
    assert torch.autograd.grad(ReLU.apply(x), x, given(math.inf))[0].item() == 0


def test_sigmoid_agrees_with_torch():
    x = torch.linspace(-5, 5, 11, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(Sigmoid.apply(x), torch.sigmoid(x), rtol=1e-15, atol=0)


def test_the_slope_of_sigmoid_keeps_its_digits_in_the_tail():
    """At 40 the slope is exp(−40) to 17 digits, where y(1 − y) in float64 is exactly 0."""
    x = given(40.0, -40.0)
    (slope,) = torch.autograd.grad(Sigmoid.apply(x).sum(), x)
    torch.testing.assert_close(slope, torch.tensor([math.exp(-40)] * 2, dtype=torch.float64), rtol=1e-14, atol=0)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_softmax_agrees_with_torch(dim):
    x = torch.linspace(-3, 3, 12, dtype=torch.float64).reshape(3, 4).requires_grad_()
    weights = torch.arange(12.0, dtype=torch.float64).reshape(3, 4)
    torch.testing.assert_close(Softmax.apply(x, dim), torch.softmax(x, dim))
    ours, theirs = (torch.autograd.grad((f * weights).sum(), x)[0] for f in (Softmax.apply(x, dim), torch.softmax(x, dim)))
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-15)


def test_softmax_of_large_inputs_is_finite_and_right():
    x = given(1000.0, 999.0, -1000.0)
    output = Softmax.apply(x, 0)
    p = 1 / (1 + math.exp(-1))
    torch.testing.assert_close(output, torch.tensor([p, 1 - p, 0.0], dtype=torch.float64))
    (gradient,) = torch.autograd.grad(output[0], x)
    torch.testing.assert_close(gradient, torch.tensor([p * (1 - p), -p * (1 - p), 0.0], dtype=torch.float64))


def test_a_masked_entry_of_softmax_gets_nothing():
    x = given(0.0, -math.inf)
    output = Softmax.apply(x, 0)
    assert output.tolist() == [1.0, 0.0]
    assert torch.autograd.grad(output[0], x)[0].tolist() == [0.0, 0.0]


def test_softmax_of_no_elements_is_empty():
    assert Softmax.apply(torch.zeros(2, 0), 1).shape == (2, 0)
