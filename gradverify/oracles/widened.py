"""The values in float64 of a function of float32, or of one that computes in it: of itself, else of
the reference that the spec names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from torch import Tensor

from gradverify.numerics.estimate.noise import POINTS as WAYS
from gradverify.numerics.function.coordinates import DOUBLE, WIDE, numbers, rms
from gradverify.numerics.pairs.pair import Outcome, Pair
from gradverify.numerics.rungs import U32, Array, Z
from gradverify.numerics.verdict import Limit
from gradverify.oracles.finite_difference import Gives, Jacobian, Split, rounded_anew
from gradverify.subject.another import beside
from gradverify.subject.differentiable import Gradients
from gradverify.subject.draw import generator, signed
from gradverify.subject.failure import UserCodeError, attempted, tried
from gradverify.subject.forms import dtype_name
from gradverify.subject.rounding import Perturbed
from gradverify.subject.subject import Cotangents, Subject, Tensors, as_leaves, filled
from gradverify.subject.wide import InDouble, is_narrow, wide, widened


class RefusedError(UserCodeError):
    """The function is another one in float64; the message says how."""

    def __init__(self, message: str = "") -> None:
        super().__init__("GV002", message)


def in_float64(
    subject: Subject,
    function: Gives,
    outputs: Tensors,
    given_by: Callable[[Subject], Gives],
    reference: Callable[[Subject], Gives],
    *,
    lifts: bool,
) -> InFloat64 | UserCodeError:
    """`function`: of the subject, with its `outputs`; `given_by`: the same of another one;
    `reference`: that of the spec.

    `lifts`: what it casts to float32 inside is float64 first. Then nothing is, then the reference
    takes its place, then float64 says that it is float32, if the function asserts that, or branches
    on it. Where none of these is the same function: why it is not."""
    ways = [(given_by, InDouble(lifts=lifts))]
    if lifts and is_narrow(subject):
        ways.append((given_by, InDouble(lifts=False)))
        if subject.case.oracles.reference is not None and not subject.parameter_names:
            ways.append((reference, InDouble(lifts=True)))
        ways.append((given_by, InDouble(lifts=True, shows=True)))

    def taken(given: Callable[[Subject], Gives], mode: InDouble) -> InFloat64:
        full = given(widened(subject, mode))
        return InFloat64(function, full, outputs, subject, mode, given is reference)

    refused: UserCodeError = RefusedError()
    for number, way in enumerate(ways):
        found = attempted(taken, *way)
        if isinstance(found, InFloat64):
            return found
        refused = found if number < 2 else refused  # why it does not run in float64 itself
    return refused


# ---- cast inside
LEFT_OPEN = (Outcome.UNDECIDED, Outcome.STAIRCASE, Outcome.JUMP, Outcome.NON_FINITE)
OF_OTHERS = frozenset(
    {
        Limit.TIE,
        Limit.BORDER,
        Limit.MASKED,
        Limit.STUCK,
        Limit.BUDGET,
        Limit.RESTLESS,
        Limit.SYMMETRY,
    }
)
"""What no cast is the reason of."""


def beside_lifted(found: Jacobian, again: Callable[[], Jacobian | None]) -> Jacobian:
    """The comparison, in which pairs with open elements are as they come out `again`, where that
    decides more of them; itself where it does not.

    Asked where something is open and nothing wrong: what is wrong by the steps of float64 is not
    asked once more by those of float32.
    """

    def left(*pairs: Pair) -> int:
        return sum(pair.count(*LEFT_OPEN) for pair in pairs)

    pairs = found.pairs
    if (
        found.choice is None
        or any(pair.count(Outcome.MISMATCH) for pair in pairs.values())
        or not any(
            left(pair) and not dict(pair.limits).keys() <= OF_OTHERS for pair in pairs.values()
        )
    ):
        return found
    other = again()
    if other is None or other.choice is None:
        return found
    if other.choice.mode is not found.choice.mode:
        return other if left(*other.pairs.values()) < left(*pairs.values()) else found
    more = {
        key: new
        for key, pair in pairs.items()
        if left(pair)
        and (new := other.pairs.get(key))
        and (left(new) < left(pair) or new.count(Outcome.MISMATCH))
    }
    return replace(found, pairs={**pairs, **more}) if more else found


# ---- widened
# Of the larger of a value and its tensor's root mean square: what float32 may take from it without
# more being asked
ROUNDINGS = 16.0
# Of the deviations at nearby points: those at the point may be as large where they come and go with
# the bits of the inputs
SPREADS = 3.0
POINTS = 4  # nearby
# Of the larger of a number and its tensor's root mean square: a function that is lifted, and off by
# more, is another one
LOST = 2.0**-10


class InFloat64(Split):
    """`narrow` in float32, whose gradients count, and `full`, the same function in float64, whose
    values do; at the same numbers."""

    unit = U32

    def __init__(
        self,
        narrow: Gives,
        full: Gives,
        outputs: Tensors,
        subject: Subject,
        mode: InDouble,
        of_reference: bool = False,
    ) -> None:
        """`outputs`: of the narrow function at the point of the `subject`; `mode`: what the full
        one runs in; `of_reference`: that is another implementation. Raises UserCodeError (GV002)
        where the full one raises, or differs."""
        super().__init__(full, narrow, outputs)
        self.of_reference, self._subject, self._mode = of_reference, subject, mode
        self._gives_many: Any = getattr(narrow, "vjps", None)
        self._here = self._at(full.inputs)
        self._refuse_what_differs(outputs, _deviation(outputs, self._here))
        # Operators in Python are shown float32 by what lifts
        mode.lifts &= mode.count > 0 or mode.shows
        if not mode.lifts:
            return
        # Casts that are meant (the part of a number that float32 cannot hold) may show beside the
        # point, or in the gradient, alone
        self._refuse_what_differs(*self._nearby(0))
        source = generator(0, "lifted", "cotangents")
        cotangents = [signed(wide(y), source) for y in outputs]
        wider = self.full(cotangents)
        # Backward asserts float32 too: its values at two points have to do
        if wider is None and mode.shows:
            return
        if wider is None:
            raise RefusedError("its backward refuses float64")
        for mine, theirs in zip(filled(self.vjp(cotangents), wider), wider, strict=True):
            a, b = numbers(mine), numbers(theirs)
            with np.errstate(invalid="ignore"):
                if not (
                    (np.abs(a - b) <= LOST * np.maximum(_size(theirs), np.abs(a)))
                    | (a == b)
                    | (np.isnan(a) & np.isnan(b))
                ).all():
                    raise RefusedError("its gradient is another one in float64")

    @property
    def lifted(self) -> bool:
        """Does the function ask for float32 inside, and get float64?"""
        return self._mode.lifts and self._mode.count > 0

    @property
    def narrow(self) -> InFloat64:
        """The backward, as `numerics.function.point.Function` may have it."""
        return self

    def here(self) -> list[Tensor]:
        """In float64, at its inputs."""
        return self._here

    def values(self, inputs: Tensors) -> list[Tensor]:
        """In float64."""
        return list(self._full.values([wide(x) for x in inputs]))

    def vjps(
        self, output: int, cotangents: Tensor, wanted: Sequence[int] | None = None
    ) -> Gradients | None:
        """In float32, many at once; None where the function does not offer it."""
        found: Gradients | None = self._gives_many and self._gives_many(
            output, cotangents.to(dtype=self._outputs[output].dtype), wanted
        )
        return found

    def full(self, cotangents: Cotangents, inputs: Tensors | None = None) -> Tensors | None:
        """The gradients of the backward in float64; None where it refuses that."""
        with self._mode():
            found = tried(self._full.vjp, cotangents, inputs)
        return None if found is None else filled(found, self.inputs)

    def perturbed(self, number: int, cotangents: Cotangents, inputs: Tensors) -> Tensors | None:
        """As `full` at inputs, with roundings of float32 in every operation; where it refuses
        float64, as it rounds itself at random."""
        source = generator(number, "narrow", "rounding")
        with Perturbed(source):
            found = self.full(cotangents, inputs)
        if found is not None:
            return found
        own = self._narrow.inputs
        return filled(
            rounded_anew(source, own, lambda moved: self.vjp(cotangents, moved)), self.inputs
        )

    def _at(self, inputs: Tensors) -> list[Tensor]:
        return [y.detach() for y in self._full.values(as_leaves(inputs))]

    def _nearby(self, number: int) -> tuple[Tensors, list[Array]]:
        """The outputs of the narrow function at inputs near the point, and their deviations."""
        inputs = beside(self._subject, number)
        outputs = self._narrow.values(as_leaves(inputs))
        return outputs, _deviation(outputs, self._at([wide(x) for x in inputs]))

    @cached_property
    def _beside(self) -> list[list[Array]]:
        """The deviations of the outputs at a few nearby points, where both can be computed."""
        return [found[1] for n in range(POINTS) if (found := tried(self._nearby, n))]

    @cached_property
    def _cost(self) -> list[Array | float]:
        """What roundings of float32 in every operation do to the outputs in float64, one standard
        deviation: also those that are the same at all nearby points, as of the mean that a nearly
        constant row is less than; infinite where some way to round leaves the domain, as that of
        log(1 − exp(x)) at −1e-8. 0 where numbers are cast inside, whose own steps are then
        judged."""
        if self._mode.count:
            return [0.0] * len(self._here)
        found = list[list[Tensor]]()
        for number in range(WAYS):
            with Perturbed(generator(number, "narrow", "forward")):
                found.append(self._at(self._full.inputs))
        with np.errstate(invalid="ignore"):
            spreads = [
                np.std([numbers(y) for y in each], 0, ddof=1) for each in zip(*found, strict=True)
            ]
        return [
            np.where(
                np.isfinite(spread), spread, np.where(np.isfinite(numbers(exact)), np.inf, 0.0)
            )
            for spread, exact in zip(spreads, self._here, strict=True)
        ]

    def _refuse_what_differs(self, outputs: Tensors, off: Sequence[Array]) -> None:
        for place, (y, own) in enumerate(zip(outputs, off, strict=True)):
            size = _size(y)
            allowed = ROUNDINGS * U32 * size
            if (np.abs(own) <= allowed).all() or (
                np.abs(own) <= allowed + Z * self._cost[place]
            ).all():
                continue
            with np.errstate(all="ignore"):
                seen = np.array([each[place] for each in self._beside])
                spread = (
                    np.maximum(seen.std(0), rms(seen - seen.mean(0)))
                    if len(seen) > 1
                    else np.zeros(len(own))
                )
                close = np.abs(np.mean([own, *seen], 0)) <= allowed + SPREADS * spread
                close &= (np.abs(own) <= LOST * size) | (not self._mode.count)
            if not close.all():
                raise RefusedError("its values are others in float64")


def _size(tensor: Tensor) -> Array:
    """Of each number, at least the root mean square of all; 0 for what is not finite."""
    size = np.abs(numbers(tensor))
    return np.maximum(np.where(np.isfinite(size), size, 0.0), rms(size))


def _deviation(narrow: Tensors, full: Tensors) -> list[Array]:
    """By how much outputs in float32 differ from those in float64 [m each]. Raises RefusedError
    where they are not the same outputs."""
    if len(narrow) != len(full):
        raise RefusedError("it has another number of outputs in float64")
    found = list[Array]()
    for mine, theirs in zip(narrow, full, strict=True):
        if theirs.dtype != WIDE.get(mine.dtype, mine.dtype) or theirs.dtype not in DOUBLE:
            raise RefusedError(f"given float64 it returns {dtype_name(theirs)}")
        if mine.shape != theirs.shape:
            raise RefusedError("its outputs have other shapes in float64")
        a, b = numbers(mine), numbers(theirs)
        with np.errstate(invalid="ignore"):
            found.append(np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, a - b))
    return found
