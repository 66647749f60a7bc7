"""One element by itself: what it shows against closed forms, and its verdict against that of the whole comparison."""

import math

import numpy as np
import pytest
import torch

from gradverify.model.codec import from_json, to_json
from gradverify.model.element import Measured
from gradverify.numerics.choose import Mode
from gradverify.numerics.compare import compare
from gradverify.numerics.explain import NAMES, Coordinate, fixed_step, measure
from gradverify.numerics.fixed import check_fixed
from gradverify.numerics.pairs.pair import Asked, Outcome
from gradverify.numerics.rungs import RATIO, RUNGS
from numerics.differentiable import DOUBLE, Differentiable, check_function, leaf, times, with_backward
from numerics.entries.test_hard_cases import SCALAR, hashed

FIRST = Coordinate(0, 0)


def seen(forward, *inputs, moved=FIRST, output=FIRST, damage=None, **options):
    return measure(Differentiable(forward, *inputs, damage=damage), moved, output, **options)


def at(forward, x, slope, **options):
    """A scalar function of a float with a slope given by hand."""
    f = with_backward(lambda t: torch.tensor([float(forward(np.float64(t.item())))], dtype=DOUBLE), lambda t, g: g * slope)
    return seen(f, leaf(x), **options)


def test_the_codes_are_in_the_order_of_those_they_stand_for():
    assert [name.upper() for name in NAMES] == [outcome.name for outcome in Outcome]


def test_a_smooth_element_is_known_within_its_bar_and_its_error_falls_with_the_square_of_the_step():
    m = seen(torch.sin, leaf(1.0, 2.0))
    assert (m.verdict, m.outcome, m.limit, m.sides, m.second) == ("pass", "pass", None, None, None)
    assert abs(m.numeric - math.cos(1.0)) <= m.bar < 1e-11
    assert m.f == math.sin(1.0) and m.analytic == pytest.approx(math.cos(1.0), rel=1e-15)
    assert m.truncation.power == pytest.approx(2.0, abs=0.02)
    assert m.truncation.factor == pytest.approx(math.cos(1.0) / 6, rel=0.1)       # f(x+h) − f(x−h) = 2h f' + h³ f'''/3


def test_the_rungs_are_the_quotients_of_f_coarsest_first():
    m = seen(torch.square, leaf(1.5))
    assert len(m.rungs) == RUNGS and m.rungs[0].step == pytest.approx(0.23 * 1.5)
    for one, next_ in zip(m.rungs[:12], m.rungs[1:12], strict=False):
        assert one.step / next_.step == pytest.approx(RATIO, rel=1e-6)
        assert one.quotient == pytest.approx(3.0, abs=4e-16 / one.step)           # exact for a parabola, but for rounding
        assert one.left == pytest.approx(3.0 - one.step, abs=4e-16 / one.step)
        assert one.right == pytest.approx(3.0 + one.step, abs=4e-16 / one.step)


def test_the_error_estimate_of_every_rung_covers_its_error():
    m = seen(torch.exp, leaf(0.7))
    assert all(abs(rung.quotient - math.exp(0.7)) <= rung.bar for rung in m.rungs[1:])


def test_the_chosen_rung_is_where_neither_truncation_nor_noise_rules():
    m = seen(torch.sin, leaf(1.0))
    assert 1e-5 < m.rungs[m.chosen.rung].step < 1e-1 and 1 <= m.chosen.order <= 3


@pytest.mark.parametrize(("forward", "left", "right"), [(torch.abs, -1.0, 1.0), (torch.relu, 0.0, 1.0),
                                                        (lambda x: torch.nn.functional.leaky_relu(x, 0.25), 0.25, 1.0)])
def test_a_kink_has_the_slopes_of_its_sides_and_no_chosen_rung(forward, left, right):
    m = seen(forward, leaf(0.0, 1.0))
    assert (m.verdict, m.outcome, m.chosen) == ("pass", "kink", None)
    assert (m.sides.left.value, m.sides.right.value) == pytest.approx((left, right))
    assert all((rung.left, rung.right) == pytest.approx((left, right)) for rung in m.rungs)


def test_outside_the_slopes_of_a_kink_a_gradient_is_wrong():
    m = seen(with_backward(torch.relu, lambda x, g: g * 3.0), leaf(0.0, 1.0))
    assert (m.verdict, m.outcome) == ("mismatch", "mismatch") and m.sides is not None


def test_a_staircase_has_two_readings_and_its_steps_stand_still_on_the_finest_rungs():
    m = at(lambda x: np.round(x * 1000) / 1000, 0.3, 1.0)
    assert (m.verdict, m.outcome) == ("undecided", "staircase") and m.second.value == 0.0
    assert m.numeric == pytest.approx(1.0, abs=m.bar)
    assert [rung.quotient for rung in m.rungs[-4:]] == [0.0] * 4


def test_the_noise_of_a_noisy_function_is_measured_and_limits_it():
    m = at(lambda x: np.sin(x) + 1e-8 * hashed(x), 1.0, math.cos(1.0))
    assert (m.verdict, m.outcome) == ("undecided", "undecided") and "noise" in m.limit
    assert m.sigma == pytest.approx(1e-8 / math.sqrt(12), rel=0.7)                # uniform on ±0.5e-8
    assert abs(m.numeric - math.cos(1.0)) <= m.bar
    assert all(abs(rung.quotient - math.cos(1.0)) < 6 * rung.noise for rung in m.rungs[-12:])


def test_a_wrong_slope_is_a_mismatch_at_the_right_numeric_value():
    m = seen(torch.sin, leaf(1.0), damage=times(1.01))
    assert (m.verdict, m.error) == ("mismatch", pytest.approx(0.01 * math.cos(1.0), rel=1e-6))
    assert abs(m.numeric - math.cos(1.0)) <= m.bar


def test_a_jump_has_no_derivative():
    m = seen(torch.floor, leaf(1.0, 0.3))
    assert (m.verdict, m.outcome, m.chosen, m.bar) == ("undecided", "jump", None, math.inf)


def test_a_zero_that_nothing_moves_rests_on_a_rung_near_x():
    m = seen(torch.sin, leaf(1.0, 2.0), moved=Coordinate(0, 1))
    assert (m.numeric, m.verdict) == (0.0, "pass") and m.rungs[m.chosen.rung].step <= 0.3 * 2.0


def test_the_tolerance_is_the_sum_of_its_parts():
    m = seen(torch.sin, leaf(1.0), atol=1e-9, rtol=1e-5)
    t = m.tolerance
    assert (t.atol, t.rtol, t.size) == (1e-9, 1e-5, pytest.approx(math.cos(1.0)))
    assert t.value == pytest.approx(t.atol + max(t.rtol * t.size, t.floor)) and 0 < t.floor < 1e-11


def test_the_floor_lets_the_dust_of_a_cancelling_sum_pass():
    m = seen(lambda x: x.softmax(0).sum(), leaf(0.3, 1.0, -2.0))
    assert m.verdict == "pass" and m.tolerance.floor > m.tolerance.rtol * m.tolerance.size


def test_a_domain_keeps_its_steps_inside_and_one_side_is_shown():
    m = seen(torch.sqrt, leaf(1e-3), domains=[(1e-3, math.inf)])
    assert all(math.isnan(rung.left) and math.isnan(rung.quotient) for rung in m.rungs)
    assert m.numeric == pytest.approx(0.5 / math.sqrt(1e-3), abs=m.bar) and m.chosen is not None


@pytest.mark.parametrize(("moved", "output", "truth"), [(0, 0, 2.0), (1, 0, -4.0), (0, 1, 4.0), (1, 1, 2.0)])
def test_parts_of_complex_numbers_are_elements_of_their_own(moved, output, truth):
    m = seen(lambda z: z * z, leaf(1 + 2j, dtype=torch.complex128), moved=Coordinate(0, moved), output=Coordinate(0, output))
    assert m.verdict == "pass" and abs(m.numeric - truth) <= m.bar and m.x == (1.0, 2.0)[moved]


def test_under_symmetric_an_element_moves_with_its_mirror_image():
    a = torch.tensor([[2.0, 1.0], [1.0, 3.0]], dtype=DOUBLE)
    m = seen(lambda x: x[0, 1] * 5 + x[1, 0] * 7, a, moved=Coordinate(0, 1), symmetric=[True])
    assert m.verdict == "pass" and m.numeric == pytest.approx(12.0) == m.analytic
    with pytest.raises(ValueError, match="mirror"):
        seen(lambda x: x[0, 1] * 5, a, moved=Coordinate(0, 2), symmetric=[True])


def test_of_several_inputs_and_outputs_the_element_that_was_asked_for_is_measured():
    m = seen(lambda x, y: (x.sum(), y.outer(x)), leaf(2.0, 3.0), leaf(5.0, 7.0, 11.0), moved=Coordinate(1, 2), output=Coordinate(1, 5))
    assert (m.x, m.f, m.analytic) == (11.0, 33.0, 3.0) and abs(m.numeric - 3.0) <= m.bar


def under_step(function, eps, atol, rtol):
    """The first element as the check judges it under a fixed step."""
    [pair] = check_fixed(function, eps, atol=atol, rtol=rtol, asked=Asked(0, 0, 0, 0))
    return fixed_step(pair.asked, eps, atol=atol, rtol=rtol)


def test_a_fixed_step_is_judged_by_the_rule_of_gradcheck():
    f = Differentiable(torch.sin, leaf(1.0))
    fixed, truth = under_step(f, 0.1, 1e-5, 1e-3), math.cos(1.0) * math.sin(0.1) / 0.1
    assert fixed.quotient == pytest.approx(truth, rel=1e-12)
    assert fixed.tolerance == pytest.approx(1e-5 + 1e-3 * truth) and fixed.outcome == "mismatch"
    assert measure(f, FIRST, FIRST).verdict == "pass"
    assert under_step(f, 1e-20, 1e-5, 1e-3).outcome == "undecided"


def test_with_a_fixed_step_both_parts_of_a_complex_number_count():
    f = Differentiable(lambda z: (z * z).real, leaf(3 + 4j, dtype=torch.complex128), damage=lambda grads: [g + 0.006j for g in grads])
    fixed = under_step(f, 1e-6, 0.0, 1e-3)
    assert fixed.tolerance == pytest.approx(1e-2) and fixed.outcome == "pass"       # |(6, −8)| = 10
    assert under_step(f, 1e-6, 0.0, 5e-4).outcome == "mismatch"


@pytest.mark.parametrize("mode", [None, Mode.ENTRIES, Mode.ROWS, Mode.BLOCKS])
@pytest.mark.parametrize("asked", [Asked(0, 0, 2, 2), Asked(0, 0, 1, 2), Asked(0, 0, 4, 4)])
def test_what_comes_of_an_element_that_is_asked_for_is_kept_in_every_mode(mode, asked):
    """One that passes, a zero that needs no solver, one that is wrong; `by_itself` tells which of them the comparison judged."""
    def damage(grads):
        return [g * torch.tensor([1, 1, 1, 1, 1.5], dtype=DOUBLE) for g in grads]

    f = Differentiable(torch.sin, leaf(0.3, 1.0, -2.0, 0.9, 2.5), damage=damage)
    [pair] = compare(f, mode=mode, asked=asked).pairs
    truth = math.cos((0.3, 1.0, -2.0, 0.9, 2.5)[asked.input_index]) if asked.input_index == asked.output_index else 0.0
    assert pair.asked.numeric == pytest.approx(truth, abs=1e-9)
    assert pair.asked.outcome is (Outcome.MISMATCH if asked.input_index == 4 else Outcome.PASS)
    assert (pair.asked.input_index, pair.asked.output_index) == asked[2:]
    assert pair.by_itself is (truth == 0.0 or (bool(pair.lines) and asked.input_index == 2))
    [same] = compare(f, mode=mode).pairs
    assert (same, same.asked) == (pair, None)      # the comparison is the one that it would be


def test_calls_are_counted():
    f = Differentiable(torch.sin, leaf(1.0))
    m = measure(f, FIRST, FIRST)
    assert (m.forward, m.backward) == (f.calls, f.backwards)


def test_it_is_plain_data():
    for m in (seen(torch.abs, leaf(0.0)), seen(torch.floor, leaf(1.0)), seen(torch.sin, leaf(1.0))):
        assert to_json(from_json(Measured, to_json(m))) == to_json(m)


@pytest.mark.population(most=18)
@pytest.mark.parametrize("factor", [1.0, 1.01])
@pytest.mark.parametrize("name", [name for name in SCALAR if "random" not in name])
def test_its_verdict_is_that_of_the_whole_comparison(name, factor):
    f, x, slope, _ = SCALAR[name]
    forward = with_backward(lambda t: torch.tensor([float(f(np.float64(t.item())))], dtype=DOUBLE), lambda t, g: g * slope * factor)
    [pair] = check_function(Differentiable(forward, leaf(x))).pairs
    [worst] = pair.worst or [None]
    m = seen(forward, leaf(x))
    told = measure(Differentiable(forward, leaf(x)), FIRST, FIRST, checked=worst)
    assert m.outcome == (NAMES[worst.outcome] if worst else "pass") == told.outcome
    assert worst is None or m.tolerance.value == pytest.approx(worst.tolerance, rel=1e-2)
