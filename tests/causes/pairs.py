"""40 operators with two faults at once: in different inputs, each of which is judged by its own label, or in one, where both together must be told.

Two faults in one gradient that amount to one known mistake may be named as that: a sign and a factor are one factor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from causes.faults import FAULTS, Backward, Change, Fault, Gradients, ramp, rim, tail, vjp
from causes.operators import OPERATORS


@dataclass(frozen=True)
class Two:
    """A backward with two faults, and the names that are true of each damaged input's gradient."""

    id: str
    operator: str
    backward: Backward
    accepted: Mapping[str, frozenset[str]]


APART = (("matmul", "sign", "w", "rolled", "x"), ("linear", "sign", "x", "transposed", "w"), ("linear", "mean or sum", "b", "row scale", "w"),
         ("linear", "broadcast sum", "b", "sign", "x"), ("linear", "rolled", "b", "column scale", "w"), ("layer norm", "rank one", "x", "sign", "w"),
         ("layer norm", "broadcast sum", "w", "mean or sum", "b"), ("layer norm", "tail", "x", "broadcast sum", "b"),
         ("layer norm", "operand", "x", "broadcast sum", "w"), ("rms norm", "rank one", "x", "factor", "w"),
         ("rms norm", "operand", "x", "broadcast sum", "w"),
         ("attention", "sign", "k", "rolled", "v"), ("attention", "row scale", "q", "tail", "v"), ("attention", "constant", "q", "sign", "k"),
         ("swiglu", "sign", "a", "column scale", "b"), ("swiglu", "operand", "a", "operand", "b"),
         ("square matmul", "transposed", "x", "transposed", "w"),
         ("square linear", "transposed", "x", "transposed", "w"), ("add", "mean or sum", "b", None, "x"), ("divide", "operand", "x", "operand", "y"))


def _apart() -> Iterator[Two]:
    for operator, kind, input_, other_kind, other_input in APART:
        one, other = _fault(kind, operator, input_), _fault(other_kind, operator, other_input)
        yield Two(f"{operator}: {kind} in {input_}, {other_kind} in {other_input}", operator, _joined(one, other),
                  {input_: one.accepted, other_input: other.accepted})


def _fault(kind: str | None, operator: str, input_: str) -> Fault:
    if kind is None:
        return Fault("none", operator, input_, lambda inputs, g: [3 * each for each in _right(operator, inputs, g)], frozenset(["scaled"]))
    return next(fault for fault in FAULTS if (fault.kind, fault.operator, fault.input) == (kind, operator, input_))


def _right(operator: str, inputs: Sequence[Tensor], g: Tensor) -> Gradients:
    return vjp(OPERATORS[operator].f, inputs, g)


def _joined(one: Fault, other: Fault) -> Backward:
    k = OPERATORS[other.operator].names.index(other.input)

    def backward(inputs: Sequence[Tensor], g: Tensor) -> Gradients:
        grads = one.backward(inputs, g)
        grads[k] = other.backward(inputs, g)[k]
        return grads

    return backward


# ---- in one gradient
def _row_scale(g: Tensor, inputs: Sequence[Tensor]) -> Tensor:
    return g * ramp(g, 0)


def _half_sized(g: Tensor, inputs: Sequence[Tensor]) -> Tensor:
    return g.half().double()


def _rolled(g: Tensor, inputs: Sequence[Tensor]) -> Tensor:
    return g.roll(1, -1)


def _negated(g: Tensor, inputs: Sequence[Tensor]) -> Tensor:
    return -g


def _below_zero(g: Tensor, inputs: Sequence[Tensor]) -> Tensor:
    return torch.where(inputs[0] < 0, 0.0, g)


def _plus_tenth(g: Tensor, inputs: Sequence[Tensor]) -> Tensor:
    return g + 0.1 * g.flip(0)


TOGETHER: tuple[tuple[str, str, str, Change, tuple[str, ...]], ...] = (   # a fault, and a change of what it returns; what both together are
    ("sign", "softmax", "x", lambda g, _: 2 * g, ("scaled",)), ("sign", "matmul", "w", _row_scale, ("scaled per row",)),
    ("sign", "rope", "x", _rolled, ()), ("sign", "rope", "x", lambda g, _: 1.5 * g, ()), ("sign", "cross entropy", "x", tail(16), ()),
    ("transposed", "square matmul", "x", _negated, ()), ("transposed", "square linear", "w", _row_scale, ()),
    ("rank one", "softmax", "x", _negated, ()), ("rank one", "layer norm", "x", lambda g, _: 0.5 * g, ()),
    ("rank one", "unit vectors", "x", _rolled, ()),
    ("operand", "swiglu", "a", _negated, ()), ("operand", "cube", "x", _below_zero, ()), ("tail", "gelu", "x", _below_zero, ()),
    ("boundary", "moving average", "x", _negated, ()), ("negative", "silu", "x", rim((-1,), 2.0), ()),
    ("overwritten", "embedding", "table", _negated, ()),
    ("overwritten", "index select", "x", lambda g, _: 2 * g, ()), ("broadcast sum", "linear", "b", lambda g, _: 2 * g, ()),
    ("constant", "power of two", "x", _plus_tenth, ()), ("row scale", "layer norm", "x", lambda g, _: g * ramp(g, 1), ()))


def _together() -> Iterator[Two]:
    for n, (kind, operator, input_, change, accepted) in enumerate(TOGETHER):
        one = _fault(kind, operator, input_)
        yield Two(f"{operator}: {kind} in {input_}, and more ({n})", operator, _changed(one, change), {input_: frozenset(accepted)})


def _changed(one: Fault, change: Change) -> Backward:
    k = OPERATORS[one.operator].names.index(one.input)

    def backward(inputs: Sequence[Tensor], g: Tensor) -> Gradients:
        grads = one.backward(inputs, g)
        grads[k] = change(grads[k], inputs)
        return grads

    return backward


PAIRS: tuple[Two, ...] = (*_apart(), *_together())
