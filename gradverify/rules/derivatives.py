"""Rules for forward mode (GV108) and double backward (GV109): each is compared with another way to
compute the same numbers, and the element at which they differ is located.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import isfinite
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from gradverify.evidence import Evidence
from gradverify.model.result import Finding, Severity
from gradverify.numerics.estimate.ladder import Derivative, Smoothness
from gradverify.numerics.function.coordinates import flat_all, numbers
from gradverify.numerics.halving import most_off
from gradverify.numerics.rungs import BASE, Array, Index, Mask, smallest
from gradverify.numerics.tolerance import FLOOR, RTOL, RTOL_LOW
from gradverify.oracles.along import Along, change, coordinates, moduli, parts, shaped
from gradverify.oracles.finite_difference import Filled
from gradverify.oracles.legs import InFloat64
from gradverify.rules.differ import DUST, SINGLE, loosened, nudged, rounded_anew, tolerance
from gradverify.rules.engine import NotApplicable, refused
from gradverify.rules.shown import Findings, apart, coordinate_name
from gradverify.subject.another import other_points
from gradverify.subject.differentiable import Backward, Differentiable, Pushed, Second, push
from gradverify.subject.failure import UserCodeError, attempted, tried
from gradverify.subject.graph import lacking
from gradverify.subject.wide import InDouble, wide, widened


def bisect(members: Mask, deviation: Callable[[Mask], float], total: float) -> int:
    """Locate the member that most of a deviation, `total` over all members, comes from, by one call
    of `deviation` per halving.

    `members`: mask of the places that may be at fault; `deviation` takes a mask over all places. A
    deviation that is NaN counts as the largest.
    """

    def of(places: Index) -> float:
        mask = np.zeros(len(members), bool)
        mask[places] = True
        return deviation(mask)

    return most_off(np.flatnonzero(members), of, total)


# ---- A product J u computed in two ways, forwards and by backward, and the element at which they
# differ
OF_THE_LADDER = 1e-6  # relative tolerance of sums and slopes against the ladder's
# Roundings (of 1, or of the slope) that the two may differ by through rounding inside; times DUST
# it is the cap of analytic noise
ROUNDED = 2.0**6
Push = Callable[[Array, Sequence[Tensor] | None], Array]
"""The product J u [M] for u, at other inputs where these are given. Raises UserCodeError."""


class Parted(NamedTuple):
    """d output / d input by both ways for one element: `column` of u, `row` among the outputs' real
    coordinates. `trial`: the trial that moves only this column."""

    column: int
    row: int
    forward: float
    backward: float
    trial: Trial


@dataclass(frozen=True, eq=False)
class Trial:
    """Comparison of J u by `push` with Jᵀ v by backward (`pull`), for u = `moved`, whose numbers
    have the natural `size`. `known`: J u, if already computed. `capped`: the allowed rounding is
    bounded, so that fewer bits inside one of the two ways do not excuse a difference."""

    evidence: Evidence
    moved: Array
    push: Push
    pull: Push
    size: Array
    known: Array | None = None
    capped: bool = False

    @cached_property
    def tangent(self) -> Array:
        return self.push(self.moved, None) if self.known is None else self.known

    def identity(self, v: Array, gradient: Array, relative: float = 0.0) -> tuple[float, float]:
        """Return by how much v·(J u) over the outputs and (Jᵀ v)·u over the inputs differ, and how
        much is allowed.

        `v`: a cotangent's coordinates [M]; `gradient`: backward's result for it. The allowance is
        relative to the terms in quadrature (one wrong term among many right ones stays visible),
        plus the rounding of their natural size; it is infinite where the reverse side, which is
        known to be right, is not finite.
        """
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
        """Return whether both ways agree, up to rounding and to the error that an iteration
        leaves."""
        off, allowed = self.identity(v, gradient)
        if abs(off) <= allowed:
            return True
        off, allowed = self.identity(v, gradient, loosened(self.evidence))
        return abs(off) <= allowed + self._rounding(v)

    def _rounding(self, v: Array) -> float:
        """Return how far the difference of the two sums changes by other roundings."""

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
        """Return the element at which the two ways differ, confirmed individually; None where no
        single element does."""
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
        mine = float(one.tangent[row]) / step
        theirs = float(self.pull(hot, None)[column])
        unit = self.evidence.precision
        natural = float(moduli(self.evidence.outputs)[row]) / float(self.size[column])
        dust = DUST * (unit * natural + smallest(unit) / abs(step))
        if abs(mine - theirs) <= loosened(self.evidence) * max(
            abs(mine), abs(theirs)
        ) + dust or abs(mine - theirs) * abs(step) <= one._rounding(hot):
            return None
        return Parted(column, row, mine, theirs, one)

    def only(self, mask: Mask) -> Trial:
        """Return the trial that moves only these columns."""
        return replace(self, moved=self.moved * mask, known=None)

    def ladder(self) -> Derivative:
        """Return the derivative [M] of the function (or its surrogate) along the direction by
        finite differences."""
        return Along(Filled(self.evidence.measured), self.evidence.modes.columns).thorough(
            self.moved
        )

    def refuted(self, v: Array) -> bool:
        """Return whether the ladder along the whole direction contradicts the tangents too; False
        where it has no derivative for an output that `v` weighs."""
        found, weighed = self.ladder(), v != 0
        usable = weighed & found.smooth & np.isfinite(found.bar)
        off = float(np.sum((v * (self.tangent - found.value))[weighed]))
        size = float(np.abs((v * found.value)[weighed]).sum())
        return (
            bool(usable.sum() == weighed.sum())
            and not abs(off) <= float(np.abs(v * found.bar)[weighed].sum()) + OF_THE_LADDER * size
        )


def right(forward: float, backward: float, found: Derivative, row: int) -> bool:
    """Return whether forward mode is right where backward has another number.

    At a kink every slope between the left and the right one is right. Elsewhere the ladder must
    agree with forward mode and contradict backward: where its bar covers both, they should still be
    equal.
    """
    if found.outcome[row] == Smoothness.KINK:
        pad = max(found.left_bar[row], found.right_bar[row]) + OF_THE_LADDER * max(
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
# Factor of u where only one input moves: of another sign and size, which shows a jvp that is not
# linear
FACTOR = -3.0
# Share of an output's value below which its tangent, mostly rounding, gets no larger weight
SMALL = 1e-6
# torch's own limit: the function uses forward mode itself (jvp, jacfwd, hessian)
NESTED = "Nested forward mode AD is not supported"
TANGENTS = (
    "jvp returns, for each output, the sum over all inputs of (derivative with respect to it) · "
    "(its tangent); a tangent that is None is a zero"
)


def gv108(evidence: Evidence) -> Findings:
    reason = _unsupported(evidence)
    if reason is not None and evidence.settings.forward_ad is not True:
        raise NotApplicable(reason)
    if reason is not None:
        yield Finding(
            "GV108",
            f"the spec says `forward_ad: true`, but {reason}",
            hint="add a `jvp` staticmethod, or leave out `forward_ad: true`",
        )
    elif isinstance(pushed := evidence.modes.forward_mode, UserCodeError):
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
    """Return why there is no forward mode; None where there is, or where it is declared and
    fails."""
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
    """Compare with a tangent for one input at a time, then for all together; a fault that shows for
    one input is reported for it."""
    modes, subject = evidence.modes, evidence.subject
    moved = modes.direction("forward mode")

    def pull(v: Array, inputs: Sequence[Tensor] | None = None) -> Array:
        """Return the gradient by columns [C] for a cotangent's coordinates [M]."""
        return modes.columns.combined(_pulled(evidence, v, inputs))

    def trial(direction: Array, alone: int | None, tangent: Array | None = None) -> Trial:
        """Return the trial in which only the input `alone` is a dual number; None: all are."""

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
            yield Finding("GV108", sentence, input=argument.name, hint=TANGENTS)
    joint = trial(moved, None, flat_all(pushed.tangents).numpy())
    sentence = None if found else _parts(joint, pulled, "", "tangents for all inputs")
    if sentence:
        yield Finding("GV108", sentence, hint=TANGENTS)


def _pulled(evidence: Evidence, v: Array, inputs: Sequence[Tensor] | None = None) -> Array:
    """Return the gradients' coordinates [N] for a cotangent's [M], at other inputs where these are
    given."""
    cotangents, function = shaped(v, evidence.outputs), evidence.function
    return coordinates(function.vjp(cotangents, inputs), evidence.subject.inputs)


def _by_rows(evidence: Evidence, pushed: Pushed) -> Array:
    """Return a cotangent that gives every output that moves the same weight, however small its
    tangent."""
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


# ---- Backward as a function of the inputs, in float64 where that is the same function, and its
# double backward
SAME = 1e-4  # of the largest gradient, by which a gradient in float32 may be off


class _InFloat64(Backward):
    """Backward in float64: tensors that it creates without a dtype are float64 too, and so are
    those that it casts to float32, where forward's casts were lifted."""

    _here: list[Tensor] | None = None

    def __init__(self, evidence: Evidence, mode: InDouble) -> None:
        twin, checked = widened(evidence.subject, mode), evidence.forward.checked
        super().__init__(
            twin, Differentiable(twin, checked), [wide(v) for v in evidence.modes.second_weights]
        )
        self.around = mode

    def here(self) -> list[Tensor]:
        self._here = self._here or self.values(self.inputs)
        return self._here

    def values(self, inputs: Sequence[Tensor] | None = None) -> list[Tensor]:
        with self.around():
            return super().values(inputs)


def backwards(evidence: Evidence) -> Backward:
    """Return backward as a function of the inputs, for finite differences: in float64 for a float32
    function whose gradients are the same there."""
    own = evidence.modes.backwards
    if not isinstance(evidence.in_float64, InFloat64):
        return own
    full = _InFloat64(evidence, InDouble(lifts=evidence.in_float64.lifted))

    def same() -> bool:
        pairs = zip(map(numbers, own.here()), map(numbers, full.here()), strict=True)
        return all((np.abs(a - b) <= SAME * np.abs(b).max(initial=0.0)).all() for a, b in pairs)

    return full if tried(same) else own


def known(evidence: Evidence) -> Second:
    """Return the double backward for the first weights. Raises UserCodeError where it is
    refused."""
    seen = evidence.modes.double_backward
    if isinstance(seen, UserCodeError):
        raise seen
    return seen


def doubled(evidence: Evidence, w: Array, inputs: Sequence[Tensor] | None = None) -> Second:
    """Return the double backward for these weights [N] of the gradients' coordinates."""
    return evidence.modes.backwards.second(shaped(w, evidence.subject.inputs), inputs)


# ---- The derivative of backward by double backward: with respect to the cotangents against
# backward itself, with respect to the inputs against finite differences of backward
AWAY = 8.0  # roundings of each input, by which a nearby point is off
# CPU seconds of gradverify's own per element, for all rungs (measured at 2e5 elements)
THOROUGH = 2e-5


class Wrong(NamedTuple):
    """A wrong element of double backward: the derivative of the `gradient` coordinate (among all
    inputs') with respect to the coordinate `place` (of the inputs; of the outputs' cotangents where
    `cotangent`), by double backward (`double`) and in truth."""

    gradient: int
    place: int
    cotangent: bool
    double: float
    truth: float


def to_cotangents(evidence: Evidence) -> Wrong | None:
    """Return the element at which double backward is wrong with respect to the cotangents; None
    where there is none.

    As backward is linear in them, ⟨u, ∂⟨w, Jᵀv⟩/∂v⟩ = ⟨w, Jᵀu⟩, and no finite difference is needed.
    For u = v the gradients are known.
    """
    w, u = evidence.modes.gradient_weights, flat_all(evidence.modes.second_weights).numpy()

    def double(w: Array, inputs: Sequence[Tensor] | None) -> Array:
        return coordinates(doubled(evidence, w, inputs).cotangents, evidence.outputs)

    trial = Trial(
        evidence,
        w,
        double,
        partial(_pulled, evidence),
        np.where(w == 0, 1.0, np.abs(w)),
        coordinates(known(evidence).cotangents, evidence.outputs),
    )
    gradient = coordinates(evidence.modes.backwards.here(), evidence.subject.inputs)
    parted = None if trial.agrees(u, gradient) else trial.parted(u, gradient)
    return parted and Wrong(parted.column, parted.row, True, parted.forward, parted.backward)


class Inputs:
    """The comparison of double backward with respect to the inputs: the derivative of
    ⟨w, backward(x)⟩ along a direction, by double backward and by finite differences of backward.

    Elements of gradients without a derivative (a jump of backward, at a kink of forward) get the
    weight 0, and their inputs are not moved: double backward may have any value there.
    """

    def __init__(
        self,
        evidence: Evidence,
        along: Along | None = None,
        w: Array | None = None,
        double: Second | None = None,
    ) -> None:
        """`w`: weights of the gradients' coordinates [N], by default the first ones. `double`: the
        double backward for them, if already computed."""
        self.evidence = evidence
        self.along = along or Along(backwards(evidence), evidence.modes.columns)
        self.w = evidence.modes.gradient_weights if w is None else w
        self._double = double or (known(evidence) if w is None else doubled(evidence, w))
        # A direction along which the two agreed, and its derivative by the quick rungs
        self._agreed: tuple[Array, Derivative] | None = None

    @property
    def rtol(self) -> float:
        own = self.evidence.settings.rtol
        return (
            own
            if own is not None
            else RTOL_LOW
            if max(self.evidence.precision, self.along.unit) >= SINGLE
            else RTOL
        )

    def wrong(self, moved: Array) -> Wrong | None:
        """Return the element at which double backward is wrong along `moved` [C], confirmed by the
        whole ladder; None where there is none."""
        moved = self._smooth(moved)
        found = self.along.guess(moved)
        if self._off(moved, found) != "no":
            found = self.along.quick(moved)
        if self._off(moved, found) == "no":
            self._agreed = moved, found
            return None
        self.evidence.spending.heed(THOROUGH * len(self.w))
        found = self.along.thorough(moved)
        if self._leave_out(found):
            moved = self._smooth(moved)
            found = self.along.thorough(moved)
        return self._element(moved, found) if self._off(moved, found) == "yes" else None

    def off_for(self, w: Array) -> str:
        """Return what `_off` does, for other weights [N], along the direction on which the two
        agreed; "open" where there is none. (This tests as much as another direction for the same
        weights, by one backward instead of six forwards and backwards.)"""
        if self._agreed is None:
            return "open"
        once_more = self.evidence.modes.backwards.once_more(shaped(w, self.evidence.subject.inputs))
        off = Inputs(self.evidence, self.along, w, once_more)._off(*self._agreed)
        return off if off == "no" else Inputs(self.evidence, self.along, w)._off(*self._agreed)

    def _leave_out(self, found: Derivative) -> bool:
        """Set the weights of gradients without a derivative to 0; return whether there are any."""
        rough = self._rough(found)
        if not rough.any():
            return False
        self.w = np.where(rough, 0.0, self.w)
        self._double = doubled(self.evidence, self.w)
        return True

    def _rough(self, found: Derivative) -> Mask:
        """Return the mask [N] of weighed gradients that have no derivative."""
        return np.asarray(
            (~found.smooth | ~np.isfinite(found.bar) | self._ambiguous(found)) & (self.w != 0)
        )

    def _ambiguous(self, found: Derivative) -> Mask:
        """Return where other steps give another slope, by more than the tolerance: two slopes
        within it would judge any double backward alike."""
        return np.isfinite(found.second) & ~(
            np.abs(found.second - found.value) <= self.rtol * np.abs(found.value)
        )

    def _smooth(self, moved: Array) -> Array:
        """Return the direction without the inputs whose own gradient has no derivative, and without
        those for which an infinite gradient gives 0 · inf."""
        moved = np.where(self.w[self.evidence.modes.columns.coordinate] != 0, moved, 0.0)
        if np.isfinite(self.along.value).all():
            return moved
        return np.where(np.isfinite(self._by_column(self._double)), moved, 0.0)

    def _by_column(self, seen: Second, over: float = 1.0) -> Array:
        """Return a double backward by columns [C], divided by `over`."""
        inputs = coordinates(seen.inputs, self.evidence.subject.inputs) / over
        return self.evidence.modes.columns.combined(inputs)

    def _element(self, moved: Array, full: Derivative) -> Wrong | None:
        """Locate the wrong element by bisection, first over the gradients and then over the
        columns, and confirm it by a ladder of its own."""
        w = self.w

        def by_gradient(mask: Mask) -> float:
            return self._along(moved, doubled(self.evidence, w * mask)) - float(
                np.sum((w * full.value)[mask & (w != 0)])
            )

        gradient = bisect(w != 0, by_gradient, by_gradient(w != 0))
        alone = np.arange(len(w)) == gradient
        row = self._by_column(doubled(self.evidence, w * alone), w[gradient])

        def by_place(mask: Mask) -> float:
            return float(
                np.sum((row * moved)[mask & (moved != 0)])
                - self.along.quick(moved * mask, np.array([gradient])).value[0]
            )

        column = bisect(
            moved != 0, by_place, float(np.sum((row * moved)[moved != 0]) - full.value[gradient])
        )
        return self._confirmed(moved, gradient, column, float(row[column]))

    def _confirmed(self, moved: Array, gradient: int, column: int, double: float) -> Wrong | None:
        """Return this element if the whole ladder for it alone contradicts double backward; else
        None."""
        step, alone = float(moved[column]), np.arange(len(moved)) == column
        one = self.along.thorough(moved * alone, np.array([gradient]))
        mine, theirs, bar = double * step, float(one.value[0]), float(one.bar[0])
        allowed = self.rtol * max(abs(mine), abs(theirs)) + self._floor(
            np.abs(self.along.value[gradient])
        )
        if (
            not one.smooth[0]
            or not np.isfinite(bar)
            or self._ambiguous(one)[0]
            or abs(mine - theirs) - bar <= allowed
        ):
            return None
        own, weight = self.evidence.modes.backwards, self.w * (np.arange(len(self.w)) == gradient)

        def measured(inputs: Sequence[Tensor]) -> Tensor:
            """Return double backward's derivative, and backward's value over the base step, whose
            change by rounding is that of a slope."""
            value = float(coordinates(own.values(inputs), own.inputs)[gradient])
            seen = own.second(shaped(weight / self.w[gradient], own.inputs), inputs)
            return torch.tensor(
                [step * float(self._by_column(seen)[column]), value / BASE], dtype=torch.float64
            )

        # Under a mode torch's `det` computes its second derivative in another way: the rounding of
        # the usual way shows at points a few roundings away
        rounding = rounded_anew(self.evidence, measured) + nudged(
            self.evidence, measured, AWAY * self.evidence.unit
        )
        if abs(mine - theirs) - bar <= DUST * float(rounding.sum()):
            return None
        return Wrong(
            gradient,
            int(self.evidence.modes.columns.coordinate[column]),
            False,
            double,
            theirs / step,
        )

    def _off(self, moved: Array, found: Derivative) -> str:
        """Return whether double backward differs from the ladder: "yes", "no", or "open"."""
        weighed = np.flatnonzero(self.w)
        if not weighed.size or not moved.any():
            return "no"
        weight, d = np.abs(self.w[weighed]), found.take(weighed)
        mine = self._along(moved, self._double)
        if not np.isfinite(d.bar).all():
            return "open"
        terms, noise = self.w[weighed] * d.value, np.minimum(d.noise_bar, d.bar)
        # The noise of different elements is independent
        bar = float(np.sum(weight * (d.bar - noise)) + np.linalg.norm(weight * noise))
        off = abs(mine - float(terms.sum()))
        allowed = self.rtol * max(float(np.linalg.norm(terms)), abs(mine)) + self._floor(
            weight * np.abs(self.along.value[weighed])
        )
        return "no" if off + bar <= allowed else "yes" if not off - bar <= allowed else "open"

    def _along(self, moved: Array, seen: Second) -> float:
        moves = change(self.evidence.modes.columns, moved, self.evidence.subject.inputs)
        own = moves != 0
        return float(
            np.sum(coordinates(seen.inputs, self.evidence.subject.inputs)[own] * moves[own])
        )

    def _floor(self, size: Array) -> float:
        """Return the size below which second derivatives are rounding of gradients of this size, or
        of numbers that underflow."""
        unit = max(self.evidence.unit, self.along.unit)
        return FLOOR * max(
            unit * float(np.linalg.norm(np.nan_to_num(size, posinf=0.0))), smallest(unit)
        )


# ---- GV109 double-backward: second derivatives are wrong, and no error is raised
DIRECTIONS = 2
HINT = (
    "compute backward with torch operations from ctx.saved_tensors (inputs and outputs of forward "
    "only; no .detach(), .data, no_grad or NumPy), or mark it @once_differentiable, so that it "
    "raises; a Function that backward calls makes second derivatives by its own backward"
)
ELSEWHERE = "at another point of the same kind "
NOWHERE = (
    "an operation of backward has no finite slope there (a root or a norm at 0, a quotient 0/0): "
    "give it a harmless number by torch.where, or "
    "mark backward @once_differentiable, so that it raises"
)


def gv109(evidence: Evidence) -> Iterator[Finding]:
    raised = evidence.modes.double_backward
    if isinstance(raised, UserCodeError):
        if evidence.settings.second_order is not True:
            raise NotApplicable(f"it says so itself: {raised.message}")
        yield Finding(
            "GV109",
            f"the spec says `second_order: true`, but {raised.message}",
            frames=raised.frames,
            hint="make backward differentiable, or leave out `second_order: true`",
        )
        return
    wrong = attempted(_wrong, evidence)
    # Double backward may raise for other weights only (torch's singular vectors)
    if isinstance(wrong, UserCodeError):
        if evidence.settings.second_order is True or wrong.code != "GV109":
            raise wrong
        raise NotApplicable(f"it says so itself: {wrong.message}")
    if wrong is not None:
        yield _finding(evidence, wrong)
    elif evidence.settings.second_order is True:
        yield from _elsewhere(evidence)


def _elsewhere(evidence: Evidence) -> Iterator[Finding]:
    """Yield what is wrong at the first other point at which everything is finite: values that a
    double backward keeps between calls are those of the first inputs."""

    def defined(there: Evidence) -> bool:
        return there.infinite <= evidence.infinite and known(there) is not None

    for there in map(evidence.at, other_points(evidence.subject)):
        if not tried(defined, there):
            continue
        wrong = attempted(_wrong, there)
        if not isinstance(wrong, UserCodeError):
            if wrong is not None:
                yield _finding(there, wrong, ELSEWHERE)
            return


def _wrong(evidence: Evidence) -> Wrong | None:
    try:
        wrong = to_cotangents(evidence) or _to_inputs(evidence)
        if wrong is None and evidence.settings.second_order is True:
            return _by_pair(evidence)
        return wrong
    finally:
        evidence.modes.backwards.drop_graph()


def _to_inputs(evidence: Evidence) -> Wrong | None:
    """Return what is wrong along a direction for two choices of weights, or, where the first did
    not agree by the quick rungs, along two directions for one."""
    inputs = Inputs(evidence)
    directions = [
        evidence.modes.direction(f"second order {number}")
        for number in evidence.spending.some(range(DIRECTIONS), 8, 8, "directions")
    ]
    wrong, others = inputs.wrong(directions[0]), evidence.modes.weighing("other gradient weights")
    if wrong is not None or len(directions) == 1:
        return wrong
    off = inputs.off_for(others)
    if off == "no":
        return None
    # New weights, if all were left out along the first direction (close to a singular matrix)
    again = inputs if inputs.w.any() else Inputs(evidence, inputs.along)
    wrong = again.wrong(directions[1])
    if wrong is None and off == "yes":
        return Inputs(evidence, inputs.along, others).wrong(directions[0])
    return wrong


def _by_pair(evidence: Evidence) -> Wrong | None:
    """Return what is wrong of each gradient along each input individually: next to larger pairs, a
    term that one pair lacks is within rounding."""
    columns, size = evidence.modes.columns, evidence.modes.gradient_weights
    own = parts(evidence.subject.inputs)
    if len(own) < 2:
        return None
    inputs = Inputs(evidence)
    moved = evidence.modes.direction("second order by pair")
    for number in evidence.spending.some(range(len(own)), 8, 8 + len(own), "inputs"):
        direction = np.where(columns.tensor == number, moved, 0.0)
        if (wrong := inputs.wrong(direction)) is not None:
            return wrong
        for part in own:
            w = np.zeros_like(size)
            w[part] = inputs.w[part]
            if (
                w.any()
                and inputs.off_for(w) != "no"
                and (wrong := Inputs(evidence, inputs.along, w).wrong(direction)) is not None
            ):
                return wrong
    return None


def _finding(evidence: Evidence, wrong: Wrong, where: str = "") -> Finding:
    names, inputs = [argument.name for argument in evidence.inputs], evidence.subject.inputs
    gradient = coordinate_name([f"grad_{name}" for name in names], inputs, wrong.gradient)
    if wrong.cotangent:
        of = coordinate_name(
            [f"grad_{evidence.name_of(place)}" for place in evidence.forward.checked],
            evidence.outputs,
            wrong.place,
        )
        truth = "by backward, which is linear in it"
    else:
        of, truth = coordinate_name(names, inputs, wrong.place), "by finite differences of backward"
    double, right = apart(wrong.double, wrong.truth)
    severity: Severity = "error" if evidence.settings.second_order is True else "warning"
    return Finding(
        "GV109",
        f"{where}second derivatives are silently wrong: d {gradient} / d {of} is {double} by "
        f"double backward, but {right} {truth}",
        severity=severity,
        hint=HINT if isfinite(wrong.double) else NOWHERE,
    )
