from __future__ import annotations

import numpy as np
import pytest

from gradverify.rules.adjoint import Identity, bisect

U64 = 2.0**-53


def identity(forward, reverse, dust=0.0) -> Identity:
    return Identity(np.array(forward, float), np.array(reverse, float), 1e-9, U64, dust)


def test_equal_sums_hold_and_others_do_not():
    assert identity([1.0, 2.0], [3.0]).holds()
    assert not identity([1.0, 2.0], [3.0 + 1e-8]).holds()
    assert identity([1.0, 2.0], [3.0 + 1e-10]).holds()


def test_terms_that_cancel_leave_their_rounding():
    assert identity([1e10, -1e10, 1e-6], [0.0]).holds()
    assert not identity([1.0, -1.0, 1e-6], [0.0]).holds()


def test_one_wrong_term_in_ten_thousand_is_seen():
    right = np.where(np.arange(10_000) % 2, 1.0, -1.0)
    wrong = right.copy()
    wrong[7] *= 1 + 1e-6
    assert identity(right, right).holds()
    assert not identity(wrong, right).holds()


def test_dust_and_noise_widen_it():
    assert not identity([1e-12], [2e-12]).holds()
    assert identity([1e-12], [2e-12], dust=1e-11).holds()
    assert identity([1e-12], [2e-12]).holds(noise=1e-12)


def test_where_forward_mode_has_no_number_it_fails_and_where_backward_has_none_nothing_is_compared():
    assert not identity([np.nan, 1.0], [1.0]).holds()
    assert not identity([np.inf], [1.0]).holds()
    assert identity([1.0], [np.nan]).holds()


@pytest.mark.parametrize("size", [1, 2, 7, 64])
def test_halving_finds_the_one_that_deviates_in_logarithmic_calls(size):
    for at in range(size):
        deviations, calls = np.zeros(size), []
        deviations[at] = -3.0

        def deviation(mask, deviations=deviations, calls=calls):
            calls.append(mask)
            return float(deviations[mask].sum())

        assert bisect(np.ones(size, bool), deviation, -3.0) == at
        assert len(calls) <= int(np.ceil(np.log2(size))) if size > 1 else not calls


def test_halving_follows_the_larger_part_and_what_is_no_number():
    deviations = np.array([1.0, -0.5, 0.25, 10.0])
    assert bisect(np.ones(4, bool), lambda mask: float(deviations[mask].sum()), float(deviations.sum())) == 3
    broken = np.array([1.0, np.nan, 2.0, 0.0])
    assert bisect(np.ones(4, bool), lambda mask: float(broken[mask].sum()), np.nan) == 1


def test_only_members_are_named():
    deviations = np.array([5.0, 1.0, 0.0])
    members = np.array([False, True, True])
    assert bisect(members, lambda mask: float(deviations[mask].sum()), 1.0) == 1
