"""Central differences along single elements: gradcheck's fixed step, and two relative steps with an error bar."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.numerics.derivative import Derivative, Function, Outcome
from gradverify.numerics.flat import flat_all, scales, writable_view

UNIT = {torch.float64: 2.0**-53, torch.complex128: 2.0**-53, torch.float32: 2.0**-24, torch.complex64: 2.0**-24}
RATIO = 3.6             # of the two steps; no integer, so that an oscillation cannot alias at both (method.md 2.1)
STEP_POWER = 0.25       # h = u^(1/4) s: truncation h^2 and rounding u/h both far below rtol
SMALLEST = 0.1          # of the tensor's RMS: a step scaled to a tiny element alone would drown in the rounding of f
ROUNDING = 4.0          # ulps of f that a difference of two values may carry


@dataclass(frozen=True, slots=True)
class Sample:
    """f at x ± h for a run of columns: `up`, `down` [M, T]; `step` [T] the realised x+ − x−, 0 where x did not move."""

    up: Tensor
    down: Tensor
    step: Tensor


def copies(function: Function) -> list[Tensor]:
    """Copies of the inputs that require grad, as at the point itself: some forwards differentiate inside."""
    return [x.detach().clone().requires_grad_() for x in function.inputs]


def values_or_nan(function: Function, inputs: Sequence[Tensor], rows: int) -> Tensor:
    """f [M]; NaN where the function raises (the border of its domain) or its outputs have another size (`x[x > 0]`)."""
    try:
        values = flat_all(function.values(inputs))
    except Exception:
        values = torch.zeros(0, dtype=torch.float64)
    return values if values.numel() == rows else torch.full((rows,), torch.nan, dtype=torch.float64)


class Buffers:
    """Copies of the inputs that are moved one real coordinate at a time and put back."""

    def __init__(self, function: Function, rows: int) -> None:
        """`rows`: how many real coordinates the outputs have at the point."""
        self._function, self._rows = function, rows
        self._copies = copies(function)
        self._views = [writable_view(copy) for copy in self._copies]

    def values(self) -> Tensor:
        """f [M] where the buffers are; NaN where it has no value of that size."""
        return values_or_nan(self._function, self._copies, self._rows)

    def sample(self, index: int, columns: Sequence[int], steps: Sequence[float]) -> Sample:
        """f on both sides of each column of input `index`, each moved by its own absolute step."""
        view = self._views[index]
        up, down, realised = [], [], []
        for column, h in zip(columns, steps, strict=True):
            at = float(view[column])
            view[column] = at + h
            high = float(view[column])
            up.append(self.values())
            view[column] = at - h
            realised.append(0.0 if float(view[column]) == at or high == at else high - float(view[column]))
            down.append(self.values())
            view[column] = at
        return Sample(torch.stack(up, 1), torch.stack(down, 1), torch.tensor(realised, dtype=torch.float64))


@dataclass(frozen=True, slots=True)
class FixedStep:
    """The rule of torch.autograd.gradcheck: exactly this absolute step, no bar."""

    eps: float

    def columns(self, buffers: Buffers, x: Tensor, index: int, columns: Sequence[int], base: Tensor) -> Derivative:
        sample = buffers.sample(index, columns, [self.eps] * len(columns))
        value = (sample.up - sample.down) / (2.0 * self.eps)
        bar = torch.zeros_like(value).masked_fill(sample.step == 0, torch.inf)
        outcome = _outcomes(value, bar, [sample], base)
        return Derivative(value, bar, outcome, torch.zeros_like(value, dtype=torch.bool))


@dataclass(frozen=True, slots=True)
class TwoSteps:
    """Central differences at two relative steps; the bar is their distance plus the rounding of f."""

    def columns(self, buffers: Buffers, x: Tensor, index: int, columns: Sequence[int], base: Tensor) -> Derivative:
        unit = UNIT[x.dtype]
        scale = scales(x)
        wide = scale.clamp_min(SMALLEST * float(scale.square().mean().sqrt()))[list(columns)] * unit**STEP_POWER
        samples = [buffers.sample(index, columns, (wide / ratio).tolist()) for ratio in (1.0, RATIO)]
        coarse, fine = ((s.up - s.down) / s.step for s in samples)
        size = torch.stack([base.abs().unsqueeze(1).expand_as(fine), samples[1].up.abs(), samples[1].down.abs()]).amax(0)
        rounding = ROUNDING * unit * size / samples[1].step
        bar = (coarse - fine).abs() + rounding
        moved = (samples[0].up != base.unsqueeze(1)) | (samples[0].down != base.unsqueeze(1))
        outcome = _outcomes(fine, bar, samples, base)
        return Derivative(fine, bar.nan_to_num(nan=torch.inf), outcome, ~moved & (outcome == Outcome.PASS))


def _outcomes(value: Tensor, bar: Tensor, samples: Sequence[Sample], base: Tensor) -> Tensor:
    """PASS where the quotient may be used; MASKED where f is the same infinity throughout."""
    base = base.unsqueeze(1)
    outcome = torch.full(value.shape, Outcome.PASS, dtype=torch.int8)
    outcome[~value.isfinite()] = Outcome.NON_FINITE
    stuck = torch.stack([sample.step == 0 for sample in samples]).any(0)
    outcome[:, stuck] = Outcome.UNDECIDED
    same = torch.stack([(sample.up == base) & (sample.down == base) for sample in samples]).all(0)
    outcome[same & base.isinf()] = Outcome.MASKED
    return outcome
