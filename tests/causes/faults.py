"""200 damaged backwards of 20 kinds, each with the causes that may be named for it: labels by what was done, not by what is printed.

A label lists every name that says something true of the whole damage. A factor 1/2 on an operator that is its own mirror image is as well a
symmetrisation that is missing, and a mask that is dropped a missing factor.
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
from causes.operators import COMPLEX, OPERATORS, attention, rope, rope_of_neighbours
from gradverify.model.result import CaseResult
from gradverify.subject.prepare import assemble, drawn_inputs
from gradverify.verify import verify

Gradients = list[Any]
Backward = Callable[[Sequence[Tensor], Tensor], Gradients]
Change = Callable[[Any, Sequence[Tensor]], Any]


@dataclass(frozen=True)
class Fault:
    """A damaged backward of an operator. `input`: whose gradient is wrong; `accepted`: names of causes that are true of it."""

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
        leaves = [x.detach().requires_grad_() if x.is_floating_point() or x.is_complex() else x for x in inputs]
        wanted = [x for x in leaves if x.requires_grad]
        found = iter(torch.autograd.grad(f(*leaves), wanted, g, allow_unused=True))
        return [next(found) if x.requires_grad else None for x in leaves]


def checked(name: str, backward: Backward, **settings: Any) -> CaseResult:
    """The check of an operator with that backward, inputs drawn by the recipes; without the rules that are not about values."""
    operator = OPERATORS[name]
    dtype = "complex128" if name in COMPLEX else "float64"
    described = case(name, operator.recipes, dtype=dtype, **{"select": ("GV101", "GV114", "GV201", "GV223"), **settings})
    target = live("live", function(operator.f, backward), None, torch.float64)
    return verify(assemble(described, target, drawn_inputs(described, torch.device("cpu"))))


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


def cotangent(kind: str, operator: str, input_: str, change: Callable[[Tensor, Sequence[Tensor]], Tensor], *accepted: str) -> Fault:
    """The right gradient of a changed grad_output."""
    k, f = _place(operator, input_), OPERATORS[operator].f

    def backward(inputs: Sequence[Tensor], g: Tensor) -> Gradients:
        grads = vjp(f, inputs, g)
        grads[k] = vjp(f, inputs, change(g, inputs))[k]
        return grads

    return Fault(kind, operator, input_, backward, frozenset(accepted))


def instead(kind: str, operator: str, input_: str, other: Callable[..., Tensor], *accepted: str) -> Fault:
    """The gradient of another function: `other`(inputs at which it is linearised)(inputs)."""
    k, f = _place(operator, input_), OPERATORS[operator].f

    def backward(inputs: Sequence[Tensor], g: Tensor) -> Gradients:
        grads = vjp(f, inputs, g)
        grads[k] = vjp(other(*inputs), inputs, g)[k]
        return grads

    return Fault(kind, operator, input_, backward, frozenset(accepted))


def written(kind: str, operator: str, input_: str, formula: Callable[..., Tensor], *accepted: str) -> Fault:
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


def _each(make: Callable[..., Fault], kind: str, places: str, change: Any, *accepted: str) -> Iterator[Fault]:
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
def _sign() -> Iterator[Fault]:
    places = "matmul / w, linear / x, softmax / x, layer norm / w, attention / k, average pool / x, swiglu / a, cross entropy / x"
    yield from _each(gradient, "sign", places, lambda g, _: -g, "sign flipped")
    yield instead("sign", "rope", "x", lambda *_: partial(rope, turn=-1.0), "sign flipped")
    yield instead("sign", "rope of neighbours", "x", lambda *_: partial(rope_of_neighbours, turn=-1.0), "sign flipped")


def _factor() -> Iterator[Fault]:
    yield from _each(gradient, "factor", "gelu / x, norm / x, triangular solve / b, embedding / table", lambda g, _: 2 * g, "scaled")
    yield from _each(gradient, "factor", "sum of squares / x, quadratic form / x, rms norm / w", lambda g, _: g / 2, "scaled")
    yield gradient("factor", "gram", "x", lambda g, _: g / 2, "scaled", "missing symmetrisation")
    yield from _each(gradient, "factor", "logsumexp / x, conv2d / w", lambda g, _: g / 8, "scaled")


def _mean() -> Iterator[Fault]:
    yield gradient("mean or sum", "cross entropy", "x", lambda g, xs: g * len(xs[0]), "scaled")
    yield from _each(gradient, "mean or sum", "mse / x, mse / y", lambda g, xs: g * g.numel(), "scaled")
    yield gradient("mean or sum", "kl", "x", lambda g, _: g * 4, "scaled")
    yield gradient("mean or sum", "average pool", "x", lambda g, _: g * 4, "scaled")
    yield gradient("mean or sum", "mean over tokens", "x", lambda g, _: g * 6, "scaled")
    yield gradient("mean or sum", "variance", "x", lambda g, _: g * 7, "scaled")
    yield gradient("mean or sum", "linear", "b", lambda g, _: g / 6, "scaled")
    yield gradient("mean or sum", "layer norm", "b", lambda g, _: g / 4, "scaled")
    yield gradient("mean or sum", "add", "b", lambda g, _: g / 5, "scaled")


def _conjugate() -> Iterator[Fault]:
    one = ("exp", "square", "sine", "reciprocal", "tanh", "cubic")
    two = (("complex multiply", "x"), ("complex multiply", "y"), ("complex divide", "x"), ("complex matmul", "y"))
    for operator, input_ in (*((f"complex {name}", "x") for name in one), *two):
        k, f = _place(operator, input_), OPERATORS[operator].f

        def backward(inputs: Sequence[Tensor], g: Tensor, k: int = k, f: Callable[..., Tensor] = f) -> Gradients:
            grads = vjp(f, inputs, g)
            grads[k] = vjp(f, inputs, g.conj())[k].conj()
            return grads

        yield Fault("conjugate", operator, input_, backward, frozenset(["missing conjugate"]))


def _transposed() -> Iterator[Fault]:
    yield from _each(gradient, "transposed", "matmul / w, linear / w, square linear / w, square matmul / w, gelu / x, batched matmul / w",
                     lambda g, _: g.mT.reshape(g.shape), "transposed")
    yield written("transposed", "square matmul", "x", lambda g, x, w: g @ w, "transposed")
    yield written("transposed", "square linear", "x", lambda g, x, w, b: g @ w.mT, "transposed")
    yield instead("transposed", "square solve", "b", lambda a0, b0: lambda a, b: _solve_transposed(a, b), "transposed")
    yield written("transposed", "triangular solve", "b", lambda g, a, b: OPERATORS["triangular solve"].f(a, g), "transposed")


def _solve_transposed(a: Tensor, b: Tensor) -> Tensor:
    return torch.linalg.solve_triangular((a.tril(-1) + torch.diag(1 + a.diagonal() ** 2)).mT, b, upper=True)


def _swapped() -> Iterator[Fault]:
    for operator, one, other in (("swiglu", "a", "b"), ("geglu", "a", "b"), ("multiply", "x", "y"), ("divide", "x", "y"), ("hypotenuse", "x", "y"),
                                 ("attention", "q", "k"), ("causal attention", "k", "v"), ("bilinear", "x", "y"), ("kl", "x", "y"),
                                 ("complex multiply", "x", "y")):
        yield exchanged(operator, one, other)


def _rolled() -> Iterator[Fault]:
    moved = ("shifted", "permuted")
    places = "softmax / x, layer norm / x, gelu / x, conv1d / x, cumsum / x, attention / v"
    yield from _each(gradient, "rolled", places, lambda g, _: g.roll(1, -1), *moved)
    yield cotangent("rolled", "matmul", "x", lambda g, _: g.roll(1, 0), *moved)
    yield gradient("rolled", "rope", "x", lambda g, _: g.roll(1, 2), *moved)
    yield gradient("rolled", "linear", "b", lambda g, _: g[[2, 0, 3, 1]], *moved)
    yield cotangent("rolled", "triangular solve", "b", lambda g, _: g[:, [2, 0, 1]], *moved)


def _broadcast() -> Iterator[Fault]:
    """Of a sum one slice."""
    def first(axis: int) -> Callable[[Tensor, Sequence[Tensor]], Tensor]:
        return lambda g, _: torch.cat([g.narrow(axis, 0, 1), torch.zeros_like(g.narrow(axis, 1, g.shape[axis] - 1))], axis)

    places = "linear / b, layer norm / b, layer norm / w, rms norm / w, add / b, multiply by row / y, affine / w, batch of bias / b"
    yield from _each(cotangent, "broadcast sum", places, first(0), "missing reduction")
    yield cotangent("broadcast sum", "bias of channels", "b", first(2), "missing reduction")
    yield cotangent("broadcast sum", "add of column", "b", first(1), "missing reduction")


def _operand() -> Iterator[Fault]:
    missing = ("missing factor", "extra factor")
    yield written("operand", "swiglu", "a", lambda g, a, b: vjp(F.silu, [a], g)[0], *missing)
    yield written("operand", "swiglu", "b", lambda g, a, b: g, *missing)
    yield written("operand", "geglu", "a", lambda g, a, b: g * b, *missing)
    yield written("operand", "divide", "x", lambda g, x, y: g, *missing)
    yield written("operand", "divide", "y", lambda g, x, y: -g * x / y, *missing)
    yield written("operand", "tanh", "x", lambda g, x: g, *missing)
    yield written("operand", "cube", "x", lambda g, x: 3 * x * g, *missing)
    yield written("operand", "layer norm", "x", lambda g, x, w, b: vjp(lambda x: F.layer_norm(x, x.shape[-1:]), [x], g)[0], *missing,
                  "scaled per column")
    yield written("operand", "rms norm", "x", lambda g, x, w: vjp(lambda x: OPERATORS["rms norm"].f(x, torch.ones_like(w)), [x], g)[0], *missing,
                  "scaled per column")
    yield written("operand", "scaled by rows", "x", lambda g, x, s: g * x.cos(), *missing, "scaled per row")


def _rank_one() -> Iterator[Fault]:
    term = ("missing rank-one term",)
    yield written("rank one", "softmax", "x", lambda g, x: g * x.softmax(-1), *term)
    yield written("rank one", "log softmax", "x", lambda g, x: g, *term)
    yield written("rank one", "unit vectors", "x", lambda g, x: g / x.norm(dim=-1, keepdim=True), *term)
    yield written("rank one", "rms norm", "x", lambda g, x, w: g * w * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt(), *term)
    yield instead("rank one", "layer norm", "x", lambda x0, w0, b0: lambda x, w, b: (x - x.mean(-1, keepdim=True)) * _rstd(x0) * w + b, *term)
    yield instead("rank one", "layer norm", "x", lambda x0, w0, b0: lambda x, w, b: (x - x0.mean(-1, keepdim=True)) * _rstd(x) * w + b, *term)
    yield instead("rank one", "group norm", "x", lambda x0: partial(_group, spread=x0), *term)
    yield instead("rank one", "group norm", "x", lambda x0: partial(_group, mean=x0), *term)
    yield written("rank one", "cross entropy of each", "x", lambda g, x, t: g[:, None] * x.softmax(-1), *term)
    yield instead("rank one", "attention", "q", lambda q0, k0, v0: partial(_frozen_sum, q0=q0, k0=k0), *term)


def _rstd(x: Tensor) -> Tensor:
    return (x.var(-1, unbiased=False, keepdim=True) + 1e-5).rsqrt()


def _group(x: Tensor, mean: Tensor | None = None, spread: Tensor | None = None) -> Tensor:
    """group norm in 2 groups, its mean or its spread taken for a constant."""
    grouped, of_mean, of_spread = (each.reshape(2, 2, -1) for each in (x, x if mean is None else mean, x if spread is None else spread))
    return ((grouped - of_mean.mean(-1, keepdim=True)) * _rstd(of_spread)).reshape(x.shape)


def _frozen_sum(q: Tensor, k: Tensor, v: Tensor, q0: Tensor, k0: Tensor) -> Tensor:
    scores, there = q @ k.mT / 2, q0 @ k0.mT / 2
    return (scores.exp() / there.exp().sum(-1, keepdim=True)) @ v


def _tail() -> Iterator[Fault]:
    block = ("zero block",)
    yield from _each(gradient, "tail", "gelu / x, silu / x, leaky relu / x, elu / x, conv2d / x, softplus / x", tail(32), *block)
    yield from _each(gradient, "tail", "layer norm / x, softmax / x, attention / v", tail(16), *block)
    yield gradient("tail", "matmul", "w", tail(16), *block)


def _boundary() -> Iterator[Fault]:
    border = ("wrong at the border", "zero block", "wrong block")
    yield instead("boundary", "moving average", "x", lambda *_: lambda x: F.avg_pool1d(x, 3, 1, 1), *border)
    yield written("boundary", "edge conv2d", "x", lambda g, x, w: vjp(lambda x: F.conv2d(x, w, padding=1), [x], g)[0], *border)
    yield from _each(gradient, "boundary", "gelu / x, silu / x, cumsum of squares / x, interpolate / x", rim((-1,), 0.0), *border)
    yield from _each(gradient, "boundary", "conv1d / x, tanh / x", rim((-1,), 2.0), *border)
    yield gradient("boundary", "edge conv2d", "x", rim((-1, -2), 0.5), *border)
    yield gradient("boundary", "average pool", "x", rim((-1, -2), 0.0), *border)


def _negative() -> Iterator[Fault]:
    def below(factor: float) -> Change:
        return lambda g, xs: torch.where(xs[0] < 0, factor * g, g)

    where = ("wrong only where x < 0", "wrong only where y0 < 0")
    yield from _each(gradient, "negative", "gelu / x, silu / x, elu / x, tanh / x, softplus / x", below(0.0), *where)
    yield from _each(gradient, "negative", "leaky relu / x, selu / x, cube / x", below(-1.0), *where, "sign flipped")
    yield written("negative", "elu", "x", lambda g, x: torch.where(x < 0, 0.1 * g, g), *where)
    yield written("negative", "multiply", "x", lambda g, x, y: torch.where(x < 0, 0 * g, g * y), *where)


def _mask() -> Iterator[Fault]:
    dropped = ("wrong only where m is 0", "missing factor", "wrong only where y0 is 0")
    yield written("mask", "dropout", "x", lambda g, x, m: g * x.cos() / 0.5, *dropped)
    yield written("mask", "masked fill", "x", lambda g, x, m: g * x.exp(), *dropped)
    yield written("mask", "masked softplus", "x", lambda g, x, m: g * x.sigmoid(), *dropped)
    yield written("mask", "masked tokens", "x", lambda g, x, m: g * 2 * x, *dropped)
    yield written("mask", "masked loss", "x", lambda g, x, y, m: g * 2 * (x - y), *dropped)
    yield written("mask", "relu", "x", lambda g, x: g, "wrong only where x < 0", "wrong only where y0 is 0", "missing factor")
    yield written("mask", "leaky relu", "x", lambda g, x: g, "wrong only where x < 0", "wrong only where y0 < 0")
    yield written("mask", "gated relu", "x", lambda g, x, b: g * b, "wrong only where x < 0", "wrong only where y0 is 0")
    yield instead("mask", "causal attention", "v", lambda *_: attention)
    yield instead("mask", "causal attention", "q", lambda *_: attention)


def _ignores() -> Iterator[Fault]:
    for operator, input_ in (("gelu", "x"), ("matmul", "x"), ("softmax", "x"), ("layer norm", "x"), ("mse", "x"), ("cross entropy", "x"),
                             ("norm", "x"), ("swiglu", "a"), ("conv1d", "b"), ("logsumexp", "x")):
        yield cotangent("ignores grad_output", operator, input_, lambda g, _: torch.ones_like(g), "ignores grad_output")


def _constant() -> Iterator[Fault]:
    off = ("constant slightly off",)
    yield gradient("constant", "power of two", "x", lambda g, _: g * 0.6931 / 0.6931471805599453, *off)
    yield gradient("constant", "sine of degrees", "x", lambda g, _: g * 3.1416 / 3.141592653589793, *off)
    yield gradient("constant", "decibel", "x", lambda g, _: g * 2.302585092994046 / 2.3026, *off)
    half = float(torch.tensor(0.7071, dtype=torch.float16)) / 0.7071
    yield from _each(gradient, "constant", "attention / q, matmul / x", lambda g, _: g * half, *off)
    yield from _each(gradient, "constant", "average pool / x, mean over tokens / x", lambda g, _: g * 0.3333 * 3, *off)
    yield gradient("constant", "softmax", "x", lambda g, _: g * (1 + 2e-5), *off)
    yield written("constant", "gelu", "x", lambda g, x: g * (0.5 * (1 + torch.erf(x * 0.7071)) + x * torch.exp(-x * x / 2) * 0.3989), *off)
    yield written("constant", "selu", "x", lambda g, x: g * torch.where(x > 0, 1.05, 1.759 * x.exp()), *off, "wrong only where x < 0",
                  "wrong only where y0 < 0")


def _half() -> Iterator[Fault]:
    def half(dtype: torch.dtype) -> Change:
        return lambda g, _: g.to(dtype).double()

    places = "gelu / x, softmax / x, layer norm / x, attention / v, silu / x"
    yield from _each(gradient, "narrow type", places, half(torch.float16), "computed in float16")
    yield from _each(gradient, "narrow type", "rms norm / x, tanh / x, logsumexp / x", half(torch.bfloat16), "computed in bfloat16")
    yield written("narrow type", "swiglu", "a", lambda g, a, b: vjp(F.silu, [a.half()], g.half() * b.half())[0].double(), "computed in float16")
    yield written("narrow type", "square matmul", "x", lambda g, x, w: (g.half() @ w.half().mT).double(), "computed in float16")


def _rows() -> Iterator[Fault]:
    scaled = ("scaled per row", "scaled per slice")
    yield from _each(gradient, "row scale", "log softmax / x, layer norm / x, gelu / x, norm / x, cumsum / x, linear / w, matmul / x, rms norm / x",
                     lambda g, _: g * ramp(g, 0), *scaled, "scaled")
    yield from _each(gradient, "row scale", "attention / q, conv1d / x", lambda g, _: g * ramp(g, 1), *scaled)


def _columns() -> Iterator[Fault]:
    scaled = ("scaled per column", "scaled per slice")
    yield from _each(gradient, "column scale", "softmax / x, layer norm / x, gelu / x, norm / x, cumsum / x, linear / w, matmul / w, swiglu / b",
                     lambda g, _: g * ramp(g, -1), *scaled)
    yield from _each(gradient, "column scale", "attention / v, rope / x", lambda g, _: g * ramp(g, -1), *scaled)


def _overwritten() -> Iterator[Fault]:
    name = "repeated index overwritten"

    def rows(g: Tensor, x: Tensor, index: Tensor) -> Tensor:
        return torch.zeros_like(x).index_copy(0, index.reshape(-1), g.reshape(-1, x.shape[1]))

    def columns(g: Tensor, x: Tensor, index: Tensor) -> Tensor:
        return torch.zeros_like(x).index_copy(1, index, g)

    yield written("overwritten", "embedding", "table", rows, name)
    yield written("overwritten", "embedding of sequences", "table", rows, name)
    yield written("overwritten", "index select", "x", columns, name)
    yield written("overwritten", "gather", "x", lambda g, x, index: torch.zeros_like(x).scatter(1, index, g), name)
    yield written("overwritten", "scaled rows", "table", lambda g, table, index, s: rows(g * s[:, None], table, index), name)
    yield written("overwritten", "embedding", "table", lambda g, x, index: rows(g.flip(0), x, index.flip(0)), name)
    yield written("overwritten", "embedding of sequences", "table", lambda g, x, index: rows(g.flip(0), x, index.flip(0)), name)
    yield written("overwritten", "index select", "x", lambda g, x, index: columns(g.flip(1), x, index.flip(0)), name)
    yield written("overwritten", "gather", "x", lambda g, x, index: torch.zeros_like(x).scatter(1, index.flip(1), g.flip(1)), name)
    yield written("overwritten", "scaled rows", "table",
                  lambda g, table, index, s: rows((g * s[:, None]).flip(0), table, index.flip(0)), name)


KINDS = (_sign, _factor, _mean, _conjugate, _transposed, _swapped, _rolled, _broadcast, _operand, _rank_one, _tail, _boundary, _negative, _mask,
         _ignores, _constant, _half, _rows, _columns, _overwritten)
FAULTS: tuple[Fault, ...] = tuple(fault for kind in KINDS for fault in kind())
