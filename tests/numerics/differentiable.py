"""Torch callables as the `Function` that numerics checks, with a gradient that may be damaged."""

from __future__ import annotations

from unittest.mock import patch

import torch
from torch import Tensor

from gradverify.numerics import entries
from gradverify.numerics.choose import Mode
from gradverify.numerics.compare import compare
from gradverify.numerics.verdict import Verdict
from gradverify.oracles.finite_difference import Filled
from gradverify.subject.failure import blamed

DOUBLE = torch.float64


class Differentiable:
    """`forward(*inputs)` returns a tensor or a tuple; its gradient is torch's own, then
    `damage`d."""

    def __init__(self, forward, *inputs, damage=None):
        self.forward = forward
        self.inputs = [x.detach().clone() for x in inputs]
        self.damage = damage
        self.calls = self.backwards = 0
        self._graph: tuple[list[Tensor], list[Tensor]] | None = None

    def _outputs(self, inputs):
        with blamed("GV002", "forward"):
            out = self.forward(*inputs)
        return (
            [out]
            if isinstance(out, Tensor)
            else [o for o in out if o.is_floating_point() or o.is_complex()]
        )

    def values(self, inputs):
        self.calls += 1
        with torch.no_grad():
            return self._outputs(inputs)

    def _graph_at(self, inputs):
        leaves = [x.detach().clone().requires_grad_() for x in inputs]
        return leaves, self._outputs(leaves)

    def vjp(self, cotangents, inputs=None):
        self.backwards += 1
        if inputs is None and self._graph is None:
            self._graph = self._graph_at(self.inputs)
        leaves, outputs = self._graph if inputs is None else self._graph_at(inputs)
        used = [
            (o, c)
            for o, c in zip(outputs, cotangents, strict=True)
            if c is not None and o.requires_grad
        ]
        if not used:
            return [torch.zeros_like(x) for x in leaves]
        with blamed("GV003", "backward"):
            grads = torch.autograd.grad(
                [o for o, _ in used],
                leaves,
                [c for _, c in used],
                allow_unused=True,
                retain_graph=True,
            )
        filled = [
            torch.zeros_like(x) if g is None else g for g, x in zip(grads, leaves, strict=True)
        ]
        return self.damage(filled) if self.damage else filled

    def shaken(self, inputs, number):
        return Filled(self).shaken(inputs, number)

    def shaken_vjp(self, number, cotangents, inputs, roundings):
        return Filled(self).shaken_vjp(number, cotangents, inputs, roundings)

    def vjp_at(self, inputs, cotangents):
        return self.vjp(cotangents, inputs)


def with_backward(forward, backward):
    """One input, one output; backward(x, cotangent) by hand."""

    class Case(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return forward(x)

        @staticmethod
        def backward(ctx, g):
            return backward(ctx.saved_tensors[0], g)

    return Case.apply


def zeros(grads):
    return [torch.zeros_like(g) for g in grads]


def times(factor):
    return lambda grads: [g * factor for g in grads]


def leaf(*values, dtype=DOUBLE):
    return torch.tensor(values, dtype=dtype)


def normal(seed, *shape, k=1.0, dtype=DOUBLE):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype) * k


def spd(seed=2, eps=1.0, n=4):
    b = normal(seed, n, n)
    return b @ b.T + eps * torch.eye(n, dtype=DOUBLE)


def verdict(entries):
    """The worst of all pairs."""
    found = [pair.verdict for pair in entries.pairs]
    return next((v for v in (Verdict.MISMATCH, Verdict.UNDECIDED) if v in found), Verdict.PASS)


def check(forward, *inputs, damage=None, limit=entries.TILE_LIMIT, **options):
    """Every element, as a user's check compares them; `limit`: bytes of a tile and a chunk."""
    return check_function(Differentiable(forward, *inputs, damage=damage), limit, **options)


def check_function(function, limit=entries.TILE_LIMIT, **options):
    with patch.object(entries, "TILE_LIMIT", limit):
        return compare(function, mode=Mode.ENTRIES, **options)
