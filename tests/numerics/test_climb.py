"""Derivatives along one line are those of the closed form within their bars, and take no more rungs than they need."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gradverify.numerics.estimate.climb import Climb, Elements, Ladders, Outputs, derivative, from_quick_rungs, settled
from gradverify.numerics.estimate.kinks import Smoothness
from gradverify.numerics.estimate.samples import sample_rung
from gradverify.numerics.rungs import QUICK, RUNGS, U64
from gradverify.numerics.verdict import Verdict
from numerics.callable_line import CallableLine

X = 1.0
SMOOTH = {
    "exp": (np.exp, math.e), "sin": (np.sin, math.cos(1)), "cube": (lambda x: x**3, 3.0), "linear": (lambda x: 2 * x + 1e6, 2.0),
    "constant": (lambda x: 0 * x + 7, 0.0), "huge": (lambda x: 1e300 * np.sin(x), 1e300 * math.cos(1)), "tiny": (lambda x: 1e-200 * x * x, 2e-200),
    "steep": (lambda x: np.exp(20 * (x - 1)), 20.0), "ripples": (lambda x: np.sin(300 * x), 300 * math.cos(300)),
    "finer ripples": (lambda x: np.sin(3000 * x), 3000 * math.cos(3000)),
}
MOST = RUNGS + 21       # rungs: those above the scale too


class Counted:
    """Functions of one number as the outputs of a line through X; `calls` so far."""

    def __init__(self, *functions):
        self.functions, self.calls = functions, 0

    def __call__(self, t):
        self.calls += 1
        return np.array([f(X + t) for f in self.functions])

    @property
    def line(self):
        return CallableLine(self, 1.0, X, lambda t: (X + t) - X)

    def outputs(self, sigma=0.0):
        f0 = self(0.0)
        self.calls = 0
        return Outputs(f0, np.full(len(f0), sigma), lambda: np.full(len(f0), U64), True)


def found(*functions, sigma=0.0, **options):
    counted = Counted(*functions)
    return derivative(counted.line, counted.outputs(sigma), **options), counted.calls


@pytest.mark.parametrize("every_rung", [False, True])
@pytest.mark.parametrize("name", SMOOTH)
def test_a_derivative_is_that_of_the_closed_form_within_its_bar(name, every_rung):
    f, truth = SMOOTH[name]
    d, _ = found(f, every_rung=every_rung)
    assert d.outcome[0] == Smoothness.SMOOTH and not d.unclear[0]
    assert abs(d.value[0] - truth) <= d.bar[0]
    assert d.bar[0] <= 1e-6 * abs(truth) + 1e-14 * abs(f(X))


def test_many_outputs_of_a_line_are_solved_together():
    d, calls = found(*(f for f, _ in SMOOTH.values()))
    assert (np.abs(d.value - [truth for _, truth in SMOOTH.values()]) <= d.bar).all()
    assert calls <= 2 * MOST


@pytest.mark.parametrize(("name", "most"), [("sin", 2 * len(QUICK)), ("linear", 2 * len(QUICK)), ("ripples", 2 * RUNGS)])
def test_what_the_quick_rungs_settle_takes_no_more_calls(name, most):
    calls = found(SMOOTH[name][0])[1]
    assert calls <= most
    assert (calls == 2 * len(QUICK)) is (name != "ripples")


def test_what_nobody_asks_for_is_not_climbed_for():
    ripples = SMOOTH["ripples"][0]
    assert found(np.sin, ripples, atol=np.array([0.0, np.inf]))[1] == 2 * len(QUICK)
    assert found(np.sin, ripples)[1] > 2 * len(QUICK)


def test_the_whole_ladder_is_two_calls_a_rung():
    assert found(np.sin, every_rung=True)[1] == 2 * RUNGS


@pytest.mark.parametrize(("f", "outcome"), [
    (lambda x: abs(x - 1), Smoothness.KINK), (lambda x: float(x > 1), Smoothness.JUMP), (lambda x: np.cbrt(x - 1), Smoothness.NON_FINITE)])
def test_what_is_not_smooth_is_said(f, outcome):
    d, calls = found(f)
    assert d.outcome[0] == outcome and not math.isfinite(d.bar[0])
    assert calls >= 2 * RUNGS


def test_the_slopes_of_a_kink_are_those_of_its_sides():
    d, _ = found(lambda x: max(3 * (x - 1), -(x - 1)))
    assert (d.left[0], d.right[0]) == (pytest.approx(-1, abs=1e-6), pytest.approx(3, abs=1e-6))


def test_noise_widens_the_bar_and_coarser_rungs_narrow_it():
    ripple = lambda x: 2 * x + 1e-8 * math.sin(1e13 * x)      # noqa: E731
    d, calls = found(ripple, sigma=1e-8, rtol=1e-6)
    assert abs(d.value[0] - 2) <= d.bar[0] < 1e-5
    assert calls > 2 * len(QUICK)


def test_differences_that_grow_by_less_than_any_verdict_asks_for_are_settled_and_widen_the_bar():
    amplitude, pitch = 1e-12, 1e5     # of f's slope: 5e-8 at most
    d, calls = found(lambda x: x * x + amplitude * math.sin(pitch * x))
    truth = 2 + amplitude * pitch * math.cos(pitch)
    assert calls == 2 * len(QUICK)
    assert abs(d.value[0] - truth) <= amplitude * pitch + d.bar[0] and 1e-9 < d.bar[0] < 2e-7


def test_differences_that_grow_by_more_are_climbed_for():
    assert found(lambda x: x * x + 1e-9 * math.sin(1e5 * x))[1] > 2 * len(QUICK)


def test_where_a_third_of_the_bar_is_noise_coarser_rungs_are_asked_first():
    """Finer ones have 3.6 times the noise each."""
    counted, steps = Counted(SMOOTH["steep"][0]), []
    line = CallableLine(lambda t: (steps.append(abs(t)), counted(t))[1], 1.0, X, lambda t: (X + t) - X)
    outputs = counted.outputs(1e-13)
    quick = from_quick_rungs(line, outputs, {})
    assert 0.25 < quick.noise_bar[0] / quick.bar[0] < 0.5
    steps.clear()
    derivative(line, outputs, rtol=0.9 * quick.bar[0] / abs(quick.value[0]))
    first, next_ = np.array(steps[: 2 * len(QUICK)]), np.array(steps[2 * len(QUICK) :][:6])
    assert len(next_) == 6 and next_.min() > first.max()


# ---- all at once
@np.errstate(all="ignore")
def test_at_once_is_what_the_quick_rungs_tell():
    functions = Counted(*(f for f, _ in SMOOTH.values()))
    d = from_quick_rungs(functions.line, functions.outputs(), {})
    told = ~d.unclear & d.smooth
    truth = np.array([truth for _, truth in SMOOTH.values()])
    assert (np.abs(d.value - truth) <= d.bar)[told].all()
    assert told.tolist() == [name != "finer ripples" for name in SMOOTH]
    assert functions.calls == 2 * len(QUICK)


def test_rungs_that_are_known_are_not_called_for():
    functions = Counted(np.sin, np.exp)
    outputs = functions.outputs()
    fresh = from_quick_rungs(functions.line, outputs, {})
    known = {QUICK[0]: sample_rung(functions.line, QUICK[0])}
    functions.calls = 0
    d = from_quick_rungs(functions.line, outputs, known)
    assert functions.calls == 2 * (len(QUICK) - 1)
    assert np.array_equal(d.value, fresh.value) and np.array_equal(d.bar, fresh.bar)


def test_a_line_that_does_not_move_tells_nothing():
    stuck = CallableLine(np.exp, 1.0, 1.0, lambda t: 0.0)
    d = from_quick_rungs(stuck, Outputs(np.ones(1), np.zeros(1), lambda: np.full(1, U64), True), {})
    assert d.unclear[0] or not math.isfinite(d.bar[0])


# ---- ladders of several lines
def ladders():
    """Two lines with two outputs each: every element but (0, 1)."""
    first, second = Counted(np.sin, np.exp), Counted(lambda x: 5 * x, SMOOTH["ripples"][0])
    outputs = Outputs(np.array([math.sin(1), math.e]), np.zeros(2), lambda: np.full(2, U64), True)
    return first, second, Ladders([first.line, second.line], outputs, Elements(np.array([0, 1, 1]), np.array([0, 0, 1])))


def test_a_rung_of_a_line_is_sampled_once():
    first, second, both = ladders()
    both.solve(np.array([0]), QUICK, False)
    assert (first.calls, second.calls) == (6, 0)
    both.solve(np.arange(3), QUICK, False)
    both.solve(np.arange(3), (*QUICK, 7), False)
    assert (first.calls, second.calls) == (8, 8)


@np.errstate(all="ignore")
def test_samples_that_are_put_there_are_not_taken_again():
    first, second, both = ladders()
    h = 0.01
    both.put(4, np.array([[math.sin(1 + h), 5 + 5 * h, 0.0], [math.sin(1 - h), 5 - 5 * h, 0.0], [h] * 3, [h] * 3]))
    both.solve(np.arange(3), [4], False)
    assert (first.calls, second.calls) == (0, 0)
    assert both.known(4)[2].tolist() == [h] * 3


def judged_by(a):
    """As if the tolerance were 1e-6."""
    def judge(i, d):
        off = np.abs(a[i] - d.value)
        return np.select([off + d.bar <= 1e-6, off - d.bar > 1e-6], [Verdict.PASS, Verdict.MISMATCH], Verdict.UNDECIDED).astype(np.int8)
    return judge


@np.errstate(all="ignore")
def climbed(a, suspect=(False, False)):
    """Two ripples that the quick rungs do not settle."""
    functions = Counted(lambda x: np.sin(200 * x), SMOOTH["ripples"][0])
    own = Ladders([functions.line], functions.outputs(), Elements(np.zeros(2, int), np.arange(2)))
    everything, nothing = np.arange(2), np.zeros(2, bool)
    climb = Climb(own, own.solve(everything, QUICK, False), judged_by(np.array(a)), nothing, np.array(suspect))
    return climb.run(), functions.calls


RIGHT = [200 * math.cos(200), 300 * math.cos(300)]


def test_a_climb_ends_when_all_are_settled():
    result, calls = climbed(RIGHT)
    assert (np.abs(result.derivative.value - RIGHT) <= result.derivative.bar).all()
    assert judged_by(np.array(RIGHT))(np.arange(2), result.derivative).tolist() == [Verdict.PASS] * 2
    assert not result.unconfirmed.any() and not result.exhausted.any()
    assert 2 * len(QUICK) < calls < 2 * RUNGS


def test_a_mismatch_that_a_part_of_the_ladder_has_seen_is_unconfirmed():
    result, calls = climbed([RIGHT[0] + 0.01, RIGHT[1]])
    assert (result.unconfirmed.tolist(), result.exhausted.tolist()) == ([True, False], [False, False])
    assert calls < 2 * RUNGS


def test_a_mismatch_for_sure_takes_no_rung_more_unless_it_may_have_aliased():
    wrong = [RIGHT[0] + 1, RIGHT[1] + 1]
    assert climbed(wrong)[1] == 2 * len(QUICK)
    result, calls = climbed(wrong, suspect=(True, False))
    assert calls > 2 * len(QUICK)
    assert result.unconfirmed.all()


def test_what_stays_open_has_seen_every_rung():
    functions = Counted(lambda x: abs(x - 1))
    own = Ladders([functions.line], functions.outputs(), Elements(np.zeros(1, int), np.zeros(1, int)))
    with np.errstate(all="ignore"):
        climb = Climb(own, own.solve(np.arange(1), QUICK, False), judged_by(np.zeros(1)), np.zeros(1, bool), np.zeros(1, bool))
        result = climb.run()
    assert (result.exhausted.tolist(), result.unconfirmed.tolist()) == ([True], [False])
    assert result.derivative.outcome[0] == Smoothness.KINK


@pytest.mark.parametrize("verdict", list(Verdict))
def test_settled_is_what_is_smooth_clear_and_passed(verdict):
    d, _ = found(np.sin)
    assert settled(d, np.array([verdict])).tolist() == [verdict == Verdict.PASS]
    kink, _ = found(lambda x: abs(x - 1))
    assert settled(kink, np.array([verdict])).tolist() == [False]
