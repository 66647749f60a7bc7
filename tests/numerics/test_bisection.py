"""Windows by bisection: as narrow as pays, within the calls they are allowed, and never too narrow for what was heard."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradverify.numerics.sparsity.detect import Axis, bisected


class Intervals:
    """Outputs that depend on the slices low … high, and for a while, or from some call on, on others."""

    def __init__(self, low, high, later=None, change=10**9):
        self.low, self.high, self.later, self.change, self.calls = low, high, later, change, 0

    def moved(self, axis, slices):
        self.calls += 1
        low, high = (self.low, self.high) if self.calls <= self.change else self.later
        before = np.concatenate([[0], np.cumsum(slices)])
        return before[high + 1] > before[low]


def windows(probe, n, parts=None):
    axis = Axis(probe, 0, n, 1, ((len(probe.low),),), parts or (slice(0, len(probe.low)),))
    return bisected(axis, np.ones(len(probe.low), bool))


def bands(n, width):
    low = np.arange(n - width + 1)
    return low, low + width - 1


@settings(max_examples=50)
@given(st.integers(17, 5000), st.integers(1, 400))
def test_windows_hold_the_band_in_the_calls_allowed(n, width):
    probe = Intervals(*bands(n, min(width, n)))
    low, high = windows(probe, n)
    assert (low <= probe.low).all() and (probe.high <= high).all()
    assert probe.calls <= 64
    if width <= 7 and n >= 40:
        assert np.array_equal(low, probe.low) and np.array_equal(high, probe.high)


@pytest.mark.parametrize("n, width, excess", [(128, 20, 2), (1 << 14, 20, 8), (1 << 14, 100, 32), (1 << 17, 20_000, 9_000)])
def test_wide_bands_are_cut_no_finer_than_pays(n, width, excess):
    probe = Intervals(*bands(n, width))
    low, high = windows(probe, n)
    assert 0 < np.max(high - low + 1) - width <= excess
    assert probe.calls <= 64


def test_a_tensor_of_wide_windows_costs_another_nothing():
    n = 1024
    low, high = np.concatenate([np.zeros(n, np.intp), np.arange(n)]), np.concatenate([np.arange(n), np.arange(n)])
    probe = Intervals(low, high)
    found = windows(probe, n, (slice(0, n), slice(n, 2 * n)))
    assert np.array_equal(found[0][n:], np.arange(n)) and np.array_equal(found[1][n:], np.arange(n))
    assert (found[1][:n] >= np.arange(n)).all()
    assert probe.calls <= 4 + 8 + 7 * 4


def test_an_output_moved_from_outside_its_interval_gets_all_of_the_axis():
    """It can be told where another interval is wider: the blocks perturbed together are then further apart than its own."""
    low, high = np.array([40, 4]), np.array([40, 20])
    later = np.array([10, 4]), np.array([10, 20])
    found = windows(Intervals(low, high, later, change=4), 64)
    assert [end[0] for end in found] == [0, 63]
    found = windows(Intervals(low, high), 64)
    assert [end.tolist() for end in found] == [[40, 4], [41, 21]]


def test_an_output_that_falls_silent_keeps_the_interval_it_had():
    at = np.array([3, 20])
    nowhere = (np.array([1, 20]), np.array([0, 20]))
    low, high = windows(Intervals(at, at, nowhere, change=4), 64)
    assert (low.tolist(), high.tolist()) == ([0, 20], [15, 20])
