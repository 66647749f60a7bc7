"""Modules in training whose forward updates buffers and reads them: judged where these are at rest,
at every point.

The class: a state that follows the parameters (power iterations of spectral norm). Its backward
takes it as a constant, which is right at rest. Others stay as they are: statistics that only
evaluation reads, counters, modules in evaluation.
"""

from __future__ import annotations

import pytest
import torch
from live import check, codes, randn, subject
from torch import nn
from torch.autograd import Function
from torch.nn.utils import parametrizations, spectral_norm

X = randn(2, 6)


class Divided(Function):
    """w / σ for its largest singular value σ = uᵀ w v; `factor` is that of one of the two terms of
    the gradient, 1 where it is right."""

    factor = 1.0

    @staticmethod
    def forward(ctx, w, u, v):
        sigma = u @ w @ v
        ctx.save_for_backward(w, u, v, sigma)
        return w / sigma

    @staticmethod
    def backward(ctx, grad_output):
        w, u, v, sigma = ctx.saved_tensors
        return (
            grad_output / sigma
            - Divided.factor * (grad_output * w).sum() / sigma**2 * torch.outer(u, v),
            None,
            None,
        )


class Own(nn.Module):
    """Spectral norm by hand: u is replaced in every forward."""

    def __init__(self, in_place=True):
        super().__init__()
        self.w = nn.Parameter(torch.randn(4, 6))
        self.register_buffer("u", torch.randn(4))
        self.in_place = in_place

    def forward(self, x):
        with torch.no_grad():
            v = nn.functional.normalize(self.w.T @ self.u, dim=0)
            u = nn.functional.normalize(self.w @ v, dim=0)
            self.u = self.u.copy_(u) if self.in_place else u
        return x @ Divided.apply(self.w, u, v).T


def modern():
    return parametrizations.spectral_norm(nn.Linear(6, 4))


def legacy():
    return spectral_norm(nn.Linear(6, 4))


def two():
    return nn.Sequential(modern(), nn.Tanh(), parametrizations.spectral_norm(nn.Linear(4, 3)))


@pytest.mark.parametrize("make", [modern, legacy, two, Own, lambda: Own(in_place=False)])
def test_spectral_norm_in_training_is_right(make):
    torch.manual_seed(0)
    found = check(make(), X, second_order=False)
    assert (found.verdict, codes(found)) == ("pass", set())
    assert {run.code: run.status for run in found.rules}["GV113"] == "ran"


@pytest.mark.parametrize("in_place", [True, False])
def test_a_wrong_gradient_of_it_is_found(in_place, monkeypatch):
    torch.manual_seed(0)
    monkeypatch.setattr(Divided, "factor", 1.01)
    assert "GV111" in codes(check(Own(in_place), X))


class Fixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.ones(6))

    def forward(self, x):
        return x * self.mean


@pytest.mark.parametrize(
    ("make", "calls"),
    [
        (lambda: nn.BatchNorm1d(6), 2),
        (lambda: nn.BatchNorm1d(6).eval(), 0),
        (Fixed, 1),
        (lambda: nn.Linear(6, 4), 0),
        (lambda: modern().eval(), 0),
    ],
)
def test_what_needs_no_rest_costs_next_to_nothing(make, calls):
    found = subject(make(), X)
    found.called(found.inputs)
    assert found.calls.forward == 1 + calls
