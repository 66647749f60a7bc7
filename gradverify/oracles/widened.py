"""The values of a float32 function in float64, beside its backward in float32: finite differences good to ten digits for gradients good to seven.

Where the function refuses float64, or computes something else in it (a branch on the dtype, a constant that float32 rounds), there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from gradverify.numerics.function.dtypes import DOUBLE, WIDE
from gradverify.numerics.function.flat import numbers, rms
from gradverify.numerics.rungs import U32, Array
from gradverify.oracles.finite_difference import Gives
from gradverify.subject.differentiable import Gradients
from gradverify.subject.failure import UserCodeError
from gradverify.subject.wide import by_default, wide

ROUNDINGS = 16.0  # of the larger of a value and its tensor's root mean square: what float32 may take from it without more being asked
SPREADS = 3.0  # of the deviations at nearby points: those at the point may be as large where they come and go with the bits of the inputs
POINTS = 4  # nearby


Nearby = Callable[[int], Sequence[Tensor]]
"""Inputs near the point, in float32, by number."""


class RefusedError(Exception):
    """The function is another one in float64; the text says how."""


class InFloat64:
    """`narrow` in float32, whose gradients count, and `full`, the same function in float64, whose values do; at the same numbers."""

    unit = U32

    def __init__(self, narrow: Gives, full: Gives, outputs: Sequence[Tensor], nearby: Nearby) -> None:
        """`outputs`: of the narrow function at the point. Raises UserCodeError (GV002) where the full one raises, RefusedError where it differs."""
        self._narrow, self._full, self._nearby = narrow, full, nearby
        self._dtypes = [y.dtype for y in outputs]
        self._gives_many = getattr(narrow, "vjps", None)
        self._off = _deviation(outputs, self._at(full.inputs))
        self._refuse_what_differs(outputs)

    @property
    def narrow(self) -> InFloat64:
        """The backward, as `numerics.function.point.Widened` asks for it."""
        return self

    @property
    def inputs(self) -> Sequence[Tensor]:
        return self._full.inputs

    def values(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """In float64."""
        return list(self._full.values([wide(x) for x in inputs]))

    def vjp(self, cotangents: Sequence[Tensor | None]) -> Gradients:
        """In float32."""
        return tuple(self._narrow.vjp(self._cast(cotangents)))

    def vjp_at(self, inputs: Sequence[Tensor], cotangents: Sequence[Tensor | None]) -> Gradients:
        """In float32, at other inputs, rounded to it."""
        own = [x.to(dtype=own.dtype) for x, own in zip(inputs, self._narrow.inputs, strict=True)]
        return tuple(self._narrow.vjp_at(own, self._cast(cotangents)))

    def vjps(self, output: int, cotangents: Tensor, wanted: Sequence[int] | None = None) -> Gradients | None:
        """In float32, many at once; None where the function does not offer it."""
        if self._gives_many is None:
            return None
        found: Gradients | None = self._gives_many(output, cotangents.to(dtype=self._dtypes[output]), wanted)
        return found

    def full(self, cotangents: Sequence[Tensor | None], inputs: Sequence[Tensor] | None = None) -> Sequence[Tensor] | None:
        """The gradients of the backward in float64; None where it refuses that."""
        try:
            with by_default():
                found = self._full.vjp(cotangents) if inputs is None else self._full.vjp_at(inputs, cotangents)
        except UserCodeError:
            return None
        return [torch.zeros_like(x) if gradient is None else gradient for x, gradient in zip(self.inputs, found, strict=True)]

    def rounding(self) -> Array:
        """By how much the forward in float32 is off [M], at most, at the point and nearby."""
        return np.asarray(np.nanmax(np.abs([np.concatenate([*each, np.zeros(0)]) for each in (self._off, *self._beside)]), 0))

    def _cast(self, cotangents: Sequence[Tensor | None]) -> list[Tensor | None]:
        return [None if v is None else v.to(dtype=dtype) for v, dtype in zip(cotangents, self._dtypes, strict=True)]

    @cached_property
    def _beside(self) -> list[list[Array]]:
        """The deviations of the outputs at a few nearby points, where both can be computed."""
        return [own for n in range(POINTS) if (own := self._deviation_at(self._nearby(n))) is not None]

    def _deviation_at(self, inputs: Sequence[Tensor]) -> list[Array] | None:
        try:
            return _deviation(self._narrow.values([x.detach().clone().requires_grad_() for x in inputs]), self._at([wide(x) for x in inputs]))
        except (UserCodeError, RefusedError):
            return None

    def _at(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        return list(self._full.values([x.detach().clone().requires_grad_() for x in inputs]))

    def _refuse_what_differs(self, outputs: Sequence[Tensor]) -> None:
        for place, (y, off) in enumerate(zip(outputs, self._off, strict=True)):
            size = np.abs(numbers(y))
            allowed = ROUNDINGS * U32 * np.maximum(np.where(np.isfinite(size), size, 0.0), rms(size))
            if (np.abs(off) <= allowed).all():
                continue
            with np.errstate(all="ignore"):
                seen = np.array([own[place] for own in self._beside])
                spread = np.maximum(seen.std(0), rms(seen - seen.mean(0))) if len(seen) > 1 else np.zeros(len(off))
                close = np.abs(np.mean([off, *seen], 0)) <= allowed + SPREADS * spread
            if not close.all():
                raise RefusedError("its values are others in float64")


def _deviation(narrow: Sequence[Tensor], full: Sequence[Tensor]) -> list[Array]:
    """By how much outputs in float32 differ from those in float64 [m each]. Raises RefusedError where they are not the same outputs."""
    if len(narrow) != len(full):
        raise RefusedError("it has another number of outputs in float64")
    found = list[Array]()
    for mine, theirs in zip(narrow, full, strict=True):
        if theirs.dtype != WIDE.get(mine.dtype, mine.dtype) or theirs.dtype not in DOUBLE:
            raise RefusedError(f"given float64 it returns {str(theirs.dtype).removeprefix('torch.')}")
        if mine.shape != theirs.shape:
            raise RefusedError("its outputs have other shapes in float64")
        a, b = numbers(mine), numbers(theirs)
        with np.errstate(invalid="ignore"):
            found.append(np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, a - b))
    return found
