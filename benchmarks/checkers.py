"""The checkers that are compared, each as one call, and the Function that hides a wrong gradient from them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor
from user import MODES, differentiated, judged

Forward = Callable[..., Tensor]
Verdict = Literal["pass", "fail", "undecided"]


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


def gradverify(function: Forward, inputs: Sequence[Tensor], mode: str = "auto") -> Verdict:
    """As a user's check goes, with its defaults, the rules of the Jacobian alone."""
    found = judged("planted", function, differentiated(inputs), mode, 0).verdict
    return found if found in ("pass", "fail") else "undecided"  # type: ignore[return-value]


def gradcheck(function: Forward, inputs: Sequence[Tensor], fast: bool = False) -> Verdict:
    """With its defaults (eps 1e-6, atol 1e-5, rtol 1e-3), also for float32, where it warns."""
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        passed = torch.autograd.gradcheck(function, leaves, fast_mode=fast, raise_exception=False)
    return "pass" if passed else "fail"


def gradcheck_fast(function: Forward, inputs: Sequence[Tensor]) -> Verdict:
    return gradcheck(function, inputs, fast=True)


CHECKERS: dict[str, Callable[[Forward, Sequence[Tensor]], Verdict]] = {
    "gradverify": gradverify, "gradcheck slow": gradcheck, "gradcheck fast": gradcheck_fast}
BY_MODE = {mode: partial(gradverify, mode=mode) for mode in MODES if mode != "auto"}
