"""Counted calls where nothing is wrong, against the limits of the design's table; they do not
depend on the machine."""

import pytest
import torch

from gradverify.numerics.choose import Mode
from gradverify.numerics.compare import compare
from numerics.differentiable import DOUBLE, Differentiable, normal

ENTRIES, ROWS, BLOCKS = Mode
ELEMENTWISE = {ENTRIES: (60, 6), ROWS: (60, 4), BLOCKS: (40 + 40, 6)}


def counted(mode, forward, *inputs):
    """Forward and backward calls, both counted by the function itself."""
    function = Differentiable(forward, *inputs)
    compared = compare(function, mode=mode)
    assert all(pair.verdict == 0 for pair in compared.pairs)
    assert (compared.forward, compared.backward) == (function.calls, function.backwards)
    return compared.forward, compared.backward


def within(calls, most):
    return calls[0] <= most[0] and calls[1] <= most[1]


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("shape", [(7, 5), (64, 64), (3, 4, 5, 6), (150, 200)])
def test_an_elementwise_function_takes_the_same_few_calls_at_any_size(mode, shape):
    assert within(counted(mode, torch.tanh, normal(1, *shape)), ELEMENTWISE[mode])


@pytest.mark.parametrize(("rows", "length"), [(128, 16), (20, 50), (3, 12)])
def test_softmax_takes_six_calls_an_element_of_a_row_or_a_backward_each(rows, length):
    x = normal(1, rows, length)
    calls = {mode: counted(mode, lambda x: x.softmax(-1), x) for mode in Mode}
    assert within(calls[ENTRIES], (8 * length + 80, length + 12))
    assert within(calls[ROWS], (60, length + 6))
    assert within(calls[BLOCKS], ELEMENTWISE[BLOCKS])


@pytest.mark.parametrize(("batch", "inner", "outer"), [(32, 128, 10), (5, 40, 8)])
def test_a_product_takes_calls_for_the_sum_of_its_sizes_never_for_their_product(
    batch, inner, outer
):
    inputs = normal(1, batch, inner), normal(2, inner, outer)
    calls = {mode: counted(mode, torch.matmul, *inputs) for mode in Mode}
    assert within(calls[ENTRIES], (5 * inner + 150, 2 * (batch + outer) + 16))
    assert within(calls[ROWS], (120, batch + outer + 10))
    assert within(calls[BLOCKS], (2 * 80, 6))


def test_gradients_in_memory_that_is_used_again_are_compared_as_they_were():
    memory = torch.empty(40, 6, dtype=DOUBLE)

    class Reuses(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x.softmax(-1)
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, g):
            (y,) = ctx.saved_tensors
            return memory.copy_(y * (g - (g * y).sum(-1, keepdim=True)))

    for mode in Mode:
        compared = compare(Differentiable(Reuses.apply, normal(1, 40, 6)), mode=mode)
        assert [pair.verdict for pair in compared.pairs] == [0], mode
