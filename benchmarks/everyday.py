"""Ordinary Functions as people write them, all right: what the benchmark of small inputs checks
under all rules."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function


class SwiGLU(Function):
    """silu(gate) · x"""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, x: Tensor) -> Tensor:
        ctx.save_for_backward(gate, x)
        return gate * torch.sigmoid(gate) * x

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor]:
        gate, x = ctx.saved_tensors
        s = torch.sigmoid(gate)
        return grad_output * x * s * (1 + gate * (1 - s)), grad_output * gate * s


class RMSNorm(Function):
    """weight · x / √(mean x² + ε) over the last dimension"""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
        normal, own = x * scale, grad_output * weight
        return scale * (own - normal * (own * normal).mean(-1, keepdim=True)), (
            grad_output * normal
        ).sum(0)


class CrossEntropy(Function):
    """Mean of log Σ exp − the target's logit"""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor) -> Tensor:
        ctx.save_for_backward(logits, target)
        return (logits.logsumexp(1) - logits.gather(1, target[:, None])[:, 0]).mean()

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None]:
        logits, target = ctx.saved_tensors
        own = torch.nn.functional.one_hot(target, logits.shape[1])
        return grad_output * (torch.softmax(logits, 1) - own) / len(target), None


class Linear(Function):
    """x W + b"""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return x @ weight + bias

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        return grad_output @ weight.T, x.T @ grad_output, grad_output.sum(0)


class Attention(Function):
    """softmax(q kᵀ / √d) v"""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        ctx.save_for_backward(q, k, v)
        return torch.softmax(q @ k.mT * q.shape[-1] ** -0.5, -1) @ v

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = ctx.saved_tensors
        scale = q.shape[-1] ** -0.5
        p, grad_p = torch.softmax(q @ k.mT * scale, -1), grad_output @ v.mT
        grad_scores = p * (grad_p - (grad_p * p).sum(-1, keepdim=True)) * scale
        return grad_scores @ k, grad_scores.mT @ q, p.mT @ grad_output
