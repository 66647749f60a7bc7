"""From what a screen flags to what is said: wrong lines once, right ones cleared, others open."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from gradverify.numerics.choose import Mode
from gradverify.numerics.compare import compare
from gradverify.numerics.pairs.pair import Outcome
from gradverify.numerics.seeds import Seed
from gradverify.numerics.verdict import Verdict
from numerics.differentiable import DOUBLE, Differentiable, normal, with_backward


@pytest.mark.parametrize("mode", [mode for mode in Mode if mode is not Mode.ENTRIES])
def test_of_many_wrong_lines_all_are_counted_and_three_are_named(mode):
    factors = torch.where((torch.arange(60) >= 5) & (torch.arange(60) < 45), 1.01, 1.0)
    (pair,) = compare(
        Differentiable(F.gelu, normal(1, 60), damage=lambda grads: [grads[0] * factors]), mode=mode
    ).pairs
    assert (pair.count(Outcome.MISMATCH), pair.count(Outcome.PASS), pair.elements) == (40, 20, 60)
    assert len([w for w in pair.worst if w.outcome is Outcome.MISMATCH]) == 3


def test_rows_of_one_block_are_resolved_wherever_the_followed_ones_stand_among_those_that_are_flagged():
    """A lost sum is followed last, so that a dozen followed rows need not be the first dozen of
    their block."""
    slopes = torch.linspace(1, 2, 20, dtype=DOUBLE)

    def backward(x, g):
        lost = bool(g[0] != 0) and not bool(g[1:].any())
        return (g * slopes).sum().reshape(1) * (np.nan if lost else 0.5)

    x = torch.zeros(1, dtype=DOUBLE)
    (pair,) = compare(
        Differentiable(with_backward(lambda x: x.abs() * slopes, backward), x),
        mode=Mode.ROWS,
        seed=Seed(0),
    ).pairs
    assert pair.verdict is Verdict.MISMATCH and pair.count(Outcome.MISMATCH) == 1
    assert {
        (w.output_index, w.input_index) for w in pair.worst if w.outcome is Outcome.MISMATCH
    } == {(0, 0)}


def test_most_rows_that_leak_into_one_gradient_element_are_counted_wrong():
    """Eight rows are: a search that names the worst again and again leaves the others passed."""

    def leak(gradients):
        spoilt = gradients[0].clone()
        spoilt.view(-1)[1] += spoilt.view(-1)[-1] * 1e-3
        return [spoilt]

    functions = (
        (
            Differentiable(lambda x: F.layer_norm(x, (8,)), normal(seed, 6, 8), damage=leak),
            Seed(seed - 2),
        )
        for seed in (3, 4)
    )
    wrong = [
        compare(function, mode=Mode.ROWS, seed=seed).pairs[0].count(Outcome.MISMATCH)
        for function, seed in functions
    ]
    assert min(wrong) >= 5
