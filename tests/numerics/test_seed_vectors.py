"""Weights, moves and gathers of the reduced comparisons."""

import numpy as np
import pytest
import torch

from gradverify.numerics.rungs import step
from gradverify.numerics.seed_vectors import as_dtype_holds, gaussian, moves_along, pull_back, signed_weights
from numerics.differentiable import Differentiable, leaf, normal
from numerics.windows import point_of


def point(forward, *inputs, **options):
    return point_of(Differentiable(forward, *inputs), **options)


def test_signed_weights_are_never_small_and_of_both_signs():
    w = signed_weights(1000, np.random.default_rng(0))
    assert 0.7 <= np.abs(w).min() < 0.72 and 1.38 < np.abs(w).max() <= 1.4
    assert 400 < np.sum(w > 0) < 600
    assert len(np.unique(np.abs(w))) == 1000


def test_gaussian_numbers_are_those_of_the_seed():
    first, second = (gaussian(2000, np.random.default_rng(4)) for _ in range(2))
    assert np.array_equal(first, second)
    assert abs(first.mean()) < 0.1 and abs(first.std() - 1) < 0.05


def test_moves_are_scaled_and_stop_half_way_to_the_border():
    at = point(lambda x: x, leaf(1.0, 10.0, 0.0999, float("inf")), domains=[(-np.inf, 0.1 + 10.0)])
    move = moves_along(at, np.arange(4), np.ones(4))
    assert move[0] == 1.0 and move[3] == 0.0
    assert step(1.0, 0) * move[1] == pytest.approx(0.05)  # half of the room at the widest rung
    assert np.all(np.sign(move[:3]) == 1)


def test_weights_are_held_as_the_output_holds_them_and_masked_at_infinity():
    at = point(lambda x: torch.stack([x[0], x[0] * float("inf")]), leaf(1.0, dtype=torch.float32))
    w = as_dtype_holds(at, 0, np.array([1 / 3, 1.0]))
    assert w.tolist() == [float(np.float32(1 / 3)), 0.0]


def test_a_pull_back_is_the_gradient_of_the_weighted_sum():
    x, w = normal(1, 3, 4), np.arange(12.0)
    at = point(lambda x: x.sin(), x)
    gradient, = pull_back(at, 0, w)
    assert torch.allclose(gradient, torch.from_numpy(w).view(3, 4) * x.cos())
    assert at.backward == 1


def test_complex_weights_are_pairs_of_real_ones():
    z = torch.complex(normal(1, 3), normal(2, 3))
    gradient, = pull_back(point(lambda z: z * z, z), 0, np.array([1.0, 0, 0, 1, 0, 0]))
    assert torch.allclose(gradient, torch.tensor([1, 1j, 0]) * 2 * z.conj())


def test_symmetric_columns_gather_both_entries():
    columns = point(lambda x: x, torch.eye(3, dtype=torch.float64), symmetric=[True]).columns_of(0)
    assert len(columns) == 6 and not columns.whole
    assert sorted(columns.combined(np.arange(9.0)).tolist()) == [0.0, 4.0, 4.0, 8.0, 8.0, 12.0]
    only = np.zeros(9, bool)
    only[[1, 3]] = True
    assert columns.any_of(only).sum() == 1
    assert point(lambda x: x, normal(1, 4)).columns_of(0).whole


def test_columns_of_a_tensor_count_its_coordinates_from_zero():
    columns = point(lambda x, y: x.sum() * y, normal(1, 3), torch.eye(2, dtype=torch.float64), symmetric=[False, True]).columns_of(1)
    assert (columns.coordinate.tolist(), columns.mirror.tolist()) == ([0, 1, 3], [-1, 2, -1])
