"""Backwards that are written for one flag, axis or reduction; those that follow it, that need not, or that mean to differ are left alone."""

import pytest
import torch
from live import check, codes, fixed, message, randn
from torch.autograd import Function

SEEDS = range(5)


def softmax(backward_dim):
    class Softmax(Function):
        @staticmethod
        def forward(ctx, x, dim):
            y = x.softmax(dim)
            ctx.save_for_backward(y)
            ctx.dim = dim
            return y

        @staticmethod
        def backward(ctx, grad_output):
            y, = ctx.saved_tensors
            dim = ctx.dim if backward_dim is None else backward_dim
            return y * (grad_output - (grad_output * y).sum(dim, keepdim=True)), None

    return Softmax


def reduced(factor):
    class Reduced(Function):
        @staticmethod
        def forward(ctx, x, reduction):
            ctx.save_for_backward(x)
            ctx.reduction = reduction
            return (x * x).mean() if reduction == "mean" else (x * x).sum()

        @staticmethod
        def backward(ctx, grad_output):
            x, = ctx.saved_tensors
            return 2 * grad_output * x * factor(ctx.reduction, x), None

    return Reduced


def flagged(forward, gradient, keep=False):
    """`gradient(flag, x)`: the slope, where `flag` is None unless it is kept on ctx."""
    class Flagged(Function):
        @staticmethod
        def forward(ctx, x, flag):
            ctx.save_for_backward(x)
            ctx.flag = flag if keep else None
            return forward(flag, x)

        @staticmethod
        def backward(ctx, grad_output):
            x, = ctx.saved_tensors
            return grad_output * gradient(ctx.flag, x), None

    return Flagged


def found(function, *arguments, seed=0):
    return check(function, *arguments, seed=seed, ignore=("GV224",))


@pytest.mark.population(most=8)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("shape", "dim", "words"), [
    ((4, 5), -1, "dim = 0 instead of -1"), ((4, 4), 1, "dim = 0 instead of 1"),
    ((2, 3, 4), 2, "dim = 0 instead of 2"), ((3, 4), 0, "dim = 1 instead of 0")])
def test_an_axis_that_is_written_into_backward_is_a_warning(shape, dim, words, seed):
    result = found(softmax(dim), randn(*shape, seed=seed), fixed(dim), seed=seed)
    assert [(each.code, each.severity) for each in result.findings] == [("GV113", "warning")]
    assert f"differ from the finite difference with {words}; worst at" in message(result, "GV113")


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("dim", [-1, 0, 1])
def test_an_axis_that_backward_follows_is_left_alone(dim, seed):
    assert codes(found(softmax(None), randn(3, 4, seed=seed), fixed(dim), seed=seed)) == set()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_reduction_that_is_written_into_backward_is_a_warning(seed):
    result = found(reduced(lambda kind, x: 1 / x.numel()), randn(3, 4, seed=seed), fixed("mean"), seed=seed)
    assert "with reduction = 'sum' instead of 'mean'" in message(result, "GV113")
    assert codes(found(reduced(lambda kind, x: 1.0), randn(3, 4, seed=seed), fixed("sum"), seed=seed)) == {"GV113"}
    right = reduced(lambda kind, x: 1 / x.numel() if kind == "mean" else 1.0)
    assert codes(found(right, randn(3, 4, seed=seed), fixed("mean"), seed=seed)) == set()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_flag_that_backward_does_not_know_of_is_a_warning(seed):
    wrong = flagged(lambda flag, x: x * x if flag else 3 * x, lambda flag, x: 3 * torch.ones_like(x))
    result = found(wrong, randn(5, seed=seed), fixed(False), seed=seed)
    assert [(each.code, each.severity) for each in result.findings] == [("GV113", "warning")]
    assert "with flag = True instead of False" in message(result, "GV113")
    right = flagged(lambda flag, x: x * x if flag else 3 * x, lambda flag, x: 2 * x if flag else 3 * torch.ones_like(x), keep=True)
    assert codes(found(right, randn(5, seed=seed), fixed(False), seed=seed)) == set()


MEANT = {
    "which shifts": flagged(lambda flag, x: x + 1 if flag else x * 1, lambda flag, x: torch.ones_like(x)),
    "which rounds, straight through": flagged(lambda flag, x: x.round() if flag else x * 1, lambda flag, x: torch.ones_like(x)),
    "which reverses gradients": flagged(lambda flag, x: 2 * x, lambda flag, x: torch.full_like(x, -2.0 if flag else 2.0), keep=True),
    "which clips what it passes through": flagged(lambda flag, x: x.clamp(-0.1, 0.1) if flag else x * 1, lambda flag, x: torch.ones_like(x),
                                                  keep=True),
    "which is refused": flagged(lambda flag, x: x @ x if flag else x * 1, lambda flag, x: torch.ones_like(x)),
}


@pytest.mark.population(most=10)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("what", MEANT)
def test_a_flag_that_backward_need_not_follow_or_does_not_on_purpose_is_left_alone(what, seed):
    assert codes(found(MEANT[what], randn(3, 4, seed=seed), fixed(False), seed=seed)) == set()


def test_sizes_counts_and_indices_are_not_varied():
    seen = []

    class Rows(Function):
        @staticmethod
        def forward(ctx, x, count, index, block_size):
            seen.append((count, index, block_size))
            ctx.shape, ctx.count = x.shape, count
            return x[:count] * 2

        @staticmethod
        def backward(ctx, grad_output):
            found = grad_output.new_zeros(ctx.shape)
            found[:ctx.count] = 2 * grad_output
            return found, None, None, None

    assert codes(found(Rows, randn(3, 4), fixed(2), fixed(1), fixed(4))) == set()
    assert {(int(c), int(i), int(b)) for c, i, b in seen if all(type(n) is int for n in (c, i, b))} == {(2, 1, 4)}


def test_it_costs_four_calls_for_each_such_argument_and_none_without():
    def calls(function, *arguments):
        run = next(run for run in found(function, *arguments).rules if run.code == "GV113")
        return run.calls.forward, run.calls.backward

    without = calls(Plain, randn(3, 4))
    forward, backward = calls(softmax(None), randn(3, 4), fixed(-1))
    assert (forward - without[0], backward - without[1]) == (3, 1)


class Plain(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad_output):
        return 2 * grad_output * ctx.saved_tensors[0]
