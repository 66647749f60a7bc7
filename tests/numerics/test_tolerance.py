"""The three-way verdict, on derivatives made by hand."""

import dataclasses

import numpy as np
import pytest

from gradverify.numerics.estimate.ladder import Derivative, Smoothness
from gradverify.numerics.rungs import U64
from gradverify.numerics.tolerance import (
    Magnitudes,
    Tolerances,
    floors,
    limits,
    rounding_reach,
    verdicts,
)
from gradverify.numerics.verdict import Limit, Verdict

NO = np.zeros(1, bool)


def derived(value=1.0, bar=1e-9, **other):
    nan, inf = np.full(1, np.nan), np.full(1, np.inf)
    d = Derivative(
        np.array([value]),
        np.array([bar]),
        np.zeros(1, np.int8),
        np.zeros(1),
        nan,
        nan,
        inf,
        inf,
        nan,
        inf,
        NO,
        NO,
        NO,
        NO,
        NO,
    )
    return dataclasses.replace(d, **{k: np.array([v]) for k, v in other.items()})


def judge(a, d, rtol=1e-6, floor=0.0, atol=0.0, border=False, extra=0.0, unproven=False):
    tolerances = Tolerances(atol, np.array([rtol]), np.array([floor]), np.array([unproven]))
    with np.errstate(invalid="ignore"):
        return Verdict(
            int(
                verdicts(
                    np.array([a]), d, tolerances, extra=extra, border_column=np.array([border])
                )[0]
            )
        )


@pytest.mark.parametrize(
    ("a", "bar", "verdict"),
    [
        (1.0, 1e-9, Verdict.PASS),
        (1 + 9e-7, 1e-9, Verdict.PASS),
        (1 + 1.1e-6, 1e-9, Verdict.MISMATCH),
        (1.0, 2e-6, Verdict.UNDECIDED),
        (1.0, np.inf, Verdict.UNDECIDED),
        (5.0, 1.0, Verdict.MISMATCH),
        (np.nan, 1e-9, Verdict.MISMATCH),
        (np.inf, 1e-9, Verdict.MISMATCH),
        (-1.0, np.nan, Verdict.UNDECIDED),
    ],
)
def test_pass_and_mismatch_only_if_the_whole_bar_says_so(a, bar, verdict):
    assert judge(a, derived(bar=bar)) == verdict


def test_atol_and_floor_widen_the_tolerance():
    assert judge(1e-9, derived(value=0.0, bar=1e-12)) == Verdict.MISMATCH
    assert judge(1e-9, derived(value=0.0, bar=1e-12), floor=1e-8) == Verdict.PASS
    assert judge(1e-9, derived(value=0.0, bar=1e-12), atol=1e-8) == Verdict.PASS


def test_extra_noise_of_the_backward_leaves_it_undecided():
    assert judge(1 + 1e-5, derived(), extra=np.array([2e-5])) == Verdict.UNDECIDED


def test_a_non_finite_gradient_is_no_mismatch_at_a_border_or_an_infinite_slope():
    assert judge(np.nan, derived(), border=True) == Verdict.UNDECIDED
    assert (
        judge(np.inf, derived(bar=np.inf, outcome=np.int8(Smoothness.NON_FINITE)))
        == Verdict.UNDECIDED
    )


@pytest.mark.parametrize(
    ("a", "verdict"),
    [
        (0.0, Verdict.PASS),
        (0.3, Verdict.PASS),
        (1.0, Verdict.PASS),
        (-1e-3, Verdict.MISMATCH),
        (1.1, Verdict.MISMATCH),
    ],
)
def test_at_a_kink_every_value_between_the_slopes_is_right(a, verdict):
    kink = derived(
        bar=np.inf,
        outcome=np.int8(Smoothness.KINK),
        left=1.0,
        right=0.0,
        left_bar=1e-9,
        right_bar=1e-9,
    )
    assert judge(a, kink) == verdict


def test_a_jump_is_undecided_whatever_the_gradient():
    assert judge(0.0, derived(bar=np.inf, outcome=np.int8(Smoothness.JUMP))) == Verdict.UNDECIDED


def test_a_mismatch_must_miss_the_second_reading_too():
    two = dict(second=0.0, second_bar=1e-9)
    assert judge(1.0, derived(**two)) == Verdict.PASS
    assert judge(0.0, derived(**two), floor=1e-8) == Verdict.UNDECIDED
    assert judge(0.0, derived(**two, second_is_finer=True), floor=1e-8) == Verdict.PASS
    assert judge(5.0, derived(**two)) == Verdict.MISMATCH


def test_a_bitwise_zero_passes_below_the_floor_but_proves_nothing_of_an_unmeasured_row():
    still = derived(value=0.0, bar=1.0, unchanged=True)
    assert judge(0.0, still, floor=1e-12) == Verdict.PASS
    assert judge(1e-3, still, floor=1e-12) == Verdict.UNDECIDED
    assert judge(0.0, still, unproven=True) == Verdict.UNDECIDED


def rows(reach, size, sigma=0.0, parts=(slice(0, 1),)):
    return Magnitudes(np.array([reach]), np.array([size]), np.array([sigma]), parts, 1.0)


def floor(reach, size, sigma=0.0, alive=True):
    return floors(rows(reach, size, sigma), np.array([alive]))[0]


def test_the_floor_is_a_fraction_of_the_reach_not_of_an_offset():
    assert floor(1.0, 1e10) == pytest.approx(1e4 * U64 * 1e3)
    assert floor(1.0, 0.5) == pytest.approx(1e4 * U64)


def test_the_floor_follows_a_noisy_forward_only_so_far():
    assert floor(1.0, 1.0, sigma=1e-3) == pytest.approx(1e4 * 16 * U64)


def test_a_dead_row_is_measured_against_its_values():
    assert floor(0.0, 2.0, alive=False) == pytest.approx(1e4 * U64 * 2.0)
    assert floor(0.0, 1e-16, sigma=1e-16, alive=False) == pytest.approx(1e-12)
    assert rounding_reach(rows(0.0, 2.0))[0] == pytest.approx(1e4 * U64 * 2.0)


@pytest.mark.parametrize(
    ("d", "limit"),
    [
        (derived(bar=1.0, noise_bar=0.9), Limit.NOISE),
        (derived(bar=1.0, noise_bar=0.1), Limit.TRUNCATION),
        (derived(second=0.0), Limit.STAIRCASE),
        (derived(at_border=True), Limit.BORDER),
        (derived(outcome=np.int8(Smoothness.JUMP)), Limit.JUMP),
        (derived(outcome=np.int8(Smoothness.NON_FINITE)), Limit.INFINITE),
        (derived(outcome=np.int8(Smoothness.INCONSISTENT)), Limit.INCONSISTENT),
    ],
)
def test_an_undecided_element_says_what_limits_it(d, limit):
    assert limits(d) == [limit]


@pytest.mark.parametrize(("backward", "expected"), [(U64, 1e4 * U64), (2.0**-24, 8 * 2.0**-24)])
def test_a_backward_in_float32_has_a_floor_of_its_own_roundings_and_no_lift(backward, expected):
    """Of its row alone: f = x + 1e6 must not hide elements of 1e-4 of it."""
    rows = Magnitudes(
        np.array([1.0]),
        np.array([1e6 if backward > U64 else 1.0]),
        np.zeros(1),
        [slice(0, 1)],
        1.0,
        U64,
        backward,
    )
    assert floors(rows, np.ones(1, bool))[0] == pytest.approx(expected)


def test_a_dead_row_of_a_backward_in_float32_may_hold_its_dust():
    """The gradient of a sum of probabilities is zero, and 6e-8 in float32."""
    rows = Magnitudes(
        np.array([6e-8]), np.array([1.0]), np.zeros(1), [slice(0, 1)], 1.0, U64, 2.0**-24
    )
    assert floors(rows, np.zeros(1, bool))[0] == pytest.approx(16 * 2.0**-24)
    assert rounding_reach(rows)[0] > 6e-8
