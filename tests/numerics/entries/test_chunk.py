"""A chunk of lines: every element of it is judged, on its own rungs, or passed as a zero, or masked."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gradverify.numerics.entries import chunk as module
from gradverify.numerics.entries.chunk import Chunk, pieces
from gradverify.numerics.entries.consistency import AliasSums
from gradverify.numerics.estimate.ladder import PIECE
from gradverify.numerics.judging.bundle import lone_columns
from gradverify.numerics.judging.run import Reach, Run
from gradverify.numerics.pairs.pair import Outcome
from gradverify.numerics.pairs.tally import Tally
from gradverify.numerics.survey import linear_inputs
from gradverify.numerics.verdict import Limit, Verdict
from numerics.differentiable import DOUBLE, Differentiable, leaf, normal
from numerics.windows import prepared

INF = float("inf")
X, W = normal(1, 5), normal(2, 4, 5)


class Judge:
    """All columns of a function one by one, against a Jacobian [M, N]."""

    @np.errstate(all="ignore")
    def __init__(self, forward, x, jacobian, suspects=()):
        self.point, known = prepared(Differentiable(forward, x))
        point = self.point
        run = Run(point, known, 0.0, None, Reach(point), frozenset(linear_inputs(point, known)))
        jacobian = np.asarray(jacobian, float)
        run.reach.add_entries(*(place.ravel() for place in np.indices(jacobian.shape)), jacobian.ravel())
        self.chunk = Chunk(run, lone_columns(point, np.arange(len(point.columns))), jacobian.T.copy())
        doubted = np.isin(np.arange(len(point.f0)), suspects)
        self.results = list(self.chunk.judge(AliasSums(point, known), doubted))

    def verdicts(self):
        """Of all elements [M, N]; −1 where no solver was needed."""
        found = np.full((len(self.point.f0), len(self.point.columns)), -1)
        for result in self.results:
            found[result.judged.out, result.judged.column] = result.judged.verdict
        return found

    def of(self, name):
        return np.concatenate([getattr(result, name) for result in self.results], 1)

    def limit(self, out, column):
        return next(result.judged.limit[i] for result in self.results
                    for i in np.flatnonzero((result.judged.out == out) & (result.judged.column == column)))


def curved(x):
    return torch.tanh(W @ x)


def curved_jacobian():
    return ((1 - torch.tanh(W @ X) ** 2)[:, None] * W).numpy()


@pytest.mark.parametrize("span", [1 << 17, 10, 1])
def test_right_values_pass_however_many_outputs_are_taken_at_a_time(monkeypatch, span):
    monkeypatch.setattr(module, "SPAN", span)
    judge = Judge(curved, X, curved_jacobian())
    assert (judge.verdicts() == Verdict.PASS).all()
    assert [(r.outs.start, r.outs.stop) for r in judge.results] == {1 << 17: [(0, 4)], 10: [(0, 2), (2, 4)]}.get(span, [(k, k + 1) for k in range(4)])


@pytest.mark.parametrize("by", [1e-4, -0.1, INF, float("nan")])
@pytest.mark.parametrize(("out", "column"), [(0, 0), (3, 2)])
def test_a_wrong_value_is_a_mismatch_and_stands_on_the_whole_ladder(out, column, by):
    jacobian, wanted = curved_jacobian(), np.zeros((4, 5))
    jacobian[out, column] += by
    wanted[out, column] = Verdict.MISMATCH
    judge = Judge(curved, X, jacobian)
    assert judge.verdicts().tolist() == wanted.tolist()
    assert not any(result.unconfirmed.any() for result in judge.results)


def test_derivatives_are_those_of_the_closed_form_within_their_bars():
    judge = Judge(curved, X, curved_jacobian())
    for result in judge.results:
        d = result.judged.derivative
        assert (np.abs(d.value - curved_jacobian()[result.judged.out, result.judged.column]) <= d.bar).all()
        assert (d.bar < 1e-8).all()


def sparse_jacobian():
    return np.diag(X.cos().numpy())


def test_zeros_of_both_sides_need_no_solver_and_are_counted():
    judge = Judge(torch.sin, X, sparse_jacobian())
    assert judge.of("zeros").tolist() == (~np.eye(5, dtype=bool)).tolist()
    assert (judge.verdicts() == np.where(np.eye(5), Verdict.PASS, -1)).all()
    tally = Tally(0, 0, (5, 5), 3)
    for result in judge.results:
        result.add_zeros(tally, judge.chunk.a, slice(None), slice(0, 5))
    pair = tally.result(1e-16, False)
    assert (pair.elements, pair.count(Outcome.PASS)) == (20, 20)


@pytest.mark.parametrize(("value", "verdict"), [(1e-3, Verdict.MISMATCH), (1e-18, -1)])
def test_a_zero_difference_passes_dust_only(value, verdict):
    jacobian = sparse_jacobian()
    jacobian[1, 3] = value
    assert Judge(torch.sin, X, jacobian).verdicts()[1, 3] == verdict


def test_one_and_the_same_infinity_is_masked():
    judge = Judge(lambda x: torch.cat([x.sin(), torch.full((2,), -INF, dtype=DOUBLE)]), X, np.vstack([sparse_jacobian(), np.zeros((2, 5))]))
    masked = judge.of("masked")
    assert masked[:, 5:].all() and not masked[:, :5].any()
    assert judge.verdicts()[5:].tolist() == [[-1] * 5] * 2


@pytest.mark.parametrize(("slope", "verdict"), [(0.0, Verdict.PASS), (1.0, Verdict.PASS), (0.5, Verdict.PASS), (1.5, Verdict.MISMATCH),
                                                (-0.25, Verdict.MISMATCH)])
def test_at_a_kink_every_subgradient_is_right(slope, verdict):
    x = leaf(0.0, 1.0, -1.0)
    assert Judge(torch.relu, x, np.diag([slope, 1.0, 0.0])).verdicts()[0, 0] == verdict


def test_at_a_jump_nothing_can_be_said():
    judge = Judge(lambda x: torch.where(x > 1, x + 1, x), leaf(1.0, 2.0, 3.0), np.eye(3))
    assert judge.verdicts()[0, 0] == Verdict.UNDECIDED
    assert judge.limit(0, 0) is Limit.JUMP
    assert judge.verdicts()[1, 1] == Verdict.PASS


def test_at_the_border_of_f_an_infinite_gradient_is_no_mismatch():
    judge = Judge(torch.sqrt, leaf(0.0, 4.0), np.diag([INF, 0.25]))
    assert judge.verdicts()[[0, 1], [0, 1]].tolist() == [Verdict.UNDECIDED, Verdict.PASS]
    assert judge.chunk.look.border.tolist() == [True, False]


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, Verdict.PASS), (1.001, Verdict.MISMATCH)])
def test_a_linear_function_is_judged_from_one_wide_rung(factor, verdict):
    x, w = normal(3, 30), normal(4, 4, 30)
    judge = Judge(lambda x: w @ x, x, factor * w.numpy())
    assert judge.chunk.look.linear and judge.chunk.look.samples.up.shape[0] == 1
    counts = np.unique(judge.verdicts(), return_counts=True)
    assert verdict in counts[0] and (factor != 1.0 or counts[0].tolist() == [Verdict.PASS])


def test_outputs_that_may_alias_climb_further_and_pass_all_the_same():
    plain, doubted = Judge(curved, X, curved_jacobian()), Judge(curved, X, curved_jacobian(), suspects=[2])
    assert (doubted.verdicts() == Verdict.PASS).all()
    first, = doubted.results
    assert plain.results[0].quick.all()
    assert first.quick.tolist() == (first.judged.out != 2).tolist()
    assert doubted.point.forward > plain.point.forward


@pytest.mark.parametrize(("sizes", "cuts"), [
    ([], [0]), ([5], [5]), ([PIECE], [PIECE]), ([PIECE - 1, 2], [PIECE - 1, 2]), ([3, 4], [7]), ([PIECE, PIECE], [PIECE, PIECE])])
def test_pieces_are_cut_between_columns(sizes, cuts):
    local = np.repeat(np.arange(len(sizes)), sizes)
    found = list(pieces(local))
    assert [len(piece) for piece in found] == cuts
    assert np.concatenate(found).tolist() == list(range(len(local)))


def test_a_column_longer_than_a_piece_is_not_cut_by_the_next_one():
    local = np.repeat([0, 1], [10, 2 * PIECE])
    assert [len(piece) for piece in pieces(local)] == [10, PIECE, PIECE]
