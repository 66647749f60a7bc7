"""What is measured before anything is compared: noise, size, what moves nothing, what is linear."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from gradverify.numerics.rungs import WIDE_RUNG, step
from gradverify.numerics.survey import analytic_noise, linear_inputs
from numerics.differentiable import DOUBLE, Differentiable, leaf, normal, with_backward
from numerics.windows import prepared

U = 2.0**-53


def noisy(amount, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return lambda x: x.exp() + amount * torch.randn(x.shape, generator=generator, dtype=DOUBLE)


def linear(forward, *inputs):
    point, known = prepared(Differentiable(forward, *inputs))
    return linear_inputs(point, known)


@pytest.mark.parametrize("amount", [1e-12, 1e-9, 1e-6])
def test_noise_is_found_within_a_factor(amount):
    _, known = prepared(Differentiable(noisy(amount), normal(1, 50)))
    assert 0.3 * amount < np.median(known.sigma) < 4 * amount


def test_a_quiet_forward_has_rounding_for_noise_and_takes_about_ten_calls():
    point, known = prepared(Differentiable(torch.exp, normal(1, 50)))
    assert np.median(known.sigma / np.abs(point.f0)) < 8 * U
    assert known.forward <= 15


def test_the_size_is_the_largest_value_near_the_point():
    point, known = prepared(Differentiable(lambda x: 1e3 * x.sin(), normal(1, 20)))
    assert np.all(known.size >= np.abs(point.f0))
    assert np.all(known.size <= np.abs(point.f0) + 1e3 * 0.01 * np.abs(point.columns.scale))


def test_a_secant_is_the_jacobian_along_its_own_steps():
    w = normal(2, 8, 20)
    _, known = prepared(Differentiable(lambda x: w @ x, normal(1, 20)))
    secant, = known.secants
    assert secant.change == pytest.approx(w.numpy() @ secant.moved_by, rel=1e-4, abs=1e-14)


def test_each_of_several_inputs_has_a_secant_of_its_own_and_three_calls_more_the_last_two():
    x, w, b = normal(1, 6, 20), normal(2, 20, 5), normal(3, 5)
    point, known = prepared(Differentiable(lambda x, w, b: x @ w + b, x, w, b))
    assert known.forward == 1 + 9 + 3 * 3 - 1
    for secant, jacobian in zip(known.secants, torch.autograd.functional.jacobian(lambda x, w, b: x @ w + b, (x, w, b)), strict=True):
        matrix = jacobian.reshape(len(point.f0), -1).numpy()
        assert len(secant.columns) == matrix.shape[1]
        assert secant.change == pytest.approx(matrix @ secant.moved_by, rel=1e-3, abs=1e-14)


def test_noise_that_any_of_the_inputs_shows_is_found():
    _, known = prepared(Differentiable(lambda x, y: x + y.exp() + 1e-9 * (1e13 * y).sin(), normal(1, 50), normal(2, 50)))
    assert 0.3e-9 < np.median(known.sigma) < 4e-9


def test_where_one_input_leaves_what_f_is_defined_on_each_is_asked_by_itself():
    x, y = torch.zeros(40, dtype=DOUBLE), normal(2, 40)
    _, known = prepared(Differentiable(lambda x, y: x.sqrt() + y + 1e-9 * (1e13 * y).sin(), x, y))
    assert known.forward > 2 * (9 + 2)
    assert (known.sigma > 1e-10).all()
    assert np.isfinite(known.secants[1].change).all() and not np.isfinite(known.secants[0].change).all()


@pytest.mark.parametrize(("forward", "x", "unmoved", "wide"), [
    (torch.exp, leaf(1e-30, 2e-30), False, True), (torch.exp, leaf(0.5, 1.0), False, False), (lambda x: 3e13 + x, leaf(1.0, 2.0), True, False)])
def test_outputs_that_only_coarse_steps_move_are_told(forward, x, unmoved, wide):
    _, known = prepared(Differentiable(forward, x))
    assert (known.unmoved.any(), known.wide.any(), known.some_unmoved) == (unmoved, wide, unmoved or wide)


@pytest.mark.parametrize(("forward", "inputs", "expected"), [
    (torch.matmul, [normal(1, 8, 6), normal(2, 6, 5)], {0, 1}), (lambda x, w: x.sin() @ w, [normal(1, 8, 6), normal(2, 6, 5)], {1}),
    (F.layer_norm, [normal(1, 8, 6)], set()), (lambda x: x.abs(), [normal(1, 40)], {0}), (lambda x: x * 3 + 1, [normal(1, 40)], {0})])
def test_linear_inputs_are_told(forward, inputs, expected):
    bound = (lambda x: F.layer_norm(x, (6,))) if forward is F.layer_norm else forward
    assert set(linear(bound, *inputs)) == expected


def test_a_kink_between_the_points_is_not_linear():
    x = normal(1, 40)
    bend = 1.1 * x
    assert linear(lambda x: (x - bend).abs(), x) == {}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("power", [2, 3, 4])
@pytest.mark.parametrize("n", [3, 40])
def test_a_bend_about_x_of_any_power_is_no_straight_line(power, n, seed):
    """Odd powers do not show in steps of one size to both sides."""
    x = normal(seed, n)
    centre = x.clone()
    point, known = prepared(Differentiable(lambda x: 1 + x + 1e-9 * (x - centre) ** power / centre.abs() ** (power - 1), x))
    assert linear_inputs(point, known, thrifty=True) == {}
    point, known = prepared(Differentiable(lambda x: 1 + x, x))
    assert set(linear_inputs(point, known, thrifty=True)) == {0}


def test_what_showed_that_f_is_linear_is_kept():
    w, x = normal(2, 8, 20), normal(1, 20)
    sample = linear(lambda x: w @ x, x)[0]
    assert sample.rung == WIDE_RUNG
    assert (sample.values.step_up, sample.values.step_down) == pytest.approx((step(1.0, WIDE_RUNG), 2 * step(1.0, WIDE_RUNG)))
    slope = (sample.values.up - sample.values.down) / (sample.values.step_up + sample.values.step_down)
    assert slope == pytest.approx(w.numpy() @ sample.direction, rel=1e-12, abs=1e-13)


def test_where_a_domain_is_declared_nothing_is_kept_as_other_directions_may_have_less_room():
    x = normal(1, 20)
    point, known = prepared(Differentiable(lambda x: 2 * x, x), [(-20.0, 20.0)])
    assert linear_inputs(point, known) == {0: None}


def test_the_noise_of_a_backward_is_measured_where_it_is():
    generator = torch.Generator().manual_seed(0)
    noisy = with_backward(torch.sin, lambda x, g: g * x.cos() * (1 + 1e-6 * torch.randn(x.shape, generator=generator, dtype=DOUBLE)))
    for forward, low, high in ((noisy, 1e-7, 1e-5), (torch.sin, 0, 1e-14)):
        point, _ = prepared(Differentiable(forward, normal(1, 30)))
        row = np.asarray(point.row(4))
        sigma, _ = analytic_noise(point, 4, row)
        assert low <= sigma[4] / abs(row[4]) <= high
