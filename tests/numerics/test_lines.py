"""Rungs of a line: both sides, realised steps, nothing where x cannot move."""

import numpy as np
import pytest

from gradverify.numerics.estimate.samples import sample_rung
from gradverify.numerics.rungs import step
from numerics.callable_line import CallableLine


def test_a_rung_is_f_on_both_sides_at_the_nominal_step():
    taken = sample_rung(CallableLine(lambda t: np.array([t, t * t]), scale=2.0), 4)
    h = step(2.0, 4)
    assert taken.up.tolist() == [h, h * h] and taken.down.tolist() == [-h, h * h]
    assert (taken.step_up, taken.step_down) == (h, h)


def test_steps_are_those_that_rounding_left():
    taken = sample_rung(CallableLine(lambda t: np.array([t]), cast=lambda t: round(t, 2)), 1)
    assert taken.step_up == taken.step_down == 0.06
    assert taken.up.tolist() == [0.06]


def test_a_step_that_rounding_swallows_is_none():
    assert sample_rung(CallableLine(lambda t: np.array([t]), cast=lambda t: round(t, 2)), 8) is None


class Backwards:
    """The second output belongs to a column that moves the other way."""

    scale = size = magnitude = 1.0

    def at(self, t):
        return np.array([t, -t]), np.array([t, -t])


def test_columns_that_move_the_other_way_have_their_sides_exchanged():
    taken = sample_rung(Backwards(), 4)
    h = step(1.0, 4)
    assert taken.up.tolist() == [h, h] and taken.down.tolist() == [-h, -h]
    assert np.all(taken.step_up > 0) and np.all(taken.step_down > 0)


@pytest.mark.parametrize("k", [-3, 0, 4, 23])
def test_negative_rungs_climb_above_the_scale(k):
    assert step(1.0, k) == pytest.approx(0.23 * 3.6**-k)
