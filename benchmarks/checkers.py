"""The checkers that are compared, each as one call, and the Function that hides a wrong gradient from them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

import torch
from torch import Tensor

from gradverify.numerics.columns.dense import check_entries
from gradverify.numerics.compare import Verdict
from gradverify.oracles.finite_difference import Filled
from gradverify.oracles.widened import InFloat64, RefusedError
from gradverify.subject.another import BESIDE
from gradverify.subject.wide import WIDE, wide

Forward = Callable[..., Tensor]


class Error(Enum):
    """What the right gradient is multiplied by."""

    NONE = 1.0
    TINY = 1 + 1e-4
    PERCENT = 1.01
    DOUBLE = 2.0
    SIGN = -1.0
    ZERO = 0.0


class Planted(torch.autograd.Function):
    """A forward with relative noise, and torch's own gradient of the clean forward times a factor."""

    @staticmethod
    def forward(ctx: Any, forward: Forward, factor: float, noise: float, *inputs: Tensor) -> Tensor:
        ctx.clean, ctx.factor = forward, factor
        ctx.save_for_backward(*inputs)
        return noisy(forward(*inputs), noise)

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Any, ...]:
        leaves = [x.detach().requires_grad_() for x in ctx.saved_tensors]
        with torch.enable_grad():
            gradients = torch.autograd.grad(ctx.clean(*leaves), leaves, cotangent)
        return None, None, None, *(ctx.factor * g for g in gradients)


def noisy(y: Tensor, relative: float) -> Tensor:
    """y with noise as rounding makes it: a fixed function of y's bits, uniform in ± `relative`, fresh as soon as y moves by an ulp."""
    if not relative:
        return y
    numbers = (torch.view_as_real(y) if y.is_complex() else y).contiguous()
    bits = numbers.view(torch.int64) * SCRAMBLE[0]
    bits = (bits ^ (bits >> 29)) * SCRAMBLE[1]
    uniform = ((bits ^ (bits >> 32)) & MASK).double() / MASK * 2 - 1
    result = numbers * (1 + relative * uniform)
    return torch.view_as_complex(result) if y.is_complex() else result


SCRAMBLE = (-7046029254386353131, -4658895280553007687)  # odd multipliers of a 64-bit finaliser (Steele et al., SplitMix, 2014)
MASK = 2**30 - 1


def planted(forward: Forward, error: Error, noise: float) -> Forward:
    return lambda *inputs: Planted.apply(forward, error.value, noise, *inputs)  # type: ignore[no-untyped-call]


class Checked:
    """A torch callable as the `Function` that gradverify checks."""

    def __init__(self, function: Forward, inputs: Sequence[Tensor]) -> None:
        self.function, self.inputs = function, inputs

    def values(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        return [self.function(*inputs).detach()]

    def vjp(self, cotangents: Sequence[Tensor | None], inputs: Sequence[Tensor] | None = None) -> Sequence[Tensor]:
        leaves = [x.detach().clone().requires_grad_() for x in (self.inputs if inputs is None else inputs)]
        return torch.autograd.grad(self.function(*leaves), leaves, cotangents[0])

    def vjp_at(self, inputs: Sequence[Tensor], cotangents: Sequence[Tensor | None]) -> Sequence[Tensor]:
        return self.vjp(cotangents, inputs)


def measured(function: Forward, inputs: Sequence[Tensor]) -> Checked | Filled:
    """The function as a check looks at it: one in float32 with its finite differences in float64."""
    own = Checked(function, inputs)
    if not any(x.dtype in WIDE for x in inputs):
        return own
    source = torch.Generator().manual_seed(0)

    def nearby(_: int) -> list[Tensor]:
        return [x * (1 + BESIDE * torch.randn(x.shape, generator=source).to(x.dtype)) for x in inputs]

    try:
        return Filled(InFloat64(own, Checked(function, [wide(x) for x in inputs]), own.values(inputs), nearby))
    except RefusedError:
        return own


def gradverify(function: Forward, inputs: Sequence[Tensor]) -> Verdict:
    """With its default tolerances."""
    verdicts = [pair.verdict for pair in check_entries(measured(function, inputs)).pairs]
    return next((v for v in (Verdict.MISMATCH, Verdict.UNDECIDED) if v in verdicts), Verdict.PASS)


def gradcheck(function: Forward, inputs: Sequence[Tensor], fast: bool = False) -> Verdict:
    """With its defaults (eps 1e-6, atol 1e-5, rtol 1e-3), also for float32, where it warns."""
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        passed = torch.autograd.gradcheck(function, leaves, fast_mode=fast, raise_exception=False)
    return Verdict.PASS if passed else Verdict.MISMATCH


def gradcheck_fast(function: Forward, inputs: Sequence[Tensor]) -> Verdict:
    return gradcheck(function, inputs, fast=True)


CHECKERS = {"gradverify": gradverify, "gradcheck slow": gradcheck, "gradcheck fast": gradcheck_fast}
