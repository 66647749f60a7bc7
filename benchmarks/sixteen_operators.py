"""Operators that are trained in low precision, written once over a kit of primitives
(`sixteen_kit`): activations, norms, softmax, products."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from sixteen_kit import Kit, Operator
from torch import Tensor
from torch.nn import functional

R, C, D = 24, 40, 16


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
    angle = torch.arange(len(x), dtype=torch.float64)[:, None] * (
        10.0 ** (-torch.arange(half, dtype=torch.float64) / half * 4)
    )
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
    rows, columns = table.shape
    return k.scale(table[torch.arange(3 * rows) * 7 % rows], math.sqrt(columns))


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


# ---- activations
def relu_squared(k: Kit, x: Tensor) -> Tensor:
    return k.down(k.up(x).relu().square(), x)


def gelu_erf(k: Kit, x: Tensor) -> Tensor:
    u = k.up(x)
    return k.down(0.5 * u * (1 + k.scale(u, math.sqrt(0.5)).erf()), x)


def quick_gelu(k: Kit, x: Tensor) -> Tensor:
    u = k.up(x)
    return k.down(u * k.scale(u, 1.702).sigmoid(), x)


def mish(k: Kit, x: Tensor) -> Tensor:
    u = k.up(x)
    return k.down(u * functional.softplus(u).tanh(), x)


def elu(k: Kit, x: Tensor) -> Tensor:
    u = k.up(x)
    return k.down(torch.where(u > 0, u, k.scale(u.clamp(max=0).expm1(), 0.7)), x)


def hardswish(k: Kit, x: Tensor) -> Tensor:
    u = k.up(x)
    return k.down(k.scale(u * (u + 3).clamp(0, 6), 1 / 6), x)


def leaky_relu(k: Kit, x: Tensor) -> Tensor:
    u = k.up(x)
    return k.down(torch.where(u > 0, u, k.scale(u, 0.01)), x)


def softcap(k: Kit, x: Tensor) -> Tensor:
    return k.down(k.scale(k.scale(k.up(x), 1 / 3).tanh(), 3), x)


def log_sigmoid(k: Kit, x: Tensor) -> Tensor:
    return k.down(-functional.softplus(-k.up(x)), x)


def geglu(k: Kit, x: Tensor, g: Tensor) -> Tensor:
    return k.down(k.up(gelu(k, g)) * k.up(x), x)


def reglu(k: Kit, x: Tensor, g: Tensor) -> Tensor:
    return k.down(k.up(g).relu() * k.up(x), x)


def bias_gelu(k: Kit, x: Tensor, b: Tensor) -> Tensor:
    return gelu(k, x + b)


FIRST: Mapping[str, Operator] = {
    "softmax": Operator(softmax, ((R, C),), lambda x: x.softmax(-1)),
    "log_softmax": Operator(log_softmax, ((R, C),), lambda x: x.log_softmax(-1)),
    "cross_entropy": Operator(cross_entropy, ((R, C),)),
    "rms_norm": Operator(rms_norm, ((R, C), (C,))),
    "layer_norm": Operator(
        layer_norm,
        ((R, C), (C,), (C,)),
        lambda x, w, b: functional.layer_norm(x, x.shape[-1:], w, b),
    ),
    "l2_norm": Operator(l2_norm, ((R, C),)),
    "gelu": Operator(gelu, ((R, C),), lambda x: functional.gelu(x, approximate="tanh")),
    "silu": Operator(silu, ((R, C),), functional.silu),
    "swiglu": Operator(swiglu, ((R, C), (R, C))),
    "softplus": Operator(softplus, ((R, C),), lambda x: functional.softplus(x, beta=1.3)),
    "rope": Operator(rope, ((R, D),)),
    "matmul": Operator(matmul, ((R, C), (C, D)), torch.matmul),
    "linear_gelu": Operator(linear_gelu, ((R, C), (C, D))),
    "attention": Operator(
        attention,
        ((2, R, D), (2, R, D), (2, R, D)),
        lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, is_causal=True),
    ),
    "embedding": Operator(embedding, ((R, C),)),
    "scan": Operator(scan, ((R, C),), lambda x: x.cumsum(-1)),
    "variance": Operator(variance, ((R, C),)),
    "logsumexp": Operator(logsumexp, ((R, C),)),
    "mse": Operator(mse, ((R, C), (R, C))),
    "kl": Operator(kl, ((R, C), (R, C))),
    "cosine": Operator(cosine, ((R, C), (R, C))),
    "mean_pool": Operator(mean_pool, ((R, C),)),
    "lora": Operator(lora, ((R, C), (C, 4), (4, D))),
    "relu_squared": Operator(relu_squared, ((R, C),)),
    "gelu_erf": Operator(gelu_erf, ((R, C),), functional.gelu),
    "quick_gelu": Operator(quick_gelu, ((R, C),)),
    "mish": Operator(mish, ((R, C),), functional.mish),
    "elu": Operator(elu, ((R, C),), lambda x: functional.elu(x, 0.7)),
    "hardswish": Operator(hardswish, ((R, C),), functional.hardswish),
    "leaky_relu": Operator(leaky_relu, ((R, C),), functional.leaky_relu),
    "softcap": Operator(softcap, ((R, C),)),
    "log_sigmoid": Operator(log_sigmoid, ((R, C),), functional.logsigmoid),
    "geglu": Operator(geglu, ((R, C), (R, C))),
    "reglu": Operator(reglu, ((R, C), (R, C))),
    "bias_gelu": Operator(bias_gelu, ((R, C), (C,))),
}
