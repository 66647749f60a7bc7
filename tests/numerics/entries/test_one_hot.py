"""What is printed of a wrong backward is what one-hot cotangents give: elements, counts, maps and the element that is explained."""

from __future__ import annotations

from itertools import count

import numpy as np
import pytest
import torch

from gradverify.numerics.choose import Mode
from gradverify.numerics.compare import compare
from gradverify.numerics.entries import colour_groups as one_hot
from gradverify.numerics.entries.colour_groups import off_pattern
from gradverify.numerics.explain import Coordinate, measure
from gradverify.numerics.judging.bundle import Grouping
from gradverify.numerics.judging.run import Reach, Run
from gradverify.numerics.pairs.pair import Outcome
from gradverify.numerics.prepare import Plan
from gradverify.numerics.seed_vectors import signed_weights_float32
from gradverify.numerics.seeds import Seed
from gradverify.numerics.sparsity.pattern import column_groups, row_groups
from gradverify.numerics.verdict import Limit, Verdict
from numerics.differentiable import DOUBLE, Differentiable, normal
from numerics.windows import elementwise, prepared, windows


class Linear(Differentiable):
    """`forward` with a backward by the rows of a matrix [outputs, inputs]."""

    def __init__(self, forward, x, matrix):
        super().__init__(forward, x)
        self.matrix = torch.from_numpy(np.array(matrix))

    def vjp(self, cotangents, inputs=None):
        self.backwards += 1
        return [(cotangents[0].reshape(-1) @ self.matrix).reshape(self.inputs[0].shape)]


# ---- random backwards
def forwards(rng):
    n = int(rng.integers(11, 41))
    x, rows = torch.from_numpy(rng.standard_normal(n)), torch.from_numpy(rng.standard_normal(rng.integers([2, 3], [6, 9])))
    of_x = [lambda x: 2 * x, torch.sin, lambda x: 3 * x[: n // 2], lambda x: torch.cat([x.sin(), 2 * x]), lambda x: x.diff()]
    of_rows = [lambda x: x.softmax(-1), lambda x: x.sin().cumsum(-1), lambda x: (x**2).sum(-1), lambda x: 2 * x.T]
    return [*((forward, x) for forward in of_x), *((forward, rows) for forward in of_rows)]


def damaged(right, rng):
    """A linear backward with entries where it should have none."""
    m, n = right.shape
    rolled, some = np.roll(right, int(rng.integers(1, m)), 0), int(rng.integers(1, m)) + 1
    more = np.zeros((6, m, n))
    (a, b), (c, d) = (sorted(rng.integers(0, size + 1, 2)) for size in (m, n))
    more[0, a:b, c:d] = rng.uniform(0.1, 1, (b - a, d - c))
    more[1, rng.integers(m), rng.integers(n)] = 0.3
    more[2, rng.integers(m, size=5), rng.integers(n, size=5)] = -rng.uniform(0.1, 1, 5)
    more[3] = rng.uniform(0.1, 1, (m, n))
    more[4, rng.integers(m)] = rng.uniform(0.1, 1, n)
    more[5, :, rng.integers(n)] = rng.uniform(0.1, 1, m)
    first = np.arange(m)[:, None] < some
    wrong = [*(right + more), rolled, np.roll(right, 1, 1), right[rng.permutation(m)], right[::-1], np.where(first, rolled, right),
             np.where(first, rolled, 0.0), np.where(rng.random((m, n)) < 0.2, rng.standard_normal((m, n)), right),
             right * rng.uniform(1.1, 2, (m, 1)), right - right.mean(0)]
    return wrong[rng.integers(len(wrong))]


@pytest.mark.population(most=10)
@pytest.mark.parametrize("seed", range(40))
def test_whatever_is_shown_of_a_random_wrong_backward_is_what_one_hot_cotangents_give(seed):
    rng = np.random.default_rng(seed)
    made = forwards(rng)
    forward, x = made[rng.integers(len(made))]
    right = torch.func.jacrev(forward)(x).reshape(-1, x.numel()).numpy()
    given = damaged(right, rng)
    wrong = np.abs(given - right) > 2e-6 * np.maximum(np.abs(given), np.abs(right)) + 1e-10
    function = Linear(forward, x, given)
    pair, = compare(function, mode=Mode.ENTRIES, seed=Seed(seed)).pairs
    assert (pair.elements, pair.count(Outcome.MISMATCH)) == (right.size, np.count_nonzero(wrong))
    for shown in pair.worst:
        assert shown.analytic == given[shown.place] and (shown.outcome is Outcome.MISMATCH) == wrong[shown.place]
    if pair.ratios is not None:
        assert np.array_equal(pair.ratios > 1, wrong)
    entries = pair.entries
    np.testing.assert_allclose(entries.analytic, given[entries.output, entries.input], rtol=1e-12, atol=1e-15)
    worst = pair.worst[0]
    element = measure(function, Coordinate(0, worst.input_index), Coordinate(0, worst.output_index), checked=worst)
    assert element.analytic == given[worst.place]


@pytest.mark.parametrize("mode", [Mode.ROWS, Mode.BLOCKS])
@pytest.mark.parametrize("seed", range(6))
def test_elements_that_sums_lead_to_are_those_of_one_hot_cotangents(seed, mode):
    rng = np.random.default_rng(seed)
    made = forwards(rng)
    forward, x = made[rng.integers(len(made))]
    given = damaged(torch.func.jacrev(forward)(x).reshape(-1, x.numel()).numpy(), rng)
    pair, = compare(Linear(forward, x, given), mode=mode, seed=Seed(seed)).pairs
    assert pair.worst
    for shown in pair.worst:
        assert shown.analytic == given[shown.place]


# ---- calls
def calls(given, forward=torch.sin, n=1000):
    function = Linear(forward, normal(1, n), given)
    compared = compare(function, mode=Mode.ENTRIES)
    return compared.pairs[0], compared.backward


def diagonal(n=1000):
    return np.diag(normal(1, n).cos().numpy())


def test_a_right_backward_is_pulled_back_no_more_than_before():
    pair, backward = calls(diagonal())
    assert (pair.verdict, backward) == (Verdict.PASS, 2)


@pytest.mark.parametrize(("given", "wrong"), [
    (lambda right: right * np.where(np.arange(1000) % 2, 2.0, 1.0), 500),       # on the pattern alone
    (lambda right: np.roll(right, 1, 0), 2000),                                # each number from one output
])
def test_what_comes_from_one_output_each_takes_two_backwards_a_bit_of_their_number(given, wrong):
    pair, backward = calls(given(diagonal()))
    assert pair.count(Outcome.MISMATCH) == wrong
    assert backward < 160       # 20 for the bits, one for each of ten that are shown; the rest for whether rounding explains them


def test_few_outputs_that_reach_one_input_together_are_searched_for():
    given = diagonal()
    given[[3, 500, 999], 7] += 0.5
    pair, backward = calls(given)
    assert {shown.place for shown in pair.worst} == {(3, 7), (500, 7), (999, 7)} and pair.count(Outcome.MISMATCH) == 3
    assert backward < 200


# ---- the search itself
def search(given, pattern=None, spent=False):
    """What the only group of a pattern has off it, as a matrix [outputs, inputs]; the inputs that are shared, and their own numbers."""
    given = np.array(given, float)
    m, n = given.shape
    function = Linear(lambda x: torch.nn.functional.pad(x, (0, max(m - n, 0)))[:m].sin(), normal(1, n), given)
    point, known = prepared(function)
    pulled = count()
    run = Run(point, known, 0.0, None, Reach(point), over_budget=lambda ahead=0: spent and next(pulled) >= 0)
    patterns = [pattern or elementwise(n)]
    plan = Plan(Grouping(0, 0, column_groups(patterns), np.ones(n)), (row_groups(patterns[0]),))
    found = off_pattern(run, plan, 0, 0, signed_weights_float32(m, np.random.default_rng(1)))
    matrix = np.zeros((m, n))
    matrix[found.out, found.column] = found.value
    return matrix, dict(zip(found.shared.tolist(), found.own.tolist(), strict=True))


@pytest.mark.parametrize("n", [1, 2, 3, 16, 17])
@pytest.mark.parametrize("density", [0.0, 0.1, 1.0])
def test_every_entry_off_the_pattern_is_found_and_what_is_on_it_is_told_apart(n, density):
    rng = np.random.default_rng(n)
    given = np.diag(rng.uniform(1, 2, n)) + np.where((rng.random((n, n)) < density) & ~np.eye(n, dtype=bool), rng.uniform(1, 2, (n, n)), 0.0)
    matrix, own = search(given)
    np.testing.assert_allclose(matrix, given - np.diag(np.diag(given)), rtol=1e-14)
    reached = np.flatnonzero((matrix != 0).any(0))
    assert sorted(own) == reached.tolist()
    np.testing.assert_allclose([own[c] for c in reached], np.diag(given)[reached], rtol=1e-14)


def test_inputs_that_no_output_of_the_group_has_are_searched_too():
    places = np.arange(4)
    given = np.hstack([np.diag([1.0, 2, 3, 4]), np.zeros((4, 3))])
    given[[1, 1, 3], [4, 6, 6]] = [5.0, 6, 7]
    matrix, own = search(given, windows((7,), [places], [places]))
    assert own == {}
    np.testing.assert_allclose(matrix[:, 4:], given[:, 4:], rtol=1e-14)


def test_where_the_budget_ends_one_output_is_found_all_the_same_and_the_rest_is_not_known():
    given = np.diag(np.arange(1.0, 65)) + 0.5
    matrix, own = search(given, spent=True)
    rows = np.flatnonzero(matrix.any(1))
    assert len(rows) == 1
    np.testing.assert_allclose(matrix[rows[0]], np.where(np.arange(64) == rows[0], 0.0, 0.5), rtol=1e-13)
    assert np.isfinite(list(own.values())).sum() == 1 and own[rows[0]] == pytest.approx(given[rows[0], rows[0]])


def test_more_than_can_be_kept_counts_as_not_known(monkeypatch):
    monkeypatch.setattr(one_hot, "MOST_ENTRIES", 100)
    matrix, own = search(np.diag(np.arange(1.0, 65)) + 0.5)
    assert 1 <= np.count_nonzero(matrix.any(1)) <= 3 and np.isnan(list(own.values())).sum() >= 61


def test_a_number_that_is_none_whatever_the_cotangent_belongs_to_its_own_output():
    given = np.eye(8)
    given[2, 2] = np.inf        # and 0 · inf for all others
    matrix, own = search(given)
    assert not matrix.any() and own == {}


# ---- where the budget ends
def test_elements_that_the_budget_leaves_unknown_are_counted_and_not_shown():
    """Every number of the backward is a sum over all outputs: none of a compressed VJP was returned."""
    x = normal(1, 256)
    given = np.diag(x.cos().numpy()) + 0.25
    function = Linear(torch.sin, x, given)
    pair, = compare(function, mode=Mode.ENTRIES, over_budget=lambda ahead=0: function.backwards > 30).pairs
    assert pair.verdict is Verdict.MISMATCH
    for shown in pair.worst:
        assert shown.analytic == given[shown.place]
    left = dict(pair.limits)[Limit.BUDGET]
    assert left > 200 and pair.count(Outcome.UNDECIDED) == left
    assert function.backwards < 200
    assert sum(pair.counts) == pair.elements == 256**2


def test_a_function_that_depends_on_what_its_structure_lacks_is_no_false_alarm():
    """The right backward has the entry off the pattern, too."""
    n = 40

    def forward(x):
        return x.sin() + 0.1 * x[31] * torch.eye(n, dtype=DOUBLE)[7]

    for seed in range(6):
        pair, = compare(Differentiable(forward, normal(1, n)), mode=Mode.ENTRIES, seed=Seed(seed)).pairs
        assert pair.verdict is Verdict.PASS
