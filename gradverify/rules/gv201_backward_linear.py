"""GV201 backward-linear: backward is not linear in grad_output."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from gradverify.evidence import Evidence
from gradverify.model.result import Finding
from gradverify.rules.differ import DUST, ODD, SIXTEEN, dust, flat, largest, noise, perturbed, tolerance
from gradverify.rules.shown import apart as apart_in_digits
from gradverify.rules.shown import element_name
from gradverify.subject.differentiable import Gradients
from gradverify.subject.draw import generator
from gradverify.subject.failure import UserCodeError
from gradverify.subject.subject import Argument
from gradverify.subject.wide import wide

FACTORS, FACTORS_16 = (-3.0 * 2.0**18, -(2.0**-40)), (-12.0, -(2.0**-4))  # forced: both negative, far apart, one no power of two; then for 16 bits
ROUNDED = 1e-6              # of the largest gradient: more is no rounding of float64, even where most of its digits cancel
OF_ORDER_ONE = -5 / 8       # in the place of the small factor
HINT = "every gradient that backward returns must contain grad_output exactly once, as a factor"
OVER = "the scale of a loss in mixed precision makes grad_output large"
UNDER = "look for an absolute tolerance or threshold inside backward: losses that are averages make grad_output small"


def gv201_applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    return "there are no elements" if sum(y.numel() for y in evidence.outputs) == 0 else None


def gv201(evidence: Evidence) -> Iterator[Finding]:
    halves = _Halves(evidence)
    coarse = evidence.precision > SIXTEEN
    factors = FACTORS_16 if coarse else FACTORS
    seen = halves.apart(*factors)
    if evidence.repeats is not None and not evidence.reusable:      # they came of one graph, which gives other gradients the second time
        seen = halves.apart(*factors)
    for place, (argument, expected, apart) in enumerate(zip(evidence.inputs, halves.together, seen, strict=True)):
        worst = _differing(evidence, argument, expected, apart, tolerance(evidence.precision))
        if worst is not None and not coarse and _underflows(expected[worst], apart[worst], argument.value.dtype):
            apart = halves.apart(FACTORS[0], OF_ORDER_ONE)[place]
            worst = _differing(evidence, argument, expected, apart, tolerance(evidence.precision))
        if worst is None:
            continue
        off = float((expected - apart)[worst].abs())
        if off <= DUST * noise(evidence, argument, halves.v, expected) or off <= DUST * halves.rounded(place):
            continue
        if off <= float(perturbed(evidence, halves.v, place)[worst]):
            continue
        where = element_name(argument.name, argument.value, worst)
        yield _found(halves, argument.name, where, apart_in_digits(float(expected[worst]), float(apart[worst])), coarse)
        return


def _found(halves: _Halves, name: str, where: str, numbers: tuple[str, str], coarse: bool) -> Finding:
    """What is said of halves that do not add up: `numbers` of the whole and of both."""
    gives = f"at {where} it gives {numbers[0]} for one grad_output, but {numbers[1]} when"
    one_size = None if coarse else halves.at_fault()
    if one_size == "small":
        return Finding("GV201", f"backward is linear in grad_output for factors of order 1, but not for small ones: {gives} a part of it comes 2⁻⁴⁰ "
                       "as large", severity="warning", input=name, hint=UNDER)
    if one_size == "large":
        return Finding("GV201", "backward is linear in grad_output for factors of order 1, but loses digits for large ones: "
                       f"{gives} a part of it comes 3·2¹⁸ as large", severity="warning", input=name, hint=OVER)
    if halves.loses_digits():
        return Finding("GV201", "backward is linear in grad_output in float64, and in float32 for factors of order 1, but loses digits for large "
                       f"ones: {gives} the same grad_output comes in two scaled halves", severity="warning", input=name, hint=OVER)
    return Finding("GV201", f"backward is not linear in grad_output: {gives} the same grad_output comes in two scaled halves", input=name, hint=HINT)


def _underflows(expected: Tensor, apart: Tensor, dtype: torch.dtype) -> bool:
    """Is the element that differs most, times the small factor, below the smallest normal number, where any backward loses it?"""
    return max(abs(float(expected)), abs(float(apart))) * abs(FACTORS[1]) < torch.finfo(dtype).tiny


class _Halves:
    """The base cotangent v, in two halves that are scaled apart: `together` are the gradients for all of it, which a repeat of the base call gave.

    A single element cannot be halved: it comes whole under each factor, as a half of zeros tests nothing.
    """

    def __init__(self, evidence: Evidence) -> None:
        self._evidence, self.v = evidence, evidence.worked.cotangents
        source = generator(evidence.settings.seed, evidence.subject.case.check, "mask")
        drawn = [torch.randint(0, 2, y.shape, generator=source) for y in evidence.outputs]
        count, ones = sum(mask.numel() for mask in drawn), sum(int(mask.sum()) for mask in drawn)
        if ones in (0, count):
            first = next(mask for mask in drawn if mask.numel())
            first.view(-1)[0] = 1 - first.view(-1)[0]
        masks = [mask.to(device=y.device, dtype=y.dtype) for mask, y in zip(drawn, evidence.outputs, strict=True)]
        self._whole = count == 1
        self._large = self.v if self._whole else [_with_a_row_of_sum_zero(v, v * mask) for v, mask in zip(self.v, masks, strict=True)]
        self._small = self.v if self._whole else [v - half for v, half in zip(self.v, self._large, strict=True)]

    @cached_property
    def together(self) -> list[Tensor]:
        """Asked for when the halves were, on a graph that nobody watches: if that refused the second, there are no repeats."""
        repeats = self._evidence.repeats
        return self._known(repeats[0].values) if repeats and self._evidence.reusable else self._gradients([cotangent.clone() for cotangent in self.v])

    def apart(self, grow: float, shrink: float) -> list[Tensor]:
        """The gradients of the halves, each divided by its factor, added; of a single element their mean."""
        large = self._gradients([grow * half for half in self._large])
        small = self._gradients([shrink * half for half in self._small])
        return [(a / grow + b / shrink) / (1 + self._whole) for a, b in zip(large, small, strict=True)]

    def rounded(self, place: int) -> float:
        """What the gradient of one input loses to rounding inside backward: how far it is from its third for three times the cotangent, and the like.
        0 where that is too much for rounding."""
        expected, most = self.together[place], 0.0
        for factor in ODD:
            again = self._gradients([factor * cotangent for cotangent in self.v])[place] / factor
            most = max(most, largest(again - expected))
        return most if most <= ROUNDED * largest(expected) else 0.0

    def at_fault(self) -> Literal["small", "large"] | None:
        """The factor that makes a difference beside one of order 1, where `rtol` covers all but what the small one makes, and zeros give zeros."""
        try:
            if any(bool(gradient.any()) for gradient in self._gradients([torch.zeros_like(cotangent) for cotangent in self.v])):
                return None
            if not all(self._linear_at(factor, OF_ORDER_ONE) for factor in (-3.0, FACTORS[0])):
                return None
            return "small" if self._share(-3.0, FACTORS[1]) > self._share(FACTORS[0], OF_ORDER_ONE) else "large"
        except UserCodeError:
            return None

    def _share(self, grow: float, shrink: float) -> float:
        """How far the halves under these factors are from the whole, as a share of its largest number."""
        each = [(largest(whole), (apart - whole).abs()) for whole, apart in zip(self.together, self.apart(grow, shrink), strict=True)]
        return max((float(off.nan_to_num(nan=torch.inf).max()) / size for size, off in each if size), default=0.0)

    def loses_digits(self) -> bool:
        """Is it the rounding of float32? Then the same code is linear in float64, and here within `rtol` for factors of order 1."""
        full = self._evidence.in_float64
        try:
            if isinstance(full, str) or not self._linear_at(-3.0, OF_ORDER_ONE):
                return False
        except UserCodeError:
            return False
        together, large, small = (full.full([wide(factor * cotangent) for cotangent in part])
                                  for factor, part in ((1.0, self.v), (FACTORS[0], self._large), (FACTORS[1], self._small)))
        if together is None or large is None or small is None:
            return False
        found = zip(self._evidence.inputs, together, large, small, strict=True)
        return all(largest(flat(x, (a / FACTORS[0] + b / FACTORS[1]) / (1 + self._whole)) - flat(x, whole)) <= ROUNDED * largest(flat(x, whole))
                   for x, whole, a, b in found)

    def _linear_at(self, grow: float, shrink: float) -> bool:
        """Within `rtol`."""
        _, rtol = self._evidence.settings.tolerances(low_precision=self._evidence.low_precision)
        return self._agrees(self.apart(grow, shrink), max(tolerance(self._evidence.precision), rtol))

    def _agrees(self, seen: Sequence[Tensor], allowed: float) -> bool:
        each = zip(self._evidence.inputs, self.together, seen, strict=True)
        return all(bool(apart.isfinite().all()) and _differing(self._evidence, argument, expected, apart, allowed) is None
                   for argument, expected, apart in each)

    def _gradients(self, cotangents: list[Tensor]) -> list[Tensor]:
        """Each input's gradient before the next call is made, which may use its memory again."""
        return self._known(self._evidence.function.vjp(cotangents))

    def _known(self, gradients: Gradients) -> list[Tensor]:
        return [flat(argument, gradient) for argument, gradient in zip(self._evidence.inputs, gradients, strict=True)]


def _with_a_row_of_sum_zero(v: Tensor, half: Tensor) -> Tensor:
    """The half of a cotangent v, in one row (along the last dimension) replaced by ±2ᵏ, as many of one sign as of
    the other, which add up to exactly zero: of the signs of v where it has both, and no larger."""
    if v.is_complex():
        parts = (_with_a_row_of_sum_zero(part(v), part(half)) for part in (torch.real, torch.imag))
        return torch.complex(*parts)
    if not v.dim() or v.shape[-1] < 2 or not v.numel():
        return half
    rows = v.reshape(-1, v.shape[-1])
    pairs = torch.minimum((rows > 0).sum(-1), (rows < 0).sum(-1))
    place = int((pairs > 0).to(torch.uint8).argmax())
    row, most = rows[place], int(pairs[place])
    if not bool(row.all()):
        return half
    if most:
        signs = sum((each & (each.cumsum(0) <= most)).to(v.dtype) for each in (row > 0, row < 0)) * row.sign()
    else:       # all of one sign, in every row
        signs = torch.ones_like(row)
        signs[1::2] = -1
        signs[len(row) // 2 * 2:] = 0
    size = 2.0 ** math.floor(math.log2(float(row.abs().min())))
    found = half.clone().reshape(rows.shape)
    found[place] = size * signs
    return found.reshape(v.shape)


def _differing(evidence: Evidence, argument: Argument, expected: Tensor, apart: Tensor, relative: float) -> int | None:
    """The element where the two differ most, if by more than the tolerance; non-finite ones are another rule's."""
    finite = expected.isfinite() & apart.isfinite()
    if not finite.any():
        return None
    difference = torch.where(finite, (expected - apart).abs(), torch.zeros_like(expected))
    worst = int(difference.argmax())
    allowed = largest(expected[finite]) * relative + dust(evidence, argument.value)
    return worst if float(difference[worst]) > allowed else None
