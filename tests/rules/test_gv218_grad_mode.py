from __future__ import annotations

import pytest
import torch
from live import check, codes, message, randn
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from rules.functions import Right, X, square


def switching(other):
    """x² by `Right`, and something else where gradients are off."""
    return lambda x: Right.apply(x) if torch.is_grad_enabled() else other(x)


@pytest.mark.parametrize("other", [lambda x: x * x * 1.0001, lambda x: x * x + 1e-6, lambda x: torch.zeros_like(x)])
def test_other_values_without_gradients_are_found(other):
    result = check(switching(other), X)
    assert (result.verdict, codes(result)) == ("fail", {"GV218"})
    assert "under torch.no_grad forward gives" in message(result, "GV218")


def test_a_path_for_inference_mode_alone_is_found():
    result = check(lambda x: Right.apply(x) * (1.5 if torch.is_inference_mode_enabled() else 1), X)
    assert "under torch.inference_mode forward gives" in message(result, "GV218")


@pytest.mark.parametrize("other", [lambda x: x.sum(), lambda x: None, lambda x: []])
def test_another_structure_is_found(other):
    result = check(switching(other), X)
    assert "under torch.no_grad forward returns no y0 of shape [2, 3]" in message(result, "GV218")

@pytest.mark.parametrize("other", [torch.square, lambda x: x.pow(2), lambda x: x * x * (1 + 1e-14)])
def test_another_way_to_the_same_values_is_fine(other):
    assert codes(check(switching(other), X)) == set()


def test_a_gradient_that_is_wrong_only_under_create_graph_is_found():
    result = check(square(lambda x, g: x * g if torch.is_grad_enabled() else 2 * x * g), X)
    assert "GV218" in codes(result)
    assert "under create_graph=True the gradient is" in message(result, "GV218")
    assert torch.autograd.gradcheck(square(lambda x, g: x * g if torch.is_grad_enabled() else 2 * x * g).apply, X.clone().requires_grad_())


def test_what_refuses_a_mode_refuses_it_honestly():
    def refuses(x, g):
        if torch.is_grad_enabled():
            raise RuntimeError("no second derivative")
        return 2 * x * g

    assert "GV218" not in codes(check(square(refuses), X))

    def needs_gradients(x):
        if not torch.is_grad_enabled():
            raise RuntimeError("training only")
        return x * x

    assert codes(check(needs_gradients, X)) == set()


def test_once_differentiable_and_leaf_backward_are_fine():
    class Once(Right):
        backward = staticmethod(once_differentiable(Right.backward))

    assert "GV218" not in codes(check(Once, X))
    assert "GV218" not in codes(check(lambda x: checkpoint(lambda z: z.sin() * z, x, use_reentrant=True), X))


def test_dropout_draws_the_same_numbers_in_every_mode():
    assert "GV218" not in codes(check(torch.nn.functional.dropout, randn(20)))


def test_it_costs_two_forwards_and_one_backward():
    run, = (run for run in check(Right, X).rules if run.code == "GV218")
    assert (run.calls.forward, run.calls.backward) == (2, 1)


@pytest.mark.parametrize("other", [lambda x: x * x * 1.0001, lambda x: torch.zeros_like(x)])
def test_other_values_where_no_input_requires_a_gradient_are_found(other):
    """Frozen layers and cached features take that path in training, where gradients are on."""
    result = check(lambda x: Right.apply(x) if x.requires_grad else other(x), X)
    assert (result.verdict, codes(result)) == ("fail", {"GV218"})
    assert "under torch.no_grad" not in message(result, "GV218")
    assert "where no input requires a gradient forward gives" in message(result, "GV218")


def test_saving_less_where_no_input_requires_a_gradient_is_fine():
    class Frugal(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            if ctx.needs_input_grad[0]:
                ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            return 2 * g * ctx.saved_tensors[0]

    assert codes(check(Frugal, X)) == set()
    assert codes(check(lambda x: Right.apply(x) if x.requires_grad else x.pow(2), X)) == set()


def test_a_forward_that_refuses_inputs_without_gradients_refuses_them_honestly():
    def needs_gradients(x):
        if not x.requires_grad:
            raise ValueError("nothing to differentiate")
        return Right.apply(x)

    assert codes(check(needs_gradients, X)) == set()
