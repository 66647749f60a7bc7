"""Strays are counted, kept by size, and forgotten where rounding hides a term as large."""

import numpy as np

from gradverify.numerics.strays import KEPT, Strays, nobodys


def test_all_are_counted_and_the_first_are_kept():
    strays = Strays()
    strays.add(2, np.arange(3))
    strays.add(5, np.arange(KEPT))
    assert strays.count == KEPT + 3 and len(strays.pairs()) == KEPT
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


def test_a_line_that_nobody_owns_has_the_least_floor_of_any_output():
    assert nobodys(np.array([[3.0, 0.0]]), np.array([10.0, 2.0, 5.0])).tolist() == [[3.0, 1.4]]
    assert nobodys(np.array([0.0]), np.zeros(0)).tolist() == [0.0]
