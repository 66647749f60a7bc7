"""What the gradients of quantisers are meant to be derivatives of."""

from __future__ import annotations

from torch import Tensor


def first(x: Tensor, *others: object) -> Tensor:
    """The identity of a number that is rounded."""
    return x.clone()


def clamped(x: Tensor, max_spike_count: int, grad_min: float, grad_max: float) -> Tensor:
    return x.clamp(grad_min, grad_max)


def super_spike(x: Tensor, alpha: float) -> Tensor:
    return alpha * x / (1 + x.abs())


def sigmoid(x: Tensor, alpha: float, surrogate_id: int) -> Tensor:
    return (alpha * x).sigmoid()


def both(x: Tensor, x_r: Tensor) -> Tensor:
    """A gradient for what is replaced, and one for what replaces it."""
    return x + x_r


def decayed(data: Tensor, dash: Tensor, tau: Tensor) -> Tensor:
    """What a shift of bits approximates."""
    return data * tau
