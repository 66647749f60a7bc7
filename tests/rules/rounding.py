"""Right functions that lose digits: large numbers that cancel, a part that is computed in float32.
`read` is how each gets an argument's numbers, and `read_g` how backward gets grad_output's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn.functional import silu, softplus

Read = Callable[[Tensor], Tensor]


def as_it_is(x: Tensor) -> Tensor:
    return x


def as_contiguous(x: Tensor) -> Tensor:
    """The numbers of another tensor, where x is not."""
    return x.as_strided(x.shape, torch.empty(x.shape, device="meta").stride())


def function(
    forward: Callable[..., Tensor], backward: Callable[..., Any]
) -> Callable[[Read, Read], type[Function]]:
    def made(read: Read = as_it_is, read_g: Read = as_it_is) -> type[Function]:
        class Made(Function):
            @staticmethod
            def forward(ctx: Any, *inputs: Tensor) -> Tensor:
                ctx.save_for_backward(*inputs)
                return forward(*map(read, inputs))

            @staticmethod
            def backward(ctx: Any, g: Tensor) -> Any:
                return backward(read_g(g), *ctx.saved_tensors)

        return Made

    return made


def _of_attention(g: Tensor, x: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Any:
    p, g32 = torch.softmax(q.float() @ k.float().T, -1), g.float()
    of_p = g32 @ v.float().T
    of_s = p * (of_p - (p * of_p).sum(-1, keepdim=True))
    return (
        g,
        (of_s @ k.float()).to(q.dtype),
        (of_s.T @ q.float()).to(k.dtype),
        (p.T @ g32).to(v.dtype),
    )


def _of_branch(g: Tensor, x: Tensor, w: Tensor) -> Any:
    z = x.float() @ w.float()
    s = torch.sigmoid(z)
    d = g.float() * s * (1 + z * (1 - s))
    return g + (d @ w.float().T).to(x.dtype), (x.float().T @ d).to(w.dtype)


def _distances(a: Tensor, b: Tensor) -> Tensor:
    return a.square().sum(-1)[:, None] + b.square().sum(-1)[None] - 2 * a @ b.T


centred = function(
    lambda x: x - x.float().mean(0).to(x.dtype), lambda g, x: g - g.float().mean(0).to(g.dtype)
)
biased = function(
    lambda x, w, b: (x.float() @ w.float().T).to(b.dtype) + b,
    lambda g, x, w, b: (
        (g.float() @ w.float()).to(x.dtype),
        (g.float().T @ x.float()).to(w.dtype),
        g.sum(0),
    ),
)
attention = function(
    lambda x, q, k, v: x + (torch.softmax(q.float() @ k.float().T, -1) @ v.float()).to(x.dtype),
    _of_attention,
)
branch = function(lambda x, w: x + silu(x.float() @ w.float()).to(x.dtype), _of_branch)
loss = function(
    lambda x: softplus(x.float()).mean().to(x.dtype),
    lambda g, x: (g.float() * torch.sigmoid(x.float()) / x.numel()).to(x.dtype),
)
distances = function(
    _distances,
    lambda g, a, b: (2 * (g.sum(1)[:, None] * a - g @ b), 2 * (g.sum(0)[:, None] * b - g.T @ a)),
)
variance = function(
    lambda x: (x * x).mean(-1) - x.mean(-1).square(),
    lambda g, x: 2 * g[:, None] * (x - x.mean(-1, keepdim=True)) / x.shape[-1],
)
