"""Comparison with numbers that carry rounding but no truncation: what literal, hand-written and reference gradients share."""

from __future__ import annotations

import torch
from torch import Tensor

from gradverify.model.case import Settings
from gradverify.numerics import compare
from gradverify.numerics.derivative import Derivative, Outcome
from gradverify.numerics.flat import reaches, root_mean_square, scales
from gradverify.numerics.tally import Tally, tally

ROUNDING = 8.0          # ulps that two right ways to compute one number may differ by without a cancellation


def compare_rows(analytic: Tensor, value: Tensor, x: Tensor, columns: slice, settings: Settings, unit: float, keep_map: bool,
                 broken: Outcome = Outcome.NON_FINITE) -> Tally:
    """Gradient rows [m, T] over a run of columns of input `x`, against an oracle's.

    `broken`: what an element is where the oracle is not finite and backward does not give the same infinity.
    """
    own, reach = scales(x)[columns], reaches(x)[columns]
    rows = (torch.maximum(analytic.abs(), value.abs()) * own).nan_to_num(nan=0.0, posinf=0.0).amax(1, keepdim=True)
    return _compared(analytic, value, compare.FLOOR * unit * rows / reach, settings, unit, columns.start or 0, keep_map, broken)


def compare_values(ours: Tensor, theirs: Tensor, settings: Settings, unit: float) -> Tally:
    """Two implementations' outputs, flat [m]: the floor is rounding of the tensor's typical size."""
    typical = root_mean_square(theirs.abs()) if theirs.any() else 0.0
    floor = torch.full_like(theirs, compare.FLOOR * unit * typical).unsqueeze(1)
    return _compared(ours.unsqueeze(1), theirs.unsqueeze(1), floor, settings, unit, 0, False, Outcome.MISMATCH)


def _compared(analytic: Tensor, value: Tensor, floor: Tensor, settings: Settings, unit: float, first: int, keep_map: bool,
              broken: Outcome) -> Tally:
    atol, rtol = settings.tolerances()
    bar = ROUNDING * unit * value.abs()
    outcome = torch.where(value.isfinite(), Outcome.PASS, broken).to(torch.int8)
    outcome[(analytic == value) & value.isinf()] = Outcome.MASKED
    derivative = Derivative(value, bar.nan_to_num(nan=torch.inf), outcome, torch.zeros_like(value, dtype=torch.bool))
    judged = compare.judge(analytic, derivative, floor, atol, rtol)
    return tally(analytic, derivative, judged, first, False, keep_map)
