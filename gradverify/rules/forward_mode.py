"""Forward mode against backward along one direction, and the element at which they part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gradverify.evidence import Evidence
from gradverify.model.result import Finding
from gradverify.numerics.estimate.ladder import Derivative, Smoothness
from gradverify.numerics.function.coordinates import flat_all
from gradverify.numerics.halving import most_off
from gradverify.numerics.rungs import Array, Index, Mask, smallest
from gradverify.oracles.along import Along, coordinates, moduli, shaped
from gradverify.oracles.finite_difference import Filled
from gradverify.rules.differ import DUST, loosened, rounded_anew, tolerance
from gradverify.rules.shown import Findings, NotApplicable, apart, coordinate_name, refused
from gradverify.subject.differentiable import Pushed, push
from gradverify.subject.failure import UserCodeError
from gradverify.subject.graph import lacking


def bisect(members: Mask, deviation: Callable[[Mask], float], total: float) -> int:
    """The member at which a deviation that adds up to `total` sits, or most of it: one call of
    `deviation` a halving.

    `members`: places that may be at fault; `deviation` takes a mask over all places. A deviation
    that is no number is the largest.
    """

    def of(places: Index) -> float:
        mask = np.zeros(len(members), bool)
        mask[places] = True
        return deviation(mask)

    return most_off(np.flatnonzero(members), of, total)


# ---- A product J u made in two ways, forwards and by backward, and the element at which they part
RTOL = 1e-6  # of sums and slopes against the ladder's
# Roundings of 1, or of the slope: what of the two may be rounding inside; with DUST it is the cap
# of analytic noise
ROUNDED = 2.0**6
Push = Callable[[Array, Sequence[Tensor] | None], Array]
"""The product J u [M] for u; at other inputs where these are given. Raises UserCodeError."""


@dataclass(frozen=True, slots=True)
class Parted:
    """d output / d input by both ways, for one element: `column` of u, `row` of the outputs' real
    coordinates."""

    column: int
    row: int
    forward: float
    backward: float
    trial: Trial


class Trial:
    """J u by `push` against Jᵀ v by backward (`pull`), for u = `moved`, whose numbers have a
    natural `size`."""

    def __init__(
        self,
        evidence: Evidence,
        moved: Array,
        push: Push,
        pull: Push,
        size: Array,
        tangent: Array | None = None,
        capped: bool = False,
    ) -> None:
        """`capped`: fewer bits inside one of both ways are no excuse."""
        self.evidence, self.moved, self.push, self.pull, self.size, self.capped = (
            evidence,
            moved,
            push,
            pull,
            size,
            capped,
        )
        self.tangent = push(moved, None) if tangent is None else tangent

    def identity(self, v: Array, gradient: Array, relative: float = 0.0) -> tuple[float, float]:
        """By how much v·(J u) over the outputs and (Jᵀ v)·u over the inputs differ, for a
        cotangent's coordinates v [M] and what backward gave for it, and how much is allowed:
        relative to the terms in quadrature (one wrong term among many right ones stays visible),
        with the rounding of their natural size; anything where the reverse side, which is known to
        be right, has no number."""
        unit, f = self.evidence.precision, moduli(self.evidence.outputs)
        sides = (v * self.tangent)[v != 0], (gradient * self.moved)[self.moved != 0]
        off = float(np.sum(sides[0])) - float(np.sum(sides[1]))
        finite = [np.where(np.isfinite(terms), terms, 0.0) for terms in sides]
        dust = float(np.linalg.norm(v * f)) * float(
            np.max(np.abs(self.moved / self.size), initial=0.0)
        )
        rounding = DUST * unit * sum(float(np.abs(terms).sum()) for terms in finite)
        allowed = (
            max(
                max(tolerance(unit), relative)
                * max(float(np.linalg.norm(terms)) for terms in finite),
                rounding,
            )
            + DUST * unit * dust
        )
        return off if np.isfinite(off) else np.inf, allowed if np.isfinite(
            sides[1]
        ).all() else np.inf

    def agrees(self, v: Array, gradient: Array) -> bool:
        """Do both give one number, up to rounding and to what an iteration leaves?"""
        off, allowed = self.identity(v, gradient)
        if abs(off) <= allowed:
            return True
        off, allowed = self.identity(v, gradient, loosened(self.evidence))
        return abs(off) <= allowed + self._rounding(v)

    def _rounding(self, v: Array) -> float:
        """What other roundings make of the difference of both sums."""

        def off(inputs: Sequence[Tensor]) -> float:
            return float(
                np.sum((v * self.push(self.moved, inputs))[v != 0])
                - np.sum((self.pull(v, inputs) * self.moved)[self.moved != 0])
            )

        natural = float(np.linalg.norm(v) * np.linalg.norm(self.moved)) + float(
            np.abs(v * self.tangent).sum()
        )
        most = (
            DUST * ROUNDED * self.evidence.precision * natural
            if self.capped and np.isfinite(natural)
            else np.inf
        )
        rounding = rounded_anew(
            self.evidence, lambda inputs: torch.tensor([off(inputs)], dtype=torch.float64)
        )
        return min(DUST * float(rounding.max()), most)

    def parted(self, v: Array, gradient: Array) -> Parted | None:
        """The element at which the two part, confirmed on its own; None where no single one stands
        out."""
        total, _ = self.identity(v, gradient)
        column = bisect(
            self.moved != 0, lambda mask: self.only(mask).identity(v, gradient)[0], total
        )
        one = self.only(np.arange(len(self.moved)) == column)

        def by_row(mask: Mask) -> float:
            return float(
                np.sum((v * one.tangent)[mask & (v != 0)])
                - self.pull(v * mask, None)[column] * one.moved[column]
            )

        row = bisect(v != 0, by_row, one.identity(v, gradient)[0])
        step, hot = float(self.moved[column]), (np.arange(len(v)) == row) * 1.0
        mine, theirs, unit = (
            float(one.tangent[row]) / step,
            float(self.pull(hot, None)[column]),
            self.evidence.precision,
        )
        natural = float(moduli(self.evidence.outputs)[row]) / float(self.size[column])
        dust = DUST * (unit * natural + smallest(unit) / abs(step))
        if abs(mine - theirs) <= loosened(self.evidence) * max(
            abs(mine), abs(theirs)
        ) + dust or abs(mine - theirs) * abs(step) <= one._rounding(hot):
            return None
        return Parted(column, row, mine, theirs, one)

    def only(self, mask: Mask) -> Trial:
        return Trial(
            self.evidence, self.moved * mask, self.push, self.pull, self.size, capped=self.capped
        )

    def ladder(self) -> Derivative:
        """The function's own derivative [M] along the direction, or its surrogate's."""
        return Along(Filled(self.evidence.measured), self.evidence.modes.columns).thorough(
            self.moved
        )

    def refuted(self, v: Array) -> bool:
        """Does the ladder along the whole direction, where it can say anything, contradict the
        tangents too?"""
        found, asked = self.ladder(), v != 0
        usable = asked & found.smooth & np.isfinite(found.bar)
        off = float(np.sum((v * (self.tangent - found.value))[asked]))
        size = float(np.abs((v * found.value)[asked]).sum())
        return (
            bool(usable.sum() == asked.sum())
            and not abs(off) <= float(np.abs(v * found.bar)[asked].sum()) + RTOL * size
        )


def right(forward: float, backward: float, found: Derivative, row: int) -> bool:
    """Is forward mode right, though backward says another number? At a kink every slope between
    left and right is; elsewhere the ladder must speak for the one and against the other (where its
    bar holds both, the two should still be one number)."""
    if found.outcome[row] == Smoothness.KINK:
        pad = max(found.left_bar[row], found.right_bar[row]) + RTOL * max(
            abs(found.left[row]), abs(found.right[row])
        )
        return bool(
            min(found.left[row], found.right[row]) - pad
            <= forward
            <= max(found.left[row], found.right[row]) + pad
        )
    value, bar = float(found.value[row]), float(found.bar[row])
    return bool(found.smooth[row]) and abs(forward - value) <= bar < abs(backward - value)


# ---- GV108 forward-mode: jvp differs from backward
# Of u where an input moves alone: another sign and size, which a jvp that is not linear would show
FACTOR = -3.0
# Of an output's value: tangents below that are not weighed up, they are mostly rounding
SMALL = 1e-6
# torch's own limit: the function uses forward mode itself (jvp, jacfwd, hessian)
NESTED = "Nested forward mode AD is not supported"
HINT = (
    "jvp returns, for each output, the sum over all inputs of (derivative with respect to it) · "
    "(its tangent); a tangent that is None is a zero"
)


def gv108(evidence: Evidence) -> Findings:
    reason, pushed = _unsupported(evidence), evidence.modes.forward_mode
    if reason is not None and evidence.settings.forward_ad is not True:
        raise NotApplicable(reason)
    if reason is not None:
        yield Finding(
            "GV108",
            f"the spec says `forward_ad: true`, but {reason}",
            hint="add a `jvp` staticmethod, or leave out `forward_ad: true`",
        )
    elif isinstance(pushed, UserCodeError):
        yield Finding("GV108", f"jvp is declared, but {pushed.message}", frames=pushed.frames)
    elif pushed.damaged:
        name = evidence.inputs[pushed.damaged[0]].name
        yield Finding(
            "GV108",
            f"jvp writes into the tangent of {name}",
            input=name,
            hint="work on a copy: the caller's tensor is damaged",
        )
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
    if (
        NESTED in raised.message
        or isinstance(raised.__cause__, NotImplementedError)
        or not evidence.forward.classes
    ):
        return raised.message.partition(" Please file")[0]
    return None


def _compared(evidence: Evidence, pushed: Pushed) -> Findings:
    """Every input alone, then all together: a fault that one input shows is that input's."""
    modes, subject = evidence.modes, evidence.subject
    moved = modes.direction("forward mode")

    def pull(v: Array, inputs: Sequence[Tensor] | None = None) -> Array:
        """The gradient by columns [C] for a cotangent's coordinates [M]."""
        cotangents = shaped(v, evidence.outputs)
        gradients = evidence.function.vjp(cotangents, inputs)
        return modes.columns.combined(coordinates(gradients, subject.inputs))

    def trial(direction: Array, alone: int | None, tangent: Array | None = None) -> Trial:
        """`alone`: only that input is a dual number, None: all are."""

        def forwards(u: Array, inputs: Sequence[Tensor] | None) -> Array:
            tangents = [
                each if alone in (None, place) else None
                for place, each in enumerate(modes.tangents(u))
            ]
            return flat_all(
                push(subject, evidence.forward.checked, tangents, inputs).tangents
            ).numpy()

        return Trial(evidence, direction, forwards, pull, modes.columns.size, tangent, capped=True)

    cotangents = [flat_all(modes.weights("forward mode")).numpy(), _by_rows(evidence, pushed)]
    pulled = [(v, pull(v)) for v in cotangents]
    found = False
    for place, argument in enumerate(evidence.inputs):
        own = np.where(modes.columns.tensor == place, FACTOR * moved, 0.0)
        alone = ", its input alone having a tangent" if len(evidence.inputs) > 1 else ""
        with refused("GV108", f"with a tangent for {argument.name} alone,", input=argument.name):
            sentence = (
                _parts(trial(own, place), pulled, alone, f"a tangent for {argument.name}")
                if own.any()
                else None
            )
        if sentence:
            found = True
            yield Finding("GV108", sentence, input=argument.name, hint=HINT)
    joint = trial(moved, None, flat_all(pushed.tangents).numpy())
    sentence = None if found else _parts(joint, pulled, "", "tangents for all inputs")
    if sentence:
        yield Finding("GV108", sentence, hint=HINT)


def _by_rows(evidence: Evidence, pushed: Pushed) -> Array:
    """A cotangent in which every output that moves counts alike, however small its tangent."""
    signs = flat_all(evidence.cotangents("forward mode by rows")).numpy()
    size = np.maximum(moduli(pushed.tangents), SMALL * moduli(evidence.outputs))
    usable = np.isfinite(size) & (size > 0)
    with np.errstate(over="ignore"):  # of a denormal size
        return np.where(usable, signs / np.where(usable, size, 1.0), 0.0)


def _parts(trial: Trial, pulled: list[tuple[Array, Array]], alone: str, moving: str) -> str | None:
    """Describe where the tangents of a trial disagree with backward; None where they agree."""
    evidence = trial.evidence
    for v, gradient in pulled:
        if trial.agrees(v, gradient):
            continue
        parted = trial.parted(v, gradient)
        found = parted.trial.ladder() if parted else None
        step = float(trial.moved[parted.column]) if parted else 1.0
        if (
            parted
            and found
            and not right(parted.forward * step, parted.backward * step, found, parted.row)
        ):
            y = coordinate_name(
                [evidence.name_of(place) for place in evidence.forward.checked],
                evidence.outputs,
                parted.row,
            )
            coordinate = int(evidence.modes.columns.coordinate[parted.column])
            x = coordinate_name(
                [argument.name for argument in evidence.inputs], evidence.subject.inputs, coordinate
            )
            mine, theirs = apart(parted.forward, parted.backward)
            slope = float(found.value[parted.row]) / step
            numeric = f", {slope + 0.0:.6g} by the finite difference" if np.isfinite(slope) else ""
            return f"d {y} / d {x} is {mine} by jvp{alone}, but {theirs} by backward{numeric}"
        if trial.refuted(v):
            return (
                f"with {moving}, jvp gives other tangents than backward and the finite difference, "
                "though no element alone shows it: jvp is not linear"
            )
    return None
