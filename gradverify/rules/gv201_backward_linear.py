"""GV201 backward-linear: backward is not linear in grad_output."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from gradverify.evidence import Evidence
from gradverify.model.result import Finding
from gradverify.rules.differ import (
    DUST,
    SIXTEEN,
    dust,
    flat,
    gradient_at,
    largest,
    off,
    rounded_anew,
    tolerance,
    worst_of,
)
from gradverify.rules.shown import Findings, element_name
from gradverify.rules.shown import apart as in_digits
from gradverify.subject.differentiable import Gradients
from gradverify.subject.draw import generator
from gradverify.subject.failure import UserCodeError
from gradverify.subject.subject import Argument
from gradverify.subject.wide import wide

# forced: both negative, far apart, one no power of two; then for 16 bits
FACTORS, FACTORS_16 = (
    (-3.0 * 2.0**20, -(2.0**-40)),
    (-12.0, -(2.0**-4)),
)
SMALL, OF_ORDER_ONE = -3.0, -5 / 8  # in the place of the large factor, and of the small one
ROUNDED = 1e-6  # of the largest gradient: more is no rounding of float64
HINT = "every gradient that backward returns must contain grad_output exactly once, as a factor"
OVER = "the scale of a loss in mixed precision makes grad_output large"
UNDER = (
    "look for an absolute tolerance or threshold inside backward: losses that are averages make "
    "grad_output small"
)


def gv201(evidence: Evidence) -> Findings:
    halves = _Halves(evidence)
    coarse = evidence.precision > SIXTEEN
    factors = FACTORS_16 if coarse else FACTORS
    seen = halves.apart(*factors)
    # They came of one graph, which gives other gradients the second time
    if evidence.repeats is not None and not evidence.reusable:
        seen = halves.apart(*factors)
    for place, argument in enumerate(evidence.inputs):
        whole, parts = halves.together[place], seen[place]
        worst = _worst(evidence, argument, whole, parts)
        # Where any backward loses it
        if (
            worst is not None
            and not coarse
            and float(torch.stack([whole, parts])[:, worst].abs().max())
            < torch.finfo(argument.value.dtype).tiny / abs(FACTORS[1])
        ):
            parts = halves.apart(FACTORS[0], OF_ORDER_ONE)[place]
            worst = _worst(evidence, argument, whole, parts)
        if worst is None:
            continue
        rounding = rounded_anew(
            evidence, partial(gradient_at, evidence, halves.v, place)
        ).expand_as(whole)
        if float((whole - parts)[worst].abs()) <= DUST * float(rounding[worst]):
            continue
        mine, theirs = in_digits(float(whole[worst]), float(parts[worst]))
        where = element_name(argument.name, argument.value, worst)
        yield _found(
            halves,
            argument.name,
            f"at {where} it gives {mine} for one grad_output, but {theirs} when",
            coarse,
        )
        return


def _found(halves: _Halves, name: str, gives: str, coarse: bool) -> Finding:
    """A warning, where `rtol` covers all but what one of the two factors makes beside one of order
    1, and zeros give zeros."""
    try:
        zeros = [bool(g.any()) for g in halves.gradients([torch.zeros_like(v) for v in halves.v])]
        large = not (coarse or any(zeros)) and halves.linear_at(SMALL, OF_ORDER_ONE)
        if large and (halves.linear_at(FACTORS[0], OF_ORDER_ONE) or halves.linear_in_float64()):
            small = halves.share(SMALL, FACTORS[1]) > halves.share(FACTORS[0], OF_ORDER_ONE)
            size, words = (
                ("2⁻⁴⁰", "but not for small ones")
                if small
                else ("3·2²⁰", "but loses digits for large ones")
            )
            return Finding(
                "GV201",
                f"backward is linear in grad_output for factors of order 1, {words}: {gives} a "
                f"part of it comes {size} as large",
                severity="warning",
                input=name,
                hint=UNDER if small else OVER,
            )
    except UserCodeError:
        pass
    return Finding(
        "GV201",
        f"backward is not linear in grad_output: {gives} the same grad_output comes in two scaled "
        "halves",
        input=name,
        hint=HINT,
    )


class _Halves:
    """The base cotangent v, in two halves that are scaled apart: `together` are the gradients for
    all of it, which a repeat of the base call gave.

    A single element cannot be halved: it comes whole under each factor, as a half of zeros tests
    nothing.
    """

    def __init__(self, evidence: Evidence) -> None:
        self._evidence, self.v = evidence, evidence.worked.cotangents
        source = generator(evidence.settings.seed, evidence.subject.case.check, "mask")
        drawn = [torch.randint(0, 2, y.shape, generator=source) for y in evidence.outputs]
        count, ones = sum(mask.numel() for mask in drawn), sum(int(mask.sum()) for mask in drawn)
        if ones in (0, count):
            first = next(mask for mask in drawn if mask.numel())
            first.view(-1)[0] = 1 - first.view(-1)[0]
        masks = [
            mask.to(device=y.device, dtype=y.dtype)
            for mask, y in zip(drawn, evidence.outputs, strict=True)
        ]
        self._whole = count == 1
        self._large = (
            self.v
            if self._whole
            else [
                _with_a_row_of_sum_zero(v, v * mask) for v, mask in zip(self.v, masks, strict=True)
            ]
        )
        self._small = (
            self.v
            if self._whole
            else [v - half for v, half in zip(self.v, self._large, strict=True)]
        )
        self._together: list[Tensor] | None = None

    @property
    def together(self) -> list[Tensor]:
        """Asked for when the halves were, on a graph that nobody watches: if that refused the
        second, there are no repeats."""
        if self._together is None:
            repeats = self._evidence.repeats
            again = repeats and self._evidence.reusable
            self._together = (
                self._known(repeats[0].values) if repeats and again else self.gradients(self.v)
            )
        return self._together

    def apart(self, grow: float, shrink: float) -> list[Tensor]:
        """The gradients of the halves, each divided by its factor, added; of a single element their
        mean."""
        large = self.gradients([grow * half for half in self._large])
        small = self.gradients([shrink * half for half in self._small])
        return [
            (a / grow + b / shrink) / (1 + self._whole) for a, b in zip(large, small, strict=True)
        ]

    def linear_in_float64(self) -> bool:
        """Is it float32 that loses digits of the large half, and the same code linear in
        float64?"""
        full = self._evidence.in_float64
        halves = ((1.0, self.v), (FACTORS[0], self._large), (FACTORS[1], self._small))
        found = [
            None if isinstance(full, str) else full.full([wide(factor * c) for c in part])
            for factor, part in halves
        ]
        if any(each is None for each in found):
            return False
        whole, large, small = (self._known(tuple(each or ())) for each in found)
        return all(
            largest((a / FACTORS[0] + b / FACTORS[1]) / (1 + self._whole) - w)
            <= ROUNDED * largest(w)
            for w, a, b in zip(whole, large, small, strict=True)
        )

    def share(self, grow: float, shrink: float) -> float:
        """How far the halves under these factors are from the whole, as a share of its largest
        number."""
        each = [
            (largest(whole), (apart - whole).abs())
            for whole, apart in zip(self.together, self.apart(grow, shrink), strict=True)
        ]
        return max(
            (float(off.nan_to_num(nan=torch.inf).max()) / size for size, off in each if size),
            default=0.0,
        )

    def linear_at(self, grow: float, shrink: float) -> bool:
        """Within `rtol`."""
        each = zip(self._evidence.inputs, self.together, self.apart(grow, shrink), strict=True)
        return all(
            bool(apart.isfinite().all())
            and _worst(self._evidence, argument, whole, apart, self._evidence.rtol) is None
            for argument, whole, apart in each
        )

    def gradients(self, cotangents: Sequence[Tensor]) -> list[Tensor]:
        """Each input's gradient before the next call is made, which may use its memory again."""
        return self._known(
            self._evidence.function.vjp([cotangent.clone() for cotangent in cotangents])
        )

    def _known(self, gradients: Gradients) -> list[Tensor]:
        return [
            flat(argument, gradient)
            for argument, gradient in zip(self._evidence.inputs, gradients, strict=True)
        ]


def _worst(
    evidence: Evidence, argument: Argument, expected: Tensor, apart: Tensor, relative: float = 0.0
) -> int | None:
    """The element where the two differ most, if by more than the tolerance; non-finite ones are
    another rule's."""
    known = expected.where(apart.isfinite(), torch.nan)
    return worst_of(
        off(known, apart),
        largest(known) * max(relative, tolerance(evidence.precision))
        + dust(evidence, argument.value),
    )


def _with_a_row_of_sum_zero(v: Tensor, half: Tensor) -> Tensor:
    """The half of a cotangent v, in one row (along the last dimension) replaced by ±2ᵏ, as many of
    one sign as of the other, which add up to exactly zero: of the signs of v where it has both, and
    no larger."""
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
        signs = (
            sum((each & (each.cumsum(0) <= most)).to(v.dtype) for each in (row > 0, row < 0))
            * row.sign()
        )
    else:  # all of one sign, in every row
        signs = torch.ones_like(row)
        signs[1::2] = -1
        signs[len(row) // 2 * 2 :] = 0
    size = 2.0 ** math.floor(math.log2(float(row.abs().min())))
    found = half.clone().reshape(rows.shape)
    found[place] = size * signs
    return found.reshape(v.shape)
