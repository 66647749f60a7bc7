"""What a `reference` says of 16 bits: how it sums is what native means; kernels of bfloat16 alone are what a result is about.

The truth is the sum in float64, beside which the sums of bfloat16 below are off by 3 to 35 %.
"""

from __future__ import annotations

import inspect

import pytest
import torch
from live import Oracles, case, codes, tensor
from torch.autograd import Function

from gradverify.subject.prepare import prepare
from gradverify.verify import verify

ROWS = 520


class Scale(Function):
    """x · w, of which the gradient of w is summed in float32."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return g * w, (g.float() * x.float()).sum(0).to(w.dtype)


class SummedInBfloat16(Scale):
    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        total = torch.zeros_like(w)
        for row in g * x:
            total = total + row
        return g * w, total


class BfloatAlone(Scale):
    """As kernels are that take nothing else."""

    @staticmethod
    def forward(ctx, x, w):
        assert x.dtype == torch.bfloat16
        return Scale.forward(ctx, x, w)


class BfloatAloneSummed(BfloatAlone):
    backward = SummedInBfloat16.backward


class BfloatAloneScaled(BfloatAlone):
    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return g * w, 1.1 * (g.float() * x.float()).sum(0).to(w.dtype)


def plain(x, w):
    return x * w


def in_float32(x, w):
    return (x.float() * w.float()).to(x.dtype)


def checked(function, reference):
    named = Oracles(reference=f"{__name__}:{reference}") if reference else Oracles()
    inputs = [tensor(ROWS, 8, name="x"), tensor(8, name="w")]
    return verify(prepare(case(f"{__name__}:{function}", inputs, dtype="bfloat16", select=("GV112",), oracles=named)))


@pytest.mark.parametrize("reference", ["plain", "in_float32"])
@pytest.mark.parametrize("function", ["Scale", "BfloatAlone"])
def test_a_kernel_that_sums_as_the_reference_does_passes(function, reference):
    result = checked(function, reference)
    assert (result.verdict, codes(result)) == ("pass", set())


@pytest.mark.parametrize("reference", ["plain", "in_float32"])
@pytest.mark.parametrize("function", ["SummedInBfloat16", "BfloatAloneSummed", "BfloatAloneScaled"])
def test_one_that_sums_in_fewer_bits_fails_at_the_line_of_its_backward(function, reference):
    result = checked(function, reference)
    assert codes(result) == {"GV112"}
    lines, first = inspect.getsourcelines(globals()[function].backward)
    assert all(first <= finding.line < first + len(lines) for finding in result.findings)


def test_without_a_reference_such_a_sum_is_the_functions_own():
    assert checked("SummedInBfloat16", None).verdict == "pass"


def test_a_pass_counts_the_numbers_of_the_kernel():
    """The resolution is that of bfloat16, and not that of the reference in float64."""
    result = checked("BfloatAlone", "in_float32")
    assert {each.rule for each in result.comparisons} == {"GV112"}
    assert max(each.resolution for each in result.comparisons) > 1e-3


def summed(x):
    return x.sum(0)


class Sum(Function):
    @staticmethod
    def forward(ctx, x):
        assert x.dtype == torch.bfloat16
        ctx.rows = len(x)
        return x.sum(0)

    @staticmethod
    def backward(ctx, g):
        return g.expand(ctx.rows, *g.shape)


def test_that_finite_differences_are_of_the_reference_is_said_once_and_not_counted():
    oracles = Oracles(reference=f"{__name__}:summed")
    result = verify(prepare(case(f"{__name__}:Sum", [tensor(12, 8, name="x")], dtype="bfloat16", oracles=oracles)))
    assert result.verdict == "pass" and "those of the reference" in result.mode_reason
    assert {each.rule for each in result.comparisons} == {"GV112"}
