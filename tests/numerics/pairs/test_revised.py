"""What is revised as a whole keeps its count. The class of faults: a mismatch that is excused without being known, or that is counted twice."""

from dataclasses import replace

import pytest
import torch

from gradverify.numerics.compare import compare
from gradverify.numerics.pairs.pair import Outcome
from gradverify.numerics.pairs.tally import mismatches, with_undecided
from gradverify.numerics.verdict import Limit, Verdict
from numerics.differentiable import Differentiable, leaf, with_backward


@pytest.fixture
def wrong():
    return compare(Differentiable(with_backward(torch.sin, lambda x, g: g * x.cos() * 1.5), leaf(0.3, 1.1, -2.0))).pairs[0]


def test_mismatches_come_with_their_numbers(wrong):
    found = mismatches(wrong)
    assert sorted(zip(found.output.tolist(), found.input.tolist(), strict=True)) == [(0, 0), (1, 1), (2, 2)]
    slope = torch.tensor([0.3, 1.1, -2.0], dtype=torch.float64).cos().numpy()[found.input]
    assert found.analytic == pytest.approx(1.5 * slope) and found.numeric == pytest.approx(slope) and (found.tolerance > 0).all()


def test_of_more_than_are_kept_the_entries_know_and_without_them_nobody_does(wrong):
    fewer = replace(wrong, worst=wrong.worst[:1])
    assert len(mismatches(fewer).output) == 3
    assert mismatches(replace(fewer, entries=None)) is None


def test_undecided_ones_are_moved_once_and_say_why_first(wrong):
    twice = with_undecided(with_undecided(wrong, Outcome.MISMATCH, Limit.ROUNDED), Outcome.MISMATCH, Limit.ROUNDED)
    assert twice.verdict is Verdict.UNDECIDED and sum(twice.counts) == sum(wrong.counts)
    assert (twice.count(Outcome.UNDECIDED), twice.count(Outcome.MISMATCH)) == (3, 0)
    assert twice.limits == ((Limit.ROUNDED, 3),) and {each.limit for each in twice.worst} == {Limit.ROUNDED}
