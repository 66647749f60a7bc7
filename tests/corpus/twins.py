"""Operators as they are written by hand, each with a right backward, subtle mistakes of its own, and the plain forward."""

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

from corpus.functions import between, complex_normal, normal


@dataclass(frozen=True)
class Twins:
    """`make(mistake)` is the Function, right for ""; `plain` computes the same, and autograd its gradient."""

    make: Callable[[str], type[Function]]
    mistakes: tuple[str, ...]
    plain: Callable[..., Any]
    inputs: Callable[[int], tuple[Any, ...]]


# ---- volume rendering: colour, depth and opacity along rays
def rendered(sigma: Tensor, colour: Tensor, z: Tensor, far: float) -> tuple[Tensor, Tensor, Tensor]:
    opacity = 1 - (-sigma * (torch.cat([z[:, 1:], torch.full_like(z[:, :1], far)], 1) - z)).exp()
    weights = opacity * torch.cat([torch.ones_like(z[:, :1]), (1 - opacity).cumprod(1)[:, :-1]], 1)
    return (weights[..., None] * colour).sum(1), (weights * z).sum(1), weights.sum(1)


def rays(mistake: str) -> type[Function]:
    class Rays(Function):
        @staticmethod
        def forward(ctx: Any, sigma: Tensor, colour: Tensor, z: Tensor, far: float) -> tuple[Tensor, Tensor, Tensor]:
            distance = torch.cat([z[:, 1:], torch.full_like(z[:, :1], far)], 1) - z
            tau = sigma * distance
            through = (tau - tau.cumsum(1)).exp()
            weights = through * -torch.expm1(-tau)
            ctx.save_for_backward(sigma, colour, z, distance, through, weights)
            return (weights[..., None] * colour).sum(1), (weights * z).sum(1), weights.sum(1)

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, of_colour: Tensor, of_depth: Tensor, of_opacity: Tensor) -> tuple[Tensor | None, ...]:
            sigma, colour, z, distance, through, weights = ctx.saved_tensors
            of_weights = (of_colour[:, None] * colour).sum(-1)
            of_weights = of_weights + (0 if mistake == "depth" else of_depth[:, None] * z)
            of_weights = of_weights + of_opacity[:, None] * (0.999 if mistake == "opacity" else 1)
            own = of_weights * weights
            of_tau = of_weights * through * (-sigma * distance).exp() - (own.flip(1).cumsum(1).flip(1) - own)
            of_distance = of_tau * sigma
            of_z = of_depth[:, None] * weights - of_distance
            if mistake != "the next sample":
                of_z[:, 1:] += of_distance[:, :-1]
            return of_tau * distance, of_colour[:, None] * weights[..., None], of_z, None

    return Rays


# ---- a state-space model in chunks
def scanned(a: Tensor, b: Tensor, c: Tensor, x: Tensor, chunk: int) -> Tensor:
    state, outputs = x.new_zeros(b.shape[1], x.shape[1]), []
    for t in range(len(a)):
        state = a[t] * state + b[t][:, None] * x[t]
        outputs.append(c[t] @ state)
    return torch.stack(outputs)


def scan(mistake: str) -> type[Function]:
    class Scan(Function):
        @staticmethod
        def forward(ctx: Any, a: Tensor, b: Tensor, c: Tensor, x: Tensor, chunk: int) -> Tensor:
            state, outputs, starts = x.new_zeros(b.shape[1], x.shape[1]), [], []
            for part in torch.arange(len(a)).split(chunk):
                decay = a[part].log().cumsum(0)
                within = (decay[:, None] - decay).exp().tril() * (c[part] @ b[part].T)
                outputs.append(within @ x[part] + decay.exp()[:, None] * (c[part] @ state))
                starts.append(state)
                state = decay[-1].exp() * state + (b[part] * (decay[-1] - decay).exp()[:, None]).T @ x[part]
            ctx.save_for_backward(a, b, c, x, torch.stack(starts))
            ctx.chunk = chunk
            return torch.cat(outputs)

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
            a, b, c, x, starts = ctx.saved_tensors
            of_a, of_b, of_c, of_x = (torch.zeros_like(each) for each in (a, b, c, x))
            of_state, chunk = torch.zeros_like(starts[0]), ctx.chunk
            for t in reversed(range(len(a))):
                before = starts[t // chunk]
                for s in range(t // chunk * chunk, t):
                    before = a[s] * before + b[s][:, None] * x[s]
                of_c[t] = (a[t] * before + b[t][:, None] * x[t]) @ g[t]
                of_state = of_state + c[t][:, None] * g[t]
                of_a[t] = (of_state * before).sum() * (mistake != "a at a chunk's start" or t % chunk > 0)
                of_b[t], of_x[t] = of_state @ x[t], of_state.T @ b[t]
                of_state = of_state * a[min(t + 1, len(a) - 1) if mistake == "the next decay" else t]
                of_state = of_state * (mistake != "no state between chunks" or t % chunk > 0)
            return of_a, of_b, of_c, of_x, None

    return Scan


# ---- attention over the edges of a graph
SOURCES, TARGETS = torch.tensor([0, 1, 2, 3, 0, 2]), torch.tensor([1, 1, 1, 0, 0, 3])


def attended(h: Tensor, a: Tensor, sources: Tensor, targets: Tensor) -> Tensor:
    scores = F.leaky_relu(torch.cat([h[sources], h[targets]], 1) @ a, 0.2)
    rows = [(scores[targets == n].softmax(0)[:, None] * h[sources[targets == n]]).sum(0) for n in range(len(h))]
    return torch.stack(rows)


def edges(mistake: str) -> type[Function]:
    class Edges(Function):
        @staticmethod
        def forward(ctx: Any, h: Tensor, a: Tensor, sources: Tensor, targets: Tensor) -> Tensor:
            z = torch.cat([h[sources], h[targets]], 1) @ a
            e = F.leaky_relu(z, 0.2)
            largest = torch.full((len(h),), -math.inf, dtype=h.dtype).scatter_reduce(0, targets, e, "amax")
            w = (e - largest[targets]).exp()
            p = w / torch.zeros_like(largest).index_add(0, targets, w)[targets]
            ctx.save_for_backward(h, a, sources, targets, z, p)
            return torch.zeros_like(h).index_add(0, targets, p[:, None] * h[sources])

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
            h, a, sources, targets, z, p = ctx.saved_tensors
            of_p = (g[targets] * h[sources]).sum(1)
            inner = torch.zeros(len(h), dtype=h.dtype).index_add(0, targets, of_p * p)
            of_e = p * (of_p - inner[sources if mistake == "the inner product of the source" else targets])
            of_z = of_e * torch.where(z > 0, torch.ones_like(z), 0.21 if mistake == "another slope" else 0.2)
            n = h.shape[1]
            of_h = torch.zeros_like(h).index_add(0, sources, p[:, None] * g[targets] + of_z[:, None] * a[:n])
            if mistake != "not by the target":
                of_h = of_h.index_add(0, targets, of_z[:, None] * a[n:])
            return of_h, of_z @ torch.cat([h[sources], h[targets]], 1), None, None

    return Edges


# ---- the likelihood of ragged sequences under a hidden Markov model
def likelihood(transitions: Tensor, emissions: Tensor, lengths: list[int]) -> Tensor:
    table, sums = transitions.log_softmax(1), []
    for row, n in zip(emissions, lengths, strict=True):
        alpha = row[0]
        for t in range(1, n):
            alpha = (alpha[:, None] + table).logsumexp(0) + row[t]
        sums.append(alpha.logsumexp(0))
    return torch.stack(sums)


def markov(mistake: str) -> type[Function]:
    class Markov(Function):
        @staticmethod
        def forward(ctx: Any, transitions: Tensor, emissions: Tensor, lengths: list[int]) -> Tensor:
            table, alpha, sums = transitions.log_softmax(1), emissions.clone(), []
            for b, n in enumerate(lengths):
                for t in range(1, n):
                    alpha[b, t] = (alpha[b, t - 1][:, None] + table).logsumexp(0) + emissions[b, t]
                sums.append(alpha[b, n - 1].logsumexp(0))
            z = torch.stack(sums)
            ctx.save_for_backward(table, emissions, alpha, z)
            ctx.lengths = lengths
            return z

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
            table, emissions, alpha, z = ctx.saved_tensors
            of_table, of_emissions = torch.zeros_like(table), torch.zeros_like(emissions)
            for b, n in enumerate(ctx.lengths):
                beta = torch.zeros_like(table[0])
                for t in reversed(range(emissions.shape[1] if mistake == "padding too" else n)):
                    of_emissions[b, t] = g[b] * (alpha[b, t] + beta - z[b]).exp()
                    if t > 0:
                        onward = table + (emissions[b, t] + beta)
                        factor = 0.98 if mistake == "the second row" and b == 1 else 1
                        of_table += factor * g[b] * (alpha[b, t - 1][:, None] + onward - z[b]).exp()
                        beta = onward.logsumexp(1)
            total = of_table.sum(0 if mistake == "the other axis" else 1, keepdim=True)
            return of_table - table.exp() * total, of_emissions, None

    return Markov


# ---- a complex activation
def modulus(z: Tensor, b: Tensor) -> Tensor:
    return (z.abs() + b).clamp(min=0) * z / z.abs()


def activation(mistake: str) -> type[Function]:
    class Activation(Function):
        @staticmethod
        def forward(ctx: Any, z: Tensor, b: Tensor) -> Tensor:
            ctx.save_for_backward(z, b)
            return modulus(z, b)

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
            z, b = ctx.saved_tensors
            size = z.abs()
            u, on, scale = z / size, (size + b > 0).to(size.dtype), (size + b).clamp(min=0) / size
            radial = (g * (u if mistake == "no conjugate" else u.conj())).real
            of_z = scale * g + (0 if mistake == "the size is constant" else (on - scale) * u * radial)
            return of_z, (radial * (1 if mistake == "no mask" else on)).sum(0)

    return Activation


TWINS = {
    "rays": Twins(rays, ("depth", "opacity", "the next sample"), rendered, lambda seed: (
        between(0, 2, 2, 4, seed=seed), normal(2, 4, 3, seed=seed + 1), between(0, 0.3, 2, 4, seed=seed + 2).cumsum(1) + 1, 3.0)),
    "scan": Twins(scan, ("a at a chunk's start", "the next decay", "no state between chunks"), scanned, lambda seed: (
        between(0.3, 0.95, 4, seed=seed), normal(4, 2, seed=seed + 1), normal(4, 2, seed=seed + 2), normal(4, 2, seed=seed + 3), 2)),
    "edges": Twins(edges, ("the inner product of the source", "another slope", "not by the target"), attended, lambda seed: (
        normal(4, 2, seed=seed), normal(4, seed=seed + 1), SOURCES, TARGETS)),
    "markov": Twins(markov, ("padding too", "the second row", "the other axis"), likelihood, lambda seed: (
        normal(3, 3, seed=seed), normal(2, 3, 3, seed=seed + 1), [3, 2])),
    "activation": Twins(activation, ("no conjugate", "the size is constant", "no mask"), modulus, lambda seed: (
        complex_normal(3, 2, seed=seed), torch.tensor([0.1, -1.1], dtype=torch.float64))),
}
