"""Second opinions excuse what has no derivative, or a gradient of its own convention, and nothing that is wrong."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gradverify.numerics.choose import Mode
from gradverify.numerics.compare import compare
from gradverify.numerics.estimate.climb import derivative
from gradverify.numerics.excuses.kink_sums import judge_kink_sums
from gradverify.numerics.excuses.order import excuse_symmetric, excused
from gradverify.numerics.excuses.rounded import excuse_backward_noise
from gradverify.numerics.function.point import element_line
from gradverify.numerics.judging.judged import Judged
from gradverify.numerics.judging.run import Reach, Run
from gradverify.numerics.pairs.pair import Outcome
from gradverify.numerics.records import joined
from gradverify.numerics.tolerance import verdicts
from gradverify.numerics.verdict import Limit, Verdict
from numerics.differentiable import DOUBLE, Differentiable, leaf, normal
from numerics.windows import prepared

PASS, MISMATCH, UNDECIDED = int(Verdict.PASS), int(Verdict.MISMATCH), int(Verdict.UNDECIDED)


@np.errstate(all="ignore")
def measured(function, jacobian):
    """Every element against a Jacobian [M, N] from hand, each column alone on the whole ladder."""
    point, known = prepared(function)
    run, a = Run(point, known, 0.0, None, Reach(point)), np.asarray(jacobian, float)
    m, n = a.shape
    column, out = np.repeat(np.arange(n), m), np.tile(np.arange(m), n)
    d = joined(derivative(element_line(point, c), run.outputs(), every_rung=True) for c in range(n))
    run.reach.add_entries(out, column, a.T.ravel())
    run.reach.add(column, out, d.value, d.bar)
    tolerances = run.tolerances(column, out)
    judged = Judged(column, out, a.T.ravel(), d, tolerances, verdicts(a.T.ravel(), d, tolerances), np.full(m * n, Limit.NONE, object))
    return run, judged


def table(judged, m):
    """The verdicts [M, N]."""
    return judged.verdict.reshape(-1, m).T.tolist()


# ---- sums of kinks
def largest(x):
    return x.max().reshape(1)


@pytest.mark.parametrize(("gradient", "verdict"), [
    ((0.5, 0.5), PASS), ((1.0, 0.0), PASS), ((0.25, 0.75), PASS), ((0.0, 0.0), MISMATCH), ((1.0, 1.0), MISMATCH), ((0.5, 0.6), MISMATCH)])
def test_a_gradient_of_a_tie_must_hold_along_the_sum_too(gradient, verdict):
    """Each of two tied elements may have any slope from 0 to 1; both together move the maximum by exactly 1."""
    run, judged = measured(Differentiable(largest, leaf(2.0, 2.0)), [gradient])
    assert table(judged, 1) == [[PASS, PASS]]
    after = judge_kink_sums(run, judged)
    assert table(after, 1) == [[verdict, verdict]]
    assert set(after.limit.tolist()) == {Limit.NONE if verdict == PASS else Limit.KINK_SUM}


def test_only_the_output_whose_sum_is_off_is_wrong():
    run, judged = measured(Differentiable(lambda x: torch.cat([largest(x), -largest(x)]), leaf(2.0, 2.0)), [[1.0, 1.0], [-0.5, -0.5]])
    assert table(judge_kink_sums(run, judged), 2) == [[MISMATCH] * 2, [PASS] * 2]


def test_outputs_with_the_same_kinks_share_their_calls():
    run, judged = measured(Differentiable(lambda x: torch.cat([largest(x), 2 * largest(x), 3 * largest(x)]), leaf(2.0, 2.0)),
                           [[0.5, 0.5], [1.0, 1.0], [1.5, 1.5]])
    before = run.point.forward
    judge_kink_sums(run, judged)
    three = run.point.forward - before
    run, judged = measured(Differentiable(largest, leaf(2.0, 2.0)), [[0.5, 0.5]])
    before = run.point.forward
    judge_kink_sums(run, judged)
    assert three == run.point.forward - before > 0


def test_one_kink_alone_has_no_sum():
    run, judged = measured(Differentiable(torch.relu, leaf(0.0, 1.0)), [[0.3, 0.0], [0.0, 1.0]])
    before = run.point.forward
    assert table(judge_kink_sums(run, judged), 2) == [[PASS, PASS], [PASS, PASS]]
    assert run.point.forward == before


# ---- symmetric inputs
SYMMETRIC = leaf(1.0, 0.7, 0.7, 2.0).reshape(2, 2)


def reads_below(x):
    """3 x₁₀ + x₀₀: x₀₁ is not read."""
    return (3 * x[..., 1, 0] + x[..., 0, 0]).reshape(1)


def symmetric(x, gradient):
    given = torch.tensor(gradient, dtype=x.dtype).reshape(2, 2)
    run, judged = measured(Differentiable(reads_below, x, damage=lambda _: [given]), [gradient])
    return table(excuse_symmetric(run, judged), 1)[0]


@pytest.mark.parametrize(("gradient", "wanted"), [
    ((1.0, 0.0, 3.0, 0.0), [PASS] * 4),
    ((1.0, 1.5, 1.5, 0.0), [PASS, UNDECIDED, UNDECIDED, PASS]),      # spread over both triangles: right on symmetric matrices
    ((1.0, 1.6, 1.6, 0.0), [PASS, MISMATCH, MISMATCH, PASS]),        # symmetric, and wrong
    ((1.0, 1.0, 2.0, 0.0), [PASS, MISMATCH, MISMATCH, PASS]),        # adds up, and is not symmetric
    ((1.1, 1.5, 1.5, 0.0), [MISMATCH, UNDECIDED, UNDECIDED, PASS]),  # the diagonal is not excused by it
])
def test_a_symmetric_gradient_of_a_symmetric_input_is_left_open_where_it_is_right_along_the_pair(gradient, wanted):
    assert symmetric(SYMMETRIC, gradient) == wanted


def test_an_input_that_is_not_symmetric_excuses_nothing():
    assert symmetric(leaf(1.0, 0.7, 0.8, 2.0).reshape(2, 2), (1.0, 1.5, 1.5, 0.0)) == [PASS, MISMATCH, MISMATCH, PASS]
    assert symmetric(leaf(1.0, 0.7 + 1e-15, 0.7, 2.0).reshape(2, 2), (1.0, 1.5, 1.5, 0.0)) == [PASS, UNDECIDED, UNDECIDED, PASS]


# ---- the backward's own noise
class Noisy(Differentiable):
    """A backward whose gradient is off by about `noise` of itself, differently at each point."""

    def __init__(self, forward, x, noise):
        super().__init__(forward, x)
        self.noise = noise

    def vjp(self, cotangents, inputs=None):
        x = (self.inputs if inputs is None else inputs)[0]
        ripple = torch.sin(1e17 * x.detach().abs().sum() + torch.arange(x.numel(), dtype=DOUBLE).reshape(x.shape))
        return [g * (1 + self.noise * ripple) for g in super().vjp(cotangents, inputs)]


X = normal(1, 6)


def noisy_case(noise):
    function = Noisy(torch.sin, X, noise)
    jacobian = np.stack([function.vjp([v])[0].numpy() for v in torch.eye(6, dtype=DOUBLE)])
    return measured(function, jacobian)


@np.errstate(all="ignore")
def test_a_backward_noisier_than_rounding_is_not_excused_and_its_noise_is_told():
    run, judged = noisy_case(1e-4)
    wrong = judged.verdict == MISMATCH
    assert wrong.any()
    after = excuse_backward_noise(run, judged)
    assert (after.verdict == judged.verdict).all()
    assert after.backward_noise and set(after.backward_noise) <= set(judged.out[wrong].tolist())
    assert all(1e-6 < noise < 1e-3 for noise in after.backward_noise.values())


@np.errstate(all="ignore")
def test_a_wrong_backward_without_noise_is_wrong():
    run, judged = measured(Differentiable(torch.sin, X), np.diag((1.001 * X.cos()).numpy()))
    after = excuse_backward_noise(run, judged)
    assert (np.diag(table(after, 6)) == MISMATCH).all() and not after.backward_noise


class Cancels(Differentiable):
    """10⁸ sin x₀ + x₁/1000, whose backward leaves an `error` in the gradient of x₁ that is small beside x₀'s; `steady`: the same everywhere."""

    def __init__(self, error, steady):
        super().__init__(lambda x: (1e8 * x[0].sin() + 1e-3 * x[1]).reshape(1), leaf(0.8, 1.1))
        self.error, self.steady = error, steady

    def vjp(self, cotangents, inputs=None):
        x = (self.inputs if inputs is None else inputs)[0].detach()
        here = 1.0 if self.steady or torch.equal(x, self.inputs[0]) else torch.sin(1e17 * x.sum()).item()
        g, = super().vjp(cotangents, inputs)
        return [g + self.error * here * leaf(0.0, 1.0) * cotangents[0]]


@np.errstate(all="ignore")
@pytest.mark.parametrize(("steady", "verdict", "limit"), [(False, UNDECIDED, Limit.ANALYTIC_NOISE), (True, MISMATCH, Limit.NONE)])
def test_what_cancels_to_dust_is_left_open_where_it_is_noise_and_wrong_where_it_is_not(steady, verdict, limit):
    error = 6e-4
    run, judged = measured(Cancels(error, steady), [[1e8 * np.cos(0.8), 1e-3 + error]])
    assert table(judged, 1) == [[PASS, MISMATCH]]
    after = excuse_backward_noise(run, judged)
    assert (table(after, 1), after.limit[1]) == ([[PASS, verdict]], limit)


@np.errstate(all="ignore")
def test_noise_excuses_no_more_than_its_cap():
    run, judged = measured(Cancels(0.5, False), [[1e8 * np.cos(0.8), 1e-3 + 0.5]])
    after = excuse_backward_noise(run, judged)
    assert table(after, 1) == [[PASS, MISMATCH]]
    assert 0.1 < after.backward_noise[0] < 10


# ---- all of them
def test_nothing_is_asked_where_everything_is_smooth_and_right():
    run, judged = measured(Differentiable(torch.sin, X), np.diag(X.cos().numpy()))
    before = run.point.forward, run.point.backward
    after = excused(run, judged)
    assert after is judged and not after.backward_noise
    assert (run.point.forward, run.point.backward) == before


@np.errstate(all="ignore")
def test_a_mismatch_outlives_all_second_opinions():
    run, judged = measured(Differentiable(torch.sin, X), np.diag((1.001 * X.cos()).numpy()))
    after = excused(run, judged)
    assert (np.diag(table(after, 6)) == MISMATCH).all()


# ---- inputs of 1e-12 and 1e12 in one tensor: what is dust by its own |x| needs no more digits than f has, and a wrong one is found
MIXED = [10 ** (24 * torch.rand(3, 4, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE) - 12) for seed in (3, 4)]


@pytest.mark.parametrize("mode", [Mode.ENTRIES, Mode.ROWS, Mode.BLOCKS, None])
def test_a_right_hypot_of_small_beside_large_numbers_is_decided(mode):
    for pair in compare(Differentiable(torch.hypot, *MIXED), mode=mode).pairs:
        assert pair.verdict is Verdict.PASS


@pytest.mark.parametrize("mode", [Mode.ENTRIES, Mode.ROWS])
@pytest.mark.parametrize("factor", [1.05, 2.0, 0.0, -1.0])
def test_a_wrong_one_is_found_at_the_small_numbers(factor, mode):
    """Of numbers below 1e-6: those that move their output by more than its rounding."""

    def damage(grads):
        return [torch.where(x < 1e-6, factor * g, g) for x, g in zip(MIXED, grads, strict=True)]

    for pair in compare(Differentiable(torch.hypot, *MIXED, damage=damage), mode=mode, keep=100).pairs:
        place = pair.input
        ratio = (MIXED[place] / torch.hypot(*MIXED)).reshape(-1)
        visible = {n for n in range(12) if MIXED[place].reshape(-1)[n] < 1e-6 and ratio[n] > 1e-4}
        wrong = {worst.input_index for worst in pair.worst if worst.outcome is Outcome.MISMATCH}
        assert wrong >= visible


def test_a_small_number_in_a_sum_is_not_let_off_for_its_size():
    x = leaf(1e-13, 0.7, -1.3)
    for factor in (0.0, 1.5):
        function = Differentiable(lambda x: x.sum(), x, damage=lambda g, k=factor: [g[0] * torch.tensor([k, 1, 1], dtype=DOUBLE)])
        pair, = compare(function, mode=Mode.ENTRIES).pairs
        assert pair.verdict is not Verdict.PASS
