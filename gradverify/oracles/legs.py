"""Functions of fewer bits, in float64, where finite differences judge them.

A function of 16 bits has two legs: the kernel is the function in its own dtype. What it is compared
with is the function, or the spec's `reference`, in float64 at the same numbers; what 16 bits cost
anyway is told by the same computation under `Disguised`. Of a function of float32, or of one that
computes in it, the values are those in float64, the gradients its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from gradverify.numerics.estimate.noise import POINTS as WAYS
from gradverify.numerics.function.coordinates import DOUBLE, SIXTEEN, WIDE, numbers, rms
from gradverify.numerics.pairs.pair import Outcome, Pair
from gradverify.numerics.rungs import U32, Array, Z
from gradverify.numerics.sixteen_bit import Legs, TensorResult, judge, nudged
from gradverify.oracles.finite_difference import Gives, Jacobian, Split, rounded_anew
from gradverify.subject.another import beside
from gradverify.subject.differentiable import Differentiable, Gradients
from gradverify.subject.draw import generator, signed
from gradverify.subject.failure import UserCodeError, attempted, tried
from gradverify.subject.fewer_bits import tf32
from gradverify.subject.forms import dtype_name
from gradverify.subject.rounding import ROWS, Disguised, Lifted, Perturbed
from gradverify.subject.subject import Argument, Cotangents, Subject, Tensors, as_leaves, filled
from gradverify.subject.target import oracle_target
from gradverify.subject.wide import InDouble, is_narrow, wide, widened
from gradverify.torch_private import without_modes

# Random ones; of the computation in 16 bits at other points, beside one for each cotangent at the
# point itself
COTANGENTS, RUNS = 3, 6
# Rows whose sum may round after each, as in torch's layer_norm; 512 lose 3 % so
ROWS_OF_REFERENCE = 64
REPEATED = 3  # identical calls of the kernel: do they give the same?


class Standing(NamedTuple):
    """What finite differences are taken of, in float64. `lifted`: what it asks for in fewer bits is
    float64 too. `refusal`: why there is nothing."""

    subject: Subject
    lifted: bool = False
    of_reference: bool = False
    refusal: str = ""

    @contextmanager
    def mode(self) -> Iterator[None]:
        """What every call of it runs in: TF32, which torch allows in convolutions on CUDA, would be
        taken for a wrong gradient."""
        with tf32(False), Lifted() if self.lifted else nullcontext():
            yield


def standing(subject: Subject) -> Standing:
    """The first leg of a subject that has a narrow one: the function in float64, else its
    reference. Calls forward and backward once."""
    if subject.narrow is None:
        return Standing(subject)
    lifted, refusal = _lifts(subject)
    if not refusal:
        return Standing(subject, lifted)
    if subject.case.oracles.reference is None or subject.parameter_names:
        return Standing(subject, refusal=refusal)
    reference = as_reference(subject)
    return Standing(reference, _lifts(reference)[0], of_reference=True)


def _lifts(subject: Subject) -> tuple[bool, str]:
    """Does it ask for fewer bits than float64, which it can be given instead? And why it does not
    run in float64 at all, if so."""

    def called() -> None:
        outputs = subject.probed(subject.leaves()).outputs
        checked = {n: y for n, y in enumerate(outputs) if isinstance(y, Tensor) and y.requires_grad}
        if any(y.dtype in SIXTEEN for y in checked.values()):
            raise UserCodeError("GV002", "what it returns for float64 inputs has 16 bits")
        if checked:
            ones = [torch.ones_like(y) for y in checked.values()]
            Differentiable(subject, tuple(checked)).vjp(ones)

    refusal = ""
    for lifted in (Lifted(), None):
        with lifted or nullcontext():
            refused = attempted(called)
        if refused is None:
            return lifted is not None and bool(lifted.asked), ""
        refusal = refused.message
    return False, refusal


def as_reference(subject: Subject) -> Subject:
    """The reference in the place of the function. Raises UserCodeError (GV001)."""
    case = replace(subject.case, oracles=replace(subject.case.oracles, reference=None))
    dtype, device = torch.float64, torch.device(case.settings.device)
    target = oracle_target(
        str(subject.case.oracles.reference), "reference", case.init, dtype, device
    )
    other = subject.twin(subject.arguments, target=target)
    other.case, other.narrow = case, subject.narrow
    if other.narrow is not None:
        other.count_for(other.narrow)
    return other


class Kernel:
    """The second leg: forward and every gradient of a function in 16 bits, judged by the native
    error; in float32, where those are none. Raises UserCodeError where the kernel raises.

    `wide`: the same function, or its reference (`of_reference`), in float64. Where the spec names a
    reference, it is that which says what 16 bits cost, with its own sums over more than a few rows.
    """

    def __init__(
        self, wide: Subject, narrow: Subject, checked: Sequence[int], of_reference: bool = False
    ) -> None:
        self._wide, self._narrow, self._checked = wide, narrow, tuple(checked)
        self.dtype = next((x.dtype for x in narrow.inputs if x.dtype in SIXTEEN), torch.float32)
        self.name, self._source = dtype_name(self.dtype), wide.generator("native error")
        self._of_reference = of_reference or (
            wide.case.oracles.reference is not None and not wide.parameter_names
        )
        self._costs = as_reference(wide) if self._of_reference and not of_reference else wide

    @cached_property
    def returned(self) -> dict[int, str]:
        """The dtypes of the tensors that it returns, by place. Calls it once."""
        with without_modes():
            outputs = self._narrow.probed(self._narrow.leaves()).outputs
        return {place: dtype_name(y) for place, y in enumerate(outputs) if isinstance(y, Tensor)}

    @property
    def outputs(self) -> tuple[TensorResult, ...]:
        """One for each checked output."""
        return self.judged[: len(self._checked)]

    @cached_property
    def judged(self) -> tuple[TensorResult, ...]:
        """One for each checked output, then one for each differentiable input."""
        cotangents = self._cotangents
        kernel = self._called(cotangents)
        exact = [_pulled(self._wide, self._checked, each) for each in cotangents]
        legs = [self._legs(n, kernel, exact) for n in range(len(exact[0]))]
        for n, (mine, theirs) in enumerate(zip(kernel[0], exact[0], strict=True)):
            if mine.shape != theirs.shape:
                named = (
                    f"output {self._checked[n]}"
                    if n < len(self._checked)
                    else f"the gradient of {self._wide.differentiable[n - len(self._checked)].name}"
                )
                raise UserCodeError(
                    "GV002",
                    f"in {self.name} {named} has shape {list(mine.shape)}, in float64 "
                    f"{list(theirs.shape)}",
                )
        spreads = []
        for first, *others in self.repeated:
            apart = torch.stack([other - first for other in others])
            apart = apart.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
            spreads.append(apart if bool(apart.any()) else None)
        return tuple(
            judge(replace(each, spread=spread), self.dtype)
            for each, spread in zip(legs, spreads, strict=True)
        )

    def _called(
        self, cotangents: Sequence[Tensors], inside: AbstractContextManager[object] | None = None
    ) -> list[Tensors]:
        """What the kernel gives for each of them."""
        with without_modes(), inside or nullcontext():
            return [_pulled(self._narrow, self._checked, each) for each in cotangents]

    def apart(
        self, other: Kernel, inside: AbstractContextManager[object] | None = None
    ) -> tuple[TensorResult, ...]:
        """The kernel elsewhere (on another device, `inside` a context) against this one, each off
        by its own native error.

        Raises UserCodeError."""
        here = self._called(self._cotangents)
        there = [
            tuple(y.to(device=x.device) for x, y in zip(a, b, strict=True))
            for a, b in zip(here, other._called(self._cotangents, inside), strict=True)
        ]
        both = (
            (self._legs(n, there, here), other._legs(n, there, here)) for n in range(len(here[0]))
        )
        return tuple(
            judge(
                replace(
                    a,
                    rounded=a.rounded.hypot(b.rounded.to(a.rounded)),
                    moved=a.moved.hypot(b.moved.to(a.moved)),
                ),
                self.dtype,
            )
            for a, b in both
        )

    @property
    def rounds(self) -> bool:
        """Is any output of the computation another one in its dtype? If not, it computes out of
        torch's sight, and what that costs is not known."""
        places = range(len(self._checked))
        return any(
            not torch.equal(exact[n], low[n]) for exact, low in self._native[1] for n in places
        )

    @cached_property
    def repeated(self) -> tuple[Tensors, ...]:
        """Of each tensor what identical calls of the kernel give."""
        return tuple(zip(*self._called([self._cotangents[0]] * REPEATED), strict=True))

    @cached_property
    def _native(self) -> tuple[list[Tensors], list[tuple[Tensors, Tensors]]]:
        """The computation that says what 16 bits cost: exact, for each cotangent, and in a number
        of runs, exact and in 16 bits."""
        cotangents, runs = self._cotangents, list[tuple[Tensors, Tensors]]()
        own = [_pulled(self._costs, self._checked, each) for each in cotangents]
        low = (self.dtype, *SIXTEEN)
        for n in range(RUNS):  # at inputs an ulp away: the exact computation, and in 16 bits
            v = cotangents[n % COTANGENTS]
            moved = [
                replace(a, value=nudged(a.value, self.dtype, self._source))
                if a.differentiable and b.value.dtype in low
                else a
                for a, b in zip(self._costs.arguments, self._narrow.arguments, strict=True)
            ]
            exact = _pulled(self._costs.twin(moved), self._checked, v)
            runs.append((exact, self._in_its_dtype(moved, v)))
        return own, runs + [
            (exact, self._in_its_dtype(self._costs.arguments, each))
            for exact, each in zip(own, cotangents, strict=True)
        ]

    def _legs(self, n: int, kernel: Sequence[Tensors], exact: Sequence[Tensors]) -> Legs:
        """Of tensor n. Half of a whole ulp's movement is that of half an ulp."""
        own, runs = self._native
        there = torch.stack([at[n] for at, _ in runs])
        here = torch.stack([own[r % COTANGENTS][n] for r in range(RUNS)])
        # No cotangent changes what forward returns
        draws = slice(1) if n < len(self._checked) else slice(None)
        return Legs(
            torch.stack([each[n] for each in kernel[draws]]),
            torch.stack([each[n] for each in exact[draws]]),
            torch.stack([each[n] for _, each in runs]) - there,
            (there[:RUNS] - here) / 2,
            there,
        )

    @cached_property
    def _cotangents(self) -> list[list[Tensor]]:
        """Dense ones, numbers of the narrow dtype."""
        outputs = _pulled(self._wide, self._checked, None)
        return [
            [signed(y, self._source).to(dtype=self.dtype).double() for y in outputs]
            for _ in range(COTANGENTS)
        ]

    def _in_its_dtype(self, arguments: Sequence[Argument], cotangents: Tensors) -> Tensors:
        """What the computation gives when all of its operations run in 16 bits: what is float32 in
        the kernel stays so, 16 bits are disguised as float64."""
        single = torch.float32
        twin = self._costs.twin(
            [
                replace(a, value=a.value.to(dtype=single))
                if self.dtype != single and own.is_tensor and own.value.dtype == single
                else a
                for a, own in zip(arguments, self._narrow.arguments, strict=True)
            ]
        )
        twin.around = None
        rows = ROWS_OF_REFERENCE if self._of_reference else ROWS
        with without_modes(), Disguised(self.dtype, rows):
            return _pulled(twin, self._checked, cotangents)


def _pulled(subject: Subject, checked: Sequence[int], cotangents: Tensors | None) -> Tensors:
    """Outputs and gradients of one fresh forward; outputs alone without cotangents."""
    function = Differentiable(subject, checked)
    if cotangents is None:
        return tuple(y.detach().double() for y in function.values(subject.leaves()))
    outputs, gradients = function.once([cotangent.clone() for cotangent in cotangents])
    found = (*outputs, *filled(gradients, subject.inputs))
    return tuple(each.detach().double() for each in found)


# ---- The values in float64 of a function of float32, or of one that computes in it: of itself,
# else of the reference that the spec names
class RefusedError(UserCodeError):
    """The function is another one in float64; the message says how."""

    def __init__(self, message: str = "") -> None:
        super().__init__("GV002", message)


def in_float64(
    subject: Subject, function: Gives, outputs: Tensors, given_by: Callable[[Subject], Gives]
) -> InFloat64 | UserCodeError:
    """`function`: of the subject, with its `outputs`; `given_by`: the same of another one.

    Where there is no surrogate, what it casts to float32 inside is float64 first. Then nothing is,
    then the reference takes its place, then float64 says that it is float32, if the function
    asserts that, or branches on it. Where none of these is the same function: why it is not."""
    lifts = subject.case.oracles.surrogate is None
    ways = [(False, InDouble(lifts=lifts))]
    if lifts and is_narrow(subject):
        ways.append((False, InDouble(lifts=False)))
        if subject.case.oracles.reference is not None and not subject.parameter_names:
            ways.append((True, InDouble(lifts=True)))
        ways.append((False, InDouble(lifts=True, shows=True)))

    def taken(of_reference: bool, mode: InDouble) -> InFloat64:
        twin = widened(subject, mode)
        full = given_by(as_reference(twin) if of_reference else twin)
        return InFloat64(function, full, outputs, subject, mode, of_reference)

    refused: UserCodeError = RefusedError()
    for number, way in enumerate(ways):
        found = attempted(taken, *way)
        if isinstance(found, InFloat64):
            return found
        refused = found if number < 2 else refused  # why it does not run in float64 itself
    return refused


# ---- cast inside
LEFT_OPEN = (Outcome.UNDECIDED, Outcome.STAIRCASE, Outcome.JUMP, Outcome.NON_FINITE)


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
            left(pair) and any(limit.cast for limit, _ in pair.limits) for pair in pairs.values()
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
        mode.lifts &= bool(mode.asked) or mode.shows
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
        return self._mode.lifts and bool(self._mode.asked)

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
        if self._mode.asked:
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
                close &= (np.abs(own) <= LOST * size) | (not self._mode.asked)
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
