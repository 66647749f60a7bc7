"""Scaled dot-product attention with a backward by its formulas, right or with a mistake in some
dtypes."""

import torch

from gradverify.numerics.function.coordinates import DOUBLE


def probabilities(q, k, causal):
    scores = q @ k.mT / k.shape[-1] ** 0.5
    if causal:
        scores = scores.masked_fill(
            torch.ones(len(q), len(q), dtype=torch.bool).triu(1), -torch.inf
        )
    return scores.softmax(-1)


def attention(damage="", causal=False, dtypes=(*DOUBLE, torch.float32), bend=None):
    """`bend`: what backward makes of grad_output first."""

    class Attention(torch.autograd.Function):
        @staticmethod
        def forward(ctx, q, k, v):
            ctx.save_for_backward(q, k, v)
            return probabilities(q, k, causal) @ v

        @staticmethod
        def backward(ctx, grad):
            q, k, v = ctx.saved_tensors
            grad = bend(grad) if bend else grad
            does = damage if grad.dtype in dtypes else ""
            scale = k.shape[-1] ** -0.5
            p = probabilities(q, k, causal)
            gp = grad @ v.mT
            total = 0 if does == "dropped" else (p * gp).sum(-1, keepdim=True)
            gs = (
                p
                * (gp - total)
                * scale
                * {"sign": -1, "twice": 2, "one per cent": 1.01}.get(does, 1)
            )
            return (gs.mT if does == "transposed" else gs) @ k, gs.mT @ q, p.mT @ grad

    return Attention
