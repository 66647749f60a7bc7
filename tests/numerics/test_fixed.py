"""gradcheck's own rule: its quotient bit for bit, and its verdict."""

import pytest
import torch

from gradverify.numerics.fixed import check_fixed
from gradverify.numerics.pairs.pair import Outcome
from gradverify.numerics.verdict import Limit
from numerics.differentiable import Differentiable

EPS, ATOL, RTOL = 1e-6, 1e-5, 1e-3


def randn(*shape, seed=0, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def check(function, **options):
    return check_fixed(function, EPS, atol=ATOL, rtol=RTOL, **options)


def test_the_quotient_is_gradchecks_bit_for_bit():
    x = randn(1)
    pair = check(Differentiable(torch.sin, x, damage=lambda gs: [g * 2 for g in gs]))[0]
    assert pair.worst[0].numeric == float(((x + EPS).sin() - (x - EPS).sin()) / (2 * EPS))
    assert pair.worst[0].bar == 0.0


@pytest.mark.parametrize("off, outcome", [(0.99, Outcome.PASS), (1.01, Outcome.MISMATCH)])
def test_the_border_of_the_verdict_is_atol_plus_rtol_times_the_numeric_value(off, outcome):
    pair = check(
        Differentiable(
            lambda x: 4 * x, randn(1), damage=lambda gs: [g + off * (ATOL + RTOL * 4) for g in gs]
        )
    )[0]
    assert pair.counts[outcome] == 1


def test_the_parts_of_a_complex_element_are_one_number():
    """An error of the imaginary part within rtol of the modulus passes, as in gradcheck, though it
    is all of that part."""
    z = torch.tensor([1.0 + 0j], dtype=torch.complex128)
    small = check(
        Differentiable(
            lambda z: (z * z.conj()).real, z, damage=lambda gs: [g + 1.5e-3j for g in gs]
        )
    )[0]
    large = check(
        Differentiable(lambda z: (z * z.conj()).real, z, damage=lambda gs: [g + 3e-3j for g in gs])
    )[0]
    assert (small.count(Outcome.PASS), large.count(Outcome.MISMATCH)) == (2, 2)


@pytest.mark.parametrize("dtype, x", [(torch.float64, 1e12), (torch.float32, 100.0)])
def test_a_step_that_does_not_move_the_input_is_undecided_and_says_so(dtype, x):
    pair = check(Differentiable(lambda x: 3 * x, torch.tensor([x], dtype=dtype)))[0]
    assert pair.count(Outcome.UNDECIDED) == 1
    assert pair.limits == ((Limit.STUCK, 1),)


def test_an_infinity_that_stays_is_masked_and_one_that_moves_is_not_finite():
    mask = torch.tensor([0.0, -torch.inf], dtype=torch.float64)
    pair = check(Differentiable(lambda x: x + mask, randn(2)))[0]
    assert (pair.masked, pair.compared, pair.count(Outcome.PASS)) == (2, 2, 2)
    border = check(Differentiable(lambda x: x.log(), torch.tensor([0.0], dtype=torch.float64)))[0]
    assert border.count(Outcome.NON_FINITE) == 1


def test_nan_from_backward_is_a_mismatch():
    assert (
        check(Differentiable(torch.exp, randn(3), damage=lambda gs: [g * torch.nan for g in gs]))[
            0
        ].count(Outcome.MISMATCH)
        == 9
    )
