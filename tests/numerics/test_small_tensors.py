"""Tensors of ten elements and less: colour groups and linearity cost fewer calls, and what is wrong
is counted element by element all the same.

The class of faults: a call saved on a small tensor hides a wrong element, or counts fewer of them;
a noisy or dense function gets groups.
"""

import numpy as np
import pytest
import torch

from gradverify.numerics.choose import Mode
from gradverify.numerics.compare import compare
from gradverify.numerics.pairs.pair import Outcome
from gradverify.numerics.seeds import Seed
from numerics.differentiable import Differentiable, normal

SQUARE = normal(1, 3, 3)


def wrong(forward, *inputs, damage):
    compared = compare(Differentiable(forward, *inputs, damage=damage), mode=Mode.ENTRIES)
    return sum(pair.count(Outcome.MISMATCH) for pair in compared.pairs), sum(
        pair.count(Outcome.UNDECIDED) for pair in compared.pairs
    )


@pytest.mark.parametrize("seed", range(3))
def test_one_side_of_a_linear_tensor_is_enough_where_it_is_quiet(seed):
    """Twice the bar is far below the tolerance then; where it is noisy, both sides are asked."""
    x, w = normal(seed, 3, 4), normal(seed + 1, 4, 2)
    source = np.random.default_rng(seed)

    def noisy(level, damage=None):
        return compare(
            Differentiable(
                lambda x, w: x @ w + level * float(source.standard_normal()), x, w, damage=damage
            ),
            mode=Mode.ENTRIES,
        )

    quiet, loud = noisy(0.0), noisy(1e-11)
    assert [pair.verdict for pair in (*quiet.pairs, *loud.pairs)] == [0] * 4
    # A call for each of the eight columns and groups at least
    assert loud.forward - loud.noise - (quiet.forward - quiet.noise) >= 8
    wrong = noisy(0.0, lambda g: [g[0], 1.0001 * g[1]])
    assert [pair.count(Outcome.MISMATCH) for pair in wrong.pairs] == [0, 24]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("share", [1.0, 1e-3])
@pytest.mark.parametrize("source", [1, 5])
def test_an_element_that_moves_one_more_output_than_its_own_is_not_taken_for_pointwise(
    share, source, seed
):
    """All elements but the middle one, moved at once, do not show it; what does not add up does."""

    def coupled(seen):
        def forward(x):
            added = torch.zeros_like(x)
            added[0, 0] = share * seen(x).reshape(-1)[source]
            return torch.exp(x) + added

        return Differentiable(forward, normal(1, 2, 3))

    (right,) = compare(coupled(lambda x: x), mode=Mode.ENTRIES, seed=Seed(seed)).pairs
    assert (right.count(Outcome.MISMATCH), right.count(Outcome.UNDECIDED)) == (0, 0)
    (wrong,) = compare(coupled(torch.detach), mode=Mode.ENTRIES, seed=Seed(seed)).pairs
    assert (wrong.count(Outcome.MISMATCH), wrong.count(Outcome.UNDECIDED)) == (1, 0)


@pytest.mark.parametrize(
    ("damage", "count"),
    [
        # Both where numbers should be and where none should
        (lambda grads: [grads[0].T], 12),
        (lambda grads: [grads[0] * (1 + 1e-4 * (torch.arange(9).reshape(3, 3) == 4))], 1),
        (lambda grads: [torch.zeros_like(grads[0])], 9),
        # Of another output everywhere
        (lambda grads: [grads[0] + 1e-3 * grads[0].sum()], 81),
    ],
    ids=["transposed", "one", "zeros", "a leak"],
)
def test_every_wrong_element_of_a_small_tensor_is_counted(damage, count):
    assert wrong(torch.exp, SQUARE, damage=damage) == (count, 0)


def test_a_wrong_gradient_of_a_small_linear_tensor_is_wrong_and_kinks_are_not_taken_for_lines():
    assert wrong(
        lambda x, b: torch.exp(x) + b,
        normal(1, 2),
        normal(2, 2),
        damage=lambda g: [g[0], 1.0001 * g[1]],
    ) == (2, 0)
    assert wrong(torch.abs, normal(1, 6), damage=lambda g: [g[0]]) == (0, 0)
