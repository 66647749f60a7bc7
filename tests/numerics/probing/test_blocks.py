"""Blocks: six calls a probe whatever the size, sums that no sign hides, and seeds."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from numerics.differentiable import DOUBLE, normal, with_backward
from numerics.windows import along_last, axes, elementwise, flagged, product, screen, windows

R, C = 6, 10


@pytest.mark.parametrize(("rows", "columns"), [(3, 4), (40, 50), (300, 200)])
def test_calls_do_not_grow_with_the_size(rows, columns):
    result = screen("blocks", lambda x: x.softmax(-1), normal(1, rows, columns), along_last(rows, columns))
    assert (result.forward, result.backward) == (18 - 2, 3)  # two of the first direction's calls are the survey's
    assert result.pairs[0].lines == rows
    assert result.clean


@pytest.mark.population(most=6)
@pytest.mark.parametrize("seed", range(20))
def test_a_faulty_block_is_flagged_alone_under_any_seed(seed):
    def damage(grads):
        g = grads[0].clone()
        g[4, 7] *= 1.01
        return [g]

    assert flagged(screen("blocks", lambda x: x.softmax(-1), normal(1, R, C), along_last(R, C), damage=damage, seed=seed)) == [4]


def test_the_same_seed_gives_the_same_numbers():
    first, again = (screen("blocks", F.gelu, normal(1, R, C), elementwise(R, C), seed=5).pairs[0].relative for _ in range(2))
    other = screen("blocks", F.gelu, normal(1, R, C), elementwise(R, C), seed=6).pairs[0].relative
    assert first == again != other


def test_blocks_of_a_product_are_rows_of_one_factor_and_columns_of_the_other():
    def damage(grads):
        g = grads[1].clone()
        g[4, 2] *= 1.01
        return [grads[0], g]

    result = screen("blocks", torch.matmul, [normal(1, 5, 7), normal(2, 7, 3)], product(5, 7, 3), damage=damage)
    assert [pair.lines for pair in result.pairs] == [5, 3]
    assert [pair.flagged.tolist() for pair in result.pairs] == [[], [2]]


def test_outputs_that_depend_on_nothing_take_one_backward_more_and_name_what_they_pull_back_to():
    index = np.arange(8)
    dead = index >= 6
    pattern = windows((8,), [np.where(dead, 1, index)], [np.where(dead, 0, index)], dead)

    def forward(x):
        return torch.where(torch.arange(8) < 6, x.exp(), torch.ones(8, dtype=DOUBLE))

    right = screen("blocks", forward, normal(1, 8), pattern)
    assert right.clean
    assert right.backward == 4
    wrong = screen("blocks", with_backward(forward, lambda x, g: g * x.exp()), normal(1, 8), pattern).pairs[0]
    assert wrong.strays.tolist() == [[0, 6], [0, 7]]


def test_an_input_that_nothing_depends_on_must_have_no_gradient():
    batch = axes(4, 3)
    unused = windows((5, 3), batch, batch)
    result = screen("blocks", with_backward(lambda x: x[:4] * 2, lambda x, g: torch.cat([2 * g, 1e-9 * g[:1]])), normal(1, 5, 3), unused)
    assert flagged(result) == [12, 13, 14]
