"""Backward as a function of the inputs, in float64 where that is the same; its double backward, and what rounding makes of both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

import numpy as np
import torch
from torch import Tensor

from gradverify.evidence import Evidence
from gradverify.numerics.estimate.noise import POINTS
from gradverify.numerics.function.coordinates import numbers
from gradverify.numerics.function.point import COARSER
from gradverify.numerics.rungs import U32, U64, Array, Z
from gradverify.oracles.along import change, shaped
from gradverify.oracles.widened import InFloat64
from gradverify.subject.differentiable import Differentiable
from gradverify.subject.draw import generator, signed
from gradverify.subject.failure import UserCodeError
from gradverify.subject.lowered import Perturbed
from gradverify.subject.second_order import Backward, Second
from gradverify.subject.wide import InDouble, wide, widened

SAME = 1e-4             # of the largest gradient: what one in float32 may be off by
AWAY = 8.0              # roundings of each input, by which a point nearby is off


class _InFloat64(Backward):
    """What backward makes without a dtype is float64 too, and what it casts to float32 where forward was lifted."""

    _here: list[Tensor] | None = None
    loses_digits = False    # does float32 round its gradients by more than SAME?

    def __init__(self, evidence: Evidence, mode: InDouble) -> None:
        twin, checked = widened(evidence.subject, mode), evidence.forward.checked
        super().__init__(twin, Differentiable(twin, checked), checked, [wide(v) for v in evidence.modes.second_weights])
        self.around = mode

    def here(self) -> list[Tensor]:
        self._here = self._here or self.values(self.inputs)
        return self._here

    def values(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        with self.around():
            return super().values(inputs)


def has_lost_digits(function: Backward) -> bool:
    """Return whether this is the float64 backward of one that loses digits in float32."""
    return isinstance(function, _InFloat64) and function.loses_digits


def spread(function: Backward, rounded: Callable[[], tuple[float, float]]) -> tuple[float, float]:
    """Six standard deviations of two numbers, over nine ways to round every operation of that function at random; 0 where it refuses that."""
    narrow, seen = isinstance(function, _InFloat64), list[tuple[float, float]]()
    for number in range(POINTS):
        source = generator(number, "second order", "rounding")
        with suppress(UserCodeError), function.around(), Perturbed(source, U32 if narrow else COARSER * U64):
            seen.append(rounded())
    if len(seen) < 2:
        return 0.0, 0.0
    one, other = Z * np.nan_to_num(np.std(seen, 0, ddof=1)) / (1.0 if narrow else COARSER)
    return float(one), float(other)


def scatter(evidence: Evidence, measured: Callable[[Backward, Sequence[Tensor]], float]) -> float:
    """Six standard deviations of a number of backward, in its own precision, over nine points a few roundings away; 0 where it refuses them.

    (`spread` asks of operations as they are under a mode of torch, where its `det` takes another way to its second derivative.)
    """
    own, columns, seen = evidence.modes.backwards, evidence.modes.columns, list[float]()
    roundings = AWAY * max(torch.finfo(x.dtype).eps for x in own.inputs) / 2
    for number in range(POINTS):
        signs = numbers(signed(torch.zeros(len(columns), dtype=torch.float64), generator(number, "second order", "nearby")))
        moves = shaped(change(columns, roundings * signs * np.nan_to_num(columns.x, posinf=0.0, neginf=0.0), own.inputs), own.inputs)
        with suppress(UserCodeError):
            seen.append(measured(own, [x + move for x, move in zip(own.inputs, moves, strict=True)]))
    return float(Z * np.nan_to_num(np.std(seen, ddof=1))) if len(seen) > 1 else 0.0


def backwards(evidence: Evidence) -> Backward:
    """Backward as a function of the inputs, of which finite differences are taken: that of float64 for a float32 function that is the same in it."""
    own = evidence.modes.backwards
    if not isinstance(evidence.in_float64, InFloat64):
        return own
    full = _InFloat64(evidence, InDouble(lifts=evidence.in_float64.lifted))
    try:
        pairs = [(numbers(mine), numbers(theirs)) for mine, theirs in zip(own.here(), full.here(), strict=True)]
        full.loses_digits = not all(_agree(*pair) for pair in pairs)
        return own if full.loses_digits and not _rounded_apart(pairs, full) else full
    except UserCodeError:
        return own


def _agree(mine: Array, theirs: Array, rounding: Array | float = 0.0) -> bool:
    """Return whether the float32 gradients agree with the float64 ones."""
    allowed = np.maximum(SAME * np.abs(theirs).max(initial=0.0), rounding)
    with np.errstate(invalid="ignore"):
        return bool(((np.abs(mine - theirs) <= allowed) | (mine == theirs)).all())


def _rounded_apart(pairs: Sequence[tuple[Array, Array]], full: _InFloat64) -> bool:
    """Are gradients in float32 those in float64 but for what float32 makes of every operation, as of 1 / (1 − exp(x)) at −1e-7? Nine backwards."""
    found = list[list[Array]]()
    for number in range(POINTS):
        with Perturbed(generator(number, "second order", "gradient")):
            found.append([numbers(gradient).copy() for gradient in full.values(full.inputs)])
    rounding = [Z * np.nan_to_num(np.std(each, 0, ddof=1), nan=np.inf) for each in zip(*found, strict=True)]
    return all(_agree(*pair, off) for pair, off in zip(pairs, rounding, strict=True))


def doubled(evidence: Evidence, w: Array) -> Second:
    """The double backward for other weights of the gradients' coordinates [N]."""
    return evidence.modes.backwards.second(shaped(w, evidence.subject.inputs))


def known(seen: Second | UserCodeError) -> Second:
    if isinstance(seen, UserCodeError):
        raise seen
    return seen
