"""What is as large as an input is held a few times at once, whatever a comparison computes of it.

The class of faults: arrays of every element of a large tensor for each probe, rung and step of
arithmetic, so that a check of 10⁷ elements takes the memory of a hundred of them. Bytes are counted
(`tracemalloc` sees NumPy's), nothing is timed.
"""

import tracemalloc

import pytest
from live import evidence, randn
from torch.autograd import Function

from gradverify.numerics.verdict import Verdict

N = 768
HELD = 28  # times the input: 57 before blocks were added up piece by piece


def layer_norm(spoil):
    class LayerNorm(Function):
        @staticmethod
        def forward(ctx, x):
            mean = x.mean(-1, keepdim=True)
            scale = (x.var(-1, unbiased=False, keepdim=True) + 1e-5).rsqrt()
            ctx.save_for_backward((x - mean) * scale, scale)
            return (x - mean) * scale

        @staticmethod
        def backward(ctx, g):
            y, scale = ctx.saved_tensors
            return spoil(
                (g - g.mean(-1, keepdim=True) - y * (g * y).mean(-1, keepdim=True)) * scale
            )

    return LayerNorm


def one_row(gradient):
    gradient[len(gradient) // 3] *= 1.1
    return gradient


def one_element(gradient):
    gradient[len(gradient) // 3, 17] *= 1.5
    return gradient


def compared(spoil, n=N):
    seen = evidence(layer_norm(spoil), randn(n, n), mode="blocks")
    seen.worked, seen.repeats  # noqa: B018
    tracemalloc.start()
    try:
        pair = seen.jacobian.pairs[0, 0]
        return pair, tracemalloc.get_traced_memory()[1] / (8 * n * n)
    finally:
        tracemalloc.stop()


def test_a_right_layer_norm_is_judged_by_blocks_in_a_few_times_its_memory():
    pair, held = compared(lambda gradient: gradient)
    assert pair.verdict is Verdict.PASS and pair.elements == N
    assert held < HELD


@pytest.mark.parametrize("spoil", [lambda gradient: 1.01 * gradient, one_row, one_element])
def test_wrong_ones_are_found(spoil):
    pair, _ = compared(spoil, 100)
    assert pair.verdict is Verdict.MISMATCH
