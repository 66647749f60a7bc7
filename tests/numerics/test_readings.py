"""Functions that move in steps: a right gradient of their trend is never called wrong, a wrong one is. Truth: the smooth function itself."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from gradverify.numerics.choose import Mode
from gradverify.numerics.compare import compare
from gradverify.numerics.estimate.romberg import readings
from gradverify.numerics.estimate.samples import Samples
from gradverify.numerics.pairs.pair import Outcome
from gradverify.numerics.rungs import RUNGS, step
from numerics.differentiable import Differentiable, with_backward

SMOOTH = {"sin": (torch.sin, torch.cos), "exp": (torch.exp, torch.exp), "cube": (lambda x: x**3, lambda x: 3 * x * x)}


def counted(name, rows, factor, n=200):
    """Outcomes of a table with `rows` rows per unit, whose gradient is `factor` times that of the smooth function."""
    smooth, slope = SMOOTH[name]
    op = with_backward(lambda x: smooth(torch.round(x * rows) / rows), lambda x, g: factor * slope(x) * g)
    x = torch.randn(n, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    pair, = compare(Differentiable(op, x), mode=Mode.ENTRIES).pairs
    return dict(zip(Outcome, pair.counts, strict=True))


@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.parametrize("rows", [1e6, 1e5])
def test_a_table_does_not_make_a_right_gradient_wrong(name, rows):
    seen = counted(name, rows, 1)
    assert seen[Outcome.MISMATCH] == 0
    assert seen[Outcome.STAIRCASE] > 150


@pytest.mark.parametrize("name", SMOOTH)
def test_a_table_does_not_hide_a_wrong_gradient(name):
    assert counted(name, 1e5, 2)[Outcome.MISMATCH] > 190


def test_a_zero_gradient_of_a_table_is_neither_right_nor_wrong():
    seen = counted("exp", 1e6, 0)
    assert seen[Outcome.MISMATCH] == 0
    assert seen[Outcome.UNDECIDED] + seen[Outcome.STAIRCASE] > 190


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_steps_that_are_wide_against_the_input_make_no_right_gradient_wrong(dtype):
    x = torch.randn(200, generator=torch.Generator().manual_seed(5), dtype=torch.float64).to(dtype)
    found = {}
    for slope in (1.0, 3.0):
        op = with_backward(lambda x: torch.round(x * 1e3) / 1e3, lambda x, g, slope=slope: slope * g)
        pair, = compare(Differentiable(op, x), mode=Mode.ENTRIES).pairs
        found[slope] = dict(zip(Outcome, pair.counts, strict=True))
    assert found[1.0][Outcome.MISMATCH] == 0
    assert found[1.0][Outcome.PASS] <= 200 * 199 + 2      # the zeros beside the diagonal, and where the trend's quotient happens to be 1
    assert found[3.0][Outcome.MISMATCH] > 180


def test_a_flat_function_keeps_its_zero_and_a_slope_is_wrong_there():
    x = torch.tensor([0.6, 1.45, -2.4, 0.2, 3.3], dtype=torch.float64)
    for flat in (torch.round, lambda x: x.clamp(-0.1, 0.1), lambda x: (x > 0).double()):
        right, = compare(Differentiable(with_backward(flat, lambda x, g: 0 * g), x), mode=Mode.ENTRIES).pairs
        wrong, = compare(Differentiable(with_backward(flat, lambda x, g: g), x), mode=Mode.ENTRIES).pairs
        assert right.count(Outcome.PASS) == 25
        assert wrong.count(Outcome.MISMATCH) == 5


def gelu(x):
    """As kernels write it: below zero 1 + tanh moves in steps of its rounding, and the product with x is a slope between them."""
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def gelu_slope(x):
    """Without cancellation: x·σ(2u), u = √(2/π)(x + 0.044715 x³), in float64."""
    x64 = x.double()
    u, du = math.sqrt(2 / math.pi) * (x64 + 0.044715 * x64**3), math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x64**2)
    s = torch.sigmoid(2 * u)
    return (s + 2 * x64 * s * torch.sigmoid(-2 * u) * du).to(x.dtype)


def outcomes_of_gelu(factor, dtype, low, high):
    x = torch.linspace(low, high, 120, dtype=dtype)
    pair, = compare(Differentiable(with_backward(gelu, lambda x, g: factor * gelu_slope(x) * g), x), mode=Mode.ENTRIES).pairs
    return dict(zip(Outcome, pair.counts, strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_right_gradient_is_not_wrong_where_the_forward_loses_all_its_digits(dtype):
    assert outcomes_of_gelu(1, dtype, -9.0, 3.0)[Outcome.MISMATCH] == 0


@pytest.mark.parametrize("factor", [2, -1])
def test_a_wrong_gradient_is_found_where_the_forward_loses_half_of_its_digits(factor):
    seen = outcomes_of_gelu(factor, torch.float32, -3.0, -1.0)
    assert seen[Outcome.MISMATCH] > 110 and seen[Outcome.PASS] == 120 * 119      # the zeros beside the diagonal


def sampled(f, x):
    h = np.array([[step(1.0, k)] for k in range(RUNGS)])
    one = np.ones(1)
    return Samples(f(x + h), f(x - h), h, h, f(np.array([x])), 1e-16 * one, 2.0**-53 * one, abs(x) * one, one, False)


@pytest.mark.parametrize("place", [0.5, 0.3, 0.1, 0.02, 1e-3, 1e-5])
def test_steps_are_seen_wherever_x_lies_on_its_step(place):
    """`place`: the distance from the edge of the step, in steps of 1e-4."""
    s = sampled(lambda t: 2.0 * np.floor(t * 1e4), 1.0 + 1e-4 * place)
    assert (readings(s).noise >= 1.9e-12).all() and (readings(s).noise > 1e3 * s.noise).all()      # the rise of a step is the noise of the trend


@pytest.mark.parametrize("place", [0.5, 0.3, 0.1, 0.02])
def test_steps_that_are_slopes_themselves_are_seen(place):
    s = sampled(lambda t: t * np.floor(t * 1e4), 1.0 + 1e-4 * place)
    assert (readings(s).noise > 1e3 * s.noise).all()


@pytest.mark.parametrize("f", [np.exp, lambda t: np.sin(300 * t), lambda t: t + np.exp((t - 1) * 1e3), lambda t: 3 * t, lambda t: 1 / (t - 0.99)],
                         ids=["exp", "a fast sine", "an exponential of a thousandth", "a line", "a pole beside x"])
def test_what_is_smooth_is_no_staircase(f):
    s = sampled(f, 1.0)
    assert (readings(s).noise == s.noise).all()


@pytest.mark.parametrize("f", [
    lambda t: np.maximum(t - 1.001, 0.0), lambda t: np.maximum(1.0 - 1e-6 - t, 0.0), lambda t: np.where(t > 1.0 + 1e-7, 1.0, 0.0),
    lambda t: 0 * t + 1.0,
], ids=["the flat side of a kink", "the other side", "a single jump", "a constant"])
def test_what_stays_flat_on_one_side_is_no_staircase(f):
    s = sampled(f, 1.0)
    assert (readings(s).noise == s.noise).all()


def test_values_that_dwarf_all_nearer_ones_say_nothing():
    """exp at steps of 1e2 and more: scaled by 1e200, the slope at x would vanish, with its bar."""
    s = sampled(np.exp, 1.0)
    huge = Samples(*(np.concatenate([wide, own]) for wide, own in (
        (np.exp([[700.0]]), s.up), (np.exp([[-700.0]]), s.down), ([[699.0]], s.step_up), ([[701.0]], s.step_down))),
        s.f0, s.sigma, s.unit, s.magnitude, s.scale, False)
    assert huge.unusable[0].all() and not huge.unusable[1:].any()
    assert np.allclose(huge.quotient[10] * huge.largest, np.e, rtol=1e-6)
