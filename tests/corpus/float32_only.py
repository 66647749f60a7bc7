"""Everyday operators as right kernels that take float32 alone: in torch, in NumPy and as custom
operators.

Each asserts the dtype; its gradient is torch's own, in float32. `DAMAGES` are done to the gradient
of the first input.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from live import check
from torch import Tensor
from torch.autograd import Function

Shapes = tuple[tuple[int, ...], ...]


def softmax(m: Any, x: Any) -> Any:
    e = m.exp(x - m.amax(x, axis=-1, keepdims=True))
    return e / m.sum(e, axis=-1, keepdims=True)


def mean(m: Any, x: Any) -> Any:
    return m.sum(x, axis=-1, keepdims=True) / x.shape[-1]


def layer_norm(m: Any, x: Any, w: Any, b: Any) -> Any:
    c = x - mean(m, x)
    return c / m.sqrt(mean(m, c * c) + 1e-5) * w + b


def rms_norm(m: Any, x: Any, w: Any) -> Any:
    return x / m.sqrt(mean(m, x * x) + 1e-6) * w


def sigmoid(m: Any, x: Any) -> Any:
    return 1 / (1 + m.exp(-x))


def attention(m: Any, q: Any, k: Any, v: Any) -> Any:
    return softmax(m, q @ m.swapaxes(k, -1, -2) / q.shape[-1] ** 0.5) @ v


def log_softmax(m: Any, x: Any) -> Any:
    c = x - m.amax(x, axis=-1, keepdims=True)
    return c - m.log(m.sum(m.exp(c), axis=-1, keepdims=True))


def conv1d(m: Any, x: Any, w: Any) -> Any:
    n = x.shape[-1] - 2
    return sum(w[:, :, i] @ x[:, i : i + n] for i in range(3))


def huber(m: Any, x: Any, y: Any) -> Any:
    off = m.abs(x - y)
    return m.sum(m.where(off < 1, 0.5 * off * off, off - 0.5), axis=-1) / x.shape[-1]


OPERATORS: dict[str, tuple[Callable[..., Any], Shapes]] = {
    "softmax of a product": (lambda m, a, b: softmax(m, a @ b), ((4, 6), (6, 5))),
    "cross entropy": (lambda m, x: -log_softmax(m, x)[:, 2], ((6, 5),)),
    "layer_norm": (layer_norm, ((4, 8), (8,), (8,))),
    "residual rms_norm": (lambda m, x, r, w: r + rms_norm(m, x + r, w), ((3, 8), (3, 8), (8,))),
    "attention": (attention, ((5, 4), (6, 4), (6, 3))),
    "swiglu": (lambda m, x, y: x * sigmoid(m, x) * y, ((4, 8), (4, 8))),
    "huber": (huber, ((4, 7), (4, 7))),
    "conv1d": (conv1d, ((3, 10), (4, 3, 3))),
    "cumulative sum": (lambda m, x: m.tanh(m.cumsum(x, axis=-1)), ((3, 9),)),
}
MADE: dict[str, Callable[..., Tensor]] = {}
STYLES = ("torch", "numpy", "custom op")


def one_element(g: Tensor) -> Tensor:
    return _at_largest(g, 1.01)


def zeroed(g: Tensor) -> Tensor:
    return _at_largest(g, 0.0)


def _at_largest(g: Tensor, factor: float) -> Tensor:
    g = g.clone()
    g.view(-1)[g.abs().argmax()] *= factor
    return g


DAMAGES: dict[str, Callable[[Tensor], Tensor]] = {
    "1 % of one element": one_element,
    "a zeroed element": zeroed,
    "sign": lambda g: -g,
    "factor": lambda g: 1.02 * g,
}


def values(style: str, f: Callable[..., Any], name: str) -> Callable[..., Tensor]:
    """The forward in a style; it refuses all but float32."""

    def in_torch(*tensors: Tensor) -> Tensor:
        assert all(x.dtype == torch.float32 for x in tensors), "float32 only"
        found: Tensor = f(torch, *tensors)
        return found

    def in_numpy(*tensors: Tensor) -> Tensor:
        arrays = [x.detach().numpy() for x in tensors]
        assert all(a.dtype == np.float32 for a in arrays), "float32 only"
        return torch.from_numpy(np.ascontiguousarray(f(np, *arrays)))

    if style == "numpy":
        return in_numpy
    if style == "torch":
        return in_torch
    operator = "float32_only::" + "".join(c for c in name if c.isalnum())
    arguments = ", ".join(f"Tensor x{n}" for n in range(len(OPERATORS[name][1])))
    if operator not in MADE:
        MADE[operator] = torch.library.custom_op(
            operator, in_torch, mutates_args=(), schema=f"({arguments}) -> Tensor"
        )
    return MADE[operator]


def kernel(
    style: str, name: str, damage: Callable[[Tensor], Tensor] = lambda g: g
) -> type[Function]:
    """A Function with torch's own gradient in float32, that of the first input damaged."""
    f = OPERATORS[name][0]
    forward_in_style = values(style, f, name)

    class Kernel(Function):
        @staticmethod
        def forward(ctx: Any, *tensors: Tensor) -> Tensor:
            ctx.save_for_backward(*tensors)
            return forward_in_style(*tensors)

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Any:
            assert g.dtype == torch.float32, "float32 only"
            with torch.enable_grad():
                leaves = [x.detach().requires_grad_() for x in ctx.saved_tensors]
                first, *rest = torch.autograd.grad(f(torch, *leaves), leaves, g)
            return damage(first), *rest

    return Kernel


def drawn(name: str, seed: int) -> list[Tensor]:
    source = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=source) for shape in OPERATORS[name][1]]


def verdict(
    style: str, name: str, seed: int, damage: Callable[[Tensor], Tensor] = lambda g: g
) -> Any:
    return check(
        kernel(style, name, damage),
        *drawn(name, seed),
        dtype="float32",
        select=("GV101", "GV103", "GV104"),
    )
