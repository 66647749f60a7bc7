"""From what a screen flags to what is said: wrong lines once, right ones cleared, others open."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from gradverify.numerics.choose import Mode
from gradverify.numerics.compare import compare
from gradverify.numerics.flagged.follow import FollowUp
from gradverify.numerics.pairs.pair import Outcome
from gradverify.numerics.prepare import prepare
from gradverify.numerics.probing.screen import Screened
from gradverify.numerics.seeds import Seed
from gradverify.numerics.verdict import Limit, Verdict
from numerics.differentiable import DOUBLE, Differentiable, normal, with_backward

SCREENS = [Mode.ROWS, Mode.BLOCKS]
N = 60


def judged(forward, x, mode, flagged=(), strays=(), check=None, damage=None, count=None, seed=0):
    """The only pair, and the tensors that stay open, where a screen had flagged these lines."""
    prepared = prepare(Differentiable(forward, x, damage=damage), seed=Seed(seed))

    def screen(lines, numbers):
        pairs, nothing, all_ = np.array(numbers, np.intp).reshape(-1, 2), np.zeros(0, np.intp), x.numel() if count is None else count
        return [Screened(0, 0, all_, np.array(lines, np.intp), pairs, len(pairs), nothing, 1e-8, 1e-8)]

    with np.errstate(all="ignore"):
        follow_up = FollowUp(prepared.run(), prepared.structure, 50)
        pairs, open_ = follow_up.pairs(mode, screen(flagged, strays), screen(check, ()) if check else [])
    return pairs[0], open_


def off(*places):
    def damage(grads):
        g = grads[0].clone()
        g.view(-1)[list(places)] *= 1.01
        return [g]

    return damage


@pytest.mark.parametrize("mode", SCREENS)
def test_nothing_flagged_is_a_pass_of_all_lines(mode):
    pair, open_ = judged(F.gelu, normal(1, N), mode)
    assert (pair.verdict, pair.count(Outcome.PASS), pair.lines, open_) == (Verdict.PASS, N, mode.value, frozenset())


@pytest.mark.parametrize("mode", SCREENS)
def test_a_wrong_line_is_counted_and_its_entry_named(mode):
    pair, _ = judged(F.gelu, normal(1, N), mode, flagged=[17], damage=off(17))
    assert (pair.count(Outcome.MISMATCH), pair.count(Outcome.PASS)) == (1, N - 1)
    assert [(w.output_index, w.input_index) for w in pair.worst if w.outcome is Outcome.MISMATCH] == [(17, 17)]


@pytest.mark.parametrize("mode", SCREENS)
def test_after_three_that_stood_the_rest_is_believed(mode):
    wrong = list(range(5, 45))
    pair, _ = judged(F.gelu, normal(1, N), mode, flagged=wrong, damage=off(*wrong))
    assert pair.count(Outcome.MISMATCH) == 40
    assert len([w for w in pair.worst if w.outcome is Outcome.MISMATCH]) == 3


@pytest.mark.parametrize("mode", [Mode.ROWS, Mode.BLOCKS])
def test_a_right_line_of_guessed_structure_stays_open_until_the_structure_is_sure(mode):
    """It was flagged for a reason, and no entry that the guess allows shows any: a leak may."""
    pair, open_ = judged(F.gelu, normal(1, N), mode, flagged=[3])
    assert (pair.count(Outcome.UNDECIDED), open_) == (1, {0})


@pytest.mark.parametrize("mode", SCREENS)
def test_a_kink_explains_a_flag(mode):
    x = normal(1, N)
    x[3] = 0.0
    pair, open_ = judged(torch.abs, x, mode, flagged=[3])
    assert pair.verdict is Verdict.PASS and not open_


def test_the_block_that_verifies_an_open_row_is_not_another_line():
    x = normal(1, 400, dtype=torch.float32)
    x[21] = -0.7517  # where the slope of gelu is 3e-5: float32 tells it to a few per cent
    pair, _ = judged(F.gelu, x, Mode.ROWS, flagged=[21], check=[21])
    assert pair.count(Outcome.UNDECIDED, Outcome.MISMATCH) <= 1
    assert pair.elements == 400


def test_rows_beyond_those_that_are_followed_are_counted_once_together_with_their_blocks():
    def forward(x):
        return x.amax(-1)

    x = torch.ones(30, 2, dtype=DOUBLE)
    lines = 30
    pair, _ = judged(forward, x, Mode.ROWS, flagged=range(lines), check=range(30), count=lines)
    assert sum(pair.counts) == pair.elements
    assert pair.count(Outcome.UNDECIDED) == lines - 12  # the right ones of a dozen are cleared
    assert pair.limits == ((Limit.LINE, lines - 12),)


def test_a_block_of_which_no_line_was_flagged_is_counted_beside_those_that_were():
    pair, _ = judged(F.gelu, normal(1, N), Mode.ROWS, flagged=[3, 5], check=[5, 7])
    assert pair.count(Outcome.UNDECIDED) == 3


@pytest.mark.parametrize("mode", SCREENS)
def test_more_strays_than_lines_leave_no_more_than_all_lines_open(mode):
    pair, _ = judged(F.gelu, normal(1, 8), mode, strays=[(0, n % 8) for n in range(40)])
    assert (pair.verdict, pair.count(Outcome.UNDECIDED), pair.elements) == (Verdict.UNDECIDED, 8, 8)


def test_a_block_flagged_by_the_verification_alone_names_the_leak():
    """It was detected: all of the function is one block."""
    def forward(x):
        return F.gelu(x) + 0.1 * x[40].detach().sin() * torch.eye(N, dtype=DOUBLE)[5]

    pair, _ = judged(forward, normal(7, N), Mode.ROWS, check=[0], seed=1)
    assert pair.verdict is Verdict.MISMATCH
    assert {(w.output_index, w.input_index) for w in pair.worst if w.outcome is Outcome.MISMATCH} == {(5, 40)}


def test_rows_of_one_block_are_resolved_wherever_the_followed_ones_stand_among_those_that_are_flagged():
    """A lost sum is followed last, so that a dozen followed rows need not be the first dozen of their block."""
    slopes = torch.linspace(1, 2, 20, dtype=DOUBLE)

    def backward(x, g):
        lost = bool(g[0] != 0) and not bool(g[1:].any())
        return (g * slopes).sum().reshape(1) * (np.nan if lost else 0.5)

    x = torch.zeros(1, dtype=DOUBLE)
    pair, = compare(Differentiable(with_backward(lambda x: x.abs() * slopes, backward), x), mode=Mode.ROWS, seed=Seed(0)).pairs
    assert pair.verdict is Verdict.MISMATCH and pair.count(Outcome.MISMATCH) == 1
    assert {(w.output_index, w.input_index) for w in pair.worst if w.outcome is Outcome.MISMATCH} == {(0, 0)}


def test_most_rows_that_leak_into_one_gradient_element_are_counted_wrong():
    """Eight rows are: a search that names the worst again and again leaves the others passed."""
    def leak(gradients):
        spoilt = gradients[0].clone()
        spoilt.view(-1)[1] += spoilt.view(-1)[-1] * 1e-3
        return [spoilt]

    functions = ((Differentiable(lambda x: F.layer_norm(x, (8,)), normal(seed, 6, 8), damage=leak), Seed(seed - 2)) for seed in (3, 4))
    wrong = [compare(function, mode=Mode.ROWS, seed=seed).pairs[0].count(Outcome.MISMATCH) for function, seed in functions]
    assert min(wrong) >= 5
