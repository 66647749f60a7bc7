"""The derivative of backward by double backward, against backward itself and against its finite
differences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite

import numpy as np
import torch
from torch import Tensor

from gradverify.evidence import Evidence
from gradverify.model.result import Finding, Severity
from gradverify.numerics.estimate.ladder import Derivative
from gradverify.numerics.function.coordinates import flat_all, numbers
from gradverify.numerics.rungs import BASE, Array, Mask, smallest
from gradverify.numerics.tolerance import FLOOR, RTOL, RTOL_LOW
from gradverify.oracles.along import Along, change, coordinates, parts, shaped
from gradverify.oracles.legs import InFloat64
from gradverify.rules.differ import DUST, SINGLE, nudged, rounded_anew
from gradverify.rules.forward_mode import Trial, bisect
from gradverify.rules.shown import NotApplicable, apart, coordinate_name
from gradverify.subject.another import other_points
from gradverify.subject.differentiable import Backward, Differentiable, Second
from gradverify.subject.failure import UserCodeError
from gradverify.subject.wide import InDouble, wide, widened

# ---- Backward as a function of the inputs, in float64 where that is the same; its double backward,
# and what rounding makes of both
SAME = 1e-4  # of the largest gradient: what one in float32 may be off by


class _InFloat64(Backward):
    """What backward makes without a dtype is float64 too, and what it casts to float32 where
    forward was lifted."""

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
    """Backward as a function of the inputs, of which finite differences are taken: that of float64
    for a float32 function that is the same in it."""
    own = evidence.modes.backwards
    if not isinstance(evidence.in_float64, InFloat64):
        return own
    full = _InFloat64(evidence, InDouble(lifts=evidence.in_float64.lifted))
    try:
        pairs = [
            (numbers(mine), numbers(theirs))
            for mine, theirs in zip(own.here(), full.here(), strict=True)
        ]
        return (
            full
            if all((np.abs(a - b) <= SAME * np.abs(b).max(initial=0.0)).all() for a, b in pairs)
            else own
        )
    except UserCodeError:
        return own


def known(evidence: Evidence) -> Second:
    """That for the first weights. Raises UserCodeError where it is refused."""
    seen = evidence.modes.double_backward
    if isinstance(seen, UserCodeError):
        raise seen
    return seen


def doubled(evidence: Evidence, w: Array, inputs: Sequence[Tensor] | None = None) -> Second:
    """The double backward for weights of the gradients' coordinates [N]."""
    return evidence.modes.backwards.second(shaped(w, evidence.subject.inputs), inputs)


# ---- The derivative of backward by double backward, against backward itself (to the cotangents)
# and its ladder (to the inputs)
AWAY = 8.0  # roundings of each input, by which a point nearby is off
# CPU seconds of our own that every rung of an element takes (measured at 2e5 elements)
THOROUGH = 2e-5


@dataclass(frozen=True, slots=True)
class Wrong:
    """d gradient / d `of` at one element: by double backward, and as it is. `gradient`, `place`:
    real coordinates (of all inputs; of all outputs where `cotangent`)."""

    gradient: int
    place: int
    cotangent: bool
    double: float
    truth: float


def to_cotangents(evidence: Evidence) -> Wrong | None:
    """The element at which double backward is wrong to the cotangents, in which backward is linear:
    ⟨u, ∂⟨w, Jᵀv⟩/∂v⟩ = ⟨w, Jᵀu⟩, and no step is needed; None where there is none. For u = v the
    gradients are known."""
    w, u = evidence.modes.gradient_weights, flat_all(evidence.modes.second_weights).numpy()
    like = evidence.subject.inputs

    def double(w: Array, inputs: Sequence[Tensor] | None) -> Array:
        return coordinates(doubled(evidence, w, inputs).cotangents, evidence.outputs)

    def pull(u: Array, inputs: Sequence[Tensor] | None = None) -> Array:
        v = shaped(u, evidence.outputs)
        return coordinates(evidence.function.vjp(v, inputs), like)

    trial = Trial(
        evidence,
        w,
        double,
        pull,
        np.where(w == 0, 1.0, np.abs(w)),
        coordinates(known(evidence).cotangents, evidence.outputs),
    )
    gradient = coordinates(evidence.modes.backwards.here(), like)
    parted = None if trial.agrees(u, gradient) else trial.parted(u, gradient)
    return (
        None
        if parted is None
        else Wrong(parted.column, parted.row, True, parted.forward, parted.backward)
    )


class Inputs:
    """To the inputs: the derivative of ⟨w, backward(x)⟩ along a direction, by double backward and
    by the ladder of backward.

    Gradients' elements that turn out to have no derivative (a jump of backward, at a kink of
    forward) lose their weight, and their inputs stay where they are: double backward may say
    anything there.
    """

    def __init__(
        self, evidence: Evidence, along: Along, w: Array | None = None, double: Second | None = None
    ) -> None:
        """`w`: of the gradients' coordinates [N], the first ones of all where none are given.
        `double`: the double backward for them."""
        self.evidence, self.along = evidence, along
        self.w = evidence.modes.gradient_weights if w is None else w
        self._double = double or (known(evidence) if w is None else doubled(evidence, w))
        # A direction, and what the quick rungs said along it
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
        """The element at which double backward is wrong along `moved` [C], confirmed by the whole
        ladder; None where there is none."""
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
        """As `_off`, for other weights [N], by the quick rungs of a direction along which the two
        agreed; "open" where they did not settle one. (It asks as much as another direction for the
        same weights, by one backward in the place of six forwards and backwards.)"""
        if self._agreed is None:
            return "open"
        once_more = self.evidence.modes.backwards.once_more(shaped(w, self.evidence.subject.inputs))
        off = Inputs(self.evidence, self.along, w, once_more)._off(*self._agreed)
        return off if off == "no" else Inputs(self.evidence, self.along, w)._off(*self._agreed)

    def _leave_out(self, found: Derivative) -> bool:
        """Takes the weight of what has no derivative; False where everything has one."""
        rough = self._rough(found)
        if not rough.any():
            return False
        self.w = np.where(rough, 0.0, self.w)
        self._double = doubled(self.evidence, self.w)
        return True

    def _rough(self, found: Derivative) -> Mask:
        """Weighed gradients [N] without a derivative."""
        return np.asarray(
            (~found.smooth | ~np.isfinite(found.bar) | self._ambiguous(found)) & (self.w != 0)
        )

    def _ambiguous(self, found: Derivative) -> Mask:
        """Other steps say another slope; one that is the same to the tolerance says the same of any
        double backward."""
        return np.isfinite(found.second) & ~(
            np.abs(found.second - found.value) <= self.rtol * np.abs(found.value)
        )

    def _smooth(self, moved: Array) -> Array:
        """The direction without the inputs whose own gradient has no derivative, and without those
        of which an infinite one leaves 0 · inf."""
        columns = self.evidence.modes.columns
        moved = np.where(self.w[columns.coordinate] != 0, moved, 0.0)
        if np.isfinite(self.along.value).all():
            return moved
        return np.where(
            np.isfinite(
                columns.combined(coordinates(self._double.inputs, self.evidence.subject.inputs))
            ),
            moved,
            0.0,
        )

    def _element(self, moved: Array, full: Derivative) -> Wrong | None:
        """Halving by halving to one gradient's element and one column, on which the ladder is
        climbed anew."""
        w = self.w

        def by_gradient(mask: Mask) -> float:
            return self._along(moved, doubled(self.evidence, w * mask)) - float(
                np.sum((w * full.value)[mask & (w != 0)])
            )

        gradient = bisect(w != 0, by_gradient, by_gradient(w != 0))
        weight = w * (np.arange(len(w)) == gradient)
        inputs = (
            coordinates(doubled(self.evidence, weight).inputs, self.evidence.subject.inputs)
            / w[gradient]
        )
        row = self.evidence.modes.columns.combined(inputs)

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
        """The lone element, if the whole ladder says so there."""
        step, one = (
            float(moved[column]),
            self.along.thorough(moved * (np.arange(len(moved)) == column), np.array([gradient])),
        )
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
        own = self.evidence.modes.backwards

        def measured(inputs: Sequence[Tensor]) -> Tensor:
            """What double backward says, and what backward's own rounding makes of a step's
            slope."""
            value = float(coordinates(own.values(inputs), own.inputs)[gradient])
            return torch.tensor(
                [step * self._slope(gradient, column, own, inputs), value / BASE],
                dtype=torch.float64,
            )

        # under a mode torch's `det` takes another way to its second derivative: points a few
        # roundings away show that one
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

    def _slope(
        self, gradient: int, column: int, function: Backward, inputs: Sequence[Tensor]
    ) -> float:
        """d gradient / d column by the double backward of that function."""
        one = self.w * (np.arange(len(self.w)) == gradient) / self.w[gradient]
        slopes = coordinates(
            function.second(shaped(one, function.inputs), inputs).inputs, function.inputs
        )
        return float(self.evidence.modes.columns.combined(slopes)[column])

    def _off(self, moved: Array, found: Derivative) -> str:
        """Does double backward differ from the ladder? "yes", "no", or "open"."""
        asked = np.flatnonzero(self.w)
        if not asked.size or not moved.any():
            return "no"
        weight, d, mine = np.abs(self.w[asked]), found.take(asked), self._along(moved, self._double)
        if not np.isfinite(d.bar).all():
            return "open"
        terms, noise = self.w[asked] * d.value, np.minimum(d.noise_bar, d.bar)
        # The noise of elements is independent
        bar = float(np.sum(weight * (d.bar - noise)) + np.linalg.norm(weight * noise))
        off = abs(mine - float(terms.sum()))
        allowed = self.rtol * max(float(np.linalg.norm(terms)), abs(mine)) + self._floor(
            weight * np.abs(self.along.value[asked])
        )
        return "no" if off + bar <= allowed else "yes" if not off - bar <= allowed else "open"

    def _along(self, moved: Array, seen: Second) -> float:
        moves = change(self.evidence.modes.columns, moved, self.evidence.subject.inputs)
        own = moves != 0
        return float(
            np.sum(coordinates(seen.inputs, self.evidence.subject.inputs)[own] * moves[own])
        )

    def _floor(self, size: Array) -> float:
        """Second derivatives below this are rounding of gradients of that size, or of what
        underflows."""
        unit = max(self.evidence.unit, self.along.unit)
        return FLOOR * max(
            unit * float(np.linalg.norm(np.nan_to_num(size, posinf=0.0))), smallest(unit)
        )


# ---- GV109 double-backward: second derivatives are wrong, and nothing says so
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
    try:
        wrong = _wrong(evidence)
    # For other weights, or at another point, as the singular vectors of torch
    except UserCodeError as error:
        if evidence.settings.second_order is True or error.code != "GV109":
            raise
        raise NotApplicable(f"it says so itself: {error.message}") from None
    if wrong is not None:
        yield _finding(evidence, wrong)
    elif evidence.settings.second_order is True:
        yield from _elsewhere(evidence)


def _elsewhere(evidence: Evidence) -> Iterator[Finding]:
    """The same at the first other point at which everything is finite: what a double backward keeps
    between calls belongs to the first inputs."""
    for arguments in other_points(evidence.subject):
        there = evidence.at(arguments)
        try:
            if there.infinite > evidence.infinite or isinstance(
                there.modes.double_backward, UserCodeError
            ):
                continue
            wrong = _wrong(there)
        except UserCodeError:
            continue
        if wrong is not None:
            yield _finding(there, wrong, ELSEWHERE)
        return


def _wrong(evidence: Evidence) -> Wrong | None:
    try:
        wrong = to_cotangents(evidence) or _to_inputs(evidence)
        return (
            _by_pair(evidence)
            if wrong is None and evidence.settings.second_order is True
            else wrong
        )
    finally:
        evidence.modes.backwards.let_go()


def _to_inputs(evidence: Evidence) -> Wrong | None:
    """Along a direction for two choices of weights, or, where the first of them did not agree at
    once, along two directions for one."""
    inputs = Inputs(evidence, Along(backwards(evidence), evidence.modes.columns))
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
    # All looked rough along the first, as close to a singular matrix
    again = inputs if inputs.w.any() else Inputs(evidence, inputs.along)
    wrong = again.wrong(directions[1])
    return (
        Inputs(evidence, inputs.along, others).wrong(directions[0])
        if wrong is None and off == "yes"
        else wrong
    )


def _by_pair(evidence: Evidence) -> Wrong | None:
    """Of each gradient along each input alone: among others that are larger, what is missing of one
    pair is rounding."""
    columns, size = evidence.modes.columns, evidence.modes.gradient_weights
    own = parts(evidence.subject.inputs)
    if len(own) < 2:
        return None
    inputs, moved = (
        Inputs(evidence, Along(backwards(evidence), columns)),
        evidence.modes.direction("second order by pair"),
    )
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
