import math
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch.autograd import gradcheck, gradgradcheck

from gradverify.functions.losses import CrossEntropy

TARGET = torch.tensor([4, 0, 2, 2])


def logits():
    return torch.linspace(-2, 2, 20, dtype=torch.float64).sin().reshape(4, 5).requires_grad_()


def test_the_value_and_the_gradient_are_torchs():
    x = logits()
    ours, theirs = CrossEntropy.apply(x, TARGET), F.cross_entropy(x, TARGET)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(torch.autograd.grad(ours, x), torch.autograd.grad(theirs, x))


def test_it_is_right_to_second_order():
    assert gradcheck(CrossEntropy.apply, (logits(), TARGET))
    assert gradgradcheck(CrossEntropy.apply, (logits(), TARGET))


def test_large_inputs_stay_finite_and_right():
    x = torch.tensor([[1000.0, -1000.0], [-1000.0, 1000.0]], dtype=torch.float64, requires_grad=True)
    loss = CrossEntropy.apply(x, torch.tensor([1, 1]))
    assert loss.item() == 1000.0
    assert torch.autograd.grad(loss, x)[0].tolist() == [[0.5, -0.5], [0.0, 0.0]]


def test_a_sure_and_right_answer_costs_what_is_left_to_doubt():
    """log(1 + exp(−30)) to one ulp of 1: logits of 1000 must not cost the loss more digits than logits of 0."""
    for top in (0.0, 1000.0):
        loss = CrossEntropy.apply(torch.tensor([[top, top - 30]], dtype=torch.float64), torch.tensor([0]))
        assert loss.item() == pytest.approx(math.log1p(math.exp(-30)), rel=0, abs=2**-52)


def test_the_target_gets_no_gradient():
    kept = SimpleNamespace(saved_tensors=(logits(), TARGET))
    assert CrossEntropy.backward(kept, torch.ones((), dtype=torch.float64))[1] is None


def test_the_mean_over_no_examples_is_nan_as_in_torch():
    x = torch.zeros(0, 3, dtype=torch.float64, requires_grad=True)
    loss = CrossEntropy.apply(x, torch.zeros(0, dtype=torch.int64))
    assert loss.isnan()
    assert torch.autograd.grad(loss, x)[0].shape == (0, 3)


@pytest.mark.parametrize("input, target", [
    (torch.zeros(3), torch.tensor([0, 1, 2])), (torch.zeros(2, 3), torch.tensor([0, 1, 2])), (torch.zeros(2, 3), torch.tensor([0.0, 1.0])),
])
def test_targets_that_do_not_fit_are_refused(input, target):
    with pytest.raises(ValueError, match=r"cross_entropy: input must be \(N, C\) and target int64 of shape \(N\)"):
        CrossEntropy.apply(input, target)
