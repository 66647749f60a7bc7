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


class Scaled(Function):
    """x, with a gradient times `factor`."""

    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        return ctx.factor * g, None


class Residual(torch.nn.Module):
    """x + 1e-6 · MLP(LayerNorm(x)), as a new block with a layer scale begins; `factor` is on the
    gradient of the MLP."""

    def __init__(self, seed, factor):
        super().__init__()
        torch.manual_seed(seed)
        layers = torch.nn.LayerNorm(6), torch.nn.Linear(6, 12), torch.nn.GELU()
        self.branch = torch.nn.Sequential(*layers, torch.nn.Linear(12, 6)).double()
        self.scale = torch.nn.Parameter(torch.full((6,), 1e-6, dtype=torch.float64))
        self.factor = factor

    def forward(self, x):
        return x + self.scale * Scaled.apply(self.branch(x), self.factor)


@pytest.mark.parametrize("mode", ["rows", "blocks"])
@pytest.mark.parametrize("seed", range(2))
def test_a_branch_that_hardly_matters_is_decided_as_its_elements_are(seed, mode):
    """Rounding of x hides of its parameters what an element may be off by, and not less."""
    x = torch.randn(4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    chosen = {"select": ("GV007", "GV101", "GV111"), "mode": mode}
    assert check(Residual(seed, 1.0), x, **chosen).verdict == "pass"
    assert codes(check(Residual(seed, 1.001), x, **chosen)) >= {"GV111"}
