"""The derivative of backward by double backward, against backward itself and against its finite differences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from math import isfinite

import numpy as np
import torch
from torch import Tensor

from gradverify.evidence import Evidence
from gradverify.model.result import Finding, Severity
from gradverify.numerics.estimate.ladder import Derivative
from gradverify.numerics.estimate.noise import POINTS
from gradverify.numerics.function.coordinates import flat_all, numbers
from gradverify.numerics.function.point import COARSER
from gradverify.numerics.rungs import BASE, U32, U64, Array, Mask, Z, smallest
from gradverify.numerics.tolerance import FLOOR, RTOL, RTOL_LOW
from gradverify.oracles.along import Along, change, coordinates, moduli, parts, shaped
from gradverify.oracles.widened import InFloat64
from gradverify.rules.differ import DUST, NUDGE, ODD, SINGLE, loosened, tolerance
from gradverify.rules.forward_mode import Identity, bisect
from gradverify.rules.protocol import NotApplicable
from gradverify.rules.shown import apart, coordinate_name
from gradverify.rules.sound import unasked
from gradverify.subject.another import other_points
from gradverify.subject.differentiable import Differentiable
from gradverify.subject.draw import generator, signed
from gradverify.subject.failure import UserCodeError
from gradverify.subject.graph import function_classes
from gradverify.subject.rounding import Perturbed
from gradverify.subject.second_order import Backward, Second
from gradverify.subject.wide import InDouble, wide, widened

# ---- Backward as a function of the inputs, in float64 where that is the same; its double backward, and what rounding makes of both
SAME = 1e-4             # of the largest gradient: what one in float32 may be off by
AWAY = 8.0              # roundings of each input, by which a point nearby is off


class _InFloat64(Backward):
    """What backward makes without a dtype is float64 too, and what it casts to float32 where forward was lifted."""

    _here: list[Tensor] | None = None
    loses_digits = False    # does float32 round its gradients by more than SAME?

    def __init__(self, evidence: Evidence, mode: InDouble) -> None:
        twin, checked = widened(evidence.subject, mode), evidence.forward.checked
        super().__init__(twin, Differentiable(twin, checked), [wide(v) for v in evidence.modes.second_weights])
        self.around = mode

    def here(self) -> list[Tensor]:
        self._here = self._here or self.values(self.inputs)
        return self._here

    def values(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        with self.around():
            return super().values(inputs)


def has_lost_digits(function: Backward) -> bool:
    """Return whether this is the float64 backward of one that loses digits in float32."""
    return isinstance(function, _InFloat64) and function.loses_digits


def spread(function: Backward, rounded: Callable[[], tuple[float, float]]) -> tuple[float, float]:
    """Six standard deviations of two numbers, over nine ways to round every operation of that function at random; 0 where it refuses that."""
    narrow, seen = isinstance(function, _InFloat64), list[tuple[float, float]]()
    for number in range(POINTS):
        source = generator(number, "second order", "rounding")
        with suppress(UserCodeError), function.around(), Perturbed(source, U32 if narrow else COARSER * U64):
            seen.append(rounded())
    if len(seen) < 2:
        return 0.0, 0.0
    one, other = Z * np.nan_to_num(np.std(seen, 0, ddof=1)) / (1.0 if narrow else COARSER)
    return float(one), float(other)


def scatter(evidence: Evidence, measured: Callable[[Backward, Sequence[Tensor]], float]) -> float:
    """Six standard deviations of a number of backward, in its own precision, over nine points a few roundings away; 0 where it refuses them.

    (`spread` asks of operations as they are under a mode of torch, where its `det` takes another way to its second derivative.)
    """
    own, columns, seen = evidence.modes.backwards, evidence.modes.columns, list[float]()
    roundings = AWAY * max(torch.finfo(x.dtype).eps for x in own.inputs) / 2
    for number in range(POINTS):
        signs = numbers(signed(torch.zeros(len(columns), dtype=torch.float64), generator(number, "second order", "nearby")))
        moves = shaped(change(columns, roundings * signs * np.nan_to_num(columns.x, posinf=0.0, neginf=0.0), own.inputs), own.inputs)
        with suppress(UserCodeError):
            seen.append(measured(own, [x + move for x, move in zip(own.inputs, moves, strict=True)]))
    return float(Z * np.nan_to_num(np.std(seen, ddof=1))) if len(seen) > 1 else 0.0


def backwards(evidence: Evidence) -> Backward:
    """Backward as a function of the inputs, of which finite differences are taken: that of float64 for a float32 function that is the same in it."""
    own = evidence.modes.backwards
    if not isinstance(evidence.in_float64, InFloat64):
        return own
    full = _InFloat64(evidence, InDouble(lifts=evidence.in_float64.lifted))
    try:
        pairs = [(numbers(mine), numbers(theirs)) for mine, theirs in zip(own.here(), full.here(), strict=True)]
        full.loses_digits = not all(_agree(*pair) for pair in pairs)
        return own if full.loses_digits and not _rounded_apart(pairs, full) else full
    except UserCodeError:
        return own


def _agree(mine: Array, theirs: Array, rounding: Array | float = 0.0) -> bool:
    """Return whether the float32 gradients agree with the float64 ones."""
    allowed = np.maximum(SAME * np.abs(theirs).max(initial=0.0), rounding)
    with np.errstate(invalid="ignore"):
        return bool(((np.abs(mine - theirs) <= allowed) | (mine == theirs)).all())


def _rounded_apart(pairs: Sequence[tuple[Array, Array]], full: _InFloat64) -> bool:
    """Are gradients in float32 those in float64 but for what float32 makes of every operation, as of 1 / (1 − exp(x)) at −1e-7? Nine backwards."""
    found = list[list[Array]]()
    for number in range(POINTS):
        with Perturbed(generator(number, "second order", "gradient")):
            found.append([numbers(gradient).copy() for gradient in full.values(full.inputs)])
    rounding = [Z * np.nan_to_num(np.std(each, 0, ddof=1), nan=np.inf) for each in zip(*found, strict=True)]
    return all(_agree(*pair, off) for pair, off in zip(pairs, rounding, strict=True))


def doubled(evidence: Evidence, w: Array) -> Second:
    """The double backward for other weights of the gradients' coordinates [N]."""
    return evidence.modes.backwards.second(shaped(w, evidence.subject.inputs))


def known(seen: Second | UserCodeError) -> Second:
    if isinstance(seen, UserCodeError):
        raise seen
    return seen


# ---- The derivative of backward by double backward, against backward itself (to the cotangents) and its ladder (to the inputs)
NUDGES = 2
TINY, WIDER = 1e-4, (1e-1, 1e-2, 1e-3)     # inputs below that (cancelling.py asks of the same ones); steps that are tried there
CLOSE = 0.1             # of a second derivative: how far its curvature bends such a slope
SHARE = 4.0             # of the tolerance: what the bars of all elements may take together is 1/SHARE
THOROUGH = 2e-5         # CPU seconds of our own that every rung of an element takes (measured at 2e5 elements)


@dataclass(frozen=True, slots=True)
class Wrong:
    """d gradient / d `of` at one element: by double backward, and as it is. `gradient`, `place`: real coordinates (of all inputs; of all
    outputs where `cotangent`)."""

    gradient: int
    place: int
    cotangent: bool
    double: float
    truth: float


class Cotangents:
    """To the cotangents: backward is linear in them, so ⟨u, ∂⟨w, Jᵀv⟩/∂v⟩ = ⟨w, Jᵀu⟩, and no step is needed."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence, self.w = evidence, evidence.modes.gradient_weights
        self.u = flat_all(evidence.modes.weights("to the cotangent")).numpy()

    def wrong(self) -> Wrong | None:
        """The element at which double backward is wrong; None where there is none."""
        double, truth = self._double(self.w), self._pull(self.u)
        base = self._identity(self.u, double, truth)
        if base.holds() or replace(base, tolerance=loosened(self.evidence)).holds(self._noise(double, truth)):
            return None
        row = bisect(self.u != 0, lambda mask: self._identity(self.u * mask, double, self._pull(self.u * mask)).off, base.off)
        one = np.arange(len(self.u)) == row
        column = self._pull(one * 1.0)
        total = float(double[row] - np.sum(self.w * column))
        gradient = bisect(self.w != 0, lambda mask: float(self._double(self.w * mask)[row] - np.sum((self.w * column)[mask])), total)
        weight = self.w * (np.arange(len(self.w)) == gradient)
        mine, theirs = float(self._double(weight)[row]) / float(self.w[gradient]), float(column[gradient])
        size = float(moduli(self.evidence.outputs)[row]) / float(np.abs(self.w[gradient]))
        underflow = smallest(self.evidence.precision) / abs(float(self.w[gradient]))
        allowed = loosened(self.evidence) * max(abs(mine), abs(theirs)) + DUST * (self.evidence.precision * size + underflow)
        if abs(mine - theirs) <= allowed or abs(mine - theirs) <= allowed + self._rounding(weight / self.w[gradient], row):
            return None
        return Wrong(gradient, row, True, mine, theirs)

    def _rounding(self, weight: Array, row: int) -> float:
        """What rounding may make of the difference of the two, by what it makes of double backward (an entropy's, at saturated logits)."""
        function = backwards(self.evidence)

        def slope(of: Backward, inputs: Sequence[Tensor]) -> float:
            return float(coordinates(of.second(shaped(weight, of.inputs), inputs).cotangents, of.cotangents)[row])

        by_mode = 2 * spread(function, lambda: (slope(function, function.inputs), 0.0))[0]
        return max(by_mode, scatter(self.evidence, slope))

    def _identity(self, u: Array, double: Array, pulled: Array) -> Identity:
        unit, f = self.evidence.precision, moduli(self.evidence.outputs)
        return Identity((u * double)[u != 0], self.w * pulled, tolerance(unit), unit, DUST * unit * float(np.linalg.norm(u * f)))

    def _noise(self, double: Array, truth: Array) -> float:
        """How far both sums go when u and w are nudged, or multiplied by what is no power of two: only sums that are rounding throughout go far."""
        source, step, moves = self.evidence.wishes.seed.generator("second order, nudged"), NUDGE * tolerance(self.evidence.precision), [0.0]
        for _ in range(NUDGES):
            u = self.u * (1 + step * source.choice([-1.0, 1.0], len(self.u)))
            w = self.w * (1 + step * source.choice([-1.0, 1.0], len(self.w)))
            moves += [abs(float(np.sum(self.w * (self._pull(u) - truth)))), abs(float(np.sum(self.u * (self._double(w) - double))))]
        for factor in ODD:
            moves += [abs(float(np.sum(self.w * (self._pull(factor * self.u) / factor - truth)))),
                      abs(float(np.sum(self.u * (self._double(factor * self.w) / factor - double))))]
        return max(move for move in moves if np.isfinite(move))

    def _pull(self, u: Array) -> Array:
        """Jᵀu by coordinates [N]."""
        return coordinates(self.evidence.function.vjp(shaped(u, self.evidence.outputs)), self.evidence.subject.inputs)

    def _double(self, w: Array) -> Array:
        """The derivative of ⟨w, Jᵀv⟩ with respect to v, by coordinates [M]."""
        seen = doubled(self.evidence, w) if w is not self.w else self.evidence.modes.double_backward
        return coordinates(known(seen).cotangents, self.evidence.outputs)


class Inputs:
    """To the inputs: the derivative of ⟨w, backward(x)⟩ along a direction, by double backward and by the ladder of backward.

    Gradients' elements that turn out to have no derivative (a jump of backward, at a kink of forward) lose their weight, and their inputs stay
    where they are: double backward may say anything there.
    """

    def __init__(self, evidence: Evidence, along: Along, w: Array | None = None) -> None:
        """`w`: of the gradients' coordinates [N], the first ones of all where none are given."""
        self.evidence, self.along = evidence, along
        self.w = evidence.modes.gradient_weights if w is None else w
        self._double = known(evidence.modes.double_backward) if w is None else doubled(evidence, w)
        self._agreed: tuple[Array, Derivative] | None = None    # a direction, and what the quick rungs said along it

    @property
    def rtol(self) -> float:
        own = self.evidence.settings.rtol
        return own if own is not None else RTOL_LOW if max(self.evidence.precision, self.along.unit) >= SINGLE else RTOL

    def wrong(self, moved: Array) -> Wrong | None:
        """The element at which double backward is wrong along `moved` [C], confirmed by the whole ladder; None where there is none."""
        moved = self._smooth(moved)
        found = self.along.guess(moved)
        if self._off(moved, found) != "no":
            found = self.along.quick(moved)
        if self._off(moved, found) == "no":
            self._agreed = moved, found
            return None
        wanted = self._wanted(found)
        found = self.along.refined(moved, wanted)
        if self._rough(found).any():    # or noisier than repeated calls show, which looks alike
            found = self.along.refined(moved, wanted, self.along.noise(moved))
        if self._leave_out(found):
            moved = self._smooth(moved)
            found = self.along.refined(moved, wanted)
        if self._off(moved, found) == "no":
            return None
        self.evidence.spending.heed(THOROUGH * len(self.w))
        found = self.along.thorough(moved)
        self._leave_out(found)
        return self._element(moved, found) if self._off(moved, found) == "yes" else None

    def off_for(self, w: Array) -> str:
        """As `_off`, for other weights [N], by the quick rungs of a direction along which the two agreed; "open" where they did not settle one. (It
        asks as much as another direction for the same weights, by one backward in the place of six forwards and backwards.)"""
        return "open" if self._agreed is None else Inputs(self.evidence, self.along, w)._off(*self._agreed)

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
        return np.asarray((~found.smooth | ~np.isfinite(found.bar) | self._ambiguous(found)) & (self.w != 0))

    def _ambiguous(self, found: Derivative) -> Mask:
        """Other steps say another slope; one that is the same to the tolerance says the same of any double backward."""
        return np.isfinite(found.second) & ~(np.abs(found.second - found.value) <= self.rtol * np.abs(found.value))

    def _smooth(self, moved: Array) -> Array:
        """The direction without the inputs whose own gradient has no derivative, and without those of which an infinite one leaves 0 · inf."""
        columns = self.evidence.modes.columns
        moved = np.where(self.w[columns.coordinate] != 0, moved, 0.0)
        if np.isfinite(self.along.value).all():
            return moved
        return np.where(np.isfinite(columns.combined(coordinates(self._double.inputs, self.evidence.subject.inputs))), moved, 0.0)

    def _wanted(self, found: Derivative) -> Array:
        """The bars [N] with which the sum can be judged."""
        asked = self.w != 0
        size = np.abs(self.w * np.where(np.isfinite(found.value), found.value, 0.0))
        allowed = self.rtol * float(np.linalg.norm(size)) + self._floor(np.abs(self.w * self.along.value))
        return np.where(asked, allowed / (SHARE * max(asked.sum(), 1) * np.where(asked, np.abs(self.w), 1.0)), np.inf)

    def _element(self, moved: Array, full: Derivative) -> Wrong | None:
        """Halving by halving to one gradient's element and one column, on which the ladder is climbed anew."""
        w = self.w

        def by_gradient(mask: Mask) -> float:
            return self._along(moved, doubled(self.evidence, w * mask)) - float(np.sum((w * full.value)[mask & (w != 0)]))

        gradient = bisect(w != 0, by_gradient, by_gradient(w != 0))
        weight = w * (np.arange(len(w)) == gradient)
        inputs = coordinates(doubled(self.evidence, weight).inputs, self.evidence.subject.inputs) / w[gradient]
        row = self.evidence.modes.columns.combined(inputs)

        def by_place(mask: Mask) -> float:
            return float(np.sum((row * moved)[mask & (moved != 0)]) - self.along.quick(moved * mask, np.array([gradient])).value[0])

        column = bisect(moved != 0, by_place, float(np.sum((row * moved)[moved != 0]) - full.value[gradient]))
        return self._confirmed(moved, gradient, column, float(row[column]))

    def _confirmed(self, moved: Array, gradient: int, column: int, double: float) -> Wrong | None:
        """The lone element, if the whole ladder says so there."""
        step, one = float(moved[column]), self.along.thorough(moved * (np.arange(len(moved)) == column), np.array([gradient]))
        mine, theirs, bar = double * step, float(one.value[0]), float(one.bar[0])
        allowed = self.rtol * max(abs(mine), abs(theirs)) + self._floor(np.abs(self.along.value[gradient]))
        if not one.smooth[0] or not np.isfinite(bar) or self._ambiguous(one)[0] or abs(mine - theirs) - bar <= allowed:
            return None
        if self._swallowed(gradient, column, double) or abs(mine - theirs) - bar <= self._rounding(gradient, column, step):
            return None
        if abs(self._without_rounding(gradient, column, double) * step - theirs) - bar <= allowed:
            return None
        return Wrong(gradient, int(self.evidence.modes.columns.coordinate[column]), False, double, theirs / step)

    def _swallowed(self, gradient: int, column: int, double: float) -> bool:
        """Is a tiny input's slope the one of double backward as soon as steps are wider than the input, by which backward rounds as if at rest?

        (The gradient of an entropy at logits of 1e-7 is a difference of numbers of order 1.)
        """
        point, size = self.along.point, float(self.along.columns.size[column])
        if size >= TINY:
            return False
        for h in WIDER:
            up, down = (float(point.values_at(np.array([column]), self.along.columns.x[[column]] + side * h)[gradient]) for side in (1, -1))
            if abs((up - down) / (2 * h) - double) <= CLOSE * abs(double):
                return True
        return False

    def _rounding(self, gradient: int, column: int, step: float) -> float:
        """What rounding may make of the change of a gradient over a step of one column: of double backward, and of backward, whose difference it is.

        Six standard deviations, of nine ways to round every operation at random, and of nine points a few roundings away; 0 where those are refused.
        (det(A)·A⁻ᵀ has entries of order 1, and in its derivative those of A⁻¹ cancel. Where a softmax is 1 but for 1e-73, so is the slope of its
        gradient, which is 0 to rounding.)
        """
        function = self.along.point.function
        if not isinstance(function, Backward):
            return 0.0
        slope = partial(self._slope, gradient, column)

        def rounded() -> tuple[float, float]:
            return slope(function, function.inputs), float(coordinates(function.values(function.inputs), function.inputs)[gradient])

        by_mode, value = spread(function, rounded)
        return abs(step) * max(by_mode, scatter(self.evidence, slope)) + value / BASE

    def _without_rounding(self, gradient: int, column: int, double: float) -> float:
        """The double backward in float64, where float32 has lost digits of the gradient already: what it loses of that one is no mistake.

        (Where a variance E[x²] − E[x]² is nothing but rounding, and is clamped to 0.) Else the one that is judged.
        """
        function = self.along.point.function
        if not isinstance(function, Backward) or not has_lost_digits(function):
            return double
        with function.around():
            return self._slope(gradient, column, function, function.inputs)

    def _slope(self, gradient: int, column: int, function: Backward, inputs: Sequence[Tensor]) -> float:
        """d gradient / d column by the double backward of that function."""
        one = self.w * (np.arange(len(self.w)) == gradient) / self.w[gradient]
        slopes = coordinates(function.second(shaped(one, function.inputs), inputs).inputs, function.inputs)
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
        bar = float(np.sum(weight * (d.bar - noise)) + np.linalg.norm(weight * noise))      # the noise of elements is independent
        off = abs(mine - float(terms.sum()))
        allowed = self.rtol * max(float(np.linalg.norm(terms)), abs(mine)) + self._floor(weight * np.abs(self.along.value[asked]))
        return "no" if off + bar <= allowed else "yes" if not off - bar <= allowed else "open"

    def _along(self, moved: Array, seen: Second) -> float:
        moves = change(self.evidence.modes.columns, moved, self.evidence.subject.inputs)
        own = moves != 0
        return float(np.sum(coordinates(seen.inputs, self.evidence.subject.inputs)[own] * moves[own]))

    def _floor(self, size: Array) -> float:
        """Second derivatives below this are rounding of gradients of that size, or of what underflows."""
        unit = max(self.evidence.unit, self.along.unit)
        return FLOOR * max(unit * float(np.linalg.norm(np.nan_to_num(size, posinf=0.0))), smallest(unit))


# ---- GV109 double-backward: second derivatives are wrong, and nothing says so
DIRECTIONS = 2
HINT = ("compute backward with torch operations from ctx.saved_tensors (inputs and outputs of forward only; no .detach(), .data, no_grad or NumPy), "
        "or mark it @once_differentiable, so that it raises")
BY_HAND = ("backward calls {names}, whose own backward makes second derivatives: look there for a wrong or missing gradient, also of grad_output; "
           "give it no detached tensors")
ELSEWHERE = "at another point of the same kind "
NOWHERE = ("an operation of backward has no finite slope there (a root or a norm at 0, a quotient 0/0): give it a harmless number by torch.where, or "
           "mark backward @once_differentiable, so that it raises")


def gv109_applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    reason = unasked(evidence, "second_order", found)
    if reason or evidence.settings.second_order is True:
        return reason
    raised = evidence.modes.double_backward
    return f"it says so itself: {raised.message}" if isinstance(raised, UserCodeError) else None


def gv109(evidence: Evidence) -> Iterator[Finding]:
    raised = evidence.modes.double_backward
    if isinstance(raised, UserCodeError):
        yield Finding("GV109", f"the spec says `second_order: true`, but {raised.message}", frames=raised.frames,
                      hint="make backward differentiable, or leave out `second_order: true`")
        return
    try:
        wrong = _wrong(evidence)
    except UserCodeError as error:      # for other weights, or at another point, as the singular vectors of torch
        if evidence.settings.second_order is True or error.code != "GV109":
            raise
        raise NotApplicable(f"it says so itself: {error.message}") from None
    if wrong is not None:
        yield _finding(evidence, wrong)
    elif evidence.settings.second_order is True:
        yield from _elsewhere(evidence)


def _elsewhere(evidence: Evidence) -> Iterator[Finding]:
    """The same at the first other point at which everything is finite: what a double backward keeps between calls belongs to the first inputs."""
    for arguments in other_points(evidence.subject):
        there = evidence.at(arguments)
        try:
            if there.infinite > evidence.infinite or isinstance(there.modes.double_backward, UserCodeError):
                continue
            wrong = _wrong(there)
        except UserCodeError:
            continue
        if wrong is not None:
            yield _finding(there, wrong, ELSEWHERE)
        return


def _wrong(evidence: Evidence) -> Wrong | None:
    wrong = Cotangents(evidence).wrong() or _to_inputs(evidence)
    return _by_pair(evidence) if wrong is None and evidence.settings.second_order is True else wrong


def _to_inputs(evidence: Evidence) -> Wrong | None:
    """Along a direction for two choices of weights, or, where the first of them did not agree at once, along two directions for one."""
    inputs = Inputs(evidence, Along(backwards(evidence), evidence.modes.columns))
    directions = [evidence.modes.direction(f"second order {number}") for number in evidence.spending.some(range(DIRECTIONS), 8, 8, "directions")]
    wrong, others = inputs.wrong(directions[0]), evidence.modes.weighing("other gradient weights")
    if wrong is not None or len(directions) == 1:
        return wrong
    off = inputs.off_for(others)
    if off == "no":
        return None
    again = inputs if inputs.w.any() else Inputs(evidence, inputs.along)    # all looked rough along the first, as close to a singular matrix
    wrong = again.wrong(directions[1])
    return Inputs(evidence, inputs.along, others).wrong(directions[0]) if wrong is None and off == "yes" else wrong


def _by_pair(evidence: Evidence) -> Wrong | None:
    """Of each gradient along each input alone: among others that are larger, what is missing of one pair is rounding."""
    columns, size = evidence.modes.columns, evidence.modes.gradient_weights
    own = parts(evidence.subject.inputs)
    if len(own) < 2:
        return None
    inputs, moved = Inputs(evidence, Along(backwards(evidence), columns)), evidence.modes.direction("second order by pair")
    for number in evidence.spending.some(range(len(own)), 8, 8 + len(own), "inputs"):
        direction = np.where(columns.tensor == number, moved, 0.0)
        if (wrong := inputs.wrong(direction)) is not None:
            return wrong
        for part in own:
            w = np.zeros_like(size)
            w[part] = inputs.w[part]
            if w.any() and inputs.off_for(w) != "no" and (wrong := Inputs(evidence, inputs.along, w).wrong(direction)) is not None:
                return wrong
    return None


def _finding(evidence: Evidence, wrong: Wrong, where: str = "") -> Finding:
    names, inputs = [argument.name for argument in evidence.inputs], evidence.subject.inputs
    gradient = coordinate_name([f"grad_{name}" for name in names], inputs, wrong.gradient)
    if wrong.cotangent:
        of = coordinate_name([f"grad_{evidence.name_of(place)}" for place in evidence.forward.checked], evidence.outputs, wrong.place)
        truth = "by backward, which is linear in it"
    else:
        of, truth = coordinate_name(names, inputs, wrong.place), "by finite differences of backward"
    double, right = apart(wrong.double, wrong.truth)
    severity: Severity = "error" if evidence.settings.second_order is True else "warning"
    return Finding("GV109", f"{where}second derivatives are silently wrong: d {gradient} / d {of} is {double} by double backward, but {right} "
                   f"{truth}", severity=severity, hint=_hint(evidence) if isfinite(wrong.double) else NOWHERE)


def _hint(evidence: Evidence) -> str:
    names = evidence.spared("the look for Functions that backward calls", lambda: _called_by_backward(evidence)) or ()
    return BY_HAND.format(names=" and ".join(names)) if names else HINT


def _called_by_backward(evidence: Evidence) -> tuple[str, ...]:
    """The Functions in the graph of the gradients that are not in that of the forward. A forward and a backward."""
    leaves = evidence.subject.leaves()
    cotangents = [v.requires_grad_() for v in evidence.cotangents("base")]
    gradients = evidence.function.gradients(evidence.function.graph(leaves), cotangents, create=True)
    found = function_classes([gradient for gradient in gradients if gradient is not None])
    return tuple(cls.__name__ for cls in found if cls not in evidence.forward.classes)
