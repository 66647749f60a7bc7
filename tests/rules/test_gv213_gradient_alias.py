from __future__ import annotations

import pytest
import torch
from live import check, codes, message, randn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from rules.functions import X, Y
from rules.tricky import Expands, Packed, Scratch, Sum

BUFFER = torch.zeros(2, 3, dtype=torch.float64)


def doubles(gradient):
    """2x with a `gradient(ctx, grad_output)` that works without autograd."""

    class Doubles(Function):
        buffer = BUFFER.clone()

        @staticmethod
        def forward(ctx, x):
            ctx.own = torch.zeros_like(x)
            ctx.several = {"first": torch.zeros_like(x)}
            ctx.save_for_backward(torch.full_like(x, 2.0))
            return 2 * x

        @staticmethod
        @once_differentiable
        def backward(ctx, grad_output):
            return gradient(ctx, grad_output)

    return Doubles


@pytest.mark.parametrize(("gradient", "owner"), [
    (lambda ctx, g: torch.mul(g, 2, out=ctx.own), "ctx.own"),
    (lambda ctx, g: torch.mul(g, 2, out=ctx.several["first"]), "ctx.several"),
    (lambda ctx, g: torch.mul(g, 2, out=type(ctx)._forward_cls.buffer).view(-1).view(2, 3), "Doubles.buffer"),
])
def test_a_buffer_of_the_functions_own_is_found_wherever_it_is_kept(gradient, owner):
    found, = (found for found in check(doubles(gradient), X).findings if found.severity == "error")
    assert (found.code, found.severity, found.input) == ("GV213", "error", "x")
    assert found.message == f"the gradient that backward of Doubles returns for x shares memory with {owner}"


def test_a_shortcut_for_ones_is_found_by_ones():
    faulty = doubles(lambda ctx, g: ctx.saved_tensors[0] if (g == 1).all() else g * ctx.saved_tensors[0])
    result = check(faulty, X)
    assert codes(result) == {"GV213"}
    assert "shares memory with saved tensor 0 for a grad_output of ones" in message(result, "GV213")
    assert torch.autograd.gradcheck(faulty.apply, X.clone().requires_grad_())


def test_an_argument_that_is_returned_is_named():
    class Weighted(Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(x, y)
            return (x * y).sum()

        @staticmethod
        def backward(ctx, grad_output):
            x, y = ctx.saved_tensors
            return (y.view_as(y), x.view_as(x)) if grad_output == 1 else (grad_output * y, grad_output * x)

    assert [(found.code, found.input, "shares memory with" in found.message) for found in check(Weighted, X, Y).findings] \
        == [("GV213", "x", True), ("GV213", "y", True)]


def test_two_gradients_in_one_memory_are_a_warning():
    class Pair(Sum):
        @staticmethod
        def backward(ctx, grad_output):
            gradient = grad_output.clone()
            return gradient, gradient

    found, = check(Pair, X, Y).findings
    assert (found.code, found.severity) == ("GV213", "warning")
    assert "shares memory with the gradient for y" in found.message


@pytest.mark.parametrize("function", [Sum, Packed])
def test_grad_output_itself_and_chunks_of_one_buffer_may_be_returned(function):
    assert codes(check(function, X, Y)) == set()


def test_a_fresh_result_computed_with_scratch_is_fine():
    assert codes(check(Scratch, X)) == codes(check(Expands, X)) == set()


def test_inside_a_callable_the_argument_is_numbered():
    result = check(lambda x: doubles(lambda ctx, g: torch.mul(g, 2, out=ctx.own)).apply(x.sin()), X)
    assert "returns for argument 0 shares memory with ctx.own" in message(result, "GV213")


def test_where_one_backward_is_all_there_is_ones_get_a_graph_of_their_own():
    def once(ctx, g):
        if hasattr(ctx, "used"):
            raise RuntimeError("used")
        ctx.used = True
        return ctx.saved_tensors[0] if (g == 1).all() else g * ctx.saved_tensors[0]

    assert codes(check(doubles(once), X)) == {"GV213", "GV227"}


def test_what_ignores_grad_output_is_told_so_and_no_more():
    run, = (run for run in check(doubles(lambda ctx, g: ctx.saved_tensors[0]), X).rules if run.code == "GV213")
    assert run.reason == "backward is not linear"


def test_sparse_gradients_have_no_such_memory():
    index = torch.tensor([0, 2])
    assert "GV213" not in codes(check(lambda w: torch.nn.functional.embedding(index, w, sparse=True), randn(4, 2)))
