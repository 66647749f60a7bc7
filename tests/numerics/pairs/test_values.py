"""Elements are kept up to a fixed number: all that could contradict a cause, or word that some are missing."""

from __future__ import annotations

import numpy as np

from gradverify.numerics.pairs import tally
from gradverify.numerics.pairs.pair import Entries
from gradverify.numerics.pairs.tally import KeptEntries

RIGHT, OPEN, WRONG = 0, 2, 6


def elements(analytic, numeric, outcome):
    n = len(analytic)
    return Entries(np.arange(n), np.zeros(n, int), np.array(analytic), np.array(numeric), np.full(n, 1e-12), np.array(outcome, np.int8),
                   np.full(n, np.nan), np.full(n, np.nan))


def test_right_zeros_are_left_out_and_open_ones_are_not():
    collector = KeptEntries()
    collector.add(elements([0.0, 0.0, 2.0, 0.0], [0.0, 0.0, 1.0, 3.0], [RIGHT, OPEN, WRONG, WRONG]))
    seen = collector.joined(True)
    assert seen.complete
    assert seen.output.tolist() == [1, 2, 3]


def test_what_does_not_fit_is_told_by_its_ratio_alone(monkeypatch):
    monkeypatch.setattr(tally, "KEPT", 3)
    collector = KeptEntries()
    collector.add(elements([2.0, 4.0], [1.0, 2.0], [WRONG, WRONG]))
    collector.add(elements([6.0, 8.0], [3.0, 4.0], [WRONG, WRONG]))
    seen = collector.joined(True)
    assert not seen.complete
    assert len(seen.output) == 2
    assert np.allclose(seen.ratio, 2.0)


def test_elements_that_share_no_factor_leave_none():
    collector = KeptEntries()
    collector.add(elements([2.0, 9.0], [1.0, 2.0], [WRONG, WRONG]))
    low, high = collector.joined(True).ratio
    assert low > high
