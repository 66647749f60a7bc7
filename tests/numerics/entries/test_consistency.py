"""What a compressed Jacobian adds up to is compared with the whole function's: an entry that is missing or off is seen, a right one is not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from gradverify.numerics.entries import consistency as consistency_module
from gradverify.numerics.entries.consistency import JacobianSums
from gradverify.numerics.estimate.ladder import as_derivative
from gradverify.numerics.estimate.smooth import SmoothEstimate
from gradverify.numerics.judging.bundle import Bundle, Grouping
from gradverify.numerics.judging.judged import Judged
from gradverify.numerics.judging.run import Reach, Run
from gradverify.numerics.prepare import Plan
from gradverify.numerics.seed_vectors import pull_back_all
from gradverify.numerics.seed_vectors import signed_weights_float32 as signed
from gradverify.numerics.sparsity.pattern import column_groups, row_groups
from gradverify.numerics.survey import linear_inputs
from gradverify.numerics.verdict import Limit, Verdict
from numerics.differentiable import Differentiable, normal
from numerics.windows import along_last, prepared

B, N = 3, 5
X, W = normal(1, B, N), normal(2, N, N)


def softmax(x):
    return torch.softmax(x, -1)


def softmax_jacobian():
    s = torch.softmax(X, -1)
    return torch.block_diag(*(torch.diag(row) - torch.outer(row, row) for row in s)).numpy()


def linear(x):
    return x @ W


def linear_jacobian():
    return torch.block_diag(*([W.T] * B)).numpy()


FUNCTIONS = {"softmax": (softmax, softmax_jacobian()), "linear": (linear, linear_jacobian())}


@np.errstate(all="ignore")
def made(forward, x=X):
    point, known = prepared(Differentiable(forward, x))
    generator = np.random.default_rng(0)
    run = Run(point, known, 0.0, None, Reach(point), frozenset(linear_inputs(point, known)))
    pattern = along_last(B, N)
    plan = Plan(Grouping(0, 0, column_groups([pattern]), signed(B * N, generator)), (row_groups(pattern),))
    return run, plan, JacobianSums(run, plan, signed(B * N, generator))


def judged(run, numeric, bar=0.0, open_=()):
    """All elements of the diagonal blocks, with these derivatives [M, N]; the columns `open_` are undecided."""
    out, column = np.nonzero(np.kron(np.eye(B), np.ones((N, N))))
    value = numeric[out, column]
    derivative = as_derivative(SmoothEstimate(value, np.full(len(out), bar), np.zeros(len(out)), np.ones(len(out), bool)))
    verdict = np.where(np.isin(column, open_), Verdict.UNDECIDED, Verdict.PASS).astype(np.int8)
    return Judged(column, out, value, derivative, run.tolerances(column, out), verdict, np.full(len(out), Limit.NONE, object))


def added(name, numeric=None, analytic=None, x=X, **options):
    """What does not add up for a Jacobian that may be off."""
    forward, right = FUNCTIONS[name]
    run, plan, sums = made(forward, x)
    numeric, analytic = right if numeric is None else numeric, right if analytic is None else analytic
    run.reach.add_entries(*np.nonzero(right), right[np.nonzero(right)])
    sums.add_numeric(judged(run, numeric, **options))
    bundle = plan.grouping.bundle(run.point, 0, plan.grouping.groups.count)
    sums.add_analytic(bundle, analytic[np.arange(B * N), bundle.column_of])
    with np.errstate(all="ignore"):
        return sums.check(sums.cotangent @ right)


def off(name, out, column, by):
    changed = FUNCTIONS[name][1].copy()
    changed[out, column] += by
    return changed


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_right_jacobian_adds_up(name):
    found = added(name)
    assert (found.outputs.tolist(), found.columns.tolist()) == ([], [])


def test_what_surely_adds_up_is_not_solved(monkeypatch):
    asked = []
    whole = consistency_module.from_quick_rungs
    monkeypatch.setattr(consistency_module, "from_quick_rungs", lambda *of: asked.append(1) or whole(*of))
    added("softmax")
    assert asked == []
    added("softmax", numeric=off("softmax", 7, 9, 1e-5))
    assert asked == [1]
    added("softmax", open_=[8])     # a tie may hide in the columns that are left out
    assert asked == [1, 1]


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(("out", "column"), [(0, 0), (7, 9), (14, 10)])
def test_a_derivative_that_is_off_is_seen_in_its_output(name, out, column):
    found = added(name, numeric=off(name, out, column, 1e-5))
    assert (found.outputs.tolist(), found.columns.tolist()) == ([out], [])


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(("out", "column"), [(0, 0), (7, 9), (14, 10)])
def test_an_analytic_value_that_is_off_is_seen_in_its_column(name, out, column):
    found = added(name, analytic=off(name, out, column, 1e-5))
    assert (found.outputs.tolist(), found.columns.tolist()) == ([], [column])


def test_a_dependence_that_no_group_has_is_seen():
    """An output reaches into another row of the input, where the groups look for nothing."""
    def reaching(x):
        return softmax(x) + 0.1 * torch.eye(B * N, dtype=x.dtype)[2].reshape(B, N) * x[2, 3]

    run, _, sums = made(reaching)
    right = softmax_jacobian()
    sums.add_numeric(judged(run, right))
    with np.errstate(all="ignore"):
        assert sums.check(np.full(B * N, np.nan)).outputs.tolist() == [2]


def test_what_lies_within_its_bars_is_no_disagreement():
    wrong = off("softmax", 7, 9, 1e-5)
    assert added("softmax", numeric=wrong, bar=1e-5).outputs.tolist() == []
    assert added("softmax", numeric=wrong, bar=1e-8).outputs.tolist() == [7]


def test_columns_with_an_open_element_are_left_out_of_both_sums():
    wrong = off("softmax", 7, 9, 1e-2)
    found = added("softmax", numeric=wrong, analytic=wrong, open_=[9])
    assert (found.outputs.tolist(), found.columns.tolist()) == ([], [])
    found = added("softmax", numeric=wrong, analytic=wrong, open_=[8])
    assert (found.outputs.tolist(), found.columns.tolist()) == ([7], [9])


def test_a_gradient_that_is_not_finite_says_nothing():
    run, _, sums = made(softmax)
    sums.add_numeric(judged(run, softmax_jacobian()))
    gradient = np.full(B * N, 1.0)
    gradient[3] = np.nan
    with np.errstate(all="ignore"):
        assert sums.check(gradient).columns.tolist() == [c for c in range(B * N) if c != 3]


def test_the_rounding_of_float32_is_no_disagreement_and_a_hundredth_is():
    x = X.float()
    assert added("softmax", x=x).outputs.tolist() == []
    wrong = off("softmax", 7, 9, 1e-2)
    found = added("softmax", x=x, numeric=wrong, analytic=wrong)
    assert (found.outputs.tolist(), found.columns.tolist()) == ([7], [9])


def test_a_line_of_one_column_and_a_group_add_the_same_analytic_sums():
    run, plan, by_group = made(softmax)
    _, _, alone = made(softmax)
    right, everything = softmax_jacobian(), plan.grouping.bundle(run.point, 0, N)
    by_group.add_analytic(everything, right[np.arange(B * N), everything.column_of])
    lone = Bundle(everything.lines, np.repeat(np.arange(B * N)[:, None], B * N, 1), np.zeros(B * N, int))
    alone.add_analytic(replace(lone, lines=[]), right.T)
    np.testing.assert_allclose(by_group.analytic, by_group.cotangent @ right, atol=1e-15)
    np.testing.assert_allclose(alone.analytic, by_group.analytic, atol=1e-15)
    np.testing.assert_allclose(by_group.analytic_size, np.abs(by_group.cotangent) @ np.abs(right), atol=1e-15)


def test_one_backward_pulls_a_dense_cotangent_of_all_outputs_back():
    function = Differentiable(lambda x: (softmax(x), x @ W), X)
    point, known = prepared(function)
    run = Run(point, known, 0.0, None, Reach(point))
    w = normal(5, 2 * B * N).numpy()
    wanted = w[: B * N] @ softmax_jacobian() + w[B * N :] @ linear_jacobian()
    np.testing.assert_allclose(pull_back_all(run.point, w), wanted, atol=1e-14)
    assert (point.backward, function.backwards) == (1, 1)
