"""The three-way verdict: PASS, MISMATCH, or neither can be said (method.md section 1; JCGM 106:2012, guarded acceptance)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.numerics.derivative import Derivative, Outcome
from gradverify.numerics.flat import root_mean_square

UNIT = 2.0**-53
FLOOR = 1e4             # times the roundoff of an output's natural unit: smaller gradients are rounding dust
DEAD = 3.0              # bars that a derivative must exceed to count as seen
PEER = 1e3              # how far an output's unit may rise towards the largest of its tensor


@dataclass(frozen=True, slots=True)
class Judged:
    """Elements after the verdict, all [M, T]: `error` = |analytic − numeric|, `tolerance`, and `outcome` (int8 of `Outcome`)."""

    error: Tensor
    tolerance: Tensor
    outcome: Tensor


def floors(rows: Tensor, size: Tensor, tensor_of: Tensor, unit: float = UNIT) -> Tensor:
    """c_j · unit_j of each output [M], to be divided by S_i.

    `rows` [M]: how far each output goes for a relative change of its inputs (0: dead), `size` [M] its F_j, `tensor_of` [M] which output
    tensor it belongs to, `unit` the roundoff of the forward.
    """
    largest, typical = torch.zeros_like(rows), torch.zeros_like(size)
    for tensor in range(int(tensor_of.max()) + 1 if tensor_of.numel() else 0):
        members = tensor_of == tensor
        if not members.any():
            continue
        largest[members] = rows[members].max()
        typical[members] = root_mean_square(size[members]) if size[members].any() else 0.0
    natural = torch.maximum(rows, torch.minimum(size, torch.maximum(PEER * rows, largest)))
    return FLOOR * unit * torch.where(rows > 0, natural, torch.maximum(size, typical))


def judge(analytic: Tensor, derivative: Derivative, floor: Tensor, atol: float, rtol: float) -> Judged:
    """The verdict with error bars; `floor` [M, T] or broadcastable. NaN never passes."""
    value, bar = derivative.value, derivative.bar
    error = (analytic - value).abs()
    tolerance = atol + torch.maximum(rtol * torch.maximum(analytic.abs(), value.abs()), floor)
    tolerance = torch.where(tolerance.isfinite(), tolerance, atol + torch.maximum(rtol * value.abs(), floor))
    outcome = torch.full(error.shape, Outcome.UNDECIDED, dtype=torch.int8)
    outcome[(error + bar <= tolerance) | (derivative.unchanged & (error <= tolerance))] = Outcome.PASS
    outcome[error - bar > tolerance] = Outcome.MISMATCH
    return _settle(analytic, derivative, error, tolerance, outcome)


def judge_fixed(analytic: Tensor, derivative: Derivative, atol: float, rtol: float, is_complex: bool) -> Judged:
    """gradcheck's rule: |a − D| ≤ atol + rtol·|D|; the two parts of a complex input element are one number, as there."""
    error, size = (analytic - derivative.value).abs(), derivative.value.abs()
    if is_complex:
        error, size = _modulus(error), _modulus(size)
    tolerance = atol + rtol * size
    passed = error <= tolerance
    outcome = torch.where(passed, Outcome.PASS, Outcome.MISMATCH).to(torch.int8)
    return _settle(analytic, derivative, error, tolerance, outcome)


def _modulus(parts: Tensor) -> Tensor:
    """[M, 2T] of (re, im) pairs -> their moduli, each standing at both parts."""
    pairs = parts.reshape(parts.shape[0], -1, 2)
    return torch.hypot(pairs[..., 0], pairs[..., 1]).repeat_interleave(2, dim=1)


def _settle(analytic: Tensor, derivative: Derivative, error: Tensor, tolerance: Tensor, outcome: Tensor) -> Judged:
    """What the numeric side could not measure keeps its outcome; a non-finite gradient of a finite function is a mismatch."""
    usable = derivative.outcome == Outcome.PASS
    outcome = torch.where(usable, outcome, derivative.outcome)
    outcome[usable & ~analytic.isfinite()] = Outcome.MISMATCH
    return Judged(error, tolerance, outcome)


def tensor_of(sizes: Sequence[int]) -> Tensor:
    """Which output tensor each of the concatenated coordinates belongs to."""
    return torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(list(sizes), dtype=torch.long))
