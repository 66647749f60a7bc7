"""Equal inputs: what has no derivative there is not called wrong, and what has one still is."""

import numpy as np
import pytest
import torch

from gradverify.numerics.choose import Mode
from gradverify.numerics.compare import compare
from gradverify.numerics.pairs.pair import Outcome
from gradverify.numerics.verdict import Limit, Verdict
from numerics.differentiable import DOUBLE, Differentiable, check, leaf, verdict, with_backward

ONES = torch.ones(4, 6, dtype=DOUBLE, requires_grad=True)
SOME = leaf(
    [2.0, -2.0, 2.0, 1.0, -2.0, 2.0, 1.0, -2.0, 4.0],
    [-1.0, -1.0, -1.0, -1.0, 2.0, 0.0, 0.0, 0.0, 3.0],
)

ALLOWED = {Limit.NONE, Limit.TIE, Limit.KINK_SUM, Limit.KINK, Limit.ALONE, Limit.STAIRCASE}

RIGHT = {
    "sort": lambda x: x.sort(-1).values,
    "median": lambda x: x.median(-1).values,
    "third smallest": lambda x: x.kthvalue(3, -1).values,
    "topk": lambda x: x.topk(4, -1).values,
    "quantile": lambda x: x.quantile(0.5, -1),
}


@pytest.mark.parametrize("x", [ONES, SOME], ids=["all equal", "some equal"])
@pytest.mark.parametrize("name", RIGHT)
def test_right_gradients_at_ties_of_three_and_more_are_never_called_wrong(name, x):
    entries = check(RIGHT[name], x)
    assert verdict(entries) in (Verdict.PASS, Verdict.UNDECIDED)
    assert {w.limit for pair in entries.pairs for w in pair.worst} <= ALLOWED


def test_the_middle_of_a_tie_says_why_it_is_undecided():
    entries = check(lambda x: x.sort(-1).values, ONES)
    assert verdict(entries) == Verdict.UNDECIDED
    assert entries.pairs[0].limits[0][0] == Limit.TIE


@pytest.mark.parametrize("mode", [Mode.ROWS, Mode.BLOCKS])
def test_sums_over_ties_are_never_called_wrong(mode):
    found = compare(Differentiable(lambda x: x.sort(-1).values, ONES), mode=mode)
    assert {pair.verdict for pair in found.pairs} == {Verdict.UNDECIDED}


def misplaced(forward):
    """Its gradient is moved on by one place of the last axis."""

    def backward(x, g):
        with torch.enable_grad():
            inside = x.detach().requires_grad_()
            return torch.autograd.grad(forward(inside), inside, g)[0].roll(1, -1)

    return with_backward(forward, backward)


WRONG = {
    "an element that nothing uses": (misplaced(lambda x: 3 * x[..., 0]), ONES),
    "the next one of a product at 0": (
        misplaced(lambda x: x[..., :3].prod(-1) + x[..., 3]),
        leaf(*[[0.0] * 6] * 4),
    ),
    "a lower value than the tied largest": (
        misplaced(lambda x: x.amax(-1)),
        leaf([1.0, 2.0, 0.5, 0.5, 0.5, 0.5]),
    ),
    "sorted values, one of them tied": (
        misplaced(lambda x: x.sort(-1).values),
        leaf([3.0, 1.0, 1.0, 1.0, 5.0, 2.0]),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_gradient_at_the_wrong_place_is_called_wrong_though_others_hold_the_same_number(name):
    assert verdict(check(*WRONG[name])) == Verdict.MISMATCH


def test_wrong_elements_at_ties_are_counted_once_and_right_ones_beside_them_look_right():
    def twice(x, g):
        return torch.zeros_like(x).scatter(
            -1, x.topk(2, -1).indices, g[..., None].expand(*x.shape[:-1], 2)
        )

    pair = check(with_backward(lambda x: x.topk(2, -1).values.mean(-1), twice), ONES).pairs[0]
    wrong = [(w.output_index, w.input_index) for w in pair.worst if w.outcome == Outcome.MISMATCH]
    chosen = {
        (row, 6 * row + int(k)) for row, two in enumerate(ONES.topk(2, -1).indices) for k in two
    }
    assert pair.elements == 4 * 24
    assert pair.count(Outcome.MISMATCH) == len(wrong) == 8
    assert set(wrong) == chosen
    assert {(int(j), int(i)) for j, i in zip(*np.nonzero(pair.ratios), strict=True)} == chosen
