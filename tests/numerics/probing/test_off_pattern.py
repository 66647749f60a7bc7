"""Strays are counted, kept by size, and forgotten where rounding hides a term as large; what moved lasts nearer to x or is no dependence."""

import numpy as np

from gradverify.numerics.probing.off_pattern import KEPT_STRAYS, Strays, present_at_x, with_off_pattern_floor
from gradverify.numerics.rungs import QUICK


def test_all_are_counted_and_the_first_are_kept():
    strays = Strays()
    strays.add(2, np.arange(3))
    strays.add(5, np.arange(KEPT_STRAYS))
    assert strays.count == KEPT_STRAYS + 3 and len(strays.pairs()) == KEPT_STRAYS
    assert strays.pairs()[:4].tolist() == [[2, 0], [2, 1], [2, 2], [5, 0]]


def test_what_is_no_larger_than_dust_is_forgotten_and_nan_and_what_has_no_size_is_not():
    strays = Strays()
    strays.add(0, np.arange(4), np.array([1e-15, 1e-9, np.nan, 1e-12]))
    strays.add(1, np.array([9]))
    strays.forget(1e-12)
    assert strays.pairs().tolist() == [[0, 1], [0, 2], [1, 9]]
    assert strays.count == 3


def test_without_strays_there_are_none():
    strays = Strays()
    strays.forget(np.inf)
    assert (strays.count, strays.pairs().shape) == (0, (0, 2))


def test_a_line_off_the_pattern_has_the_least_floor_of_any_output():
    assert with_off_pattern_floor(np.array([[3.0, 0.0]]), np.array([10.0, 2.0, 5.0])).tolist() == [[3.0, 1.4]]
    assert with_off_pattern_floor(np.array([0.0]), np.zeros(0)).tolist() == [0.0]


def lasts(far, near, still, noise):
    """Of outputs that move by `far` on a rung, and by `near` on the nearer one, as a group's columns go either way."""
    def change(t):
        return np.sign(t) * (np.array(near) if abs(t) < 1e-3 else np.array(far))

    return present_at_x(change, np.arange(len(far)), QUICK[0] - 1, np.array(still), np.array(noise)).tolist()


def test_what_is_still_nearer_to_x_is_no_dependence_unless_noise_would_have_hidden_it():
    far, near = [1e-3, 1e-3, 1e-15, np.nan], [0.0, 1e-6, 0.0, np.nan]
    assert lasts(far, near, [0.0] * 4, [1e-16] * 4) == [False, True, True, True]


def test_noise_that_is_no_movement_does_not_make_it_last():
    assert lasts([1e-3], [1e-9], [1e-8], [1e-9]) == [False]


def test_where_nothing_is_still_no_further_call_is_made():
    called = []

    def change(t):
        called.append(t)
        return np.ones(3)

    assert present_at_x(change, np.array([0, 2]), QUICK[0], np.zeros(3), np.zeros(3)).all() and len(called) == 2
