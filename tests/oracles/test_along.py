from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from numerics.differentiable import Differentiable

from gradverify.numerics.estimate.kinks import Smoothness
from gradverify.numerics.function.coordinates import columns_of
from gradverify.oracles.along import Along, change, coordinates, direction, moduli, shaped

X = torch.tensor([0.5, -1.5, 2.0], dtype=torch.float64)
Z = torch.tensor([1.0 + 2.0j, -0.5j], dtype=torch.complex128)
SOURCE = torch.Generator().manual_seed(0)


def along(function, *inputs: torch.Tensor, symmetric: bool = False) -> Along:
    return Along(Differentiable(function, *inputs), columns_of(inputs, [None] * len(inputs), [symmetric] * len(inputs)))


@pytest.mark.parametrize("function, slope", [(torch.sin, torch.cos), (torch.exp, torch.exp), (lambda x: x**3, lambda x: 3 * x**2)])
@pytest.mark.parametrize("way", ["quick", "thorough"])
def test_the_bar_covers_the_closed_form_and_is_narrow(function, slope, way):
    moved = np.array([0.4, 1.2, -1.8])
    found = getattr(along(function, X), way)(moved)
    truth = slope(X).numpy() * moved
    assert (np.abs(found.value - truth) <= found.bar).all()
    assert (found.bar <= 1e-8 * np.abs(truth)).all()


def test_a_quick_ladder_takes_six_calls_and_the_first_one_a_repeat():
    function = Differentiable(torch.sin, X)
    made = Along(function, columns_of([X], [None], [False]))
    assert function.calls == 1
    made.quick(np.array([0.4, 0.0, 0.0]))
    assert function.calls == 8
    made.quick(np.array([0.0, 0.0, 0.3]))
    assert function.calls == 14


@pytest.mark.parametrize("function, slope", [(torch.sin, torch.cos), (torch.exp, torch.exp), (lambda x: x**3, lambda x: 3 * x**2)])
def test_a_guess_is_good_to_seven_digits_and_a_quick_ladder_takes_four_calls_after_it(function, slope):
    counted, moved = Differentiable(function, X), np.array([0.4, 1.2, -1.8])
    made = Along(counted, columns_of([X], [None], [False]))
    assert made.guess(moved).value == pytest.approx(slope(X).numpy() * moved, rel=1e-7)
    assert counted.calls == 3
    quick = made.quick(moved)
    assert counted.calls == 8
    assert quick.value.tolist() == along(function, X).quick(moved).value.tolist()
    made.quick(-moved)
    assert counted.calls == 14      # another direction takes its own


@pytest.mark.parametrize(("at", "points"), [(0.0, 9), (1e-7, 27)])
def test_no_step_along_a_direction_is_taken_twice(at, points):
    """A jump takes the whole ladder, and its noise nine points beyond it: more of them only where the steps beyond it moved f."""
    counted, moved = Differentiable(lambda x: (x > at).double(), torch.zeros(1, dtype=torch.float64)), np.array([0.7])
    made = Along(counted, columns_of(counted.inputs, [None], [False]))
    made.guess(moved), made.quick(moved), made.refined(moved, np.zeros(1))
    calls = counted.calls
    noise = made.noise(moved)
    assert counted.calls - calls == points
    made.refined(moved, np.zeros(1), noise), made.quick(moved)
    assert counted.calls - calls == points


def test_noise_beyond_x_is_measured_as_before():
    source = np.random.default_rng(0)
    noisy = along(lambda x: x.sin() + 1e-9 * torch.from_numpy(source.standard_normal(3)), X)
    moved = np.array([0.4, 1.2, -1.8])
    noisy.quick(moved)
    assert (noisy.noise(moved) > 2e-10).all() and (noisy.noise(moved) < 5e-9).all()


def test_what_does_not_move_stays():
    found = along(lambda x: x**2, X).quick(np.array([0.4, 0.0, 0.0]))
    assert found.value[1] == found.value[2] == 0
    assert found.value[0] == pytest.approx(2 * 0.5 * 0.4, rel=1e-9)


def test_a_kink_along_the_way_is_told():
    kinked = along(torch.relu, torch.tensor([0.0, 1.0], dtype=torch.float64)).thorough(np.array([1.0, 1.0]))
    assert kinked.outcome.tolist() == [Smoothness.KINK, Smoothness.SMOOTH]
    assert (kinked.left[0], kinked.right[0]) == pytest.approx((0, 1), abs=1e-9)


def test_a_direction_has_the_columns_own_scales_and_both_signs():
    x = torch.tensor([1e6, 1e-6, -2.0, torch.inf], dtype=torch.float64).repeat(50)
    moved = direction(columns_of([x], [None], [False]), SOURCE)
    size = np.abs(moved.reshape(50, 4)[:, :3] / np.array([1e6, 1e-6, 2.0]))
    assert ((size >= 0.7) & (size <= 1.4)).all()
    assert (moved > 0).any() and (moved < 0).any()
    assert not moved.reshape(50, 4)[:, 3].any()


def test_a_symmetric_input_moves_in_pairs_and_its_gradient_is_their_sum():
    matrix = torch.tensor([[1.0, 2.0], [2.0, 5.0]], dtype=torch.float64)
    columns = columns_of([matrix], [None], [True])
    moved = change(columns, np.array([1.0, 3.0, 4.0]), [matrix])
    assert moved.reshape(2, 2).tolist() == [[1.0, 3.0], [3.0, 4.0]]
    assert columns.combined(np.array([1.0, 10.0, 100.0, 1000.0])).tolist() == [1.0, 110.0, 1000.0]


def test_coordinates_and_shapes_are_inverse():
    tensors = [X, Z, torch.ones(1, 2, dtype=torch.float32)]
    flat = coordinates(tensors, tensors)
    assert flat.tolist() == [0.5, -1.5, 2.0, 1.0, 2.0, 0.0, -0.5, 1.0, 1.0]
    assert all(torch.equal(mine, tensor) and mine.dtype == tensor.dtype for mine, tensor in zip(shaped(flat, tensors), tensors, strict=True))
    assert coordinates([None, Z, None], tensors).tolist() == [0, 0, 0, 1.0, 2.0, 0.0, -0.5, 0, 0]


def test_an_output_in_which_terms_cancel_is_no_less_noisy_than_the_others():
    def cancelling(x):
        return torch.stack([(x * 1e3).sum() - (x * 1e3).sum().round(), x.sum() * 1e3])

    found = along(cancelling, X).quick(X.numpy().copy())
    assert found.bar[0] == pytest.approx(found.bar[1], rel=1e3)
    assert np.isfinite(found.bar).all()


def test_both_parts_of_a_complex_number_have_its_modulus():
    assert moduli([torch.tensor([3.0 - 4.0j]), torch.tensor([-2.0, torch.inf]), torch.zeros(0)]).tolist() == [5.0, 5.0, 2.0, 0.0]


def test_columns_of_float32_inputs_serve_the_same_numbers_in_float64():
    x = torch.tensor([0.3, -1.2], dtype=torch.float32)
    found = Along(Differentiable(torch.sin, x.double()), columns_of([x], [None], [False]))
    d = found.thorough(np.array([1.0, 0.0]))
    assert not found.columns.rounded
    assert abs(d.value[0] - math.cos(x[0].item())) <= d.bar[0] < 1e-9
