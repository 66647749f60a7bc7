"""Torch's own derivative of the forward: a second witness beside finite differences, which knows it to rounding where it knows it at all.

The forward runs with gradients on and every Function in it replaced by its forward (`subject.own_forward`). It is *absent*, with the operation that
cut the path, wherever its graph is not the whole function: where a constant of the graph is another one at inputs nearby, where its values are not
the function's, where its gradient jumps at the point (torch takes one side of a kink), or where it raises."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from gradverify.model.case import Settings
from gradverify.numerics.function.coordinates import DOUBLE, UNITS, Columns, columns_of, numbers, one_hot, rms
from gradverify.numerics.pairs.pair import OPEN, ElementRecord, Entries, Outcome, Pair, ratios
from gradverify.numerics.pairs.tally import passed, with_undecided
from gradverify.numerics.rungs import U32, U64, Array, Index, Mask
from gradverify.numerics.seed_vectors import cotangent, signed_tensor
from gradverify.numerics.verdict import Limit
from gradverify.oracles.along import Along, change, coordinates, direction, parts, real_size, shaped
from gradverify.oracles.finite_difference import Filled, Gives, Jacobian, Wishes
from gradverify.subject.differentiable import Gradients
from gradverify.subject.draw import generator, signed
from gradverify.subject.failure import UserCodeError, blamed
from gradverify.subject.own_forward import Leavings, OwnForward, own_forward
from gradverify.subject.standin import forwards_only
from gradverify.subject.subject import Subject
from gradverify.subject.tape import Place, Probe, Tape, differing

# ---- Torch's own derivative of the forward: a second witness beside finite differences, which knows it to rounding where it knows it at all
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


# ---- A gradient that both witnesses call wrong: forward's own derivative, and a finite difference along one direction of the whole pair
GROSS = 2.0**-8         # of the largest derivative of its row: an element that is off by less is not called wrong
BEYOND = 16.0           # bars, and differences of two calls of backward: what is off by less is not called wrong
SUM_ROUNDINGS = 64.0        # of the sum of the terms
CALLS = 64              # of a direction, about


@dataclass(frozen=True)
class Suspect:
    """A pair, and which of its kept entries are open and grossly off the witness (ascending indices)."""

    pair: Pair
    wrong: Index

    @property
    def places(self) -> frozenset[tuple[int, int]]:
        """Output and input coordinates of these entries."""
        seen = self.pair.entries
        return frozenset(zip(seen.output[self.wrong].tolist(), seen.input[self.wrong].tolist(), strict=True)) if seen else frozenset()

    @property
    def shown(self) -> bool:
        """Is one of them among those that a table can show?"""
        return any((each.output_index, each.input_index) in self.places for each in self.pair.worst)


def gross(seen: Entries, theirs: Array, size: Array, reach: float) -> Mask:
    """Which entries [E] of one row are open, and off the witness `theirs` [E] by more than any noise. `size` [E]: of their input elements; `reach`:
    the largest derivative of the row, times its size."""
    off = np.abs(seen.analytic - theirs)
    return (off * size > GROSS * reach) & (off > BEYOND * seen.bar) & np.isfinite(seen.analytic) & np.isin(seen.outcome, OPEN)


def rejected(one: Suspect, function: Gives, called: Witness, wishes: Wishes, source: torch.Generator) -> bool:
    """Does the finite difference along one direction of this pair reject backward, and confirm the witness? Raises UserCodeError."""
    pair = one.pair
    filled = Filled(function)
    along = Along(filled, columns_of(function.inputs, wishes.domains, wishes.symmetric, wishes.specified))
    point, own = along.point, along.point.parts[pair.output]
    moved = np.where(along.columns.tensor == pair.input, direction(along.columns, source), 0.0)
    if not moved.any() or pair.entries is None:
        return False
    d = along.thorough(moved)
    steps = np.isnan(d.second) | (d.second == 0)        # between two steps nothing moves; any other second slope is one that f may have
    told = d.smooth & ~d.unclear & steps & np.isfinite(d.bar) & np.isfinite(d.value)
    v = np.zeros(len(point.f0))
    v[own] = np.where(told[own], signed_tensor((own.stop - own.start,), source).numpy(), 0.0)
    if not told[own][np.unique(pair.entries.output[one.wrong])].all():
        return False
    given = [cotangent(point, place, v[part]) if place == pair.output else None for place, part in enumerate(point.parts)]
    mine, again = (float(point.by_column(filled.vjp(given)) @ moved) for _ in range(2))
    leaves = called.forward.leaves
    theirs = float(coordinates(called.pull(given), leaves) @ change(along.columns, moved, leaves))
    terms, bars = v[told] * d.value[told], float(np.abs(v[told]) @ d.bar[told])
    rounding = SUM_ROUNDINGS * U64 * float(np.abs(terms).sum() + np.linalg.norm(v) * np.linalg.norm(point.f0[told]))
    slope = float(terms.sum())
    return abs(slope - theirs) <= bars + rounding and abs(slope - mine) > BEYOND * (bars + rounding + abs(mine - again))


def with_mismatches(one: Suspect) -> Pair:
    """The pair with these elements as mismatches; the other open ones stay so."""
    pair, seen, counts = one.pair, one.pair.entries, list(one.pair.counts)
    if seen is None:
        return pair
    outcome = seen.outcome.copy()
    for each in OPEN:
        counts[each] -= int((outcome[one.wrong] == each).sum())
    outcome[one.wrong] = Outcome.MISMATCH
    counts[Outcome.MISMATCH] += len(one.wrong)
    told = [_told(each) if (each.output_index, each.input_index) in one.places else each for each in pair.worst]
    low, high = ratios(*(x[one.wrong] for x in (seen.analytic, seen.numeric, seen.bar)))
    entries = replace(seen, outcome=outcome, ratio=(float(low.max()), float(high.min())))
    analytic, numeric = seen.analytic[one.wrong], seen.numeric[one.wrong]
    off, size = np.abs(analytic - numeric), np.maximum(np.abs(analytic), np.abs(numeric))
    asked = pair.asked and (_told(pair.asked) if (pair.asked.output_index, pair.asked.input_index) in one.places else pair.asked)
    return replace(pair, counts=tuple(counts), worst=tuple(sorted(told, key=lambda each: each.rank, reverse=True)), entries=entries, asked=asked,
                   limits=pair.limits if any(counts[each] for each in OPEN) else (), witnessed=len(one.wrong),
                   max_abs_error=max(pair.max_abs_error, float(off.max())), max_rel_error=max(pair.max_rel_error, float((off / size).max())))


def _told(element: ElementRecord) -> ElementRecord:
    """As a mismatch."""
    return element._replace(outcome=Outcome.MISMATCH, limit=Limit.NONE, rank=(int(Outcome.MISMATCH), *element.rank[1:]))


# ---- What torch's own derivative of the forward decides of elements that finite differences leave open
ROUGH = (Outcome.KINK, Outcome.JUMP, Outcome.NON_FINITE)       # a pair that has one is not asked about
NOISY = frozenset({Limit.NOISE, Limit.STAIRCASE, Limit.TRUNCATION, Limit.CANCELS, Limit.ALONE})
"""What the forward's own rounding and curvature leave open; all else (kinks, ends, buffers, budgets) is not for a derivative at the point to say."""

RESOLVED = 2.0**-10     # of the largest derivative of its row: a bar that is wider knows too little (measured with noise of 1e-9: up to 7e-4)
OWN_ROUNDINGS = 64.0        # of that largest derivative: two right ways to compute one (measured on the benchmark's functions: up to 6)
BEFORE = 8      # calls of the witness before its rows
ROWS = 1024             # outputs of a pair, each a backward
NOTHING = np.zeros(0, np.intp)


def beside_witness(found: Jacobian, subject: Subject, checked: Sequence[int], outputs: Sequence[Tensor], wishes: Wishes,
                   short_of: Callable[[int], bool], function: Gives | None = None) -> Jacobian:
    """The comparison with what the witness decides. It is called where something is open that it may speak of, and nothing is wrong beside it.

    `short_of`: would so many calls be more than the budget allows? `function`: with its backward, which may then be called wrong too.
    """
    asked = [key for key, pair in found.pairs.items() if _may_be_asked(pair, outputs, wishes)]
    if not asked or found.choice is None or any(pair.count(Outcome.MISMATCH) for key, pair in found.pairs.items() if key not in asked):
        return found
    if short_of(BEFORE + sum(real_size(outputs[place]) for place in {output for _, output in asked})):
        return replace(found, unwitnessed="the budget does not allow it")
    with witness(subject, checked, outputs, wishes) as called:
        if isinstance(called, Absent):
            return replace(found, unwitnessed=called.reason)
        told = {output for _, output in asked}
        beside = [pair for pair in found.pairs.values() if pair.output in told and _is_whole(pair, wishes)]
        try:
            heard = _Rows(called, subject.inputs, outputs, wishes).heard(beside)
        except UserCodeError as error:
            return replace(found, unwitnessed=error.message)
        pairs = {key: replace(pair, apart=heard[key].apart) if key in heard else pair for key, pair in found.pairs.items()}
        wrong = [key for key in asked if pairs[key].count(Outcome.MISMATCH)]
        decided = {key: with_undecided(pairs[key], Outcome.MISMATCH, Limit.NOISE) for key in wrong if heard[key].excuses}
        decided |= {key: _passed(pairs[key]) for key in asked if key not in wrong and heard[key].confirms}
        if function is not None and not wrong:
            suspects = {key: Suspect(pairs[key], heard[key].wrong) for key in asked if heard[key].accuses}
            decided |= {key: with_mismatches(one) for key, one in suspects.items()
                        if one.shown and not short_of(CALLS) and _is_rejected(one, function, called, wishes, subject)}
    return replace(found, pairs={**pairs, **decided})


def _is_rejected(one: Suspect, function: Gives, called: Witness, wishes: Wishes, subject: Subject) -> bool:
    source = generator(subject.case.settings.seed, subject.case.check, f"beside the witness {one.pair.input} {one.pair.output}")
    try:
        return rejected(one, function, called, wishes, source)
    except UserCodeError:
        return False


def _may_be_asked(pair: Pair, outputs: Sequence[Tensor], wishes: Wishes) -> bool:
    own = {limit for limit, _ in pair.limits}
    return _is_whole(pair, wishes) and bool(pair.count(*OPEN)) and own <= NOISY and real_size(outputs[pair.output]) <= ROWS


def _is_whole(pair: Pair, wishes: Wishes) -> bool:
    """Can it be held against the witness, element by element?"""
    whole = pair.entries is not None and pair.entries.complete and not pair.lines and not pair.masked
    return whole and not pair.count(*ROUGH) and pair.unit <= U64 and not wishes.symmetric[pair.input]


@dataclass(frozen=True)
class _Heard:
    """What the witness says of a pair, or of rows of it.

    `apart`: how far backward is from it, as a share of the largest derivative of the row, 0 where that is rounding; `within`: it lies within
    every bar, and the bars of open elements are narrow enough; `wrong`: the kept entries that are open, and grossly off it;
    `near`: every mismatch is off its finite difference by no more than noise beside its row.
    """

    apart: float = 0.0
    within: bool = True
    wrong: Index = field(default_factory=NOTHING.copy)
    near: bool = True

    @property
    def confirms(self) -> bool:
        return self.within and not self.apart

    @property
    def excuses(self) -> bool:
        """Are its mismatches what noise does, of which the pair's open elements tell?"""
        return self.near and not self.apart

    @property
    def accuses(self) -> bool:
        return self.within and bool(self.wrong.size)

    def __and__(self, other: _Heard) -> _Heard:
        return _Heard(max(self.apart, other.apart), self.within and other.within, np.concatenate([self.wrong, other.wrong]),
                      self.near and other.near)


class _Rows:
    """The witness's rows beside the entries of pairs."""

    def __init__(self, called: Witness, inputs: Sequence[Tensor], outputs: Sequence[Tensor], wishes: Wishes) -> None:
        self._witness, self._outputs = called, outputs
        self._own = parts(inputs)
        columns = columns_of(inputs, wishes.domains, [False] * len(inputs))
        self._size = [columns.size[columns.of(place)] for place in range(len(inputs))]

    def heard(self, pairs: Sequence[Pair]) -> dict[tuple[int, int], _Heard]:
        """What it says of each of them. Raises UserCodeError (GV003)."""
        found = {(pair.input, pair.output): _Heard() for pair in pairs}
        for output in dict.fromkeys(pair.output for pair in pairs):
            own = {pair.input: (pair.entries, _by_row(pair.entries)) for pair in pairs if pair.output == output and pair.entries is not None}
            for row in range(real_size(self._outputs[output])):
                derivatives = self._witness.row(output, row)
                for place, (entries, by_row) in own.items():
                    found[place, output] &= self._beside(place, derivatives[self._own[place]], entries, by_row.get(row, NOTHING))
        return found

    def _beside(self, place: int, derivatives: Array, entries: Entries, kept: Index) -> _Heard:
        """One row of a pair [N]; `kept`: its entries; all others are zero on both sides."""
        size = self._size[place]
        reach = float((np.abs(derivatives) * size).max(initial=0.0))
        if not np.isfinite(derivatives).all():
            return _Heard(np.inf, False)
        seen = entries.take(kept)
        i = seen.input
        analytic, unseen = np.zeros_like(derivatives), derivatives.copy()
        analytic[i], unseen[i] = seen.analytic, 0.0
        rounding = OWN_ROUNDINGS * U64 * reach
        near = np.abs(derivatives[i] - seen.numeric) <= seen.bar + rounding / size[i]
        narrow = (seen.bar * size[i] <= RESOLVED * reach) | ~np.isin(seen.outcome, OPEN)
        off = float((np.abs(derivatives - analytic) * size).max(initial=0.0))
        within = bool((near & narrow).all() and (np.abs(unseen) * size <= rounding).all())
        missed = (seen.outcome == Outcome.MISMATCH) & ~(np.abs(seen.analytic - seen.numeric) * size[i] <= GROSS * reach)
        return _Heard(0.0 if off <= rounding else off / reach if reach else np.inf, within, kept[gross(seen, derivatives[i], size[i], reach)],
                      not missed.any())


def _by_row(entries: Entries) -> dict[int, Index]:
    order = np.argsort(entries.output, kind="stable")
    rows, first = np.unique(entries.output[order], return_index=True)
    parts = np.split(order, first[1:]) if len(order) else []
    return {int(row): np.sort(part) for row, part in zip(rows, parts, strict=True)}


def _passed(pair: Pair) -> Pair:
    """With what was open as passes."""
    return replace(passed(pair), witnessed=pair.count(*OPEN))


# ---- What torch's own derivative of the forward says of gradients that finite differences decide by themselves: for the reader, not the verdict
POINTS = 3
SMALLEST = 1e-12        # of the largest element: what is off by less is not told
STEADY = 16.0           # times what the share differs by from point to point
PULLED_ROUNDINGS = 2.0**10     # of the largest element of the pulled back cotangent, in which terms of other rows cancel


def beside_agreement(found: Jacobian, subject: Subject, checked: Sequence[int], outputs: Sequence[Tensor], wishes: Wishes,
                     function: Gives) -> Jacobian:
    """The comparison with `apart` of the pairs that nobody has held against the witness yet; eight calls, and two for each output."""
    asked = [key for key, pair in found.pairs.items() if pair.apart is None and not wishes.symmetric[pair.input]]
    if not asked or found.choice is None or any(pair.count(Outcome.MISMATCH) for pair in found.pairs.values()):
        return found
    with witness(subject, checked, outputs, wishes) as called:
        if isinstance(called, Absent):
            return replace(found, unwitnessed=called.reason)
        try:
            apart = {output: _apart(called, function, outputs, output, subject, wishes) for output in {output for _, output in asked}}
        except UserCodeError as error:
            return replace(found, unwitnessed=error.message)
    return replace(found, pairs={key: _with(pair, *apart[key[1]][key[0]]) if key in asked else pair for key, pair in found.pairs.items()})


def _with(pair: Pair, apart: float, steady: float) -> Pair:
    return replace(pair, apart=apart, steady=steady)


def _apart(called: Witness, function: Gives, outputs: Sequence[Tensor], output: int, subject: Subject, wishes: Wishes) -> list[tuple[float, float]]:
    """By input, as shares of the largest element: how far, and how far at all three points alike. Raises UserCodeError."""
    settings = subject.case.settings
    one = signed(outputs[output].detach(), generator(settings.seed, subject.case.check, f"agreement {output}"))
    v = [one if place == output else None for place in range(len(outputs))]
    columns = columns_of(subject.inputs, wishes.domains, [False] * len(subject.inputs))
    own = parts(subject.inputs)

    def shares(mine: Sequence[Tensor | None], theirs: Sequence[Tensor | None]) -> list[Array]:
        both = [coordinates(pulled, subject.inputs) * columns.size for pulled in (mine, theirs)]
        return [_shares(both[0][part], both[1][part]) for part in own]

    here = shares(function.vjp(v), called.pull(v))
    apart = [float(np.abs(share).max(initial=0.0)) for share in here]
    if max(apart, default=0.0) < SMALLEST:
        return [(each, 0.0) for each in apart]
    asked = [(called.checked[place], each) for place, each in enumerate(v) if each is not None]
    points = [here]
    for beside in called.beside:
        theirs = beside.gradients([place for place, _ in asked], [each for _, each in asked])
        points.append(shares(function.vjp_at([x.detach().clone().requires_grad_() for x in beside.leaves], v), theirs))
    return [(each, _steady(np.stack([point[place] for point in points]))) for place, each in enumerate(apart)]


def _shares(mine: Array, theirs: Array) -> Array:
    """By how much of the largest element each one is off; nothing where that is rounding."""
    reach, off = float(np.abs(theirs).max(initial=0.0)), mine - theirs
    if float(np.abs(off).max(initial=0.0)) <= PULLED_ROUNDINGS * U64 * reach:
        return np.zeros_like(off)
    return off / reach if reach else np.full_like(off, np.inf)


def _steady(shares: Array) -> float:
    """How far off [points, N] is at all points alike; 0 where that is no more than rounding may be."""
    if len(shares) < POINTS or not np.isfinite(shares).all():
        return 0.0
    off, changes = float(np.abs(shares.mean(0)).max(initial=0.0)), float(np.ptp(shares, axis=0).max(initial=0.0))
    return off if off >= SMALLEST and off > STEADY * changes else 0.0
