"""Right gradients by torch's own autograd, damaged in known ways: what a cause must be named for,
and what it must not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from live import Argument, randn, subject
from torch import Tensor
from torch.autograd import Function

from gradverify.model.result import CaseResult, Cause
from gradverify.verify import verify

Formula = Callable[..., Tensor]
Gradients = list[Tensor]
Damage = Callable[[Gradients, Sequence[Tensor], Tensor], Gradients]
"""(right gradients, inputs, output) → what the damaged backward returns."""


def gradients(f: Formula, inputs: Sequence[Tensor], g: Tensor) -> Gradients:
    """The vector-Jacobian product by autograd."""
    with torch.enable_grad():
        leaves = [x.detach().requires_grad_() for x in inputs]
        return list(torch.autograd.grad(f(*leaves), leaves, g))


def function(
    forward: Formula, backward: Callable[[Sequence[Tensor], Tensor], Sequence[Tensor]]
) -> type[Function]:
    class Op(Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Tensor) -> Tensor:
            ctx.save_for_backward(*inputs)
            return forward(*inputs)

        @staticmethod
        def backward(ctx: Any, grad_output: Tensor) -> Any:
            return tuple(backward(ctx.saved_tensors, grad_output))

    return Op


def after(f: Formula, damage: Damage) -> type[Function]:
    """f with gradients that are damaged after they were computed rightly."""
    return function(f, lambda inputs, g: damage(gradients(f, inputs, g), inputs, f(*inputs)))


def before(f: Formula, damage: Callable[[Tensor], Tensor]) -> type[Function]:
    """f whose backward damages grad_output, for its last input alone."""
    return function(
        f, lambda inputs, g: [*gradients(f, inputs, g)[:-1], gradients(f, inputs, damage(g))[-1]]
    )


def checked(op: Any, *inputs: Tensor, names: str = "xyz", **settings: Any) -> CaseResult:
    arguments = [
        Argument(
            name,
            value,
            (not isinstance(value, bool) and value.dtype.is_floating_point) or value.is_complex(),
        )
        for name, value in zip(names, inputs, strict=False)
    ]
    return verify(subject(op, *arguments, **{"select": ("GV101",), **settings}))


def causes(result: CaseResult) -> dict[str | None, Cause | None]:
    """By input."""
    assert result.findings, "the damage was not found"
    return {finding.input: finding.cause for finding in result.findings}


def first(damage: Callable[[Tensor, Tensor], Tensor]) -> Damage:
    """Damage (gradient, input) → gradient, to the first input's alone."""
    return lambda grads, inputs, y: [damage(grads[0], inputs[0]), *grads[1:]]


@dataclass(frozen=True)
class Sample:
    """A function and inputs at which its gradients differ from element to element."""

    f: Formula
    inputs: tuple[Tensor, ...]


def _one(f: Formula, *shape: int) -> Sample:
    return Sample(f, (randn(*(shape or (4, 6))),))


W = randn(6, 5, seed=7)
ELEMENTWISE: Mapping[str, Sample] = {
    "exp": _one(torch.exp),
    "sin": _one(torch.sin),
    "cubic": _one(lambda x: x**3 + 2 * x),
    "sigmoid": _one(torch.sigmoid),
    "softplus": _one(torch.nn.functional.softplus),
    "gelu": _one(torch.nn.functional.gelu),
    "atan": _one(torch.atan),
    "cosh": _one(torch.cosh),
    "tanh": _one(torch.tanh),
    "exp minus one": _one(torch.expm1),
}
MIXING: Mapping[str, Sample] = {
    "product": _one(lambda x: x @ W),
    "product of sines": _one(lambda x: x.sin() @ W),
    "softmax": _one(lambda x: x.softmax(-1)),
    "log softmax": _one(lambda x: x.log_softmax(-1)),
    "running sum": _one(lambda x: x.exp().cumsum(-1)),
    "convolution": _one(
        lambda x: torch.nn.functional.conv1d(
            x[:, None], W[:3, None, 0].reshape(1, 1, 3).contiguous()
        )[:, 0]
    ),
    "layer norm": _one(lambda x: torch.nn.functional.layer_norm(x, (6,))),
    "sum of squares": _one(lambda x: (x * x).sum()),
    "gram": _one(lambda x: x @ x.T),
    "row norms": _one(lambda x: x.norm(dim=-1)),
}
TWO: Mapping[str, Formula] = {
    "multiply": torch.mul,
    "divide": lambda x, y: x / (y * y + 1),
    "polynomial": lambda x, y: x * x * y,
    "hypotenuse": torch.hypot,
    "atan2": torch.atan2,
    "sine of both": lambda x, y: (x + y * y).sin(),
    "exponential": lambda x, y: torch.exp(x) * y,
    "squares": lambda x, y: x**2 - 3 * y**2,
    "scaled sum": lambda x, y: 2 * x + y.exp(),
    "gate": lambda x, y: x.sigmoid() * y,
}
COMPLEX: Mapping[str, Formula] = {
    "square": lambda x: x * x,
    "exp": torch.exp,
    "sin": torch.sin,
    "reciprocal": torch.reciprocal,
    "cubic": lambda x: x**3,
    "cosh": torch.cosh,
    "tanh": torch.tanh,
    "rotated": lambda x: x * (0.6 + 0.8j),
    "product": lambda x: x @ torch.complex(W[:, :3], W[:, 2:]),
    "cos": torch.cos,
}
