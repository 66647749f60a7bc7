"""Lines that a fast comparison leaves open are decided element by element where the budget affords
that."""

import math

import pytest
import torch
from live import check, codes
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from gradverify.model.case import Budget

LENGTH = 16
ELEMENTS = 3 * (4 * LENGTH) ** 2
HIDDEN = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)


def attention(factor):
    """Causal, saturated: probabilities of 1 beside those of 1e-9. The gradient of the keys is off
    by a factor in the last row."""

    class Attention(Function):
        @staticmethod
        def forward(ctx, q, k, v):
            p = (q @ k.mT).masked_fill(HIDDEN, -math.inf).softmax(-1)
            ctx.save_for_backward(q, k, v, p)
            return p @ v

        @staticmethod
        @once_differentiable
        def backward(ctx, g):
            q, k, v, p = ctx.saved_tensors
            of_p = g @ v.mT
            of_scores = p * (of_p - (of_p * p).sum(-1, keepdim=True))
            rows = torch.where(
                torch.arange(LENGTH) == LENGTH - 1, factor, torch.ones(LENGTH, dtype=q.dtype)
            )[:, None]
            return of_scores @ k, (of_scores * rows).mT @ q, p.mT @ g

    return Attention


def inputs(seed):
    source = torch.Generator().manual_seed(seed)
    return tuple(
        scale * torch.randn(1, LENGTH, 4, generator=source, dtype=torch.float64)
        for scale in (3, 3, 1)
    )


@pytest.mark.population(most=1)
@pytest.mark.parametrize("seed", range(3))
def test_a_saturated_attention_is_decided(seed):
    by_rows = check(attention(1), *inputs(seed), select=("GV0", "GV101"), mode="rows")
    assert by_rows.verdict == "undecided"
    result = check(attention(1), *inputs(seed), select=("GV0", "GV101"))
    assert codes(result) <= {"GV007"}  # how many are left, 1 or 5, is the processor's exp's
    assert sum(each.elements for each in result.comparisons) == ELEMENTS
    assert sum(each.undecided for each in result.comparisons) < ELEMENTS / 1000
    assert check(attention(0.999), *inputs(seed), select=("GV0", "GV101")).verdict == "fail"


def test_a_budget_that_affords_no_elements_leaves_the_lines_open():
    result = check(attention(1), *inputs(0), select=("GV0", "GV101"), budget=Budget(calls=400))
    assert result.verdict == "undecided"
