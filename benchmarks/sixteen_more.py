"""More operators that are trained in low precision: losses, attention in its forms, convolutions,
scatter and scans.

Written over the primitives of `sixteen_kit`, as those of `sixteen_operators` are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from sixteen_kit import Kit, Operator
from sixteen_operators import l2_norm, log_softmax, logsumexp, matmul, rms_norm, softmax
from torch import Tensor
from torch.nn import functional

R, C, D = 24, 40, 16


# ---- norms
def group_norm(k: Kit, x: Tensor, w: Tensor) -> Tensor:
    u = k.up(x).reshape(len(x), 2, -1)
    c = u - k.scale(k.total(u), 1 / u.shape[-1])
    r = (k.scale(k.total(c * c), 1 / u.shape[-1]) + 1e-5).rsqrt()
    return k.down((c * r).reshape(x.shape), x) * w[:, None]


def batch_norm(k: Kit, x: Tensor, w: Tensor) -> Tensor:
    u = k.up(x).mT
    c = u - k.scale(k.total(u), 1 / len(x))
    r = (k.scale(k.total(c * c), 1 / len(x)) + 1e-5).rsqrt()
    return k.down((c * r).mT, x) * w


def residual_norm(k: Kit, x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    return rms_norm(k, x + y, w)


def weight_norm(k: Kit, x: Tensor, g: Tensor) -> Tensor:
    return l2_norm(k, x) * g


def standard_deviation(k: Kit, x: Tensor) -> Tensor:
    u = k.up(x)
    c = u - k.scale(k.total(u), 1 / x.shape[-1])
    return k.down((k.scale(k.total(c * c), 1 / x.shape[-1]) + 1e-3).sqrt(), x)


# ---- softmax and losses
def causal(s: Tensor) -> Tensor:
    return s.masked_fill(~torch.ones(s.shape[-2:], dtype=torch.bool).tril(), -torch.inf)


def masked_softmax(k: Kit, x: Tensor) -> Tensor:
    return softmax(k, causal(x))


def tempered_softmax(k: Kit, x: Tensor) -> Tensor:
    return softmax(k, k.scale(x, 0.3))


def entropy(k: Kit, x: Tensor) -> Tensor:
    p = k.up(log_softmax(k, x))
    return k.down(-k.total(p.exp() * p), x)


def label_smoothing(k: Kit, x: Tensor) -> Tensor:
    rows = torch.arange(len(x))
    p = k.up(log_softmax(k, x))
    return k.down(
        -p[rows, rows % x.shape[1]][:, None] * 0.9 - k.scale(k.total(p), 0.1 / x.shape[1]), x
    )


def z_loss(k: Kit, x: Tensor) -> Tensor:
    return k.scale(k.up(logsumexp(k, x)).square(), 1e-2).to(x.dtype)


def focal(k: Kit, x: Tensor) -> Tensor:
    p = k.up(log_softmax(k, x))[:, 3]
    return k.down(-((1 - p.exp()).square() * p)[:, None], x)


def bce(k: Kit, x: Tensor, t: Tensor) -> Tensor:
    u = k.up(x)
    return k.down(u.clamp(min=0) - u * k.up(t).sigmoid() + (1 + (-u.abs()).exp()).log(), x)


def huber(k: Kit, x: Tensor, y: Tensor) -> Tensor:
    d = k.up(x) - k.up(y)
    return k.down(torch.where(d.abs() < 1, k.scale(d * d, 0.5), d.abs() - 0.5), x)


def poisson(k: Kit, x: Tensor, t: Tensor) -> Tensor:
    return k.down(k.scale(k.total(k.up(x).exp() - k.up(t) * k.up(x)), 1 / x.shape[-1]), x)


def contrastive(k: Kit, x: Tensor, y: Tensor) -> Tensor:
    s = k.scale(k.product(k.up(l2_norm(k, x)), k.up(l2_norm(k, y)).mT), 1 / 0.3).to(x.dtype)
    return -log_softmax(k, s).diagonal()


# ---- products
def linear(k: Kit, x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return matmul(k, x, w) + b


def swiglu_layer(k: Kit, x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    u, v = k.product(k.up(x), k.up(a)), k.product(k.up(x), k.up(b))
    return k.down(u * u.sigmoid() * v, x)


def bilinear(k: Kit, x: Tensor, w: Tensor, y: Tensor) -> Tensor:
    return k.down(k.total(k.product(k.up(x), k.up(w)) * k.up(y)), x)


def gram(k: Kit, x: Tensor) -> Tensor:
    return k.down(k.scale(k.product(k.up(x), k.up(x).mT), 1 / x.shape[-1]), x)


def distances(k: Kit, x: Tensor, y: Tensor) -> Tensor:
    u, v = k.up(x), k.up(y)
    return k.down(k.total(u * u) + k.total(v * v).mT - k.scale(k.product(u, v.mT), 2), x)


def interactions(k: Kit, x: Tensor) -> Tensor:
    u = k.up(x)
    return k.down(k.scale(k.total(u).square() - k.total(u * u), 0.5), x)


# ---- attention
def attend(k: Kit, s: Tensor, v: Tensor) -> Tensor:
    e = (s - k.largest(s)).exp()
    return k.down(k.product(k.up((e / k.total(e)).to(v.dtype)), k.up(v)), v)


def scores(k: Kit, q: Tensor, key: Tensor) -> Tensor:
    return k.scale(k.product(k.up(q), k.up(key).mT), 1 / math.sqrt(q.shape[-1]))


def full_attention(k: Kit, q: Tensor, key: Tensor, v: Tensor) -> Tensor:
    return attend(k, scores(k, q, key), v)


def window_attention(k: Kit, q: Tensor, key: Tensor, v: Tensor) -> Tensor:
    s = causal(scores(k, q, key))
    return attend(
        k, s.masked_fill(torch.ones(s.shape[-2:], dtype=torch.bool).tril(-8), -torch.inf), v
    )


def slope_attention(k: Kit, q: Tensor, key: Tensor, v: Tensor) -> Tensor:
    s = scores(k, q, key)
    place = torch.arange(s.shape[-1], dtype=s.dtype)
    return attend(k, causal(s - k.scale((place[:, None] - place).abs(), 0.125)), v)


def shared_attention(k: Kit, q: Tensor, key: Tensor, v: Tensor) -> Tensor:
    return attend(k, causal(scores(k, q, key)), v.expand(*q.shape[:-1], -1))


def linear_attention(k: Kit, q: Tensor, key: Tensor, v: Tensor) -> Tensor:
    a, b = k.up(q).sigmoid(), k.up(key).sigmoid()
    s = k.product(a, b.mT).tril()
    return k.down(k.product(s, k.up(v)) / k.total(s), q)


# ---- gather, scatter, scan, pooling
def embedding_bag(k: Kit, table: Tensor) -> Tensor:
    n = len(table)
    return k.scale(
        k.total(k.up(table[torch.arange(4 * n).reshape(4, n) * 7 % n].permute(1, 2, 0))), 0.25
    )[..., 0].to(table.dtype)


def scatter(k: Kit, x: Tensor, y: Tensor) -> Tensor:
    u = k.up(x)
    return k.down(
        torch.zeros_like(u[:6]).index_add(0, torch.arange(len(x)) * 5 % 6, u) + k.up(y), x
    )


def gather(k: Kit, x: Tensor, w: Tensor) -> Tensor:
    rows, columns = x.shape
    index = (torch.arange(rows)[:, None] * 3 + torch.arange(columns) * 7) % columns
    return k.down(k.up(x).gather(-1, index) * k.up(w), x)


def experts(k: Kit, x: Tensor, y: Tensor) -> Tensor:
    p = k.up(softmax(k, x[:, :4]))
    return k.down(k.total(p[:, None] * k.up(y)[:, :, None])[..., 0] + k.up(x), x)


def decay_scan(k: Kit, x: Tensor) -> Tensor:
    u, place = k.up(x), torch.arange(x.shape[-1], dtype=torch.float64)
    return k.down(
        k.scale(
            k.product(u, (0.8 ** (place - place[:, None]).clamp(min=0)).triu().to(u.dtype)), 0.2
        ),
        x,
    )


def gated_scan(k: Kit, x: Tensor, g: Tensor) -> Tensor:
    u, held = k.up(x), functional.logsigmoid(k.up(g)).cumsum(-1)
    return k.down(
        k.scale(
            k.total(u[:, None] * (held[:, :, None] - held[:, None]).tril().exp().tril())[..., 0],
            0.7,
        ),
        x,
    )


def conv1d(k: Kit, x: Tensor, w: Tensor) -> Tensor:
    return k.down(k.product(k.up(w), k.up(x).unfold(-1, 5, 1).permute(0, 1, 3, 2).flatten(1, 2)), x)


def depthwise(k: Kit, x: Tensor, w: Tensor) -> Tensor:
    return k.down(
        k.total(k.up(functional.pad(x, (3, 0))).unfold(-1, 4, 1) * k.up(w)[:, None])[..., 0], x
    )


def average_pool(k: Kit, x: Tensor) -> Tensor:
    return k.down(k.scale(k.total(k.up(x).unfold(-1, 4, 2)), 0.25)[..., 0], x)


def maximum_pool(k: Kit, x: Tensor) -> Tensor:
    return k.down(k.scale(k.up(x).unfold(-1, 4, 2).amax(-1), 1.1), x)


def interpolate(k: Kit, x: Tensor) -> Tensor:
    u = k.up(x)
    return k.down(
        torch.stack(
            [
                k.scale(u[..., :-1], 0.75) + k.scale(u[..., 1:], 0.25),
                k.scale(u[..., :-1] + u[..., 1:], 0.5),
            ],
            -1,
        ).flatten(-2),
        x,
    )


def excite(k: Kit, x: Tensor, w: Tensor) -> Tensor:
    u = k.up(x)
    return k.down(u * k.product(k.scale(k.total(u), 1 / x.shape[-1]).mT, k.up(w)).mT.sigmoid(), x)


def token_shift(k: Kit, x: Tensor, m: Tensor) -> Tensor:
    u, share = k.up(x), k.up(m).sigmoid()
    return k.down(u * share + u.roll(1, 0) * (1 - share), x)


def interleaved_rope(k: Kit, x: Tensor) -> Tensor:
    angle = torch.arange(len(x), dtype=torch.float64)[:, None] * (
        10.0 ** (-torch.arange(x.shape[-1] // 2, dtype=torch.float64) / 2)
    )
    u = k.up(x)
    cos, sin = angle.cos().to(u.dtype), angle.sin().to(u.dtype)
    a, b = u[..., ::2], u[..., 1::2]
    return k.down(torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2), x)


ROWS, HEADS = (R, C), (2, R, D)
MORE: Mapping[str, Operator] = {
    "group_norm": Operator(
        group_norm, ((3, 8, D), (8,)), lambda x, w: functional.group_norm(x, 2, w)
    ),
    "batch_norm": Operator(
        batch_norm,
        (ROWS, (C,)),
        lambda x, w: functional.batch_norm(x, None, None, w, training=True),
    ),
    "residual_norm": Operator(residual_norm, (ROWS, ROWS, (C,))),
    "weight_norm": Operator(weight_norm, (ROWS, (R, 1))),
    "standard_deviation": Operator(standard_deviation, (ROWS,)),
    "masked_softmax": Operator(masked_softmax, ((C, C),)),
    "tempered_softmax": Operator(tempered_softmax, (ROWS,)),
    "entropy": Operator(entropy, (ROWS,)),
    "label_smoothing": Operator(label_smoothing, (ROWS,)),
    "z_loss": Operator(z_loss, (ROWS,)),
    "focal": Operator(focal, (ROWS,)),
    "bce": Operator(bce, (ROWS, ROWS)),
    "huber": Operator(
        huber, (ROWS, ROWS), lambda x, y: functional.huber_loss(x, y, reduction="none")
    ),
    "poisson": Operator(poisson, (ROWS, ROWS)),
    "contrastive": Operator(contrastive, (ROWS, ROWS)),
    "linear": Operator(linear, (ROWS, (C, D), (D,)), lambda x, w, b: functional.linear(x, w.mT, b)),
    "split_k": Operator(matmul, ((8, 96), (96, D)), torch.matmul),
    "matmul_tail": Operator(matmul, ((23, 37), (37, 19)), torch.matmul),
    "batched_matmul": Operator(matmul, ((2, 12, C), (2, C, D)), torch.matmul),
    "swiglu_layer": Operator(swiglu_layer, (ROWS, (C, D), (C, D))),
    "bilinear": Operator(bilinear, (ROWS, (C, D), (R, D))),
    "gram": Operator(gram, (ROWS,)),
    "distances": Operator(distances, (ROWS, ROWS)),
    "interactions": Operator(interactions, (ROWS,)),
    "full_attention": Operator(
        full_attention, (HEADS, HEADS, HEADS), functional.scaled_dot_product_attention
    ),
    "window_attention": Operator(window_attention, (HEADS, HEADS, HEADS)),
    "slope_attention": Operator(slope_attention, (HEADS, HEADS, HEADS)),
    "shared_attention": Operator(shared_attention, (HEADS, (1, R, D), (1, R, D))),
    "linear_attention": Operator(linear_attention, (HEADS, HEADS, HEADS)),
    "embedding_bag": Operator(embedding_bag, (ROWS,)),
    "scatter": Operator(scatter, (ROWS, (6, C))),
    "gather": Operator(gather, (ROWS, ROWS)),
    "experts": Operator(experts, (ROWS, (R, C))),
    "decay_scan": Operator(decay_scan, (ROWS,)),
    "gated_scan": Operator(gated_scan, (ROWS, ROWS)),
    "conv1d": Operator(
        conv1d, ((2, 4, C), (6, 20)), lambda x, w: functional.conv1d(x, w.reshape(6, 4, 5))
    ),
    "depthwise": Operator(depthwise, ((R, C), (R, 4))),
    "average_pool": Operator(average_pool, (ROWS,), lambda x: functional.avg_pool1d(x, 4, 2)),
    "maximum_pool": Operator(maximum_pool, (ROWS,)),
    "interpolate": Operator(interpolate, (ROWS,)),
    "excite": Operator(excite, (ROWS, (R, R))),
    "token_shift": Operator(token_shift, (ROWS, (C,))),
    "interleaved_rope": Operator(interleaved_rope, ((R, D),)),
}
