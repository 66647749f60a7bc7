import pytest
import torch
from torch import nn

from gradverify.functions.linear import Linear, LinearFunction, MatMul, affine

X = [[2.0, 1.5, 2.5], [1.0, 2.0, 3.0]]
W = [[3.0, 2.0, 3.5], [1.0, 2.0, 3.0]]
B = [0.1, 0.2]


def given(numbers):
    return torch.tensor(numbers, dtype=torch.float64, requires_grad=True)


def test_the_tutorials_numbers():
    x, w, b = map(given, (X, W, B))
    output = LinearFunction.apply(x, w, b)
    torch.testing.assert_close(output, torch.tensor([[17.85, 12.7], [17.6, 14.2]], dtype=torch.float64))
    output.sum().backward()
    torch.testing.assert_close(x.grad, torch.tensor([[4.0, 4.0, 6.5]] * 2, dtype=torch.float64))
    torch.testing.assert_close(w.grad, torch.tensor([[3.0, 3.5, 5.5]] * 2, dtype=torch.float64))
    torch.testing.assert_close(b.grad, torch.tensor([2.0, 2.0], dtype=torch.float64))


@pytest.mark.parametrize("arguments", [lambda x, w: (x, w, None), lambda x, w: (x, w)], ids=["None", "left out"])
def test_bias_is_optional(arguments):
    x, w = given(X), given(W)
    output = LinearFunction.apply(*arguments(x, w))
    torch.testing.assert_close(output, x @ w.T)
    grad_x, grad_w = torch.autograd.grad(output.sum(), (x, w))
    torch.testing.assert_close((grad_x, grad_w), torch.autograd.grad((x @ w.T).sum(), (x, w)))


def test_an_input_that_needs_no_gradient_gets_none():
    x, w = torch.tensor(X, dtype=torch.float64), given(W)
    LinearFunction.apply(x, w, None).sum().backward()
    assert x.grad is None
    assert w.grad is not None


@pytest.mark.parametrize("bias", [torch.zeros(1, dtype=torch.float64), torch.zeros(2, 2, dtype=torch.float64), torch.zeros(2)])
def test_a_bias_that_would_broadcast_or_promote_is_refused(bias):
    with pytest.raises(ValueError, match=r"linear: bias must be torch.float64 of shape \[2\]"):
        LinearFunction.apply(given(X), given(W), bias)


def test_mm_and_affine_agree_with_torch():
    x, w, b = given(X), given([[1.0], [2.0], [-1.0]]), given([0.5])
    torch.testing.assert_close(MatMul.apply(x, w), x @ w)
    ours = torch.autograd.grad(affine(x, w, b).square().sum(), (x, w, b))
    torch.testing.assert_close(ours, torch.autograd.grad((x @ w + b).square().sum(), (x, w, b)))


def test_affine_runs_the_backwards_of_mm_and_add():
    output = affine(given(X), given([[1.0], [2.0], [-1.0]]), given([0.5]))
    assert output.grad_fn.name() == "AddBackward"
    assert output.grad_fn.next_functions[0][0].name() == "MatMulBackward"


@pytest.mark.parametrize("bias", [True, False])
def test_the_module_is_torchs_linear_with_the_same_parameters(bias):
    ours, torchs = Linear(3, 2, bias=bias), nn.Linear(3, 2, bias=bias)
    torchs.load_state_dict(ours.state_dict())
    x = torch.tensor(X)
    for module in (ours, torchs):
        module(x).square().sum().backward()
    for mine, theirs in zip(ours.parameters(), torchs.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad)


def test_the_module_goes_through_its_function():
    assert Linear(3, 2)(torch.tensor(X)).grad_fn.name() == "LinearFunctionBackward"


def test_the_modules_parameters_start_within_one_over_the_root_of_in_features():
    module = Linear(100, 50)
    for parameter in module.parameters():
        assert parameter.abs().max() <= 0.1
        assert parameter.std() > 0.03


def test_a_module_without_in_features_can_be_built():
    assert Linear(0, 2)(torch.zeros(3, 0)).shape == (3, 2)
