"""One element by itself: what it shows against closed forms, and its verdict against that of the
whole comparison."""

import math

import numpy as np
import pytest
import torch

from gradverify.model.codec import from_json, to_json
from gradverify.model.element import Measured
from gradverify.numerics.choose import Mode
from gradverify.numerics.compare import compare
from gradverify.numerics.explain import fixed_step, measure
from gradverify.numerics.fixed import check_fixed
from gradverify.numerics.pairs.pair import Outcome, Requested
from numerics.differentiable import DOUBLE, Differentiable, leaf, with_backward
from numerics.entries.test_hard_cases import hashed

FIRST = Requested(0, 0, 0, 0)


def seen(forward, *inputs, moved=FIRST, damage=None, **options):
    return measure(Differentiable(forward, *inputs, damage=damage), moved, **options)


def at(forward, x, slope, **options):
    """A scalar function of a float with a slope given by hand."""
    f = with_backward(
        lambda t: torch.tensor([float(forward(np.float64(t.item())))], dtype=DOUBLE),
        lambda t, g: g * slope,
    )
    return seen(f, leaf(x), **options)


def test_a_smooth_element_is_known_within_its_bar_and_its_error_falls_with_the_square_of_the_step():
    m = seen(torch.sin, leaf(1.0, 2.0))
    assert (m.verdict, m.outcome, m.limit, m.sides, m.second) == ("pass", "pass", None, None, None)
    assert abs(m.numeric - math.cos(1.0)) <= m.bar < 1e-11
    assert m.f == math.sin(1.0) and m.analytic == pytest.approx(math.cos(1.0), rel=1e-15)
    assert m.truncation.power == pytest.approx(2.0, abs=0.02)
    # f(x+h) − f(x−h) = 2h f' + h³ f'''/3
    assert m.truncation.factor == pytest.approx(math.cos(1.0) / 6, rel=0.1)


@pytest.mark.parametrize(
    ("forward", "left", "right"),
    [
        (torch.abs, -1.0, 1.0),
        (torch.relu, 0.0, 1.0),
        (lambda x: torch.nn.functional.leaky_relu(x, 0.25), 0.25, 1.0),
    ],
)
def test_a_kink_has_the_slopes_of_its_sides_and_no_chosen_rung(forward, left, right):
    m = seen(forward, leaf(0.0, 1.0))
    assert (m.verdict, m.outcome, m.chosen) == ("pass", "kink", None)
    assert (m.sides.left.value, m.sides.right.value) == pytest.approx((left, right))
    assert all((rung.left, rung.right) == pytest.approx((left, right)) for rung in m.rungs)


def test_a_staircase_has_two_readings_and_its_steps_stand_still_on_the_finest_rungs():
    m = at(lambda x: np.round(x * 1000) / 1000, 0.3, 1.0)
    assert (m.verdict, m.outcome) == ("undecided", "staircase") and m.second.value == 0.0
    assert m.numeric == pytest.approx(1.0, abs=m.bar)
    assert [rung.quotient for rung in m.rungs[-4:]] == [0.0] * 4


def test_the_noise_of_a_noisy_function_is_measured_and_limits_it():
    m = at(lambda x: np.sin(x) + 3e-6 * hashed(x), 1.0, math.cos(1.0))
    assert (m.verdict, m.outcome) == ("undecided", "undecided") and "noise" in m.limit
    # Uniform on ±1.5e-6
    assert m.sigma == pytest.approx(3e-6 / math.sqrt(12), rel=0.7)
    assert abs(m.numeric - math.cos(1.0)) <= m.bar
    assert all(abs(rung.quotient - math.cos(1.0)) < 6 * rung.noise for rung in m.rungs[-12:])


def test_the_tolerance_is_the_sum_of_its_parts():
    m = seen(torch.sin, leaf(1.0), atol=1e-9, rtol=1e-5)
    t = m.tolerance
    assert (t.atol, t.rtol, t.size) == (1e-9, 1e-5, pytest.approx(math.cos(1.0)))
    assert t.value == pytest.approx(t.atol + max(t.rtol * t.size, t.floor)) and 0 < t.floor < 1e-11


def test_under_symmetric_an_element_moves_with_its_mirror_image():
    a = torch.tensor([[2.0, 1.0], [1.0, 3.0]], dtype=DOUBLE)
    m = seen(lambda x: x[0, 1] * 5 + x[1, 0] * 7, a, moved=Requested(0, 0, 1, 0), symmetric=[True])
    assert m.verdict == "pass" and m.numeric == pytest.approx(12.0) == m.analytic
    with pytest.raises(ValueError, match="mirror"):
        seen(lambda x: x[0, 1] * 5, a, moved=Requested(0, 0, 2, 0), symmetric=[True])


def under_step(function, eps, atol, rtol):
    """The first element as the check judges it under a fixed step."""
    [pair] = check_fixed(function, eps, atol=atol, rtol=rtol, requested=Requested(0, 0, 0, 0))
    return fixed_step(pair.requested, eps, atol=atol, rtol=rtol)


def test_a_fixed_step_is_judged_by_the_rule_of_gradcheck():
    f = Differentiable(torch.sin, leaf(1.0))
    fixed, truth = under_step(f, 0.1, 1e-5, 1e-3), math.cos(1.0) * math.sin(0.1) / 0.1
    assert fixed.quotient == pytest.approx(truth, rel=1e-12)
    assert fixed.tolerance == pytest.approx(1e-5 + 1e-3 * truth) and fixed.outcome == "mismatch"
    assert measure(f, FIRST).verdict == "pass"
    assert under_step(f, 1e-20, 1e-5, 1e-3).outcome == "undecided"


@pytest.mark.parametrize("mode", [None, Mode.ENTRIES, Mode.ROWS, Mode.BLOCKS])
@pytest.mark.parametrize(
    "requested", [Requested(0, 0, 2, 2), Requested(0, 0, 1, 2), Requested(0, 0, 4, 4)]
)
def test_what_comes_of_an_element_that_is_asked_for_is_kept_in_every_mode(mode, requested):
    """One that passes, a zero that needs no solver, one that is wrong; `by_itself` tells which of
    them the comparison judged."""

    def damage(grads):
        return [g * torch.tensor([1, 1, 1, 1, 1.5], dtype=DOUBLE) for g in grads]

    f = Differentiable(torch.sin, leaf(0.3, 1.0, -2.0, 0.9, 2.5), damage=damage)
    [pair] = compare(f, mode=mode, requested=requested).pairs
    truth = (
        math.cos((0.3, 1.0, -2.0, 0.9, 2.5)[requested.input_index])
        if requested.input_index == requested.output_index
        else 0.0
    )
    assert pair.requested.numeric == pytest.approx(truth, abs=1e-9)
    assert pair.requested.outcome is (
        Outcome.MISMATCH if requested.input_index == 4 else Outcome.PASS
    )
    assert (pair.requested.input_index, pair.requested.output_index) == requested[2:]
    assert pair.by_itself is (truth == 0.0 or (bool(pair.lines) and requested.input_index == 2))
    [same] = compare(f, mode=mode).pairs
    assert (same, same.requested) == (pair, None)  # the comparison is the one that it would be


def test_it_is_plain_data():
    for m in (seen(torch.abs, leaf(0.0)), seen(torch.floor, leaf(1.0)), seen(torch.sin, leaf(1.0))):
        assert to_json(from_json(Measured, to_json(m))) == to_json(m)
