"""The cause of a gradient that differs from autograd through a reference (GV106): at every size,
and none where there is none to tell."""

from __future__ import annotations

import math

import pytest
import torch
from live import check, fixed, randn
from torch.autograd import Function

from gradverify.model.case import Oracles

K = math.sqrt(2.0 / math.pi)


def plain(x, bias, mask, p):
    return torch.nn.functional.gelu(x + bias, approximate="tanh") * mask / (1 - p)


class Gelu(Function):
    """With bias and dropout; its gradient in another order of operations than torch's own."""

    @staticmethod
    def forward(ctx, x, bias, mask, p):
        z = x + bias
        t = torch.tanh(K * (z + 0.044715 * z**3))
        ctx.save_for_backward(z, t, mask)
        ctx.p = p
        return 0.5 * z * (1 + t) * mask / (1 - p)

    @staticmethod
    def of_z(ctx, g):
        z, t, mask = ctx.saved_tensors
        return g * (0.5 * (1 + t) + 0.5 * z * (1 - t * t) * K * (1 + 3 * 0.044715 * z * z)) * mask

    @classmethod
    def backward(cls, ctx, g):
        of_z = Gelu.of_z(ctx, g) / (1 - ctx.p)
        return of_z, of_z.sum(0), None, None


class Unscaled(Gelu):
    @staticmethod
    def backward(ctx, g):
        of_z = Gelu.of_z(ctx, g)
        return of_z, of_z.sum(0), None, None


class Bent(Gelu):
    """Off by another amount everywhere, which nothing explains."""

    @staticmethod
    def backward(ctx, g):
        of_z = Gelu.of_z(ctx, g) / (1 - ctx.p) + g * 0.1 * torch.sin(
            37 * ctx.saved_tensors[0] ** 2
        ) * torch.cos(11 * ctx.saved_tensors[1])
        return of_z, of_z.sum(0), None, None


def inputs(rows, columns):
    return (
        randn(rows, columns),
        randn(columns, seed=1),
        fixed(torch.ones(rows, columns, dtype=torch.float64)),
        fixed(0.25),
    )


def found(function, rows, columns, **changes):
    return check(
        function, *inputs(rows, columns), oracles=Oracles(reference=f"{__file__}:plain"), **changes
    )


@pytest.mark.population(most=2)
@pytest.mark.parametrize("select", [(), ("GV106",)], ids=["with finite differences", "alone"])
@pytest.mark.parametrize("size", [(2, 3), (4, 5), (8, 9), (16, 12)])
def test_it_is_told_at_every_size(size, select):
    result = found(Unscaled, *size, **({"select": select} if select else {}))
    told = [finding for finding in result.findings if finding.code == "GV106"]
    assert len(told) == 2 and all(
        finding.cause and finding.cause.name == "scaled" for finding in told
    )
    assert all("0.7500 (3/4) × numeric" in finding.cause.detail for finding in told)


def test_a_right_gradient_needs_none_and_what_nothing_explains_has_none():
    # Tanh is saved, and has no second derivative so
    assert {finding.code for finding in found(Gelu, 8, 9).findings} == {"GV109"}
    bent = found(Bent, 4, 5).findings
    assert {finding.code for finding in bent} == {"GV106"} and all(
        finding.cause is None for finding in bent
    )
