"""Right everyday operators as people write and check them in float32, on shapes of use:
hand-written backwards, modules of torch, plain callables.

None of them was fitted to the tool. `make(seed)` draws float32 tensors; integer tensors and flags
are not differentiated.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

Make = Callable[[int], tuple[Any, ...]]


@dataclass(frozen=True)
class Operator:
    name: str
    call: Any
    make: Make


def draws(
    *shapes: tuple[int, ...],
    low: float | None = None,
    scale: float = 1.0,
    dtype: torch.dtype = torch.float32,
) -> Make:
    """Normal tensors of these shapes; above `low` where one is given."""

    def make(seed: int) -> tuple[Tensor, ...]:
        source = torch.Generator().manual_seed(seed)
        drawn = [
            torch.randn(
                shape,
                generator=source,
                dtype=torch.complex128 if dtype.is_complex else torch.float64,
            )
            * scale
            for shape in shapes
        ]
        return tuple((x if low is None else x.abs() + low).to(dtype) for x in drawn)

    return make


def beside(make: Make, *others: Callable[[torch.Generator], Any]) -> Make:
    """Those tensors, and further arguments."""

    def both(seed: int) -> tuple[Any, ...]:
        source = torch.Generator().manual_seed(seed + 1000)
        return (*make(seed), *(other(source) for other in others))

    return both


def labels(rows: int, classes: int) -> Callable[[torch.Generator], Tensor]:
    return lambda source: torch.randint(classes, (rows,), generator=source)


def spd(n: int, batch: int = 1) -> Make:
    def make(seed: int) -> tuple[Tensor, ...]:
        a = torch.randn(
            (batch, n, n), generator=torch.Generator().manual_seed(seed), dtype=torch.float64
        )
        return ((a @ a.mT / n + torch.eye(n, dtype=torch.float64)).float(),)

    return make


# ---- autograd Functions with backwards written by hand
class RMSNorm(Function):
    @staticmethod
    def forward(ctx, x, weight):
        r = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
        ctx.save_for_backward(x, weight, r)
        return x * r * weight

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        x, weight, r = ctx.saved_tensors
        g = grad * weight
        return r * g - r**3 * x * (g * x).mean(-1, keepdim=True), (grad * x * r).reshape(
            -1, x.shape[-1]
        ).sum(0)


class CrossEntropy(Function):
    @staticmethod
    def forward(ctx, logits, target, smoothing):
        logp = logits - torch.logsumexp(logits, -1, keepdim=True)
        truth = (
            F.one_hot(target, logits.shape[-1]).to(logits.dtype) * (1 - smoothing)
            + smoothing / logits.shape[-1]
        )
        ctx.save_for_backward(logp, truth)
        return -(truth * logp).sum(-1).mean()

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        logp, truth = ctx.saved_tensors
        return grad * (logp.exp() - truth) / len(logp), None, None


class FlashAttention(Function):
    """Keys in blocks with a running maximum; backward recomputes the probabilities from the saved
    log-sum-exp."""

    @staticmethod
    def forward(ctx, q, k, v, block):
        scale = q.shape[-1] ** -0.5
        top = q.new_full((*q.shape[:-1], 1), -math.inf)
        total, out = torch.zeros_like(top), torch.zeros_like(q[..., :1] * v[..., :1, :])
        for start in range(0, k.shape[-2], block):
            s = q @ k[..., start : start + block, :].mT * scale
            new = torch.maximum(top, s.amax(-1, keepdim=True))
            p, shrink = (s - new).exp(), (top - new).exp()
            total = shrink * total + p.sum(-1, keepdim=True)
            out = shrink * out + p @ v[..., start : start + block, :]
            top = new
        out = out / total
        ctx.save_for_backward(q, k, v, out, top + total.log())
        ctx.block = block
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        q, k, v, out, lse = ctx.saved_tensors
        scale, delta = q.shape[-1] ** -0.5, (grad * out).sum(-1, keepdim=True)
        gq, gk, gv = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
        for start in range(0, k.shape[-2], ctx.block):
            own = slice(start, start + ctx.block)
            p = (q @ k[..., own, :].mT * scale - lse).exp()
            gv[..., own, :] = p.mT @ grad
            gs = p * (grad @ v[..., own, :].mT - delta) * scale
            gq += gs @ k[..., own, :]
            gk[..., own, :] = gs.mT @ q
        return gq, gk, gv, None


class SwiGLU(Function):
    @staticmethod
    def forward(ctx, x, gate, up, down):
        a, b = x @ gate, x @ up
        ctx.save_for_backward(x, gate, up, down, a, b)
        return (F.silu(a) * b) @ down

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        x, gate, up, down, a, b = ctx.saved_tensors
        s = torch.sigmoid(a)
        gh = grad @ down.mT
        ga, gb = gh * b * s * (1 + a * (1 - s)), gh * a * s
        return ga @ gate.mT + gb @ up.mT, x.mT @ ga, x.mT @ gb, (a * s * b).mT @ grad


class SelectiveScan(Function):
    """h ← exp(Δ A) h + Δ B x, y = C h, as in state-space models; backward runs the recurrence in
    reverse."""

    @staticmethod
    def forward(ctx, x, delta, a, b, c):
        decay, h, states, ys = torch.exp(delta[..., None] * a), torch.zeros_like(a), [], []
        for t in range(len(x)):
            h = decay[t] * h + delta[t, :, None] * b[t] * x[t, :, None]
            states.append(h)
            ys.append((h * c[t]).sum(-1))
        ctx.save_for_backward(x, delta, a, b, c, torch.stack(states))
        return torch.stack(ys)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        x, delta, a, b, c, states = ctx.saved_tensors
        gx, gd, ga, gb, gc = (torch.zeros_like(z) for z in (x, delta, a, b, c))
        carry = torch.zeros_like(a)
        for t in reversed(range(len(x))):
            gc[t] = (grad[t, :, None] * states[t]).sum(0)
            gh = carry + grad[t, :, None] * c[t]
            before = states[t - 1] if t else torch.zeros_like(a)
            decay = torch.exp(delta[t, :, None] * a)
            gx[t] = (gh * delta[t, :, None] * b[t]).sum(-1)
            gd[t] = (gh * (decay * a * before + b[t] * x[t, :, None])).sum(-1)
            ga += gh * decay * delta[t, :, None] * before
            gb[t] = (gh * delta[t, :, None] * x[t, :, None]).sum(0)
            carry = decay * gh
        return gx, gd, ga, gb, gc


class Cholesky(Function):
    """Of a symmetric matrix of which both triangles are read (Murray, arXiv:1602.07527)."""

    @staticmethod
    def forward(ctx, a):
        low = torch.linalg.cholesky((a + a.mT) / 2)
        ctx.save_for_backward(low)
        return low

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        (low,) = ctx.saved_tensors
        phi = (low.mT @ grad.tril()).tril()
        phi.diagonal(dim1=-2, dim2=-1).mul_(0.5)
        middle = torch.linalg.solve_triangular(low.mT, phi, upper=True)
        s = torch.linalg.solve_triangular(low.mT, middle.mT, upper=True)
        return (s + s.mT) / 2


class FFTConvolution(Function):
    @staticmethod
    def forward(ctx, x, kernel):
        ctx.n = x.shape[-1] + kernel.shape[-1]
        fx, fk = torch.fft.rfft(x, ctx.n), torch.fft.rfft(kernel, ctx.n)
        ctx.save_for_backward(fx, fk)
        ctx.sizes = x.shape[-1], kernel.shape[-1]
        return torch.fft.irfft(fx * fk, ctx.n)[..., : x.shape[-1]]

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        fx, fk = ctx.saved_tensors
        g = torch.fft.rfft(grad, ctx.n)
        gx = torch.fft.irfft(g * fk.conj(), ctx.n)[..., : ctx.sizes[0]]
        gk = torch.fft.irfft(g * fx.conj(), ctx.n)[..., : ctx.sizes[1]]
        return gx, gk.sum(0)


class LSTMCell(Function):
    @staticmethod
    def forward(ctx, gates, c):
        i, f, g, o = gates.chunk(4, -1)
        i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
        new = f * c + i * g
        ctx.save_for_backward(i, f, g, o, c, new)
        return o * new.tanh(), new

    @staticmethod
    @once_differentiable
    def backward(ctx, gh, gc):
        i, f, g, o, c, new = ctx.saved_tensors
        t = new.tanh()
        gc = gc + gh * o * (1 - t * t)
        parts = (
            gc * g * i * (1 - i),
            gc * c * f * (1 - f),
            gc * i * (1 - g * g),
            gh * t * o * (1 - o),
        )
        return torch.cat(parts, -1), gc * f


class SVDValues(Function):
    @staticmethod
    def forward(ctx, a):
        u, s, vh = torch.linalg.svd(a, full_matrices=False)
        ctx.save_for_backward(u, vh)
        return s

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        u, vh = ctx.saved_tensors
        return (u * grad[..., None, :]) @ vh


FUNCTIONS = (
    Operator("RMSNorm", RMSNorm, draws((5, 33), (33,))),
    Operator("CrossEntropy", CrossEntropy, beside(draws((6, 10)), labels(6, 10), lambda _: 0.1)),
    Operator(
        "FlashAttention",
        FlashAttention,
        beside(draws((2, 5, 6), (2, 8, 6), (2, 8, 4)), lambda _: 3),
    ),
    Operator("SwiGLU", SwiGLU, draws((4, 6), (6, 8), (6, 8), (8, 6))),
    Operator(
        "SelectiveScan",
        SelectiveScan,
        lambda seed: (
            *draws((9, 3))(seed),
            *draws((9, 3), low=0.1, scale=0.3)(seed + 1),
            -draws((3, 4), low=0.3)(seed + 2)[0],
            *draws((9, 4), (9, 4))(seed + 3),
        ),
    ),
    Operator("Cholesky", Cholesky, spd(6)),
    Operator("FFTConvolution", FFTConvolution, draws((3, 20), (6,))),
    Operator("LSTMCell", LSTMCell, draws((3, 20), (3, 5))),
    Operator("SVDValues", SVDValues, draws((5, 4))),
)


# ---- plain callables of torch's operators
def lstm(x: Tensor, wx: Tensor, wh: Tensor) -> Tensor:
    h = c = torch.zeros(x.shape[1], wh.shape[0], dtype=x.dtype)
    for step in x:
        i, f, g, o = (step @ wx + h @ wh).chunk(4, -1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
    return h


def info_nce(a: Tensor, b: Tensor) -> Tensor:
    logits = F.normalize(a, dim=-1) @ F.normalize(b, dim=-1).mT / 0.1
    return F.cross_entropy(logits, torch.arange(len(a)))


def alibi(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    n = q.shape[-2]
    place = torch.arange(n)
    bias = -0.5 * (place[:, None] - place).abs().to(q.dtype)
    future = torch.ones(n, n, dtype=torch.bool).triu(1)
    return (q @ k.mT / math.sqrt(q.shape[-1]) + bias).masked_fill(future, -math.inf).softmax(-1) @ v


def mixture(x: Tensor, mean: Tensor, log_scale: Tensor, weight: Tensor) -> Tensor:
    z = (x[:, None] - mean) / log_scale.exp()
    return torch.logsumexp(
        torch.log_softmax(weight, 0) - 0.5 * z * z - log_scale - 0.9189385332046727, -1
    )


def grid(source: torch.Generator) -> Tensor:
    return torch.rand((1, 3, 4, 2), generator=source) * 1.6 - 0.8


PLAIN = (
    Operator(
        "batch_norm",
        lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True),
        draws((6, 3, 4), (3,), (3,)),
    ),
    Operator("alibi attention", alibi, draws((2, 6, 4), (2, 6, 4), (2, 6, 4))),
    Operator("lstm", lstm, draws((12, 2, 3), (3, 16), (4, 16))),
    Operator("qr", torch.linalg.qr, draws((6, 4))),
    Operator("matrix_exp", lambda a: torch.linalg.matrix_exp(a / 3), draws((5, 5))),
    Operator("max_pool2d", lambda x: F.max_pool2d(x, 2), draws((2, 2, 6, 6))),
    Operator("softmax at temperature", lambda x: (x / 0.2).softmax(-1), draws((6, 12))),
    Operator("p-norm distance", lambda x, y: torch.cdist(x, y, p=2.0), draws((5, 4), (6, 4))),
    Operator(
        "scatter_add",
        lambda x, i: torch.zeros(4, 5, dtype=x.dtype).scatter_add(1, i, x.exp()),
        beside(draws((4, 8)), lambda source: torch.randint(5, (4, 8), generator=source)),
    ),
    Operator("logcumsumexp", lambda x: x.logcumsumexp(-1), draws((4, 16))),
    Operator("info nce", info_nce, draws((6, 10), (6, 10))),
    Operator("mixture likelihood", mixture, draws((10,), (3,), (3,), (3,))),
    Operator(
        "grid_sample",
        lambda x, g: F.grid_sample(x, g, align_corners=False),
        beside(draws((1, 2, 6, 6)), grid),
    ),
    Operator(
        "complex rotation",
        lambda z, w: (z @ w).abs().square().sum(-1),
        draws((3, 4), (4, 4), dtype=torch.complex64),
    ),
)

OPERATORS = (*FUNCTIONS, *PLAIN)
