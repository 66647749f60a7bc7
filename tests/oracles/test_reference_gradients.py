"""A reference's backward against the function's: elements, counts and calls, by groups and by sums.

The truth is the difference of two Jacobians made of one-hot backwards.
"""

import numpy as np
import pytest
import torch
from live import Oracles, check, randn

from gradverify.model.case import Settings
from gradverify.numerics.choose import Choice, Cost, Limits, Mode, Why
from gradverify.numerics.pairs.pair import Outcome
from gradverify.numerics.prepare import prepare
from gradverify.oracles.finite_difference import Jacobian
from gradverify.oracles.reference import reference_gradients

SETTINGS = Settings()


class Linear:
    """y = A x of one tensor, with a backward of its own; counts its backwards."""

    def __init__(self, matrix, backward=None, shape=None):
        self.matrix, self.pulls = torch.from_numpy(matrix), 0
        self.back = self.matrix if backward is None else torch.from_numpy(backward)
        self.inputs = [randn(*(shape or matrix.shape[1:]))]

    def values(self, inputs):
        return [(self.matrix @ inputs[0].reshape(-1)).reshape(self.inputs[0].shape)]

    def vjp(self, cotangents, inputs=None):
        self.pulls += 1
        return [(self.back.T @ cotangents[0].reshape(-1)).reshape(self.inputs[0].shape)]


def compared(right, backward, shape, mode=Mode.ENTRIES, **options):
    function, reference = Linear(right, backward, shape), Linear(right, right, shape)
    structure = prepare(function).structure
    function.pulls = 0
    free = Cost(0, 0, 0.0)
    choice = Choice(
        mode, free, why=Why.FITS, relative=1e-8, passed_over=(), budget=Limits(), gradcheck=free
    )
    measured = Jacobian({}, frozenset(), choice, structure=structure)
    pair = reference_gradients(function, reference, SETTINGS, lambda: measured, **options)[0, 0]
    return pair, function.pulls + reference.pulls


def diagonal(n, rng):
    return np.diag(rng.uniform(1, 2, n))


def blocks(n, rng):
    return np.kron(np.eye(n // 6), np.ones((6, 6))) * rng.uniform(1, 2, (n, n))


def damaged(right, rng):
    """With entries off the pattern, on it, or both; or rolled; or scaled."""
    kind, wrong = rng.integers(5), right.copy()
    n = len(right)
    if kind == 0:
        return np.roll(right, int(rng.integers(1, n)), 1)
    if kind == 1:
        return 1.5 * right
    for _ in range(int(rng.integers(1, 4))):
        j, i = rng.integers(n, size=2)
        wrong[j, i] += rng.uniform(0.5, 1)
    if kind == 3:
        wrong[int(rng.integers(n))] = 0
    return wrong


@pytest.mark.population(most=15)
@pytest.mark.parametrize("seed", range(60))
def test_every_element_that_differs_is_told_as_one_hot_backwards_have_it(seed):
    rng = np.random.default_rng(seed)
    right, shape = (diagonal(30, rng), (30,)) if seed % 2 else (blocks(30, rng), (5, 6))
    wrong = damaged(right, rng)
    pair, _ = compared(right, wrong, shape)
    differs = ~np.isclose(wrong, right, rtol=1e-6, atol=0)
    assert pair.count(Outcome.MISMATCH) == differs.sum()
    assert pair.elements == right.size and pair.count(Outcome.UNDECIDED) == 0
    for each in pair.worst:
        assert each.analytic == pytest.approx(wrong[each.place], rel=1e-9)
        assert each.numeric == pytest.approx(right[each.place], rel=1e-9)
    np.testing.assert_array_equal(pair.ratios > 1, differs)


# ---- sums
def dense(rng):
    return rng.standard_normal((60, 60))


def by_one_element(right):
    wrong = right.copy()
    wrong[17, 5] *= 1.001
    return wrong


@pytest.mark.parametrize(
    ("damage", "columns"),
    [
        (by_one_element, 1),
        (lambda a: -a, 60),
        (lambda a: a + np.outer(np.arange(60) == 3, 1e-3 * np.ones(60)), 60),
        (lambda a: a * (np.arange(60) != 7), 1),
    ],
)
def test_a_few_random_cotangents_find_what_differs_and_name_elements(damage, columns):
    right = dense(np.random.default_rng(1))
    wrong = damage(right)
    pair, pulls = compared(right, wrong, (60,), Mode.BLOCKS)
    assert (pair.lines, pair.elements, pair.count(Outcome.MISMATCH)) == ("columns", 60, columns)
    assert pulls <= 2 * (3 + 3 * 8)
    for each in pair.worst:
        assert each.analytic == pytest.approx(wrong[each.place]) and each.numeric == pytest.approx(
            right[each.place]
        )
        assert not np.isclose(wrong[each.place], right[each.place], rtol=1e-6)


def test_a_spent_budget_takes_sums_and_still_finds_what_is_wrong():
    right = dense(np.random.default_rng(3))
    spent = {"over_budget": lambda ahead=0: ahead > 20}
    assert compared(right, right, (60,), **spent)[1] == 6
    pair, pulls = compared(right, 2 * right, (60,), **spent)
    assert pair.count(Outcome.MISMATCH) == 60 and pulls < 60


@pytest.mark.parametrize("mode", [Mode.ENTRIES, Mode.BLOCKS])
def test_differences_within_the_tolerance_pass_though_their_sums_show(mode):
    rng = np.random.default_rng(7)
    right = dense(rng)
    pair, _ = compared(right, right * (1 + 2e-7 * rng.standard_normal(right.shape)), (60,), mode)
    assert pair.count(Outcome.PASS) == pair.elements


def test_a_spent_budget_still_finds_an_element_off_the_pattern():
    right = diagonal(240, np.random.default_rng(51))
    wrong = right.copy()
    wrong[17, 200] = 0.5
    pair, pulls = compared(right, wrong, (240,), over_budget=lambda ahead=0: ahead > 20)
    assert [each.place for each in pair.worst] == [(17, 200)] and pulls <= 80


# ---- checks
def product(x, w):
    return x @ w


def product_that_forgets_a_row(x, w):
    y = x @ w
    return y + (x[:1].detach() - x[:1]).sum() * w.detach()[0] * (torch.arange(len(x))[:, None] == 2)


@pytest.mark.parametrize(
    ("reference", "wrong"), [("product", {}), ("product_that_forgets_a_row", {"x": 4 * 7})]
)
def test_inputs_that_share_their_backwards_have_patterns_of_their_own(reference, wrong):
    result = check(
        lambda x, w: product(x, w),
        randn(5, 4),
        randn(4, 7, seed=1),
        oracles=Oracles(reference=f"{__name__}:{reference}"),
    )
    assert {
        each.input: each.mismatched
        for each in result.comparisons
        if each.rule == "GV106" and each.mismatched
    } == wrong
