"""What is printed of a wrong backward is what one-hot cotangents give: elements, counts, maps and
the element that is explained."""

import numpy as np
import pytest
import torch

from gradverify.numerics.choose import Mode
from gradverify.numerics.compare import compare
from gradverify.numerics.explain import measure
from gradverify.numerics.pairs.pair import Outcome, Requested
from gradverify.numerics.seeds import Seed
from gradverify.numerics.verdict import Limit, Verdict
from numerics.differentiable import Differentiable, normal


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
    x = torch.from_numpy(rng.standard_normal(n))
    rows = torch.from_numpy(rng.standard_normal(rng.integers([2, 3], [6, 9])))
    of_x = [
        lambda x: 2 * x,
        torch.sin,
        lambda x: 3 * x[: n // 2],
        lambda x: torch.cat([x.sin(), 2 * x]),
        lambda x: x.diff(),
    ]
    of_rows = [
        lambda x: x.softmax(-1),
        lambda x: x.sin().cumsum(-1),
        lambda x: (x**2).sum(-1),
        lambda x: 2 * x.T,
    ]
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
    wrong = [
        *(right + more),
        rolled,
        np.roll(right, 1, 1),
        right[rng.permutation(m)],
        right[::-1],
        np.where(first, rolled, right),
        np.where(first, rolled, 0.0),
        np.where(rng.random((m, n)) < 0.2, rng.standard_normal((m, n)), right),
        right * rng.uniform(1.1, 2, (m, 1)),
        right - right.mean(0),
    ]
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
    (pair,) = compare(function, mode=Mode.ENTRIES, seed=Seed(seed)).pairs
    assert (pair.elements, pair.count(Outcome.MISMATCH)) == (right.size, np.count_nonzero(wrong))
    for shown in pair.worst:
        assert (
            shown.analytic == given[shown.place]
            and (shown.outcome is Outcome.MISMATCH) == wrong[shown.place]
        )
    if pair.ratios is not None:
        assert np.array_equal(pair.ratios > 1, wrong)
    entries = pair.entries
    np.testing.assert_allclose(
        entries.analytic, given[entries.output, entries.input], rtol=1e-12, atol=1e-15
    )
    worst = pair.worst[0]
    element = measure(
        function, Requested(0, 0, worst.input_index, worst.output_index), checked=worst
    )
    assert element.analytic == given[worst.place]


@pytest.mark.population(most=4)
@pytest.mark.parametrize("seed", range(20))
def test_entries_off_the_pattern_are_found_below_the_tolerance_of_those_on_it(seed):
    """A compressed VJP adds them to entries of order 1, which may be off by a millionth."""
    rng = np.random.default_rng(seed)
    forward, x = forwards(rng)[(0, 1, 3, 5, 7)[seed % 5]]
    right = torch.func.jacrev(forward)(x).reshape(-1, x.numel()).numpy()
    nothing = np.argwhere(right == 0)
    places = nothing[rng.choice(len(nothing), 1 + seed % 4, replace=False)]
    given = right.copy()
    given[*places.T] = 1e-7 * rng.uniform(0.5, 2, len(places))
    (pair,) = compare(Linear(forward, x, given), mode=Mode.ENTRIES, seed=Seed(seed)).pairs
    assert pair.count(Outcome.MISMATCH) == len(places)
    assert {shown.place for shown in pair.worst if shown.outcome is Outcome.MISMATCH} == {
        tuple(place) for place in places.tolist()
    }
    (pair,) = compare(Linear(forward, x, right), mode=Mode.ENTRIES, seed=Seed(seed)).pairs
    assert pair.verdict is Verdict.PASS


# ---- calls
def calls(given, forward=torch.sin, n=1000):
    function = Linear(forward, normal(1, n), given)
    compared = compare(function, mode=Mode.ENTRIES)
    return compared.pairs[0], compared.backward


def diagonal(n=1000):
    return np.diag(normal(1, n).cos().numpy())


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        # On the pattern alone
        (lambda right: right * np.where(np.arange(1000) % 2, 2.0, 1.0), 500),
        # Each number from one output
        (lambda right: np.roll(right, 1, 0), 2000),
    ],
)
def test_what_comes_from_one_output_each_takes_two_backwards_a_bit_of_their_number(given, wrong):
    pair, backward = calls(given(diagonal()))
    assert pair.count(Outcome.MISMATCH) == wrong
    # 20 for the bits, one for each of ten that are shown; the rest for whether rounding explains
    # them
    assert backward < 160


# ---- where the budget ends
def test_elements_that_the_budget_leaves_unknown_are_counted_and_not_shown():
    """Every number of the backward is a sum over all outputs: none of a compressed VJP was
    returned."""
    x = normal(1, 256)
    given = np.diag(x.cos().numpy()) + 0.25
    function = Linear(torch.sin, x, given)
    (pair,) = compare(
        function, mode=Mode.ENTRIES, over_budget=lambda ahead=0: function.backwards > 30
    ).pairs
    assert pair.verdict is Verdict.MISMATCH
    for shown in pair.worst:
        assert shown.analytic == given[shown.place]
    left = dict(pair.limits)[Limit.BUDGET]
    assert left > 200 and pair.count(Outcome.UNDECIDED) == left
    assert function.backwards < 200
    assert sum(pair.counts) == pair.elements == 256**2
