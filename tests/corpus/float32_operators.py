"""Right everyday operators as people write and check them in float32, on shapes of use: hand-written backwards, modules of torch, plain callables.

None of them was fitted to the tool. `make(seed)` draws float32 tensors; integer tensors and flags are not differentiated.
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


def draws(*shapes: tuple[int, ...], low: float | None = None, scale: float = 1.0, dtype: torch.dtype = torch.float32) -> Make:
    """Normal tensors of these shapes; above `low` where one is given."""
    def make(seed: int) -> tuple[Tensor, ...]:
        source = torch.Generator().manual_seed(seed)
        drawn = [torch.randn(shape, generator=source, dtype=torch.complex128 if dtype.is_complex else torch.float64) * scale for shape in shapes]
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
        a = torch.randn((batch, n, n), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        return ((a @ a.mT / n + torch.eye(n, dtype=torch.float64)).float(),)
    return make


def triangular(n: int, k: int) -> Make:
    def make(seed: int) -> tuple[Tensor, ...]:
        source = torch.Generator().manual_seed(seed)
        low = torch.randn((n, n), generator=source).tril(-1) / 2 + torch.diag(1 + torch.rand(n, generator=source))
        return low, torch.randn((n, k), generator=source)
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
        return r * g - r**3 * x * (g * x).mean(-1, keepdim=True), (grad * x * r).reshape(-1, x.shape[-1]).sum(0)


class LayerNorm(Function):
    @staticmethod
    def forward(ctx, x, weight, bias):
        mean, var = x.mean(-1, keepdim=True), x.var(-1, keepdim=True, unbiased=False)
        r = torch.rsqrt(var + 1e-5)
        ctx.save_for_backward((x - mean) * r, r, weight)
        return (x - mean) * r * weight + bias

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        n, r, weight = ctx.saved_tensors
        g = grad * weight
        gx = r * (g - g.mean(-1, keepdim=True) - n * (g * n).mean(-1, keepdim=True))
        return gx, (grad * n).reshape(-1, n.shape[-1]).sum(0), grad.reshape(-1, n.shape[-1]).sum(0)


class GroupNorm(Function):
    @staticmethod
    def forward(ctx, x, weight, bias, groups):
        n = len(x)
        y = x.reshape(n, groups, -1)
        r = torch.rsqrt(y.var(-1, keepdim=True, unbiased=False) + 1e-5)
        hat = ((y - y.mean(-1, keepdim=True)) * r).reshape(x.shape)
        ctx.save_for_backward(hat, r, weight)
        ctx.groups = groups
        return hat * weight[:, None, None] + bias[:, None, None]

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        hat, r, weight = ctx.saved_tensors
        g, h = ((grad * weight[:, None, None]).reshape(len(grad), ctx.groups, -1), hat.reshape(len(grad), ctx.groups, -1))
        gx = r * (g - g.mean(-1, keepdim=True) - h * (g * h).mean(-1, keepdim=True))
        return gx.reshape(grad.shape), (grad * hat).sum((0, 2, 3)), grad.sum((0, 2, 3)), None


class CrossEntropy(Function):
    @staticmethod
    def forward(ctx, logits, target, smoothing):
        logp = logits - torch.logsumexp(logits, -1, keepdim=True)
        truth = F.one_hot(target, logits.shape[-1]).to(logits.dtype) * (1 - smoothing) + smoothing / logits.shape[-1]
        ctx.save_for_backward(logp, truth)
        return -(truth * logp).sum(-1).mean()

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        logp, truth = ctx.saved_tensors
        return grad * (logp.exp() - truth) / len(logp), None, None


class Rotary(Function):
    """RoPE on the halves of the last axis."""

    @staticmethod
    def tables(x):
        half = x.shape[-1] // 2
        frequency = 10000.0 ** (-torch.arange(half, dtype=x.dtype) / half)
        angle = torch.arange(x.shape[-2], dtype=x.dtype)[:, None] * frequency
        return angle.cos(), angle.sin()

    @staticmethod
    def forward(ctx, x):
        cos, sin = Rotary.tables(x)
        ctx.save_for_backward(cos, sin)
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    @staticmethod
    def backward(ctx, grad):
        cos, sin = ctx.saved_tensors
        a, b = grad.chunk(2, -1)
        return torch.cat([a * cos + b * sin, b * cos - a * sin], -1)


class Attention(Function):
    @staticmethod
    def forward(ctx, q, k, v):
        p = torch.softmax(q @ k.mT / math.sqrt(q.shape[-1]), -1)
        ctx.save_for_backward(q, k, v, p)
        return p @ v

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        q, k, v, p = ctx.saved_tensors
        gp = grad @ v.mT
        gs = p * (gp - (gp * p).sum(-1, keepdim=True)) / math.sqrt(q.shape[-1])
        return gs @ k, gs.mT @ q, p.mT @ grad


class FlashAttention(Function):
    """Keys in blocks with a running maximum; backward recomputes the probabilities from the saved log-sum-exp."""

    @staticmethod
    def forward(ctx, q, k, v, block):
        scale = q.shape[-1] ** -0.5
        top = q.new_full((*q.shape[:-1], 1), -math.inf)
        total, out = torch.zeros_like(top), torch.zeros_like(q[..., :1] * v[..., :1, :])
        for start in range(0, k.shape[-2], block):
            s = q @ k[..., start:start + block, :].mT * scale
            new = torch.maximum(top, s.amax(-1, keepdim=True))
            p, shrink = (s - new).exp(), (top - new).exp()
            total, out, top = shrink * total + p.sum(-1, keepdim=True), shrink * out + p @ v[..., start:start + block, :], new
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


class Gelu(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))

    @staticmethod
    def backward(ctx, grad):
        x, = ctx.saved_tensors
        t = torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))
        return grad * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x**2))


class Silu(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, grad):
        x, = ctx.saved_tensors
        s = torch.sigmoid(x)
        return grad * s * (1 + x * (1 - s))


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
    """h ← exp(Δ A) h + Δ B x, y = C h, as in state-space models; backward runs the recurrence in reverse."""

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
        low, = ctx.saved_tensors
        phi = (low.mT @ grad.tril()).tril()
        phi.diagonal(dim1=-2, dim2=-1).mul_(0.5)
        middle = torch.linalg.solve_triangular(low.mT, phi, upper=True)
        s = torch.linalg.solve_triangular(low.mT, middle.mT, upper=True)
        return (s + s.mT) / 2


class TriangularSolve(Function):
    @staticmethod
    def forward(ctx, low, b):
        x = torch.linalg.solve_triangular(low.tril(), b, upper=False)
        ctx.save_for_backward(low, x)
        return x

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        low, x = ctx.saved_tensors
        gb = torch.linalg.solve_triangular(low.tril().mT, grad, upper=True)
        return -(gb @ x.mT).tril(), gb


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


class Conv1d(Function):
    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.save_for_backward(x, weight)
        windows = x.unfold(-1, weight.shape[-1], 1)
        return torch.einsum("nctk,ock->not", windows, weight) + bias[:, None]

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        windows = x.unfold(-1, weight.shape[-1], 1)
        gx = torch.zeros_like(x)
        for k in range(weight.shape[-1]):
            gx[..., k:k + grad.shape[-1]] += torch.einsum("not,oc->nct", grad, weight[..., k])
        return gx, torch.einsum("not,nctk->ock", grad, windows), grad.sum((0, 2))


class LogSumExp(Function):
    @staticmethod
    def forward(ctx, x):
        top = x.amax(-1, keepdim=True)
        y = (x - top).exp().sum(-1, keepdim=True).log() + top
        ctx.save_for_backward(x, y)
        return y.squeeze(-1)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        x, y = ctx.saved_tensors
        return grad[..., None] * (x - y).exp()


class Embedding(Function):
    @staticmethod
    def forward(ctx, table, index):
        ctx.save_for_backward(index)
        ctx.shape = table.shape
        return table[index]

    @staticmethod
    def backward(ctx, grad):
        index, = ctx.saved_tensors
        return grad.new_zeros(ctx.shape).index_add(0, index.reshape(-1), grad.reshape(-1, ctx.shape[-1])), None


class Cumprod(Function):
    @staticmethod
    def forward(ctx, x):
        y = x.cumprod(-1)
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx, grad):
        x, y = ctx.saved_tensors
        return (grad * y).flip(-1).cumsum(-1).flip(-1) / x


class BCEWithLogits(Function):
    @staticmethod
    def forward(ctx, x, target):
        ctx.save_for_backward(x, target)
        return (x.clamp_min(0) - x * target + torch.log1p((-x.abs()).exp())).mean()

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        x, target = ctx.saved_tensors
        return grad * (torch.sigmoid(x) - target) / x.numel(), -grad * x / x.numel()


class Huber(Function):
    @staticmethod
    def forward(ctx, x, y):
        d = x - y
        ctx.save_for_backward(d)
        return torch.where(d.abs() < 1, 0.5 * d * d, d.abs() - 0.5).mean()

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        d, = ctx.saved_tensors
        g = grad * d.clamp(-1, 1) / d.numel()
        return g, -g


class Cosine(Function):
    @staticmethod
    def forward(ctx, x, y):
        nx, ny = x.norm(dim=-1, keepdim=True), y.norm(dim=-1, keepdim=True)
        c = (x * y).sum(-1, keepdim=True) / (nx * ny)
        ctx.save_for_backward(x, y, nx, ny, c)
        return c.squeeze(-1)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        x, y, nx, ny, c = ctx.saved_tensors
        g = grad[..., None]
        return g * (y / (nx * ny) - c * x / nx**2), g * (x / (nx * ny) - c * y / ny**2)


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
        parts = gc * g * i * (1 - i), gc * c * f * (1 - f), gc * i * (1 - g * g), gh * t * o * (1 - o)
        return torch.cat(parts, -1), gc * f


class Linear(Function):
    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.save_for_backward(x, weight)
        return x @ weight.mT + bias

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        return grad @ weight, grad.mT @ x, grad.sum(0)


class BatchNorm(Function):
    @staticmethod
    def forward(ctx, x, weight, bias):
        r = torch.rsqrt(x.var(0, unbiased=False) + 1e-5)
        hat = (x - x.mean(0)) * r
        ctx.save_for_backward(hat, r, weight)
        return hat * weight + bias

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        hat, r, weight = ctx.saved_tensors
        g = grad * weight
        return r * (g - g.mean(0) - hat * (g * hat).mean(0)), (grad * hat).sum(0), grad.sum(0)


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
    Operator("LayerNorm", LayerNorm, draws((4, 24), (24,), (24,))),
    Operator("GroupNorm", GroupNorm, beside(draws((2, 6, 3, 3), (6,), (6,)), lambda _: 3)),
    Operator("BatchNorm", BatchNorm, draws((12, 5), (5,), (5,))),
    Operator("CrossEntropy", CrossEntropy, beside(draws((6, 10)), labels(6, 10), lambda _: 0.0)),
    Operator("CrossEntropy, smoothed", CrossEntropy, beside(draws((6, 10)), labels(6, 10), lambda _: 0.1)),
    Operator("Rotary", Rotary, draws((2, 7, 8))),
    Operator("Attention", Attention, draws((2, 5, 6), (2, 7, 6), (2, 7, 4))),
    Operator("FlashAttention", FlashAttention, beside(draws((2, 5, 6), (2, 8, 6), (2, 8, 4)), lambda _: 3)),
    Operator("Gelu", Gelu, draws((4, 16))),
    Operator("Silu", Silu, draws((4, 16))),
    Operator("SwiGLU", SwiGLU, draws((4, 6), (6, 8), (6, 8), (8, 6))),
    Operator("SelectiveScan", SelectiveScan, lambda seed: (
        *draws((9, 3))(seed), *draws((9, 3), low=0.1, scale=0.3)(seed + 1), -draws((3, 4), low=0.3)(seed + 2)[0], *draws((9, 4), (9, 4))(seed + 3))),
    Operator("Cholesky", Cholesky, spd(6)),
    Operator("TriangularSolve", TriangularSolve, triangular(7, 3)),
    Operator("FFTConvolution", FFTConvolution, draws((3, 20), (6,))),
    Operator("Conv1d", Conv1d, draws((2, 3, 10), (4, 3, 3), (4,))),
    Operator("LogSumExp", LogSumExp, draws((5, 12))),
    Operator("Embedding", Embedding, beside(draws((9, 4)), labels(12, 9))),
    Operator("Cumprod", Cumprod, draws((3, 8), low=0.4)),
    Operator("BCEWithLogits", BCEWithLogits, lambda seed: (*draws((8, 3))(seed), torch.sigmoid(draws((8, 3))(seed + 1)[0]))),
    Operator("Huber", Huber, draws((6, 5), (6, 5))),
    Operator("Cosine", Cosine, draws((6, 12), (6, 12))),
    Operator("LSTMCell", LSTMCell, draws((3, 20), (3, 5))),
    Operator("Linear", Linear, draws((6, 11), (9, 11), (9,))),
    Operator("SVDValues", SVDValues, draws((5, 4))))


# ---- plain callables of torch's operators
def gru(x: Tensor, h: Tensor, wx: Tensor, wh: Tensor, b: Tensor) -> Tensor:
    for step in x:
        a, c = step @ wx + b, h @ wh
        r, z = torch.sigmoid(a[:, :4] + c[:, :4]), torch.sigmoid(a[:, 4:8] + c[:, 4:8])
        n = torch.tanh(a[:, 8:] + r * c[:, 8:])
        h = (1 - z) * n + z * h
    return h


def lstm(x: Tensor, wx: Tensor, wh: Tensor) -> Tensor:
    h = c = torch.zeros(x.shape[1], wh.shape[0], dtype=x.dtype)
    for step in x:
        i, f, g, o = (step @ wx + h @ wh).chunk(4, -1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
    return h


def spectral(x: Tensor, w: Tensor) -> Tensor:
    """A layer of a Fourier neural operator: the lowest modes times complex weights."""
    f = torch.fft.rfft(x)
    kept = torch.einsum("ncm,com->nom", f[..., : w.shape[-2]], torch.view_as_complex(w))
    return torch.fft.irfft(kept, x.shape[-1])


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
    return torch.logsumexp(torch.log_softmax(weight, 0) - 0.5 * z * z - log_scale - 0.9189385332046727, -1)


def grid(source: torch.Generator) -> Tensor:
    return torch.rand((1, 3, 4, 2), generator=source) * 1.6 - 0.8


def kl_gaussians(m1: Tensor, s1: Tensor, m2: Tensor, s2: Tensor) -> Tensor:
    return (s2.log() - s1.log() + (s1**2 + (m1 - m2) ** 2) / (2 * s2**2) - 0.5).sum(-1)


PLAIN = (
    Operator("rms_norm", lambda x, w: F.rms_norm(x, (33,), w), draws((5, 33), (33,))),
    Operator("layer_norm", lambda x, w, b: F.layer_norm(x, (16,), w, b), draws((4, 16), (16,), (16,))),
    Operator("group_norm", lambda x: F.group_norm(x, 2), draws((2, 4, 3, 3))),
    Operator("batch_norm", lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True), draws((6, 3, 4), (3,), (3,))),
    Operator("instance_norm", F.instance_norm, draws((2, 3, 7))),
    Operator("cross_entropy", F.cross_entropy, beside(draws((8, 12)), labels(8, 12))),
    Operator("label smoothing", lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1), beside(draws((8, 12)), labels(8, 12))),
    Operator("scaled_dot_product_attention", F.scaled_dot_product_attention, draws((1, 2, 5, 4), (1, 2, 6, 4), (1, 2, 6, 4))),
    Operator("alibi attention", alibi, draws((2, 6, 4), (2, 6, 4), (2, 6, 4))),
    Operator("gru", gru, draws((4, 2, 3), (2, 4), (3, 12), (4, 12), (12,))),
    Operator("lstm", lstm, draws((12, 2, 3), (3, 16), (4, 16))),
    Operator("cholesky", lambda a: torch.linalg.cholesky((a + a.mT) / 2), spd(5, 2)),
    Operator("logdet", lambda a: torch.logdet(a @ a.mT + torch.eye(6, dtype=a.dtype)), draws((6, 6))),
    Operator("solve", lambda a, b: torch.linalg.solve(a + 4 * torch.eye(6, dtype=a.dtype), b), draws((6, 6), (6, 2))),
    Operator("inverse", lambda a: torch.linalg.inv(a + 4 * torch.eye(5, dtype=a.dtype)), draws((5, 5))),
    Operator("qr", torch.linalg.qr, draws((6, 4))),
    Operator("eigvalsh", lambda a: torch.linalg.eigvalsh((a + a.mT) / 2), draws((6, 6))),
    Operator("matrix_exp", lambda a: torch.linalg.matrix_exp(a / 3), draws((5, 5))),
    Operator("fft filter", lambda x, w: torch.fft.irfft(torch.fft.rfft(x) * torch.fft.rfft(w), 16), draws((3, 16), (16,))),
    Operator("stft power", lambda x: torch.stft(x, 8, window=torch.hann_window(8, dtype=x.dtype), return_complex=True).abs().square(), draws((24,))),
    Operator("fourier operator", spectral, draws((2, 3, 16), (3, 2, 5, 2))),
    Operator("conv1d", lambda x, w, b: F.conv1d(x, w, b, padding=2), draws((2, 3, 12), (4, 3, 5), (4,))),
    Operator("conv2d", lambda x, w: F.conv2d(x, w, padding=1), draws((1, 2, 6, 6), (3, 2, 3, 3))),
    Operator("depthwise conv2d", lambda x, w: F.conv2d(x, w, groups=3), draws((1, 3, 6, 6), (3, 1, 3, 3))),
    Operator("conv_transpose2d", lambda x, w: F.conv_transpose2d(x, w, stride=2), draws((1, 2, 4, 4), (2, 3, 3, 3))),
    Operator("max_pool2d", lambda x: F.max_pool2d(x, 2), draws((2, 2, 6, 6))),
    Operator("avg_pool2d", lambda x: F.avg_pool2d(x, 3, 2, 1), draws((2, 2, 6, 6))),
    Operator("lp_pool1d", lambda x: F.lp_pool1d(x, 3.0, 3), draws((2, 2, 9), low=0.1)),
    Operator("gelu", F.gelu, draws((4, 32))),
    Operator("silu", F.silu, draws((4, 32))),
    Operator("mish", F.mish, draws((4, 32))),
    Operator("softplus", F.softplus, draws((4, 32), scale=3.0)),
    Operator("elu", F.elu, draws((4, 32))),
    Operator("logsumexp", lambda x: x.logsumexp(-1), draws((6, 20))),
    Operator("softmax", lambda x: x.softmax(-1), draws((8, 16))),
    Operator("softmax at temperature", lambda x: (x / 0.2).softmax(-1), draws((6, 12))),
    Operator("log_softmax", lambda x: x.log_softmax(-1), draws((8, 16), scale=3.0)),
    Operator("vector_norm", lambda x: torch.linalg.vector_norm(x, dim=-1), draws((6, 20))),
    Operator("frobenius norm", lambda x: x.norm(), draws((9, 7))),
    Operator("p-norm distance", lambda x, y: torch.cdist(x, y, p=2.0), draws((5, 4), (6, 4))),
    Operator("normalize", lambda x: F.normalize(x, dim=-1), draws((5, 16))),
    Operator("cosine_similarity", F.cosine_similarity, draws((6, 12), (6, 12))),
    Operator("einsum", lambda a, b, c: torch.einsum("bij,bjk,kl->bil", a, b, c), draws((2, 3, 5), (2, 5, 4), (4, 6))),
    Operator("bilinear", F.bilinear, draws((4, 5), (4, 3), (2, 5, 3), (2,))),
    Operator("gather", lambda x, i: torch.gather(x, 1, i) * x.sum(), beside(
        draws((4, 6)), lambda source: torch.randint(6, (4, 3), generator=source))),
    Operator("scatter_add", lambda x, i: torch.zeros(4, 5, dtype=x.dtype).scatter_add(1, i, x.exp()), beside(
        draws((4, 8)), lambda source: torch.randint(5, (4, 8), generator=source))),
    Operator("embedding_bag", lambda table, i: F.embedding_bag(i, table, mode="mean"), beside(
        draws((9, 4)), lambda source: torch.randint(9, (3, 5), generator=source))),
    Operator("cumsum", lambda x: x.cumsum(-1).tanh(), draws((4, 20), scale=0.3)),
    Operator("cumprod", lambda x: x.cumprod(-1), draws((3, 10))),
    Operator("logcumsumexp", lambda x: x.logcumsumexp(-1), draws((4, 16))),
    Operator("kl_div", lambda x, t: F.kl_div(x.log_softmax(-1), t.softmax(-1), reduction="batchmean"), draws((5, 9), (5, 9))),
    Operator("gaussian kl", kl_gaussians, lambda seed: (
        *draws((4, 6))(seed), *draws((4, 6), low=0.3)(seed + 1), *draws((4, 6))(seed + 2), *draws((4, 6), low=0.3)(seed + 3))),
    Operator("info nce", info_nce, draws((6, 10), (6, 10))),
    Operator("mixture likelihood", mixture, draws((10,), (3,), (3,), (3,))),
    Operator("matmul chain", lambda x, a, b, c: torch.tanh(torch.tanh(x @ a) @ b) @ c, draws((3, 12), (12, 12), (12, 12), (12, 4), scale=0.5)),
    Operator("1 + tanh of a layer", lambda x, w, b: 1 + torch.tanh(x @ w + b), draws((4, 6), (6, 5), (5,))),
    Operator("interpolate", lambda x: F.interpolate(x, scale_factor=1.7, mode="bilinear"), draws((1, 2, 5, 5))),
    Operator("bicubic", lambda x: F.interpolate(x, size=(7, 9), mode="bicubic", align_corners=True), draws((1, 1, 5, 5))),
    Operator("grid_sample", lambda x, g: F.grid_sample(x, g, align_corners=False), beside(draws((1, 2, 6, 6)), grid)),
    Operator("pixel shuffle", lambda x: F.pixel_shuffle(x, 2).sigmoid(), draws((1, 8, 3, 3))),
    Operator("glu", lambda x: F.glu(x, -1), draws((4, 16))),
    Operator("variance", lambda x: x.var(-1), draws((5, 16))),
    Operator("complex rotation", lambda z, w: (z @ w).abs().square().sum(-1), draws((3, 4), (4, 4), dtype=torch.complex64)),
    Operator("complex fft", lambda z: torch.fft.ifft(torch.fft.fft(z) * torch.linspace(0.2, 1, 8, dtype=torch.float32)), draws(
        (2, 8), dtype=torch.complex64)),
    Operator("huber_loss", F.huber_loss, draws((6, 5), (6, 5))),
    Operator("triplet loss", F.triplet_margin_loss, draws((5, 8), (5, 8), (5, 8))))

OPERATORS = (*FUNCTIONS, *PLAIN)
