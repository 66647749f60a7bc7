"""Torch's own derivative of the forward: a second witness beside finite differences, which knows it to rounding where it knows it at all.

The forward runs with gradients on and every Function in it replaced by its forward (`subject.own_forward`). It is *absent*, with the operation that
cut the path, wherever its graph is not the whole function: where a constant of the graph is another one at inputs nearby, where its values are not
the function's, where its gradient jumps at the point (torch takes one side of a kink), or where it raises.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from gradverify.model.case import Settings
from gradverify.numerics.function.coordinates import Columns, columns_of
from gradverify.numerics.function.dtypes import DOUBLE, UNITS
from gradverify.numerics.function.flat import numbers, one_hot, rms
from gradverify.numerics.rungs import U32, Array
from gradverify.oracles.along import change, coordinates, direction, shaped
from gradverify.oracles.finite_difference import Wishes
from gradverify.subject.differentiable import Gradients
from gradverify.subject.draw import generator, signed
from gradverify.subject.failure import UserCodeError, blamed
from gradverify.subject.own_forward import Leavings, OwnForward, own_forward
from gradverify.subject.probe import Probe
from gradverify.subject.standin import forwards_only
from gradverify.subject.steps import Place, differing
from gradverify.subject.subject import Subject
from gradverify.subject.tape import Tape

FAR, NEAR = 2.0**-7, 2.0**-24       # of each input's size: where constants must be the same, bfloat16 moves; where the gradient must not jump
JUMP = 2.0**-10     # of a gradient: over NEAR, sin(1e4 x) turns by 4e-7 of its own, a kink by a share that does not depend on the step
DUST = 2.0**-28     # of the typical gradient of its tensor: rounding in it, of numbers that carry noise of 1e-9
ROUNDINGS = 16.0    # of a value and its tensor's root mean square: gradients on may choose another kernel


@dataclass(frozen=True)
class Absent:
    """`reason`: what cut the path, in a clause."""

    reason: str


@dataclass(frozen=True)
class Witness:
    """The forward at the point, differentiated by torch: `checked` are the places of the compared outputs; `beside`: the same a little to both
    sides, where roundings are others."""

    forward: OwnForward
    checked: tuple[int, ...]
    beside: tuple[OwnForward, ...] = ()

    def pull(self, cotangents: Sequence[Tensor | None]) -> Gradients:
        """The gradient per input for one cotangent per checked output; None: it does not depend on it. Raises UserCodeError (GV003)."""
        given = [(place, v) for place, v in zip(self.checked, cotangents, strict=True) if v is not None]
        return self.forward.gradients([place for place, _ in given], [v for _, v in given])

    def row(self, output: int, element: int) -> Array:
        """The derivatives [N] of one real coordinate of a checked output by all real coordinates of the inputs. Raises UserCodeError (GV003)."""
        y = self.forward.outputs[self.checked[output]]
        one = one_hot(y.shape, y.dtype, y.device, element)
        pulled = self.pull([one if place == output else None for place in range(len(self.checked))])
        return coordinates(pulled, self.forward.leaves)


@contextmanager
def witness(subject: Subject, checked: Sequence[int], outputs: Sequence[Tensor], wishes: Wishes) -> Iterator[Witness | Absent]:
    """The witness at the subject's inputs, or why there is none; four forwards and three backwards. `outputs`: what the function itself returned at
    the checked places. What the function kept of the graphs is plain again afterwards."""
    leavings, found = Leavings(), None
    try:
        found = _called(subject, tuple(checked), outputs, wishes, leavings)
        yield found
    finally:
        if isinstance(found, Witness):
            for forward in (found.forward, *found.beside):
                forward.forget()
        if not leavings.clear():
            with suppress(UserCodeError):
                subject.forward(subject.leaves())       # leaves what every call leaves


def _called(subject: Subject, checked: tuple[int, ...], outputs: Sequence[Tensor], wishes: Wishes, leavings: Leavings) -> Witness | Absent:
    if any(x.dtype not in DOUBLE for x in (*subject.inputs, *outputs)):
        return Absent("it works in float64 and complex128 only")
    try:
        base = _run(subject, subject.leaves(), checked, leavings)
        if isinstance(base, Absent):
            return base
        if not all(_equal(base.outputs[place], y) for place, y in zip(checked, outputs, strict=True)):
            return Absent("its values are others with gradients on")
        beside = _confirmed(subject, base, checked, wishes, leavings)
        return beside if isinstance(beside, Absent) else Witness(base, checked, beside)
    except UserCodeError as error:
        return Absent(error.message)


def _run(subject: Subject, leaves: Sequence[Tensor], checked: Sequence[int], leavings: Leavings, tape: Tape | None = None) -> OwnForward | Absent:
    """Raises UserCodeError."""
    forward = own_forward(subject, leaves, tape or Tape())
    leavings.note(forward)
    if forward.tape.cut is not None:
        return Absent(forward.tape.cut)
    for place in checked:
        y = forward.outputs[place] if place < len(forward.outputs) else None
        if not isinstance(y, Tensor) or not y.requires_grad:
            return Absent(forward.tape.origin(y))
    return forward


def _confirmed(subject: Subject, base: OwnForward, checked: Sequence[int], wishes: Wishes, leavings: Leavings) -> tuple[OwnForward, ...] | Absent:
    """The forward a little to both sides; or what speaks against it at inputs nearby. Raises UserCodeError."""
    settings, columns = subject.case.settings, columns_of(subject.inputs, wishes.domains, wishes.symmetric, wishes.specified)
    v = [signed(base.outputs[place].detach(), generator(settings.seed, subject.case.check, f"witness {place}")) for place in checked]
    sides, near, idle = list[Array](), list[OwnForward](), None
    for step in (FAR, NEAR, -NEAR):
        beside = _run(subject, _moved(subject, columns, settings, step), checked, leavings)
        if isinstance(beside, Absent):
            return beside
        if differing(base.tape.steps, beside.tape.steps) is not None:
            idle = _idle(subject, base, checked, v, leavings) if idle is None else idle
        carried = differing(base.tape.steps, beside.tape.steps, idle or frozenset())
        if carried is not None:
            return Absent(carried)
        if step != FAR:
            sides.append(coordinates(beside.gradients(checked, v), beside.leaves))
            near.append(beside)
    here = coordinates(base.gradients(checked, v), base.leaves)
    return Absent("torch's derivative of forward jumps here (a kink)") if _jumps(here, sides[0], sides[1], subject.inputs) else tuple(near)


def _idle(subject: Subject, base: OwnForward, checked: Sequence[int], v: Sequence[Tensor], leavings: Leavings) -> frozenset[Place]:
    """The constants that the outputs do not depend on, to first order; none where the call is another one when torch differentiates by them."""
    probe = Probe()
    try:
        found = _run(subject, subject.leaves(), checked, leavings, probe)
        if isinstance(found, Absent) or differing(base.tape.steps, probe.steps) is not None:
            return frozenset()
        subject.counted_backward()
        with forwards_only(probe.cut_by, found.graphs), blamed("GV003", "torch's own backward of forward"):
            return probe.idle([found.outputs[place] for place in checked], v)
    except UserCodeError:
        return frozenset()


def _moved(subject: Subject, columns: Columns, settings: Settings, step: float) -> list[Tensor]:
    """All inputs a step further, of each element's own size; to the other side where that would leave its domain."""
    along = step * direction(columns, generator(settings.seed, subject.case.check, "beside, for the witness"))
    outside = (columns.x + along < columns.low) | (columns.x + along > columns.high)
    added = shaped(change(columns, np.where(outside, -along, along), subject.inputs), subject.inputs)
    return [(x.detach() + more).requires_grad_() for x, more in zip(subject.leaves(), added, strict=True)]


def _jumps(here: Array, one: Array, other: Array, inputs: Sequence[Tensor]) -> bool:
    """Does a gradient [N] turn by more between two points on both sides of it than one that is smooth can?"""
    if not (np.isfinite(here).all() and np.isfinite(one).all() and np.isfinite(other).all()):
        return True
    size = np.maximum(np.abs(here), np.maximum(np.abs(one), np.abs(other)))
    start = 0
    for x in inputs:
        own = slice(start, start + len(numbers(x)))
        if (np.abs(one + other - 2 * here)[own] > JUMP * size[own] + DUST * rms(size[own])).any():
            return True
        start = own.stop
    return False


def _equal(mine: Tensor, theirs: Tensor) -> bool:
    """The same values, but for rounding."""
    if mine.shape != theirs.shape or mine.dtype != theirs.dtype:
        return False
    a, b = numbers(mine.detach()), numbers(theirs.detach())
    with np.errstate(invalid="ignore"):
        near = np.abs(a - b) <= ROUNDINGS * UNITS.get(mine.dtype, U32) * np.maximum(np.abs(b), rms(np.where(np.isfinite(b), np.abs(b), 0.0)))
    return bool((near | (a == b) | (np.isnan(a) & np.isnan(b))).all())
