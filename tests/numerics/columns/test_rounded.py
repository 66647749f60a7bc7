"""Deviations of a float32 backward beside finite differences in float64: rounding is excused, what is none is not.

The class of faults: rounding that is larger than usual (numbers cancel, f saturates) is called wrong; or a small error of a formula is taken for
rounding, because the backward is right in float64 or because it is noisy.
"""

import pytest
import torch
from live import evidence, randn

from gradverify.numerics.columns.tally import Outcome
from gradverify.numerics.compare import Limit, Verdict

DOUBLE = (torch.float64, torch.complex128)


def single(*shape, seed=0):
    return randn(*shape, seed=seed, dtype=torch.float32)


def pair(function, *inputs, **settings):
    return evidence(function, *inputs, dtype="float32", mode="entries", **settings).jacobian.pairs[0, 0]


def backed(forward, backward):
    """A Function of one input."""
    class Backed(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return forward(x)

        @staticmethod
        def backward(ctx, grad):
            return backward(ctx.saved_tensors[0], grad)

    return Backed


def by_differences(x, grad):
    """2 (x − mean) / n of a variance, where the mean is 300 times the spread: float32 leaves four digits."""
    return grad * 2 * (x - x.mean()) / len(x)


def as_sums(x, grad):
    """The same as 2 (x·n − Σx) / n², in which numbers 10⁴ times as large cancel."""
    return grad * 2 * (x * len(x) - x.sum()) / len(x) ** 2


@pytest.mark.parametrize("backward", [by_differences, as_sums])
@pytest.mark.parametrize("seed", range(4))
def test_rounding_that_comes_and_goes_with_the_bits_is_excused(backward, seed):
    x = 300 + single(12, seed=seed)
    found = pair(backed(lambda x: ((x - x.mean()) ** 2).mean(), backward), x)
    assert not found.count(Outcome.MISMATCH)


@pytest.mark.parametrize("share", [1.0, 0.01, -2.0])
@pytest.mark.parametrize("everywhere", [True, False])
def test_an_error_of_a_formula_is_none_however_noisy_the_sums_are(share, everywhere):
    def wrong(x, grad):
        gradient = as_sums(x, grad)
        if everywhere or x.dtype not in DOUBLE:
            gradient = gradient * (1 + share)
        return gradient

    x = 20 + single(12)
    found = pair(backed(lambda x: ((x - x.mean()) ** 2).mean(), wrong), x)
    assert found.verdict is Verdict.MISMATCH


def slightly_off(by):
    """An error of so much of the row in its last element, in float32 alone."""
    def backward(x, grad):
        gradient = grad * torch.full_like(x, 1.0)
        if x.dtype not in DOUBLE:
            gradient[-1] += grad * by
        return gradient
    return backed(lambda x: x.sum(), backward)


@pytest.mark.parametrize(("by", "verdict"), [(2e-3, Verdict.MISMATCH), (5e-4, Verdict.PASS)])
def test_large_elements_are_judged_by_rtol(by, verdict):
    assert pair(slightly_off(by), torch.ones(6, dtype=torch.float32)).verdict is verdict


@pytest.mark.parametrize(("by", "verdict"), [(1e-6, Verdict.MISMATCH), (3e-7, Verdict.PASS)])
def test_a_small_element_is_right_to_a_few_roundings_of_its_row_and_no_more(by, verdict):
    """A zero of the row that float32 does not give as zero: 8 roundings are 4.8e-7."""
    def backward(x, grad):
        gradient = grad * torch.tensor([1.0, 1.0, 1.0, 0.0], dtype=x.dtype)
        if x.dtype not in DOUBLE:
            gradient[-1] += grad * by
        return gradient
    found = pair(backed(lambda x: x[:3].sum(), backward), torch.ones(4, dtype=torch.float32))
    assert found.verdict is verdict


def test_where_f_saturates_in_float32_a_gradient_that_it_rounds_away_is_undecided():
    x = torch.tensor([8.9, 0.3], dtype=torch.float32)        # tanh is 1 there, and 1 − 4e-8 in float64
    found = pair(backed(torch.tanh, lambda x, grad: grad * (1 - torch.tanh(x) ** 2)), x)
    assert found.verdict is Verdict.UNDECIDED and found.limits == ((Limit.ROUNDED, 1),)


def test_where_f_does_not_saturate_a_missing_gradient_is_found_however_small_the_output():
    x = torch.tensor([-16.0, 0.3], dtype=torch.float32)      # the sigmoid is 1e-7 there, good to seven digits
    right = pair(backed(torch.sigmoid, lambda x, grad: grad * torch.sigmoid(x) * torch.sigmoid(-x)), x)
    gone = pair(backed(torch.sigmoid, lambda x, grad: grad * torch.sigmoid(x) * torch.sigmoid(-x) * (x > -10)), x)
    assert right.verdict is Verdict.PASS and gone.verdict is Verdict.MISMATCH


def test_a_backward_that_refuses_float64_is_told_by_its_noise_alone():
    def only_float32(x, grad):
        if x.dtype in DOUBLE:
            raise TypeError("float32 only")
        return as_sums(x, grad)

    x = 300 + single(12)
    found = pair(backed(lambda x: ((x - x.mean()) ** 2).mean(), only_float32), x)
    assert not found.count(Outcome.MISMATCH)
    wrong = pair(backed(lambda x: ((x - x.mean()) ** 2).mean(), lambda x, grad: 1.5 * only_float32(x, grad)), 2 + single(12))
    assert wrong.verdict is Verdict.MISMATCH


def test_a_backward_in_sixteen_bits_is_wrong_in_float32():
    def coarse(x, grad):
        return grad * x.to(torch.bfloat16).cos().to(x.dtype) if x.dtype not in DOUBLE else grad * x.cos()

    assert pair(backed(torch.sin, coarse), single(8)).verdict is Verdict.MISMATCH


def test_complex64_is_judged_alike():
    z = randn(5, dtype=torch.complex64)
    def right(z, grad):
        return grad * (2 * z).conj()
    assert pair(backed(lambda z: z * z, right), z).verdict is Verdict.PASS
    assert pair(backed(lambda z: z * z, lambda z, grad: right(z, grad) * 1.01), z).verdict is Verdict.MISMATCH
    assert pair(backed(lambda z: z * z, lambda z, grad: grad * 2 * z), z).verdict is Verdict.MISMATCH


def test_saturation_at_the_other_end_is_no_reason_to_pass_a_sign():
    x = torch.linspace(-3, 3, 9, dtype=torch.float32)
    assert pair(backed(torch.tanh, lambda x, grad: -grad * (1 - torch.tanh(x) ** 2)), x).verdict is Verdict.MISMATCH
