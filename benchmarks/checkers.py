"""The checkers that are compared, each as one call, and the Function that hides a wrong gradient
from them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor
from user import MODES, differentiated, judged

from gradverify.model.result import CaseResult

Forward = Callable[..., Tensor]
Verdict = Literal["pass", "fail", "undecided"]


class Error(Enum):
    """What the right gradient is multiplied by."""

    NONE = 1.0
    BILLIONTH = 1 + 1e-9
    MILLIONTH = 1 + 1e-6
    TINY = 1 + 1e-4
    PERCENT = 1.01
    DOUBLE = 2.0
    SIGN = -1.0
    ZERO = 0.0


COARSE = tuple(error for error in Error if error not in (Error.BILLIONTH, Error.MILLIONTH))
"""All but those within the default `rtol` of 1e-6, which finite differences let pass by
definition."""


@dataclass(frozen=True, order=True)
class Noise:
    """`relative`: its size; 0 for none. `seen`: torch can differentiate through it."""

    relative: float = 0.0
    seen: bool = False

    def added(self, y: Tensor) -> Tensor:
        return y if not self.relative else (cancelling if self.seen else noisy)(y, self.relative)


class Planted(torch.autograd.Function):
    """A forward with noise, and torch's own gradient of the clean forward times a factor."""

    @staticmethod
    def forward(ctx: Any, forward: Forward, factor: float, noise: Noise, *inputs: Tensor) -> Tensor:
        ctx.clean, ctx.factor = forward, factor
        ctx.save_for_backward(*inputs)
        return noise.added(forward(*inputs))

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Any, ...]:
        leaves = [x.detach().requires_grad_() for x in ctx.saved_tensors]
        with torch.enable_grad():
            gradients = torch.autograd.grad(ctx.clean(*leaves), leaves, cotangent)
        return None, None, None, *(ctx.factor * g for g in gradients)


def noisy(y: Tensor, relative: float) -> Tensor:
    """y with noise as rounding makes it: a fixed function of y's bits, uniform in ± `relative`,
    fresh as soon as y moves by an ulp."""
    numbers = (torch.view_as_real(y) if y.is_complex() else y).contiguous()
    bits = numbers.view(torch.int64) * SCRAMBLE[0]
    bits = (bits ^ (bits >> 29)) * SCRAMBLE[1]
    uniform = ((bits ^ (bits >> 32)) & MASK).double() / MASK * 2 - 1
    result = numbers * (1 + relative * uniform)
    return torch.view_as_complex(result) if y.is_complex() else result


# Odd multipliers of a 64-bit finaliser (Steele et al., SplitMix, 2014)
SCRAMBLE = (-7046029254386353131, -4658895280553007687)
MASK = 2**30 - 1


# Of y, each rounded by itself: with one alone, y moves in steps
PARTS = (1.0, 1.1875, 1.3125, 1.4375)


def cancelling(y: Tensor, relative: float) -> Tensor:
    """y with about as much noise, from torch's own rounding: a large number is added to each part
    of it and taken away again."""
    numbers = torch.view_as_real(y) if y.is_complex() else y
    size = numbers.detach().abs()
    large = (
        1.5
        * 2.0**52
        * torch.where(
            size > 0, 2.0 ** torch.ceil(torch.log2(2 * relative * size)), torch.zeros_like(size)
        )
    )
    result = sum(((numbers * part + large) - large) / part for part in PARTS) / len(PARTS)
    return torch.view_as_complex(result) if y.is_complex() else result


def planted(forward: Forward, error: Error, noise: Noise) -> Forward:
    return lambda *inputs: Planted.apply(forward, error.value, noise, *inputs)  # type: ignore[no-untyped-call]


def gradverify(function: Forward, inputs: Sequence[Tensor], mode: str = "auto") -> Verdict:
    """As a user's check goes, with its defaults, the rules of the Jacobian alone."""
    return _verdict(judged("planted", function, differentiated(inputs), mode, 0))


def _verdict(found: CaseResult) -> Verdict:
    return found.verdict if found.verdict in ("pass", "fail") else "undecided"  # type: ignore[return-value]


def gradcheck(function: Forward, inputs: Sequence[Tensor], fast: bool = False) -> Verdict:
    """With its defaults (eps 1e-6, atol 1e-5, rtol 1e-3), also for float32, where it warns."""
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        passed = torch.autograd.gradcheck(function, leaves, fast_mode=fast, raise_exception=False)
    return "pass" if passed else "fail"


def gradcheck_fast(function: Forward, inputs: Sequence[Tensor]) -> Verdict:
    return gradcheck(function, inputs, fast=True)


GRADCHECK: dict[str, Callable[[Forward, Sequence[Tensor]], Verdict]] = {
    "gradcheck slow": gradcheck,
    "gradcheck fast": gradcheck_fast,
}
BY_MODE = {
    mode: partial(gradverify, mode=mode) for mode in MODES if mode not in ("auto", "entries")
}
"""`auto` compares every element of functions so small, as `entries` does."""
