"""Detection of the sparsity pattern: slices of one axis of an input are perturbed in one call, and
the outputs that changed are recorded."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import accumulate, pairwise
from math import comb

import numpy as np

from gradverify.numerics.function.coordinates import real_shape
from gradverify.numerics.function.point import Point
from gradverify.numerics.rungs import AnyArray, Array, Index, Mask, in_a_row, repeated
from gradverify.numerics.seed_vectors import WEIGHTS
from gradverify.numerics.seeds import Seed
from gradverify.numerics.sparsity.pattern import NO_ENTRY, Pattern, rank_among

# Group testing by constant-weight codes: a code determines which slices of an axis are perturbed in
# which call, so that the calls that moved an output identify its slice.
# Every slice has a word, one bit per call, and is perturbed in the calls of its ones. All words
# have the same number of ones, and the union of two different words has more: an output that moved
# in exactly that many calls depends on slices of a single word (Sperner 1928). L calls distinguish
# C(L, L/2) slices, 8 calls 70 and 13 calls 1,716, where a binary code with its complement takes 14
# and 22.
# Calls of the short code: each perturbs a random half of the slices, each slice in two of them
HALVES = 4
SHORT = 20  # slices up to which all are distinguished at once: 6 calls


@dataclass(frozen=True)
class Code:
    """The word of each slice [n]: bit c means that call c perturbs the slice. `weight`: the number
    of ones of every word."""

    words: AnyArray
    calls: int
    weight: int

    @cached_property
    def exact(self) -> bool:
        """Whether no two slices share a word."""
        words = np.sort(self.words)
        return bool((words[1:] != words[:-1]).all())

    def slices(self, call: int) -> Mask:
        """Return which slices a call perturbs [n]."""
        return np.asarray(self.words >> call & 1 == 1)

    def decode(self, response: Index) -> Index:
        """Return the slice [M] whose word was received; NO_ENTRY where it is the word of no slice.
        For exact codes."""
        order = np.argsort(self.words)
        at = np.minimum(np.searchsorted(self.words[order], response), len(order) - 1)
        return np.where(self.words[order][at] == response, order[at], NO_ENTRY)

    def extended(self) -> Code:
        """Return this code with as many additional calls as distinguish the slices of each word."""
        rank = rank_among(self.words)
        more, weight = _words(int(rank.max()) + 1)
        return Code(
            self.words | more[rank] << self.calls,
            self.calls + int(more.max()).bit_length(),
            self.weight + weight,
        )


def one_at_a_time(n: int) -> Code:
    """Return the code that perturbs each slice individually: n calls; an output's word lists all
    the slices that it depends on."""
    return Code(1 << np.arange(n), n, 1)


def exact(n: int, generator: np.random.Generator) -> Code:
    """Return a code in which every slice has its own word, in the fewest calls."""
    words, weight = _words(n)
    return Code(generator.permutation(words)[:n], int(words.max()).bit_length(), weight)


def halves(n: int, generator: np.random.Generator) -> Code:
    """Return a code of four calls, each of a random half: the six words of weight 2, shuffled anew
    for every six slices, so that neighbours mostly differ."""
    words, weight = _words(comb(HALVES, HALVES // 2))
    rows = words[None].repeat(-(-n // len(words)), 0)
    return Code(generator.permuted(rows, axis=1).reshape(-1)[:n], HALVES, weight)


def mixed(n: int, generator: np.random.Generator) -> Code:
    """Return a code with the words of `halves`, each slice's drawn independently."""
    words, weight = _words(comb(HALVES, HALVES // 2))
    return Code(
        words.astype(np.uint8).take(generator.integers(0, len(words), n, np.uint8)), HALVES, weight
    )


def _words(n: int) -> tuple[Index, int]:
    """Return at least n words of the fewest bits, half of them ones; and the number of ones."""
    bits = next(bits for bits in range(1, 64) if comb(bits, bits // 2) >= n) if n > 1 else 1
    weight = max(bits // 2, 1)
    return np.array(
        [word for word in range(1 << bits) if word.bit_count() == weight], np.intp
    ), weight


# ---- Probing for sparsity: slices of one axis of an input are perturbed in one call, and the
# outputs that changed are recorded
STEP = 1.4e-3  # of the scale: smaller steps hide small terms behind the rounding of large ones


class PointProbe:
    """Perturbs slices of an input tensor, finite and without symmetry, and counts its `calls`.

    `threshold` [M]: an output moved if it changed by more; without one, if it changed at all. An
    element is moved up and down alternately, so that one at a kink is detected in every other call.
    Elements for which the domain leaves no room stay.
    """

    def __init__(
        self, point: Point, tensor: int, seed: Seed, threshold: Array | None = None
    ) -> None:
        self.point = point
        self.seed = seed
        self.threshold = threshold
        self.calls = 0
        x = point.function.inputs[tensor]
        self.shape = real_shape(x.shape, x.dtype)
        self._columns = point.columns.of(tensor)
        self._places = np.arange(len(self._columns))
        sign: Array = (
            2.0 * seed.generator("signs").integers(0, 2, len(self._columns)).astype(float) - 1.0
        )
        columns = in_a_row(self._columns)
        self._x = point.columns.x[columns]
        self._step = sign * point.columns.scale[columns]

    def moved(self, axis: int, slices: Mask) -> Mask:
        """Return which outputs [M] of all output tensors changed when all elements of these slices
        [n] of one axis were perturbed, including those that became NaN; all, if the call raised.
        One call.

        Where n exceeds the length of the axis, the axis is merged with those before it: for the
        last axis, slices are the elements of the tensor. A scalar has one axis of one slice.
        """
        self.calls += 1
        places = self._chosen(axis, slices)
        step = self._step.take(places)
        step_by = STEP * self.seed.generator("steps", self.calls).uniform(*WEIGHTS, len(places))
        c, x, columns = self.point.columns, self._x.take(places), self._columns.take(places)
        to = c.cast(x + step_by * step, columns)
        # In the other direction at the border of a domain, none where neither is inside
        if not c.free:
            back = c.cast(x - step_by * step, columns)
            inside = [(c.low[columns] <= end) & (end <= c.high[columns]) for end in (to, back)]
            to = np.where(inside[0], to, np.where(inside[1], back, x))
        self._step[places] = -step
        f, f0 = self.point.values_at(columns, to), self.point.f0
        with np.errstate(invalid="ignore"):
            changed = f != f0 if self.threshold is None else np.abs(f - f0) > self.threshold
        changed &= ~(np.isnan(f) & np.isnan(f0))
        return np.asarray(changed | (np.isfinite(f) != np.isfinite(f0)))

    def _chosen(self, axis: int, slices: Mask) -> Index:
        """Return the elements [k] of the slices, ascending."""
        stride = math.prod(self.shape[axis + 1 :])
        return self._places.reshape(-1, len(slices), stride).compress(slices, 1).reshape(-1)


@dataclass(frozen=True)
class Axis:
    """One axis of the input: its length and stride (elements of the flat input); the shapes and
    slices of the output tensors.

    `repeats`: the number of calls per response; an output that moved in any of them has moved.
    """

    probe: PointProbe
    axis: int
    length: int
    stride: int
    shapes: tuple[tuple[int, ...], ...]
    parts: tuple[slice, ...]
    repeats: int = 1

    @property
    def outputs(self) -> int:
        return self.parts[-1].stop if self.parts else 0

    def moved(self, slices: Mask) -> Mask:
        moved = self.probe.moved(self.axis, slices)
        for _ in range(1, self.repeats):
            moved = moved | self.probe.moved(self.axis, slices)
        return moved

    def responses(self, code: Code, calls: Iterable[int]) -> list[Mask]:
        """Return the outputs that moved [M] in each of the calls."""
        return [self.moved(code.slices(call)) for call in calls]


# ---- Sparsity by bisection: the window of input slices that each output depends on, in blocks of
# half the size at every level
FIRST_CUT = 4  # blocks of the first level
WIDE_OF = 8  # blocks from which on windows of more than half of them are not cut further
# Calls of a level that are always worthwhile; beyond these, no more than a block has slices, about
# what the level can save
CHEAP = 16
MOST_CALLS = 64  # calls in total


def bisected(axis: Axis, pending: Mask) -> tuple[Index, Index]:
    """Return windows [M] of the pending outputs, as blocks of slices that are cut into smaller ones
    while that saves calls.

    Blocks a period apart are perturbed together: each output has at most one of them in its window.
    """
    low = high = np.zeros(axis.outputs, np.intp)
    size = 1 << (axis.length - 1).bit_length()
    factor = FIRST_CUT
    spent = 0
    while pending.any() and size > 1:
        period = min(
            factor * int((high - low + 1)[pending].max()), -(-axis.length * factor // size)
        )
        if spent + period > MOST_CALLS or period > max(CHEAP, size):
            break
        first = low * factor
        last = (high + 1) * factor - 1
        size = size // factor
        spent = spent + period
        factor = 2
        count = -(-axis.length // size)
        block = np.arange(axis.length) // size
        low = last + 1
        high = first - 1
        stray = np.zeros(axis.outputs, bool)
        for residue in range(period):
            moved = pending & axis.moved(block % period == residue)
            at = first + (residue - first) % period
            hit = moved & (at <= last)
            low = np.where(hit, np.minimum(low, at), low)
            high = np.where(hit, np.maximum(high, at), high)
            stray = stray | (moved & ~hit)
        # Unmoved: a tie, or noise, and the window is kept; moved from outside: the window is
        # unknown
        silent = low > high
        low = np.where(silent, first, low)
        high = np.where(silent, last, high)
        low = np.where(stray, 0, low)
        high = np.where(stray, count - 1, high)
        pending = pending.copy()
        for part in axis.parts:  # tensors whose widest window is most of the axis
            widest = int(np.where(pending, high - low + 1, 0)[part].max(initial=0))
            pending[part] &= count < WIDE_OF or 2 * widest <= count
    return low * size, np.minimum((high + 1) * size, axis.length) - 1


# ---- Outputs that nothing moved (the dead half of a relu), with the place in the pattern that they
# would have if they were alive
def with_dead_outputs(pattern: Pattern, output: Sequence[int]) -> Pattern:
    """Return the pattern with windows for dead outputs, where those of all others follow one rule;
    `output`: the shape of the output tensor.

    A pattern larger than the observed one is sound, and a nonzero gradient in the dead half is then
    reported element by element.
    """
    live = ~pattern.nothing
    if live.all() or not live.any():
        return pattern
    windows = [_windows_by_rule(pattern, axis, output, live) for axis in range(len(pattern.shape))]
    known = [window for window in windows if window is not None]
    if len(known) < len(windows):
        return pattern
    return replace(
        pattern,
        low=tuple(low for low, _ in known),
        high=tuple(high for _, high in known),
        nothing=np.zeros(len(live), bool),
    )


def _windows_by_rule(
    pattern: Pattern, axis: int, output: Sequence[int], live: Mask
) -> tuple[Index, Index] | None:
    """Return windows [M] of all outputs along one axis, if those of the live ones are all the same,
    or follow the output in order; else None."""
    low = pattern.low[axis]
    high = pattern.high[axis]
    n = pattern.shape[axis]
    first = int(np.argmax(live))
    if (low[live] == low[first]).all() and (high[live] == high[first]).all():
        return np.full_like(low, low[first]), np.full_like(high, high[first])
    for stride in {math.prod(output[k:]) for k in range(1, len(output) + 1)} | {
        pattern.strides[axis]
    }:
        if stride * n and len(low) % (stride * n) == 0:
            place = np.arange(len(low)) // stride % n
            if (low[live] == place[live]).all() and (high[live] == place[live]).all():
                return place, place
    return None


# ---- the detection
BYTE = 8  # calls whose bits take an eighth of the memory
ALONE_AT_ONCE = 5  # slices of an axis up to which each is perturbed individually at once
ALONE_UP_TO = 16  # the same, where outputs depend on several
OPENING = 2  # calls after which an axis may look dense
SINGLES = 4  # slices perturbed individually before an axis is called dense
EVIDENCE = 12  # different slices that must respond as guessed: by chance 6⁻¹² of the time
# Calls per response: the second of two moves in the other direction and detects what a tie hid
ONCE_THEN_BOTH_WAYS = (
    1,
    2,
)


@dataclass(frozen=True)
class Windows:
    """The first and last slice [M] that each output depends on; the whole axis where they are
    unknown. `moved` [M]: in any call."""

    low: Index
    high: Index
    moved: Mask


def detect(
    probe: PointProbe,
    shape: Sequence[int],
    outputs: Sequence[Sequence[int]],
    seed: Seed,
    guess: bool = True,
) -> tuple[Pattern, ...]:
    """Return one pattern per output tensor. Shapes are real ones (complex: with a last axis of 2).
    Without `guess` no stage relies on chance."""
    parts = tuple(
        slice(a, b) for a, b in pairwise(accumulate((math.prod(o) for o in outputs), initial=0))
    )
    total = sum(math.prod(o) for o in outputs)
    lengths = tuple(shape) or (1,)
    if not total or not math.prod(lengths):
        return tuple(_pattern(shape, [], np.zeros(total, bool), part) for part in parts)
    # As many outputs as inputs, and axes that would be guessed one by one
    if (
        guess
        and sum(length > SHORT for length in lengths) > 1
        and all(part.stop - part.start == math.prod(lengths) for part in parts)
        and (found := _elementwise(probe, lengths, parts, seed))
    ):
        return found
    axes = [
        Axis(probe, k, n, math.prod(lengths[k + 1 :]), tuple(map(tuple, outputs)), parts)
        for k, n in enumerate(lengths)
    ]
    windows = [_windows(axis, seed, guess) for axis in axes]
    live = _live(probe, lengths, [w.moved for w in windows])
    return tuple(_pattern(shape, windows, live, part) for part in parts)


def _live(probe: PointProbe, lengths: Sequence[int], moved: Sequence[Mask]) -> Mask:
    """Return the outputs [M] that moved in some of these calls, or move when all inputs do."""
    live = _any(moved)
    return live if live.all() else live | probe.moved(0, np.ones(lengths[0], bool))


def _elementwise(
    probe: PointProbe, lengths: Sequence[int], parts: Sequence[slice], seed: Seed
) -> tuple[Pattern, ...] | None:
    """Return the patterns of outputs that each depend only on the input element in their own place;
    None where they do not."""
    n = math.prod(lengths)
    code = mixed(n, seed.generator("elements"))
    flat = Axis(probe, len(lengths) - 1, n, 1, (), tuple(parts))
    responses: list[Mask] = []
    for call in range(code.calls):
        chosen = code.slices(call)
        responses += [flat.moved(chosen)]
        if (responses[-1].reshape(-1, n) & ~chosen).any():
            return None
    bits = _bits(responses).reshape(-1, n)
    if (np.count_nonzero(bits == code.words.astype(bits.dtype, copy=False), 1) < EVIDENCE).any():
        return None
    live = _live(probe, lengths, responses)
    places = np.unravel_index(np.arange(n), tuple(lengths))
    if len(parts) > 1:
        places = tuple(np.tile(place, len(parts)) for place in places)
    windows = [Windows(place, place, live) for place in places]
    return tuple(_pattern(lengths, windows, live, part) for part in parts)


def _pattern(shape: Sequence[int], windows: Sequence[Windows], live: Mask, part: slice) -> Pattern:
    alive = live[part]
    none = repeated(np.intp(0), part.stop - part.start)
    every = alive.all()
    low = [w.low[part] if every else np.where(alive, w.low[part], 0) for w in windows]
    high = [w.high[part] if every else np.where(alive, w.high[part], -1) for w in windows]
    low = low or [none] * len(shape)
    high = high or [none - 1] * len(shape)
    return Pattern(tuple(shape), tuple(low[: len(shape)]), tuple(high[: len(shape)]), ~alive)


def _any(masks: Sequence[Mask]) -> Mask:
    """Return the union of some masks [M]."""
    return reduce(np.logical_or, masks)


def _windows(axis: Axis, seed: Seed, guess: bool) -> Windows:
    """Apply the stages along one axis: a guess, a decoded word, slices individually or bisected.
    Each handles only the outputs that the earlier ones left."""
    n = axis.length
    zeros = repeated(np.intp(0), axis.outputs)
    generator = seed.generator("slices", axis.axis)
    if n == 1:
        return Windows(zeros, zeros, np.zeros(axis.outputs, bool))
    code = (
        one_at_a_time(n)
        if n <= ALONE_AT_ONCE
        else halves(n, generator)
        if guess and n > SHORT
        else exact(n, generator)
    )
    responses = axis.responses(code, range(min(OPENING, code.calls)))
    pending = ~_dense(axis, responses, seed)
    if pending.any():
        responses += axis.responses(code, range(len(responses), code.calls))
    place = _guessed(axis, code, responses, pending)
    moved = _any(responses)
    known = place != NO_ENTRY
    if known.all():
        return Windows(place, place, moved)
    if not known.any() and not pending.any():
        return Windows(zeros, repeated(np.intp(n - 1), axis.outputs), moved)
    pending = pending & ~known & moved
    # Most outputs depend on slices of one word
    if (
        pending.any()
        and not code.exact
        and np.mean(np.sum(responses, 0)[pending] == code.weight) > 0.5
    ):
        longer = code.extended()
        code, responses = (
            longer,
            responses + axis.responses(longer, range(code.calls, longer.calls)),
        )
    if code.exact and pending.any():
        place = np.where(pending, code.decode(_bits(responses)), place)
        pending = pending & (place == NO_ENTRY)
    low = np.zeros(axis.outputs, np.intp)
    high = np.full(axis.outputs, n - 1)
    for repeats in ONCE_THEN_BOTH_WAYS:
        if not pending.any():
            break
        first, last = _narrowed(replace(axis, repeats=repeats), code, responses, pending)
        # With a tie within the step, a call may have moved an output that its window does not
        # explain
        settled = pending.copy()
        for call, response in enumerate(responses):
            before = np.concatenate([[0], np.cumsum(code.slices(call))])
            settled &= ~response | (before[last + 1] > before[first])
        low = np.where(settled, first, low)
        high = np.where(settled, last, high)
        pending = pending & ~settled
    known = place != NO_ENTRY
    return Windows(np.where(known, place, low), np.where(known, place, high), _any(responses))


def _bits(responses: Sequence[Mask]) -> Index:
    """Return the word [M] that each output has received."""
    kind = np.uint8 if len(responses) <= BYTE else np.intp
    bits: Index = responses[0].astype(kind)
    for call, moved in enumerate(responses[1:], 1):
        bits |= np.left_shift(moved.view(np.uint8), call, dtype=kind)
    return bits


def _dense(axis: Axis, opening: Sequence[Mask], seed: Seed) -> Mask:
    """Return the outputs [M] of tensors that depend on the whole axis: those that moved did so in
    both calls, and single slices have outputs in common."""
    dense = np.zeros(axis.outputs, bool)
    suspects = [
        part
        for part in axis.parts
        if opening[0][part].any() and np.array_equal(opening[0][part], opening[1][part])
    ]
    if axis.length <= ALONE_AT_ONCE or not suspects:
        return dense
    places = (
        (np.arange(SINGLES) + seed.generator("single slices", axis.axis).random(SINGLES))
        * axis.length
        / SINGLES
    ).astype(int)
    singles = np.array([axis.moved(np.arange(axis.length) == place) for place in places])
    for part in suspects:
        received = singles[:, part]
        received = received[received.any(1)].astype(np.float32)
        # Any two slices that moved outputs have one in common
        dense[part] = len(received) > 1 and bool((received @ received.T > 0).all())
    return dense


def _guessed(axis: Axis, code: Code, responses: Sequence[Mask], pending: Mask) -> Index:
    """Return the slice [M] of each pending output of tensors whose outputs follow the axis in
    order; NO_ENTRY for other tensors.

    In order: no output moved in a call that does not perturb its slice, and enough slices were
    received in full (a tie can leave an output unmoved).
    """
    bits = _bits(responses)
    place = np.full(axis.outputs, NO_ENTRY)
    every = np.arange(axis.length)[:, None]
    words = code.words[:, None].astype(bits.dtype)
    for shape, part in zip(axis.shapes, axis.parts, strict=True):
        # Neighbours along the axis may be as far apart in the flat output as along the output's own
        # axes, or as in the input (reshapes)
        total = math.prod(shape)
        of_output = [math.prod(shape[k:]) for k in range(1, len(shape) + 1)]
        for stride in dict.fromkeys([axis.stride, *of_output]) if pending[part].any() else ():
            if not total or not stride or total % (stride * axis.length):
                continue
            # The outputs of a slice are those at one place of the middle axis
            in_order = (
                -1,
                axis.length,
                stride,
            )
            received = bits[part].reshape(in_order)
            if not (received & ~words).any() and int((received == words).any((0, 2)).sum()) >= min(
                EVIDENCE, axis.length // 2 + 1
            ):
                place[part].reshape(in_order)[...] = every
                break
    return np.where(pending, place, NO_ENTRY)


def _narrowed(
    axis: Axis, code: Code, responses: Sequence[Mask], pending: Mask
) -> tuple[Index, Index]:
    """Return windows [M] by perturbing each slice individually, or by bisection of a long axis."""
    n = axis.length
    if code.weight > 1 and n > ALONE_UP_TO:
        return bisected(axis, pending)
    moved = np.array(responses if code.weight == 1 else axis.responses(one_at_a_time(n), range(n)))
    known = pending & moved.any(0)
    return np.where(known, moved.argmax(0), 0), np.where(
        known, n - 1 - moved[::-1].argmax(0), n - 1
    )
