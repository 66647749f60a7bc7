"""What is as large as an input is held a few times at once, whatever a comparison computes of it.

The class of faults: arrays of every element of a large tensor for each probe, rung and step of arithmetic, so that a check of 10⁷ elements takes
the memory of a hundred of them. Bytes are counted (`tracemalloc` sees NumPy's), nothing is timed.
"""

import tracemalloc

import numpy as np
import pytest
from live import evidence, randn
from torch.autograd import Function

from gradverify.numerics import survey
from gradverify.numerics.rungs import PIECE, in_a_row, joined, piecewise, repeated
from gradverify.numerics.seed_vectors import Drawn
from gradverify.numerics.seeds import Seed
from gradverify.numerics.verdict import Verdict

N = 768
HELD = 28   # times the input: 57 before blocks were added up piece by piece


def layer_norm(spoil):
    class LayerNorm(Function):
        @staticmethod
        def forward(ctx, x):
            mean, scale = x.mean(-1, keepdim=True), (x.var(-1, unbiased=False, keepdim=True) + 1e-5).rsqrt()
            ctx.save_for_backward((x - mean) * scale, scale)
            return (x - mean) * scale

        @staticmethod
        def backward(ctx, g):
            y, scale = ctx.saved_tensors
            return spoil((g - g.mean(-1, keepdim=True) - y * (g * y).mean(-1, keepdim=True)) * scale)

    return LayerNorm


def one_row(gradient):
    gradient[len(gradient) // 3] *= 1.1
    return gradient


def one_element(gradient):
    gradient[len(gradient) // 3, 17] *= 1.5
    return gradient


def compared(spoil, n=N):
    seen = evidence(layer_norm(spoil), randn(n, n), mode="blocks")
    seen.worked, seen.repeats       # noqa: B018
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
    pair, _ = compared(spoil, 300)
    assert pair.verdict is Verdict.MISMATCH


def test_what_calls_give_again_and_again_is_not_held_as_the_comparison_begins():
    seen = evidence(layer_norm(lambda gradient: gradient), randn(8, 8))
    first, = seen.worked.gradients
    assert all(each[0] is first for each in seen.memory.repeats)
    assert seen.function.here()[0] is seen.outputs[0]
    assert seen.repeats and seen.for_ones and seen.worked.raw and seen.worked.cotangents[0] is seen.worked.cotangents[0]
    assert seen.jacobian.pairs[0, 0].verdict is Verdict.PASS
    assert seen.repeats == () and seen.reusable and not seen.worked.raw and not seen.memory.repeats and "for_ones" not in vars(seen)
    assert seen.base is seen.function.kept_graph() and seen.forward.leaves is seen.base.leaves


# ---- the parts
@pytest.mark.parametrize("n", [0, 1, PIECE, PIECE + 1, 3 * PIECE])
def test_piece_by_piece_gives_the_same_bits(n):
    a, b = np.random.default_rng(n).normal(size=(2, n))
    assert np.array_equal(piecewise(lambda a, b: (a + 3 * b) / (1 + a * a), a, b), (a + 3 * b) / (1 + a * a))


def test_joined_parts_of_one_number_stay_in_the_memory_of_one():
    assert joined([repeated(1.0, 5), repeated(1.0, 3)]).strides == (0,)
    assert joined([repeated(1.0, 2), repeated(2.0, 1)]).tolist() == [1.0, 1.0, 2.0]
    assert joined([repeated(1.0, 2), np.ones(1)]).tolist() == [1.0, 1.0, 1.0]
    assert len(joined([])) == 0 and in_a_row(np.arange(3)) == slice(0, 3)


def test_arrays_are_drawn_again_each_the_same():
    drawn = Drawn(3, lambda k: Seed(5).generator("test", k).random(4), known=[np.zeros(4)])
    first = [*drawn]
    assert np.array_equal([*drawn], first) and len(first) == len(drawn) == 3 and not first[0].any() and not np.array_equal(first[1], first[2])


def test_what_is_not_kept_of_a_survey_is_measured_again(monkeypatch):
    """The same numbers, for two more calls."""
    kept = compared(lambda gradient: gradient, 64)[0]
    monkeypatch.setattr(survey, "KEPT", 0)
    assert compared(lambda gradient: gradient, 64)[0] == kept
