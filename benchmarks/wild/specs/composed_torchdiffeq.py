"""The gradients of torchdiffeq: by the adjoint equation, at the time of an event, and within a
step."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torchdiffeq import odeint, odeint_adjoint, odeint_event

EXACT = {"rtol": 1e-11, "atol": 1e-12}


class _Field(nn.Module):
    def __init__(self, w: Tensor) -> None:
        super().__init__()
        self.w = w

    def forward(self, t: Tensor, x: Tensor) -> Tensor:
        return torch.tanh(x @ self.w) + t


def adjoint(x: Tensor, w: Tensor) -> Tensor:
    end: Tensor = odeint_adjoint(
        _Field(w), x, torch.tensor([0.0, 0.5], dtype=x.dtype), adjoint_params=(w,), **EXACT
    )[-1]
    return end


def adjoint_of_time(x: Tensor, t: Tensor) -> Tensor:
    field = _Field(torch.eye(2, dtype=x.dtype))
    end: Tensor = odeint_adjoint(
        field, x, torch.stack([torch.zeros_like(t), t]), adjoint_params=(), **EXACT
    )[-1]
    return end


def within(x: Tensor, w: Tensor) -> Tensor:
    end: Tensor = odeint(_Field(w), x, torch.tensor([0.0, 0.3, 0.5], dtype=x.dtype), **EXACT)
    return end


def event(x: Tensor) -> tuple[Tensor, Tensor]:
    """When, and where, a falling body meets the ground."""
    time, states = odeint_event(
        lambda t, x: torch.stack([x[1], -torch.ones_like(x[1])]),
        x,
        torch.zeros((), dtype=x.dtype),
        event_fn=lambda t, x: x[0],
        **EXACT,
    )
    return time, states[-1]
