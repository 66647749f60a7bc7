"""Damaged backwards of every kind, each with the causes that may be named for it: labels by what
was done, not by what is printed.

A label lists every name that says something true of the whole damage: a mask that is dropped is a
missing factor too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from live import case, live
from torch import Tensor
from torch.nn import functional as F

from causes.damaged import function
from causes.operators import COMPLEX, OPERATORS, attention, rope
from gradverify.model.result import CaseResult
from gradverify.subject.prepare import assemble, drawn_inputs
from gradverify.verify import verify

Gradients = list[Any]
Backward = Callable[[Sequence[Tensor], Tensor], Gradients]
Change = Callable[[Any, Sequence[Tensor]], Any]


@dataclass(frozen=True)
class Fault:
    """A damaged backward of an operator. `input`: whose gradient is wrong; `accepted`: names of
    causes that are true of it."""

    kind: str
    operator: str
    input: str
    backward: Backward
    accepted: frozenset[str]

    @property
    def id(self) -> str:
        return f"{self.kind}: {self.operator} / {self.input}"


def vjp(f: Callable[..., Tensor], inputs: Sequence[Tensor], g: Tensor) -> Gradients:
    """By autograd; None for integers."""
    with torch.enable_grad():
        leaves = [
            x.detach().requires_grad_() if x.is_floating_point() or x.is_complex() else x
            for x in inputs
        ]
        wanted = [x for x in leaves if x.requires_grad]
        found = iter(torch.autograd.grad(f(*leaves), wanted, g, allow_unused=True))
        return [next(found) if x.requires_grad else None for x in leaves]


def checked(name: str, backward: Backward, **settings: Any) -> CaseResult:
    """The check of an operator with that backward, inputs drawn by the recipes; without the rules
    that are not about values."""
    operator = OPERATORS[name]
    dtype = "complex128" if name in COMPLEX else "float64"
    described = case(
        name,
        operator.recipes,
        dtype=dtype,
        **{"select": ("GV101", "GV114", "GV201", "GV223"), **settings},
    )
    target = live("live", function(operator.f, backward), None, torch.float64)
    return verify(assemble(described, target, drawn_inputs(described)))


# ---- how a backward is damaged
def _place(operator: str, input_: str) -> int:
    return OPERATORS[operator].names.index(input_)


def gradient(kind: str, operator: str, input_: str, change: Change, *accepted: str) -> Fault:
    """The right gradient, changed afterwards: `change`(gradient, inputs)."""
    k, f = _place(operator, input_), OPERATORS[operator].f

    def backward(inputs: Sequence[Tensor], g: Tensor) -> Gradients:
        grads = vjp(f, inputs, g)
        grads[k] = change(grads[k], inputs)
        return grads

    return Fault(kind, operator, input_, backward, frozenset(accepted))


def cotangent(
    kind: str,
    operator: str,
    input_: str,
    change: Callable[[Tensor, Sequence[Tensor]], Tensor],
    *accepted: str,
) -> Fault:
    """The right gradient of a changed grad_output."""
    k, f = _place(operator, input_), OPERATORS[operator].f

    def backward(inputs: Sequence[Tensor], g: Tensor) -> Gradients:
        grads = vjp(f, inputs, g)
        grads[k] = vjp(f, inputs, change(g, inputs))[k]
        return grads

    return Fault(kind, operator, input_, backward, frozenset(accepted))


def instead(
    kind: str, operator: str, input_: str, other: Callable[..., Tensor], *accepted: str
) -> Fault:
    """The gradient of another function: `other`(inputs at which it is linearised)(inputs)."""
    k, f = _place(operator, input_), OPERATORS[operator].f

    def backward(inputs: Sequence[Tensor], g: Tensor) -> Gradients:
        grads = vjp(f, inputs, g)
        grads[k] = vjp(other(*inputs), inputs, g)[k]
        return grads

    return Fault(kind, operator, input_, backward, frozenset(accepted))


def written(
    kind: str, operator: str, input_: str, formula: Callable[..., Tensor], *accepted: str
) -> Fault:
    """A gradient written down: `formula`(g, *inputs)."""
    k, f = _place(operator, input_), OPERATORS[operator].f

    def backward(inputs: Sequence[Tensor], g: Tensor) -> Gradients:
        grads = vjp(f, inputs, g)
        grads[k] = formula(g, *inputs)
        return grads

    return Fault(kind, operator, input_, backward, frozenset(accepted))


def exchanged(operator: str, one: str, other: str) -> Fault:
    """The gradients of two inputs in the other order."""
    a, b, f = _place(operator, one), _place(operator, other), OPERATORS[operator].f

    def backward(inputs: Sequence[Tensor], g: Tensor) -> Gradients:
        grads = vjp(f, inputs, g)
        grads[a], grads[b] = grads[b], grads[a]
        return grads

    return Fault("swapped inputs", operator, one, backward, frozenset(["swapped inputs"]))


def _each(
    make: Callable[..., Fault], kind: str, places: str, change: Any, *accepted: str
) -> Iterator[Fault]:
    """The same damage to several (operator / input)."""
    for place in places.split(", "):
        operator, input_ = place.split(" / ")
        yield make(kind, operator, input_, change, *accepted)


def ramp(x: Tensor, axis: int) -> Tensor:
    """A factor of its own for each position along an axis."""
    shape = [1] * x.dim()
    shape[axis] = -1
    return (0.5 + torch.arange(x.shape[axis], dtype=torch.float64)).reshape(shape) ** 1.5 - 1.1


def tail(first: int) -> Change:
    """Zeros from an element on."""

    def change(g: Tensor, inputs: Sequence[Tensor]) -> Tensor:
        flat = g.reshape(-1).clone()
        flat[first:] = 0
        return flat.reshape(g.shape)

    return change


def rim(axes: tuple[int, ...], factor: float) -> Change:
    """Another factor at the first and last position of axes."""

    def change(g: Tensor, inputs: Sequence[Tensor]) -> Tensor:
        scale = torch.ones_like(g)
        for axis in axes:
            for end in (0, -1):
                scale.select(axis, end).fill_(factor)
        return g * scale

    return change


# ---- the kinds
def _first(axis: int) -> Callable[[Tensor, Sequence[Tensor]], Tensor]:
    """Of a sum over an axis one slice."""
    return lambda g, _: torch.cat(
        [g.narrow(axis, 0, 1), torch.zeros_like(g.narrow(axis, 1, g.shape[axis] - 1))], axis
    )


def _below(factor: float) -> Change:
    return lambda g, xs: torch.where(xs[0] < 0, factor * g, g)


def _rows(g: Tensor, x: Tensor, index: Tensor) -> Tensor:
    return torch.zeros_like(x).index_copy(0, index.reshape(-1), g.reshape(-1, x.shape[1]))


def _conjugate(operator: str, input_: str) -> Fault:
    k, f = _place(operator, input_), OPERATORS[operator].f

    def backward(inputs: Sequence[Tensor], g: Tensor) -> Gradients:
        grads = vjp(f, inputs, g)
        grads[k] = vjp(f, inputs, g.conj())[k].conj()
        return grads

    return Fault("conjugate", operator, input_, backward, frozenset(["missing conjugate"]))


def _frozen_mean(x0: Tensor, w0: Tensor, b0: Tensor) -> Callable[..., Tensor]:
    return lambda x, w, b: (
        (x - x0.mean(-1, keepdim=True))
        * (x.var(-1, unbiased=False, keepdim=True) + 1e-5).rsqrt()
        * w
        + b
    )


FACTOR = ("missing factor", "extra factor")
BELOW = ("wrong only where x < 0", "wrong only where y0 < 0")
DROPPED = ("wrong only where m is 0", "missing factor", "wrong only where y0 is 0")
OVERWRITTEN = "repeated index overwritten"
FAULTS: tuple[Fault, ...] = (
    *_each(
        gradient, "sign", "linear / x, softmax / x, attention / k", lambda g, _: -g, "sign flipped"
    ),
    instead("sign", "rope", "x", lambda *_: partial(rope, turn=-1.0), "sign flipped"),
    *_each(
        gradient,
        "factor",
        "gelu / x, triangular solve / b, embedding / table",
        lambda g, _: 2 * g,
        "scaled",
    ),
    gradient("factor", "gram", "x", lambda g, _: g / 2, "scaled"),
    gradient("mean or sum", "cross entropy", "x", lambda g, xs: g * len(xs[0]), "scaled"),
    gradient("mean or sum", "mse", "x", lambda g, xs: g * g.numel(), "scaled"),
    gradient("mean or sum", "linear", "b", lambda g, _: g / 6, "scaled"),
    _conjugate("complex square", "x"),
    _conjugate("complex divide", "x"),
    _conjugate("complex matmul", "y"),
    *_each(
        gradient,
        "transposed",
        "matmul / w, linear / w, batched matmul / w",
        lambda g, _: g.mT.reshape(g.shape),
        "transposed",
    ),
    written("transposed", "square matmul", "x", lambda g, x, w: g @ w, "transposed"),
    written(
        "transposed",
        "triangular solve",
        "b",
        lambda g, a, b: OPERATORS["triangular solve"].f(a, g),
        "transposed",
    ),
    exchanged("swiglu", "a", "b"),
    exchanged("attention", "q", "k"),
    exchanged("complex multiply", "x", "y"),
    *_each(
        cotangent,
        "broadcast sum",
        "linear / b, layer norm / w, batch of bias / b",
        _first(0),
        "missing reduction",
    ),
    cotangent("broadcast sum", "bias of channels", "b", _first(2), "missing reduction"),
    written("operand", "swiglu", "a", lambda g, a, b: vjp(F.silu, [a], g)[0], *FACTOR),
    written("operand", "divide", "y", lambda g, x, y: -g * x / y, *FACTOR),
    written("operand", "tanh", "x", lambda g, x: g, *FACTOR),
    written("operand", "cube", "x", lambda g, x: 3 * x * g, *FACTOR),
    *_each(gradient, "tail", "gelu / x, conv2d / x", tail(32), "zero block"),
    *_each(gradient, "tail", "softmax / x, matmul / w", tail(16), "zero block"),
    *_each(gradient, "negative", "gelu / x, softplus / x", _below(0.0), *BELOW),
    gradient("negative", "cube", "x", _below(-1.0), *BELOW, "sign flipped"),
    written("negative", "multiply", "x", lambda g, x, y: torch.where(x < 0, 0 * g, g * y), *BELOW),
    written("mask", "masked softplus", "x", lambda g, x, m: g * x.sigmoid(), *DROPPED),
    written("mask", "masked loss", "x", lambda g, x, y, m: g * 2 * (x - y), *DROPPED),
    written(
        "mask",
        "relu",
        "x",
        lambda g, x: g,
        "wrong only where x < 0",
        "wrong only where y0 is 0",
        "missing factor",
    ),
    *_each(
        cotangent,
        "ignores grad_output",
        "gelu / x, matmul / x, cross entropy / x",
        lambda g, _: torch.ones_like(g),
        "ignores grad_output",
    ),
    gradient("constant", "softmax", "x", lambda g, _: g * (1 + 2e-5), "constant slightly off"),
    gradient(
        "constant",
        "matmul",
        "x",
        lambda g, _: g * 3.1416 / 3.141592653589793,
        "constant slightly off",
    ),
    written("overwritten", "embedding", "table", _rows, OVERWRITTEN),
    written(
        "overwritten",
        "embedding of sequences",
        "table",
        lambda g, x, index: _rows(g.flip(0), x, index.flip(0)),
        OVERWRITTEN,
    ),
    written(
        "overwritten",
        "gather",
        "x",
        lambda g, x, index: torch.zeros_like(x).scatter(1, index, g),
        OVERWRITTEN,
    ),
    # what no known mistake explains
    *_each(gradient, "rolled", "softmax / x, conv1d / x", lambda g, _: g.roll(1, -1)),
    cotangent("rolled", "matmul", "x", lambda g, _: g.roll(1, 0)),
    instead(
        "boundary", "moving average", "x", lambda *_: lambda x: F.avg_pool1d(x, 3, 1, 1), "scaled"
    ),
    gradient("boundary", "conv1d", "x", rim((-1,), 2.0), "scaled"),
    written("rank one", "softmax", "x", lambda g, x: g * x.softmax(-1)),
    instead("rank one", "layer norm", "x", _frozen_mean),
    *_each(gradient, "narrow type", "gelu / x, attention / v", lambda g, _: g.half().double()),
    gradient("row scale", "layer norm", "x", lambda g, _: g * ramp(g, 0)),
    gradient("column scale", "attention", "v", lambda g, _: g * ramp(g, -1)),
    cotangent("permuted", "triangular solve", "b", lambda g, _: g[:, [2, 0, 1]]),
    instead("mask", "causal attention", "q", lambda *_: attention),
)
