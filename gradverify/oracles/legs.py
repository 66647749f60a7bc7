"""Functions of less precision, evaluated in float64 so that finite differences can judge them.

A function of 16 bits has two legs. The first is the function, or the spec's `reference`, in float64
at the same numbers; the second, the kernel, is the function in its own dtype, compared with the
first. The error that 16 bits cause anyway is measured by the same computation under `Disguised`. A
function of float32, or one that computes in it, is judged by its values in float64 and its own
gradients.
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
from gradverify.oracles.finite_difference import Jacobian, Split, WithBackward, rounded_anew
from gradverify.subject.another import nearby
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

# Random cotangents; runs in 16 bits at other points, in addition to one for each cotangent at the
# point itself
COTANGENTS, RUNS = 3, 6
# Rows whose sum may round after each, as in torch's layer_norm; 512 rows lose 3 % in this way
ROWS_OF_REFERENCE = 64
REPEATED = 3  # identical calls of the kernel, which show whether it is deterministic


class FirstLeg(NamedTuple):
    """The float64 function that finite differences are taken of. `lifted`: whether its casts to
    fewer bits are made casts to float64; `refusal`: why there is no such function."""

    subject: Subject
    lifted: bool = False
    of_reference: bool = False
    refusal: str = ""

    @contextmanager
    def mode(self) -> Iterator[None]:
        """Context of every call: TF32, which torch allows in convolutions on CUDA, would look like
        a wrong gradient."""
        with tf32(False), Lifted() if self.lifted else nullcontext():
            yield


def first_leg(subject: Subject) -> FirstLeg:
    """Return the first leg of a subject in 16 bits: the function in float64, or else its reference.
    Calls forward and backward once."""
    if subject.narrow is None:
        return FirstLeg(subject)
    lifted, refusal = _lifts(subject)
    if not refusal:
        return FirstLeg(subject, lifted)
    if subject.case.oracles.reference is None or subject.parameter_names:
        return FirstLeg(subject, refusal=refusal)
    reference = as_reference(subject)
    return FirstLeg(reference, _lifts(reference)[0], of_reference=True)


def _lifts(subject: Subject) -> tuple[bool, str]:
    """Return whether the subject casts to fewer bits than float64 and runs without these casts; and
    the reason if it does not run in float64 at all ("" otherwise)."""

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
            return lifted is not None and bool(lifted.replaced), ""
        refusal = refused.message
    return False, refusal


def as_reference(subject: Subject) -> Subject:
    """Return the subject with its reference in place of the function. Raises UserCodeError
    (GV001)."""
    case = replace(subject.case, oracles=replace(subject.case.oracles, reference=None))
    dtype, device = torch.float64, torch.device(case.settings.device)
    target = oracle_target(
        str(subject.case.oracles.reference), "reference", case.init, dtype, device
    )
    other = subject.twin(target=target)
    other.case, other.narrow = case, subject.narrow
    if other.narrow is not None:
        other.count_for(other.narrow)
    return other


class Kernel:
    """The second leg: forward and every gradient of a function in 16 bits (or in float32, if no
    input has 16), judged by the native error. Raises UserCodeError where the kernel raises.

    `wide`: the same function, or its reference (`of_reference`), in float64. Where the spec names a
    reference, the native error is that of the reference, whose sums over more than a few rows are
    its own.
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
        """The dtypes of the tensors that the kernel returns, by index. Calls it once."""
        with without_modes():
            outputs = self._narrow.probed(self._narrow.leaves()).outputs
        return {place: dtype_name(y) for place, y in enumerate(outputs) if isinstance(y, Tensor)}

    @property
    def outputs(self) -> tuple[TensorResult, ...]:
        """One result for each checked output."""
        return self.judged[: len(self._checked)]

    @cached_property
    def judged(self) -> tuple[TensorResult, ...]:
        """One result for each checked output, then one for each differentiable input."""
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
        """Return the kernel's outputs and gradients for each of the cotangents."""
        with without_modes(), inside or nullcontext():
            return [_pulled(self._narrow, self._checked, each) for each in cotangents]

    def apart(
        self, other: Kernel, inside: AbstractContextManager[object] | None = None
    ) -> tuple[TensorResult, ...]:
        """Compare the kernel on another device, or `inside` a context, with this one; each may
        deviate by its own native error.

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
        """Whether 16 bits change any output of the computation. If not, it computes outside of
        torch, and its native error is unknown."""
        places = range(len(self._checked))
        return any(
            not torch.equal(exact[n], low[n]) for exact, low in self._native[1] for n in places
        )

    @cached_property
    def repeated(self) -> tuple[Tensors, ...]:
        """For each tensor its values in identical calls of the kernel."""
        return tuple(zip(*self._called([self._cotangents[0]] * REPEATED), strict=True))

    @cached_property
    def _native(self) -> tuple[list[Tensors], list[tuple[Tensors, Tensors]]]:
        """The computation that the native error is measured by: in float64 for each cotangent, and
        for a number of runs in float64 and in 16 bits."""
        cotangents, runs = self._cotangents, list[tuple[Tensors, Tensors]]()
        own = [_pulled(self._costs, self._checked, each) for each in cotangents]
        low = (self.dtype, *SIXTEEN)
        for n in range(RUNS):  # at inputs an ulp away
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
        """Return the legs of tensor n. Inputs were moved by a whole ulp, so the change for half an
        ulp is half of that."""
        own, runs = self._native
        there = torch.stack([at[n] for at, _ in runs])
        here = torch.stack([own[r % COTANGENTS][n] for r in range(RUNS)])
        # The outputs do not depend on the cotangent
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
        """Dense cotangents whose numbers the narrow dtype represents."""
        outputs = _pulled(self._wide, self._checked, None)
        return [
            [signed(y, self._source).to(dtype=self.dtype).double() for y in outputs]
            for _ in range(COTANGENTS)
        ]

    def _in_its_dtype(self, arguments: Sequence[Argument], cotangents: Tensors) -> Tensors:
        """Return the results of the computation with all operations in 16 bits, disguised as
        float64; arguments that are float32 in the kernel stay float32."""
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
    """Return outputs and gradients of one fresh forward; outputs alone without cotangents."""
    function = Differentiable(subject, checked)
    if cotangents is None:
        return tuple(y.detach().double() for y in function.values(subject.leaves()))
    outputs, gradients = function.once([cotangent.clone() for cotangent in cotangents])
    found = (*outputs, *filled(gradients, subject.inputs))
    return tuple(each.detach().double() for each in found)


# ---- Values in float64 for a function of float32, or one that computes in it: of the function
# itself, or else of the reference that the spec names
class RefusedError(UserCodeError):
    """The function does not compute the same in float64; the message says how it differs."""

    def __init__(self, message: str = "") -> None:
        super().__init__("GV002", message)


def in_float64(
    subject: Subject,
    function: WithBackward,
    outputs: Tensors,
    given_by: Callable[[Subject], WithBackward],
) -> InFloat64 | UserCodeError:
    """Return the function with values in float64, or the error that says why there is none.

    `function`: of the subject, with its `outputs`; `given_by`: makes such a function of another
    subject. Without a surrogate four ways are tried until one agrees with the function: with
    internal casts to float32 replaced by casts to float64; without that; the reference; and with
    float64 tensors that report float32, for functions that assert that dtype, or branch on it."""
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
        refused = found if number < 2 else refused  # the error of the function itself in float64
    return refused


# ---- internal casts
LEFT_OPEN = (Outcome.UNDECIDED, Outcome.STAIRCASE, Outcome.JUMP, Outcome.NON_FINITE)


def refined_by_lifted(found: Jacobian, again: Callable[[], Jacobian | None]) -> Jacobian:
    """Return the comparison with pairs that have undecided elements replaced by those of `again`,
    where that decides more elements.

    `again` is called only where something is undecided and nothing wrong: what is wrong with steps
    of float64 is not compared again with those of float32.
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
# Roundings of float32 by which a value may differ without further examination, in units of the
# larger of the value and its tensor's root mean square
ROUNDINGS = 16.0
# A lifted function that deviates by more, relative to the larger of a number and its tensor's root
# mean square, is not the same function
LOST = 2.0**-10


class InFloat64(Split):
    """The gradients of `narrow`, a function in float32, and the values of `full`, the same function
    in float64, at the same numbers."""

    unit = U32

    def __init__(
        self,
        narrow: WithBackward,
        full: WithBackward,
        outputs: Tensors,
        subject: Subject,
        mode: InDouble,
        of_reference: bool = False,
    ) -> None:
        """`outputs`: of the narrow function at the point of the `subject`; `mode`: the context that
        the full one runs in; `of_reference`: whether the full one is another implementation. Raises
        UserCodeError (GV002) where the full one raises, or differs."""
        super().__init__(full, narrow, outputs)
        self.of_reference, self._subject, self._mode = of_reference, subject, mode
        self._gives_many: Any = getattr(narrow, "vjps", None)
        self._here = self._at(full.inputs)
        self._refuse_what_differs(outputs, _deviation(outputs, self._here))
        # The lifting mode also reports float32 to operators written in Python
        mode.lifts &= bool(mode.replaced) or mode.shows
        if not mode.lifts:
            return
        # Deliberate casts (to get the part of a number that float32 cannot represent) may have an
        # effect only at nearby points, or in the gradient
        self._refuse_what_differs(*self._nearby(0))
        source = generator(0, "lifted", "cotangents")
        cotangents = [signed(wide(y), source) for y in outputs]
        wider = self.full(cotangents)
        # Backward asserts float32 too: agreement of the values at two points has to suffice
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
                    raise RefusedError("its gradient is different in float64")

    @property
    def lifted(self) -> bool:
        """Whether the function casts to float32 inside, and gets float64 instead."""
        return self._mode.lifts and bool(self._mode.replaced)

    @property
    def narrow(self) -> InFloat64:
        """The optional `narrow` attribute of `numerics.function.point.Function`: itself."""
        return self

    def here(self) -> list[Tensor]:
        """Return the values at its inputs, in float64."""
        return self._here

    def values(self, inputs: Tensors) -> list[Tensor]:
        """Return the values in float64."""
        return list(self._full.values([wide(x) for x in inputs]))

    def vjps(
        self, output: int, cotangents: Tensor, wanted: Sequence[int] | None = None
    ) -> Gradients | None:
        """Pull many cotangents back at once in float32; None where the function does not support
        it."""
        found: Gradients | None = self._gives_many and self._gives_many(
            output, cotangents.to(dtype=self._outputs[output].dtype), wanted
        )
        return found

    def full(self, cotangents: Cotangents, inputs: Tensors | None = None) -> Tensors | None:
        """Return the gradients of the backward in float64; None where it does not run in it."""
        with self._mode():
            found = tried(self._full.vjp, cotangents, inputs)
        return None if found is None else filled(found, self.inputs)

    def perturbed(self, number: int, cotangents: Cotangents, inputs: Tensors) -> Tensors | None:
        """Return the gradients of `full` at inputs, with random roundings of float32 in every
        operation; where it does not run in float64, the narrow gradients with random roundings."""
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
        """Return the outputs of the narrow function at inputs near the point, and their deviations
        from those in float64."""
        inputs = nearby(self._subject, number)
        outputs = self._narrow.values(as_leaves(inputs))
        return outputs, _deviation(outputs, self._at([wide(x) for x in inputs]))

    @cached_property
    def _cost(self) -> list[Array | float]:
        """The standard deviation of the outputs in float64 under random roundings of float32 in
        every operation, which also shows roundings that are equal at all nearby points, as of the
        mean subtracted from a nearly constant row. Infinite where some rounding leaves the domain,
        as of log(1 − exp(x)) at −1e-8. 0 for a function with internal casts, whose own steps are
        then judged."""
        if self._mode.replaced:
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
            allowed = ROUNDINGS * U32 * _size(y)
            if not (np.abs(own) <= allowed).all():
                allowed = allowed + Z * self._cost[place]
                if not (np.abs(own) <= allowed).all():
                    raise RefusedError("its values are different in float64")


def _size(tensor: Tensor) -> Array:
    """Return each number's magnitude (0 if not finite), at least the root mean square of all."""
    size = np.abs(numbers(tensor))
    return np.maximum(np.where(np.isfinite(size), size, 0.0), rms(size))


def _deviation(narrow: Tensors, full: Tensors) -> list[Array]:
    """Return the differences of outputs in float32 from those in float64 [m each]. Raises
    RefusedError where numbers, dtypes or shapes of outputs do not match."""
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
