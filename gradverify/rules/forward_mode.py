"""Forward mode against backward along one direction, and the element at which they part."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from torch import Tensor

from gradverify.evidence import Evidence
from gradverify.model.result import Finding
from gradverify.numerics.estimate.kinks import Smoothness
from gradverify.numerics.estimate.ladder import Derivative
from gradverify.numerics.function.coordinates import flat_all, one_hot
from gradverify.numerics.halving import most_off
from gradverify.numerics.rungs import Array, Index, Mask, smallest
from gradverify.oracles.along import Along, coordinates, moduli, shaped
from gradverify.oracles.finite_difference import Filled
from gradverify.rules.differ import DUST, loosened, rounding_of, tolerance
from gradverify.rules.protocol import NotApplicable
from gradverify.rules.shown import apart, coordinate_name
from gradverify.subject.differentiable import Pushed, push
from gradverify.subject.failure import UserCodeError
from gradverify.subject.graph import lacking


@dataclass(frozen=True, slots=True)
class Identity:
    """The terms of both sums: v·(J u) over the outputs [M], (Jᵀ v)·u over the inputs [N]. `dust`: the rounding of their natural size."""

    forward: Array
    reverse: Array
    tolerance: float
    unit: float
    dust: float

    @property
    def off(self) -> float:
        """By how much the sums differ; inf where one of them is no number."""
        difference = float(np.sum(self.forward)) - float(np.sum(self.reverse))
        return difference if np.isfinite(difference) else np.inf

    @property
    def allowed(self) -> float:
        """Relative to the terms in quadrature: one wrong term among many right ones stays visible."""
        sides = [np.where(np.isfinite(terms), terms, 0.0) for terms in (self.forward, self.reverse)]
        rounding = DUST * self.unit * sum(float(np.abs(terms).sum()) for terms in sides)
        return max(self.tolerance * max(float(np.linalg.norm(terms)) for terms in sides), rounding) + self.dust

    def holds(self, noise: float = 0.0) -> bool:
        """Do the two agree? Where the reverse side, which is known to be right, has no number, nothing is compared."""
        return not np.isfinite(self.reverse).all() or abs(self.off) <= self.allowed + noise


def bisect(members: Mask, deviation: Callable[[Mask], float], total: float) -> int:
    """The member at which a deviation that adds up to `total` sits, or most of it: one call of `deviation` a halving.

    `members`: places that may be at fault; `deviation` takes a mask over all places. A deviation that is no number is the largest.
    """

    def of(places: Index) -> float:
        mask = np.zeros(len(members), bool)
        mask[places] = True
        return deviation(mask)

    return most_off(np.flatnonzero(members), of, total)


# ---- Forward mode against backward along one direction, and the element at which they part
RTOL = 1e-6             # of sums and slopes against the ladder's


@dataclass(frozen=True, slots=True)
class Parted:
    """d output / d input by forward mode and by backward; `column` and `row` are real coordinates of all inputs, of all outputs."""

    column: int
    row: int
    forward: float
    backward: float
    numeric: float


class Trial:
    """One forward in forward mode along `moved` [C]. `alone`: only that input is a dual number, None: all are."""

    def __init__(self, evidence: Evidence, moved: Array, alone: int | None, pushed: Pushed | None = None) -> None:
        self.evidence, self.moved, self.alone = evidence, moved, alone
        self.pushed = pushed or self._push(moved)

    @cached_property
    def tangent(self) -> Array:
        """What forward mode gives for the outputs' coordinates [M]."""
        return flat_all(self.pushed.tangents).numpy()

    def identity(self, v: Array, gradient: Array) -> Identity:
        """For a cotangent's coordinates v [M] and the gradient by columns [C] that backward gave for it."""
        unit, f = self.evidence.precision, moduli(self.evidence.outputs)
        dust = DUST * unit * float(np.linalg.norm(v * f)) * float(np.max(np.abs(self.moved / self.evidence.modes.columns.size), initial=0.0))
        return Identity(v * self.tangent, gradient * self.moved, tolerance(unit), unit, dust)

    def agrees(self, v: Array, gradient: Array) -> bool:
        """Do forward mode and backward give one number, up to rounding and to what an iteration leaves?"""
        identity = self.identity(v, gradient)
        return identity.holds() or replace(identity, tolerance=loosened(self.evidence)).holds(self.spread(v))

    def spread(self, v: Array) -> float:
        """What other roundings make of the difference of both sums."""
        return rounding_of(self.evidence, lambda inputs: self._off_at(v, inputs))

    def parted(self, v: Array, gradient: Array) -> Parted | None:
        """The element at which the two part, confirmed on its own; None where no single one stands out."""
        total = self.identity(v, gradient).off
        column = bisect(self.moved != 0, lambda mask: self._only(mask).identity(v, gradient).off, total)
        one = self._only(np.arange(len(self.moved)) == column)
        rest = one.identity(v, gradient).off
        row = bisect(v != 0, lambda mask: one._deviation(v * mask, column), rest)
        step = float(self.moved[column])
        mine, theirs = float(one.tangent[row]) / step, float(pull(self.evidence, _one_hot(self.evidence, row))[column])
        unit = self.evidence.precision
        natural = float(moduli(self.evidence.outputs)[row]) / float(self.evidence.modes.columns.size[column])
        dust = DUST * (unit * natural + smallest(unit) / abs(step))
        if abs(mine - theirs) <= loosened(self.evidence) * max(abs(mine), abs(theirs)) + dust:
            return None
        if abs(mine - theirs) * abs(step) <= one.spread(_one_hot(self.evidence, row)):
            return None
        found = one.ladder()
        return None if right(mine * step, theirs * step, found, row) else Parted(column, row, mine, theirs, float(found.value[row]) / step)

    def ladder(self) -> Derivative:
        """The function's own derivative [M] along the direction, or its surrogate's."""
        return Along(Filled(self.evidence.measured), self.evidence.modes.columns).thorough(self.moved)

    def refuted(self, v: Array) -> bool:
        """Does the ladder along the whole direction, where it can say anything, contradict the tangents too?"""
        found, asked = self.ladder(), v != 0
        usable = asked & found.smooth & np.isfinite(found.bar)
        off = float(np.sum((v * (self.tangent - found.value))[asked]))
        size = float(np.abs((v * found.value)[asked]).sum())
        return bool(usable.sum() == asked.sum()) and not abs(off) <= float(np.abs(v * found.bar)[asked].sum()) + RTOL * size

    def _deviation(self, v: Array, column: int) -> float:
        return float(np.sum((v * self.tangent)[v != 0]) - pull(self.evidence, v)[column] * self.moved[column])

    def _off_at(self, v: Array, inputs: Sequence[Tensor]) -> float:
        pushed, subject = self._push(self.moved, inputs), self.evidence.subject
        gradient = self.evidence.modes.columns.combined(coordinates(self.evidence.function.vjp_at(inputs, shaped(v, self.evidence.outputs)),
                                                                      subject.inputs))
        return float(np.sum(v * flat_all(pushed.tangents).numpy()) - np.sum(gradient * self.moved))

    def _only(self, mask: Mask) -> Trial:
        return Trial(self.evidence, self.moved * mask, self.alone)

    def _push(self, moved: Array, inputs: Sequence[Tensor] | None = None) -> Pushed:
        tangents: list[Tensor | None] = list(self.evidence.modes.tangents(moved))
        if self.alone is not None:
            tangents = [tangent if place == self.alone else None for place, tangent in enumerate(tangents)]
        return push(self.evidence.subject, self.evidence.forward.checked, tangents, inputs)


def pull(evidence: Evidence, v: Array) -> Array:
    """The gradient by columns [C] for a cotangent's coordinates [M]."""
    gradients = evidence.function.vjp(shaped(v, evidence.outputs))
    return evidence.modes.columns.combined(coordinates(gradients, evidence.subject.inputs))


def right(forward: float, backward: float, found: Derivative, row: int) -> bool:
    """Is forward mode right, though backward says another number? At a kink every slope between left and right is; elsewhere the ladder must
    speak for the one and against the other (where its bar holds both, the two should still be one number)."""
    if found.outcome[row] == Smoothness.KINK:
        pad = max(found.left_bar[row], found.right_bar[row]) + RTOL * max(abs(found.left[row]), abs(found.right[row]))
        return bool(min(found.left[row], found.right[row]) - pad <= forward <= max(found.left[row], found.right[row]) + pad)
    value, bar = float(found.value[row]), float(found.bar[row])
    return bool(found.smooth[row]) and abs(forward - value) <= bar < abs(backward - value)


def _one_hot(evidence: Evidence, row: int) -> Array:
    return one_hot((sum(flat_all([y]).numel() for y in evidence.outputs),), flat_all(evidence.outputs).dtype, flat_all([]).device, row).numpy()


# ---- GV108 forward-mode: jvp differs from backward
FACTOR = -3.0           # of u where an input moves alone: another sign and size, which a jvp that is not linear would show
SMALL = 1e-6            # of an output's value: tangents below that are not weighed up, they are mostly rounding
NESTED = "Nested forward mode AD is not supported"    # torch's own limit: the function uses forward mode itself (jvp, jacfwd, hessian)
HINT = "jvp returns, for each output, the sum over all inputs of (derivative with respect to it) · (its tangent); a tangent that is None is a zero"


def gv108(evidence: Evidence) -> Iterator[Finding]:
    reason, pushed = _unsupported(evidence), evidence.modes.forward_mode
    if reason is not None and evidence.settings.forward_ad is not True:
        raise NotApplicable(reason)
    if reason is not None:
        yield Finding("GV108", f"the spec says `forward_ad: true`, but {reason}", hint="add a `jvp` staticmethod, or leave out `forward_ad: true`")
    elif isinstance(pushed, UserCodeError):
        yield Finding("GV108", f"jvp is declared, but {pushed.message}", frames=pushed.frames)
    elif pushed.damaged:
        name = evidence.inputs[pushed.damaged[0]].name
        yield Finding("GV108", f"jvp writes into the tangent of {name}", input=name, hint="work on a copy: the caller's tensor is damaged")
    else:
        yield from _compared(evidence, pushed)


def _unsupported(evidence: Evidence) -> str | None:
    """Why there is no forward mode; None where there is, or where it is declared and fails."""
    cls = lacking(evidence.forward.classes, "jvp")
    if cls is not None:
        return f"{cls} declares no jvp"
    raised = evidence.modes.forward_mode
    if not isinstance(raised, UserCodeError):
        return None
    if NESTED in raised.message or isinstance(raised.__cause__, NotImplementedError) or not evidence.forward.classes:
        return raised.message.partition(" Please file")[0]
    return None


def _compared(evidence: Evidence, pushed: Pushed) -> Iterator[Finding]:
    """Every input alone, then all together: a fault that one input shows is that input's."""
    moved = evidence.modes.direction("forward mode")
    joint = Trial(evidence, moved, None, pushed)
    cotangents = [flat_all(evidence.modes.weights("forward mode")).numpy(), _by_rows(evidence, joint)]
    pulled = [(v, pull(evidence, v)) for v in cotangents]
    found = False
    for place, argument in enumerate(evidence.inputs):
        own = np.where(evidence.modes.columns.tensor == place, FACTOR * moved, 0.0)
        try:
            sentence = _parts(Trial(evidence, own, place), pulled) if own.any() else None
        except UserCodeError as error:
            yield Finding("GV108", f"with a tangent for {argument.name} alone, {error.message}", input=argument.name, frames=error.frames)
            return
        if sentence:
            found = True
            yield Finding("GV108", sentence, input=argument.name, hint=HINT)
    sentence = None if found else _parts(joint, pulled)
    if sentence:
        yield Finding("GV108", sentence, hint=HINT)


def _by_rows(evidence: Evidence, joint: Trial) -> Array:
    """A cotangent in which every output that moves counts alike, however small its tangent."""
    signs = flat_all(evidence.cotangents("forward mode by rows")).numpy()
    size = np.maximum(moduli(joint.pushed.tangents), SMALL * moduli(evidence.outputs))
    usable = np.isfinite(size) & (size > 0)
    with np.errstate(over="ignore"):        # of a denormal size
        return np.where(usable, signs / np.where(usable, size, 1.0), 0.0)


def _parts(trial: Trial, pulled: list[tuple[Array, Array]]) -> str | None:
    """Describe where the tangents of a trial disagree with backward; None where they agree."""
    for v, gradient in pulled:
        if trial.agrees(v, gradient):
            continue
        parted = trial.parted(v, gradient)
        if parted is not None:
            return _sentence(trial, parted)
        if trial.refuted(v):
            return (f"with {_moving(trial)}, jvp gives other tangents than backward and the finite difference, though no element alone shows it: "
                    "jvp is not linear")
    return None


def _moving(trial: Trial) -> str:
    return "tangents for all inputs" if trial.alone is None else f"a tangent for {trial.evidence.inputs[trial.alone].name}"


def _sentence(trial: Trial, parted: Parted) -> str:
    evidence = trial.evidence
    y = coordinate_name([evidence.name_of(place) for place in evidence.forward.checked], evidence.outputs, parted.row)
    coordinate = int(evidence.modes.columns.coordinate[parted.column])
    x = coordinate_name([argument.name for argument in evidence.inputs], evidence.subject.inputs, coordinate)
    mine, theirs = apart(parted.forward, parted.backward)
    numeric = f", {parted.numeric + 0.0:.6g} by the finite difference" if np.isfinite(parted.numeric) else ""
    alone = "" if trial.alone is None or len(evidence.inputs) == 1 else ", its input alone having a tangent"
    return f"d {y} / d {x} is {mine} by jvp{alone}, but {theirs} by backward{numeric}"
