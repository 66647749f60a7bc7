"""What is differentiated, and what a finite difference yields."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from torch import Tensor


class Outcome(IntEnum):
    """What became of one element of a Jacobian."""

    PASS = 0
    MISMATCH = 1
    KINK = 2
    JUMP = 3
    STAIRCASE = 4
    UNDECIDED = 5
    NON_FINITE = 6
    MASKED = 7      # the output holds the same infinity at every step: nothing to compare, left out of the count


class Function(Protocol):
    """A function of tensors and its backward, both seen from outside. The caller counts calls."""

    @property
    def inputs(self) -> Sequence[Tensor]:
        """The differentiable inputs at the point of the check; contiguous, never written to."""

    def values(self, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
        """The differentiable outputs at other inputs of the same shapes."""

    def vjp(self, cotangents: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        """The gradient of sum(cotangent * output) at `inputs`: one per input, None where backward gives none."""


@dataclass(frozen=True, slots=True)
class Derivative:
    """d f / d x_c for a run of columns. `value` and `bar`: [M, T] float64 (bar inf where nothing can be said); `outcome`: [M, T]
    int8 of `Outcome`, PASS where value and bar may be used; `unchanged`: [M, T], f bitwise the same at every step."""

    value: Tensor
    bar: Tensor
    outcome: Tensor
    unchanged: Tensor
