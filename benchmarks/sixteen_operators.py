"""Operators that are trained in 16 bits, written once over a kit of primitives: the kits are the ways to compute them, right and wrong.

`plain`: torch's own operations in the dtype of the inputs, which is what a check names as its `reference`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

R, C, D = 24, 40, 16


class Kit:
    """Right: torch's own operations, which accumulate 16 bits in float32."""

    def up(self, x: Tensor) -> Tensor:
        return x

    def down(self, x: Tensor, like: Tensor) -> Tensor:
        return x.to(like.dtype)

    def total(self, x: Tensor) -> Tensor:
        return x.sum(-1, keepdim=True)

    def product(self, a: Tensor, b: Tensor) -> Tensor:
        return a @ b

    def constant(self, c: float) -> float:
        return c

    def scale(self, x: Tensor, c: float) -> Tensor:
        return x * c

    def largest(self, x: Tensor) -> Tensor:
        return x.amax(-1, keepdim=True).detach()


class Upcast(Kit):
    """Right: float32 inside."""

    def up(self, x: Tensor) -> Tensor:
        return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


class Reordered(Upcast):
    """Right: sums and products in blocks, the last block first."""

    def total(self, x: Tensor) -> Tensor:
        return torch.stack([part.sum(-1, keepdim=True) for part in reversed(x.split(16, -1))]).sum(0)

    def product(self, a: Tensor, b: Tensor) -> Tensor:
        parts = list(zip(a.split(16, -1), b.split(16, -2), strict=True))
        return torch.stack([p.to(a.dtype) @ q for p, q in reversed(parts)]).sum(0)


def is_low(x: Tensor) -> bool:
    return x.dtype in (torch.bfloat16, torch.float16)


class Accumulates(Kit):
    """Wrong: sums and products one after the other in 16 bits."""

    def total(self, x: Tensor) -> Tensor:
        if not is_low(x):
            return super().total(x)
        sum_ = torch.zeros_like(x[..., :1])
        for column in x.split(1, -1):
            sum_ = sum_ + column
        return sum_

    def product(self, a: Tensor, b: Tensor) -> Tensor:
        if not is_low(a):
            return super().product(a, b)
        sum_ = torch.zeros((), dtype=a.dtype)
        for column, row in zip(a.split(1, -1), b.split(1, -2), strict=True):
            sum_ = sum_ + column * row
        return sum_


class Eighth(Kit):
    """Wrong: what is summed passes through 8 bits (e4m3), as where an upcast is missing."""

    def up(self, x: Tensor) -> Tensor:
        return x + (x.detach().clamp(-400, 400).to(torch.float8_e4m3fn).to(x.dtype) - x.detach()) if is_low(x) else x


class Kept(Kit):
    """Wrong: constants with two bits, in 16 bits only."""

    def scale(self, x: Tensor, c: float) -> Tensor:
        return x * (round(c * 2 ** (3 - math.frexp(c)[1])) / 2 ** (3 - math.frexp(c)[1]) if is_low(x) else c)

    def constant(self, c: float) -> float:
        return c


class Twice(Kit):
    """Wrong: a scale that is applied twice in 16 bits."""

    def scale(self, x: Tensor, c: float) -> Tensor:
        return x * c * c if is_low(x) else x * c


class NoMaximum(Kit):
    """Wrong: the maximum is not subtracted."""

    def largest(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x[..., :1]) if is_low(x) else super().largest(x)


RIGHT: Mapping[str, Kit] = {"16 bits": Kit(), "float32 inside": Upcast(), "other order": Reordered()}
WRONG: Mapping[str, Kit] = {"accumulates in 16 bits": Accumulates(), "missing upcast": Eighth(), "rounded constant": Kept(),
                            "scale twice": Twice(), "no maximum": NoMaximum()}

# ---- operators
def softmax(k: Kit, x: Tensor) -> Tensor:
    u = k.up(x)
    e = (u - k.largest(u)).exp()
    return k.down(e / k.total(e), x)


def log_softmax(k: Kit, x: Tensor) -> Tensor:
    u = k.up(x)
    u = u - k.largest(u)
    return k.down(u - k.total(u.exp()).log(), x)


def cross_entropy(k: Kit, x: Tensor) -> Tensor:
    rows = torch.arange(len(x))
    return k.scale(-log_softmax(k, x)[rows, rows % x.shape[1]].sum(), 1 / len(x))


def rms_norm(k: Kit, x: Tensor, w: Tensor) -> Tensor:
    u = k.up(x)
    r = (k.scale(k.total(u * u), 1 / x.shape[-1]) + 1e-5).rsqrt()
    return k.down(u * r, x) * w


def layer_norm(k: Kit, x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    u = k.up(x)
    c = u - k.scale(k.total(u), 1 / x.shape[-1])
    r = (k.scale(k.total(c * c), 1 / x.shape[-1]) + 1e-5).rsqrt()
    return k.down(c * r, x) * w + b


def l2_norm(k: Kit, x: Tensor) -> Tensor:
    u = k.up(x)
    return k.down(u * (k.total(u * u) + 1e-6).rsqrt(), x)


def gelu(k: Kit, x: Tensor) -> Tensor:
    u = k.up(x)
    return k.down(0.5 * u * (1 + k.scale(u + 0.044715 * u**3, math.sqrt(2 / math.pi)).tanh()), x)


def silu(k: Kit, x: Tensor) -> Tensor:
    u = k.up(x)
    return k.down(u * u.sigmoid(), x)


def swiglu(k: Kit, x: Tensor, g: Tensor) -> Tensor:
    u, v = k.up(x), k.up(g)
    return k.down(v * v.sigmoid() * u, x)


def softplus(k: Kit, x: Tensor) -> Tensor:
    u = k.up(x)
    return k.down(k.scale((k.scale(u, 1.3).exp() + 1).log(), 1 / 1.3), x)


def rope(k: Kit, x: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    angle = torch.arange(len(x), dtype=torch.float64)[:, None] * (10.0 ** (-torch.arange(half, dtype=torch.float64) / half * 4))
    u = k.up(x)
    cos, sin = angle.cos().to(u.dtype), angle.sin().to(u.dtype)
    a, b = u[..., :half], u[..., half:]
    return k.down(torch.cat([a * cos - b * sin, b * cos + a * sin], -1), x)


def matmul(k: Kit, a: Tensor, b: Tensor) -> Tensor:
    return k.down(k.product(k.up(a), k.up(b)), a)


def linear_gelu(k: Kit, x: Tensor, w: Tensor) -> Tensor:
    return gelu(k, matmul(k, x, w))


def attention(k: Kit, q: Tensor, key: Tensor, v: Tensor) -> Tensor:
    s = k.scale(k.product(k.up(q), k.up(key).mT), 1 / math.sqrt(q.shape[-1]))
    mask = torch.ones(s.shape[-2:], dtype=torch.bool).tril()
    s = s.masked_fill(~mask, -torch.inf)
    e = (s - k.largest(s)).exp()
    p = (e / k.total(e)).to(q.dtype)
    return k.down(k.product(k.up(p), k.up(v)), q)


def embedding(k: Kit, table: Tensor) -> Tensor:
    index = torch.arange(3 * R) * 7 % R
    return k.scale(table[index], math.sqrt(C))


def scan(k: Kit, x: Tensor) -> Tensor:
    u = k.up(x)
    lower = torch.ones(x.shape[-1], x.shape[-1], dtype=u.dtype).triu()
    return k.down(k.product(u, lower), x)


def variance(k: Kit, x: Tensor) -> Tensor:
    u = k.up(x)
    c = u - k.scale(k.total(u), 1 / x.shape[-1])
    return k.down(k.scale(k.total(c * c), 1 / x.shape[-1]), x)


def logsumexp(k: Kit, x: Tensor) -> Tensor:
    u = k.up(x)
    m = k.largest(u)
    return k.down(m + k.total((u - m).exp()).log(), x)


def mse(k: Kit, x: Tensor, y: Tensor) -> Tensor:
    d = k.up(x) - k.up(y)
    return k.down(k.scale(k.total((d * d).flatten()[None]), 1 / x.numel()), x)


def kl(k: Kit, x: Tensor, y: Tensor) -> Tensor:
    p, q = log_softmax(k, x), log_softmax(k, y)
    return k.down(k.total(k.up(p).exp() * (k.up(p) - k.up(q))), x)


def cosine(k: Kit, x: Tensor, y: Tensor) -> Tensor:
    u, v = k.up(x), k.up(y)
    return k.down(k.total(u * v) * (k.total(u * u) * k.total(v * v) + 1e-6).rsqrt(), x)


def mean_pool(k: Kit, x: Tensor) -> Tensor:
    return k.down(k.scale(k.total(k.up(x)), 1 / x.shape[-1]), x)


def lora(k: Kit, x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return k.down(k.scale(k.product(k.product(k.up(x), k.up(a)), k.up(b)), 0.7), x)


@dataclass(frozen=True, slots=True)
class Operator:
    """`function(kit, *inputs)`, the shapes of its inputs, and torch's own of the same, where there is one."""

    function: Callable[..., Tensor]
    shapes: tuple[tuple[int, ...], ...]
    torchs: Callable[..., Tensor] | None = None


OPERATORS: Mapping[str, Operator] = {
    "softmax": Operator(softmax, ((R, C),), lambda x: x.softmax(-1)),
    "log_softmax": Operator(log_softmax, ((R, C),), lambda x: x.log_softmax(-1)),
    "cross_entropy": Operator(cross_entropy, ((R, C),)),
    "rms_norm": Operator(rms_norm, ((R, C), (C,))),
    "layer_norm": Operator(layer_norm, ((R, C), (C,), (C,)), lambda x, w, b: functional.layer_norm(x, x.shape[-1:], w, b)),
    "l2_norm": Operator(l2_norm, ((R, C),)),
    "gelu": Operator(gelu, ((R, C),), lambda x: functional.gelu(x, approximate="tanh")),
    "silu": Operator(silu, ((R, C),), functional.silu),
    "swiglu": Operator(swiglu, ((R, C), (R, C))),
    "softplus": Operator(softplus, ((R, C),), lambda x: functional.softplus(x, beta=1.3)),
    "rope": Operator(rope, ((R, D),)),
    "matmul": Operator(matmul, ((R, C), (C, D)), torch.matmul),
    "linear_gelu": Operator(linear_gelu, ((R, C), (C, D))),
    "attention": Operator(attention, ((2, R, D), (2, R, D), (2, R, D)),
                          lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, is_causal=True)),
    "embedding": Operator(embedding, ((R, C),)),
    "scan": Operator(scan, ((R, C),), lambda x: x.cumsum(-1)),
    "variance": Operator(variance, ((R, C),)),
    "logsumexp": Operator(logsumexp, ((R, C),)),
    "mse": Operator(mse, ((R, C), (R, C))),
    "kl": Operator(kl, ((R, C), (R, C))),
    "cosine": Operator(cosine, ((R, C), (R, C))),
    "mean_pool": Operator(mean_pool, ((R, C),)),
    "lora": Operator(lora, ((R, C), (C, 4), (4, D))),
}


def plain(name: str) -> Callable[..., Tensor]:
    """What a spec would name as the `reference`."""
    return lambda *inputs: OPERATORS[name].function(Kit(), *inputs)


globals().update({f"plain_{each}": plain(each) for each in OPERATORS})
