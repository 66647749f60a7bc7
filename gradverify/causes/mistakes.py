"""Known mistakes, the simplest first, and the patterns of right and wrong elements that each of
them explains.

A mistake is a function from a pattern to claims. The first that explains every mismatched element,
at the point of the check and at another one, is the cause. A region (a block of positions,
one side of a threshold) is believed when it separates more elements than its family has
members: one of 2ᵏ families of n regions separates n + k elements by chance once in 2⁵.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import combinations
from math import copysign, log2, prod

import numpy as np

from gradverify.causes.pattern import Pattern, Side, Value, settled
from gradverify.model.result import Cause
from gradverify.numerics.pairs.pair import ROUNDINGS
from gradverify.numerics.rungs import RESOLVED, Array, Index, Mask


@dataclass(frozen=True)
class Claim:
    """The claim that a mistake explains a pattern. It is confirmed by a claim with the same `key`
    at another point, if the intervals `low` to `high` of both overlap; `cause` returns the cause
    for the overlap.

    Of several confirmed claims the `natural` ones (about a place that code often treats specially)
    have priority; the claims must be of one `family`.
    """

    key: tuple[object, ...]
    cause: Callable[[float, float], Cause | None]
    low: float = 0.0
    high: float = 0.0
    family: str = ""
    natural: bool = False


def _named(name: str, detail: str, *key: object) -> Claim:
    return Claim((name, *key), lambda low, high: Cause(name, detail))


def explain(here: Pattern, elsewhere: Callable[[], Pattern | None]) -> Cause | None:
    """Return the cause that explains the pattern here and at another point; None where there is
    none. The other point is measured only if a claim holds here.

    The first mistake (one factor) needs no more than the tallies of the pair; the others need all
    its elements.
    """
    if not here.conclusive:
        return None
    with np.errstate(all="ignore"):
        for mistake in MISTAKES if here.entries.complete else MISTAKES[:1]:
            claims = list(mistake(here))
            there = elsewhere() if claims else here
            if (
                there is None
                or not there.conclusive
                or there.entries.complete < here.entries.complete
            ):
                return None
            met = [
                (claim, max(claim.low, other.low), min(claim.high, other.high))
                for claim in claims
                for other in mistake(there)
                if claim.key == other.key
            ]
            both = [each for each in met if each[1] <= each[2]]
            both = [each for each in both if each[0].natural] or both
            if len({claim.family for claim, *_ in both}) == 1:
                claim, low, high = both[0]
                if (cause := claim.cause(low, high)) is not None:
                    return cause
    return None


# ---- numbers and places in words
LARGEST_DENOMINATOR = 12
ROUND = 1e-9  # relative: a factor this near to a fraction is that fraction
NEAR = 1e-6  # of 1: seven digits show no such deviation


def factor(c: float) -> str:
    """Format a factor: `2.0000` or `0.3333 (1/3)` for a simple fraction, else `2.0002` or, near 1,
    `(1 + 1.7e-08)`."""
    fraction = Fraction(c).limit_denominator(LARGEST_DENOMINATOR)
    if fraction != 0 and abs(c - fraction) <= ROUND * abs(c):
        return f"{c:.4f} ({fraction})" if fraction.denominator > 2 else f"{c:.4f}"
    return f"{c:.7g}" if abs(c - 1) >= NEAR else _near_one(c)


def _near_one(c: float) -> str:
    return f"(1 {'+' if c > 1 else '−'} {abs(c - 1):.3g})"


def slices(side: Side, axis: int | None, first: int, last: int) -> str:
    """Describe positions of a tensor: `row 3 of x`, `columns 64 to 79 of x`, `indices 0 to 2 of
    axis 1 of x`."""
    one, many, of = "index", "indices", f" of axis {axis}"
    if axis is None or len(side.shape) <= 2:
        one = "element" if axis is None or len(side.shape) == 1 else ("row", "column")[axis]
        many, of = f"{one}s", ""
    numbers = f"{one} {first}" if first == last else f"{many} {first} to {last}"
    return f"{numbers}{of} of {side.name}"


# ---- one factor over all elements: the sign, 2, ½, a mean instead of a sum, a constant off
SLIGHT = 5e-3  # |c − 1| up to which a constant is rounded, not wrong: bfloat16 is off by 2⁻⁸
SIMPLE = (-1.0, 0.0, 0.5, 2.0, -2.0, -0.5)
NARROW = 1e-5  # relative: an interval so narrow holds one of a few likely factors not by chance
ROUND_DIGITS = 4  # at most, of a factor that is written in code
ALL_ALIKE = 64  # roundings by which a right float32 gradient may be off: −0.9999999 is −1
FEW = 2  # elements that must share a factor that is not SIMPLE


def scaled(pattern: Pattern) -> Iterator[Claim]:
    e = pattern.entries
    low, high = pattern.interval(pattern.wrong) if e.complete else e.ratio
    if e.complete and pattern.zero:
        low = high = 0.0
    c = settled(low, high)
    # Where not all elements were kept, the interval covers the wrong ones that were not
    all_of_it = ~pattern.unknown if e.complete else pattern.right & pattern.significant
    if c is None or c == 1 or not pattern.scaled_by(c, all_of_it):
        return
    if pattern.count >= FEW or c in SIMPLE or _size(pattern, c):
        yield Claim(("scaled", c == 0), partial(_scaled, pattern), low, high)


def _scaled(pattern: Pattern, low: float, high: float) -> Cause | None:
    """Return the cause for the factor in an interval: a size of a tensor or a simple fraction is
    preferred to its digits, as float32 leaves wider intervals than float64."""
    c = settled(low, high)
    if c is None or c == 1:
        return None
    if c == 0:
        return Cause("zero gradient", f"analytic = 0 {pattern.everywhere}")
    if high - low <= NARROW * abs(c) and float(f"{c:.{ROUND_DIGITS}g}") != c:
        sizes = [copysign(each, c) for n, _ in _sizes(pattern) if n > 1 for each in (n, 1 / n)]
        fraction = float(Fraction(c).limit_denominator(LARGEST_DENOMINATOR))
        c = next((each for each in (fraction, *sizes) if low <= each <= high), c)
    if abs(c + 1) <= ALL_ALIKE * pattern.unit:
        return Cause("sign flipped", f"analytic = −1 × numeric {pattern.everywhere}")
    if abs(c - 1) <= SLIGHT:
        words = f"analytic = {_near_one(c)} × numeric {pattern.everywhere}"
        return Cause("constant slightly off", words)
    size, words = _size(pattern, c), f"analytic = {factor(c)} × numeric {pattern.everywhere}"
    guess = "a sum instead of a mean?" if abs(c) > 1 else "a mean instead of a sum?"
    return Cause("scaled", f"{words}; {size}: {guess}" if size else words)


def _size(pattern: Pattern, c: float) -> str | None:
    """Describe the size n of a tensor with c = n or c = 1/n; None where there is none. Sizes up to
    2 do not count: 2 and ½ are common mistakes at any size."""
    wanted = max(abs(c), 1 / abs(c)) if c else 0.0
    return next(
        (
            f"{n} is {what}"
            for n, what in _sizes(pattern)
            if n > 2 and c > 0 and abs(wanted - n) <= ROUND * n
        ),
        None,
    )


def _sizes(pattern: Pattern) -> Iterator[tuple[int, str]]:
    sides = [side for side in (pattern.input, pattern.output) if side.name]
    for side in sides:
        yield side.elements, f"the number of elements of {side.name}"
        for axis, n in enumerate(side.shape):
            yield n, f"the size of axis {axis} of {side.name}"
    for side in sides:
        for axis, n in enumerate(side.shape):
            per = f"the number of elements of {side.name} per index of axis {axis}"
            yield side.elements // max(n, 1), per


# ---- the other sign of an imaginary part, the gradient of another input
def conjugate(pattern: Pattern) -> Iterator[Claim]:
    """Yield the claim that the derivative, the gradient or grad_output lacks a conjugation: other
    signs of imaginary parts."""
    e = pattern.entries
    in_ = (-1.0) ** (e.input % pattern.input.parts)
    out = (-1.0) ** (e.output % pattern.output.parts)
    signs = {"the derivative": in_ * out, "the gradient": in_, "grad_output": out}
    for what, sign in signs.items():
        if (sign < 0).any() and pattern.agrees(sign * e.numeric, e.bar):
            detail = f"analytic = numeric {pattern.everywhere} once {what} is conjugated"
            yield _named("missing conjugate", detail, what)


def swapped(pattern: Pattern) -> Iterator[Claim]:
    for other, entries in pattern.others:
        if (other.shape, other.complex) == (pattern.input.shape, pattern.input.complex) and _is_of(
            pattern, replace(pattern, input=other, entries=entries)
        ):
            detail = (
                f"analytic = numeric of {other.name} {pattern.everywhere}: backward returns "
                f"the gradient of {other.name}"
            )
            yield _named("swapped inputs", detail, other.name)


def _is_of(pattern: Pattern, theirs: Pattern) -> bool:
    """Return whether the analytic side equals the numeric side of another input, which must have an
    element that is not zero."""
    e, t = pattern.entries, theirs.entries
    value, bar, _ = theirs.numeric(e.output, e.input)
    large = np.abs(t.numeric) > RESOLVED * (t.bar + pattern.dust)
    _, _, here = pattern.numeric(t.output[large], t.input[large])
    return bool(large.any() and (here >= 0).all()) and pattern.agrees(value, bar)


# ---- numbers that forward reads twice through an index, and backward writes once
SHOWN = 8  # places of a number that are listed


def overwritten(pattern: Pattern) -> Iterator[Claim]:
    if not pattern.output.name or not pattern.zero:
        return
    shape = pattern.output.shape
    for value in pattern.integers:
        of = value.shape
        axes = [
            axis for axis in range(len(shape) - len(of) + 1) if shape[axis : axis + len(of)] == of
        ]
        if value.numbers.size > 1 and any(_lost(pattern, value, axis) for axis in axes):
            numbers, counts = np.unique(value.numbers, return_counts=True)
            twice = numbers[counts > 1]
            shown = ", ".join(f"{int(n)} at {_places(value, n)}" for n in twice[:2])
            more = f" and {len(twice) - 2} more" if len(twice) > 2 else ""
            detail = (
                f"{value.name} holds {shown}{more}, and only one place of each reaches the "
                f"gradient of {pattern.input.name}: analytic = 0 {pattern.everywhere}"
            )
            yield _named("repeated index overwritten", detail, value.name)


def _lost(pattern: Pattern, value: Value, axis: int) -> bool:
    """Return whether each wrong element is at a repeated number, and another place with that number
    is right for the same element of the input.

    The place that was written last is right for every element read there: a place that is right for
    some and wrong for others lacks a term instead.
    """
    e, side = pattern.entries, pattern.output
    after = prod(side.shape[axis + len(value.shape) :])
    place: Index = e.output // side.parts // after % value.numbers.size
    _, code, counts = np.unique(value.numbers, return_inverse=True, return_counts=True)
    number, wrong = code.reshape(-1)[place], pattern.wrong
    right = pattern.right & pattern.significant
    keys = e.input * len(counts) + number  # an element of the input, read through one number
    if np.isin(place[wrong], place[right & (counts[number] > 1)]).any():
        return False
    kept, times = np.unique(keys[right], return_counts=True)
    once = (times[counts[kept % len(counts)] > 1] == 1).all()
    return bool((counts[number[wrong]] > 1).all() and once and np.isin(keys[wrong], kept).all())


def _places(value: Value, number: int) -> str:
    found = np.argwhere((value.numbers == number).reshape(value.shape))
    places = [f"[{','.join(map(str, place))}]" for place in found]
    return f"{', '.join(places[:-1][:SHOWN])} and {places[-1]}"


# ---- a sum over a broadcast dimension of which backward keeps one slice; one term of several
AT_LEAST = 3  # right elements, and missing ones
ENOUGH = 4  # wrong elements that share a factor or a place, and right ones
TERMS = {
    -1.0: ("sign flipped", "one term has the wrong sign"),
    2.0: ("scaled", "one term counts twice"),
    0.5: ("scaled", "one term counts half"),
    -2.0: ("scaled", "one term has the factor −2"),
    -0.5: ("scaled", "one term has the factor −1/2"),
}


def reduced(pattern: Pattern) -> Iterator[Claim]:
    e, right, y = pattern.entries, pattern.right & pattern.significant, pattern.output
    if min(right.sum(), pattern.count) < AT_LEAST or not pattern.zero:
        return
    if not np.isin(e.input[pattern.wrong], e.input[right]).all():
        return  # an input whose whole gradient is missing: no sum
    kept, inside = dict[int, int](), np.ones(len(right), bool)
    for axis in (axis for axis, n in enumerate(y.shape) if n > 1):
        if len(at := np.unique(y.along(axis, e.output[right]))) == 1:
            kept[axis] = int(at[0])
            inside &= y.along(axis, e.output) == kept[axis]
    if kept and not inside[pattern.wrong].any():
        index = ", ".join(str(kept.get(axis, ":")) for axis in range(len(y.shape)))
        over = f"ax{'is' if len(kept) == 1 else 'es'} {', '.join(map(str, kept))}"
        yield _named(
            "missing reduction",
            f"only {y.name}[{index}] reaches the gradient of {pattern.input.name}, analytic = 0 "
            f"{pattern.everywhere}: the sum over {over} of {y.name} is missing",
            *kept.items(),
        )


def part(pattern: Pattern) -> Iterator[Claim]:
    """Yield the claim of one factor over all wrong elements, which is one wrong term of a sum.
    Every input and every output with a wrong element must have a right one too: else the mistake is
    in a place, and not in a term."""
    e, wrong, right = pattern.entries, pattern.wrong, pattern.right & pattern.significant
    mixed = all(np.isin(each[wrong], each[right]).all() for each in (e.input, e.output))
    c = pattern.factor(wrong) if mixed and min(pattern.count, right.sum()) >= ENOUGH else None
    if c in TERMS:
        name, words = TERMS[c]
        times = "−1" if c == -1 else factor(c)
        yield _named(
            name,
            f"analytic = {times} × numeric {pattern.everywhere}, and the others are right: {words}",
            c,
        )


# ---- a factor that backward forgot, or took once too often
DISTINCT = 3  # different numbers of the factor at the elements: with fewer any region would fit
KINDS = {
    "missing": ("missing factor", "analytic × {0} = numeric {1}: the factor {0} is missing"),
    "extra": (
        "extra factor",
        "analytic = numeric × {0} {1}: the factor {0} is one too many, or a "
        "division by it is missing",
    ),
    "alone": ("missing factor", "analytic = {0} {1}: backward returns grad_output × {0}"),
}


def operand(pattern: Pattern) -> Iterator[Claim]:
    """Yield the claims analytic × t = numeric, analytic = numeric × t, and analytic = t, for a
    tensor t with one number for each element of input or output; or analytic = 1, where the numeric
    side is not constant."""
    e, used = pattern.entries, pattern.significant & ~pattern.unknown
    if pattern.input.parts + pattern.output.parts > 2 or pattern.count < ENOUGH:
        return
    if (
        (e.analytic[used] == 1).all()
        and len(np.unique(e.numeric[used])) >= DISTINCT
        and settled(*pattern.interval(used)) is None
    ):
        yield _named(
            "missing factor",
            f"analytic = 1 {pattern.everywhere}: grad_output is passed "
            "on as it came, without the derivative",
        )
    for kind, (name, words) in KINDS.items():
        for value in pattern.values:
            for side, places in ((pattern.output, e.output), (pattern.input, e.input)):
                spread = value.over(side.shape) if side.name else None
                if spread is not None and _fits_with(pattern, spread[places].astype(float), kind):
                    detail = words.format(value.name, pattern.everywhere)
                    yield _named(name, detail, kind, value.name, side.name)


def _fits_with(pattern: Pattern, factors: Array, kind: str) -> bool:
    e, use = pattern.entries, ~pattern.unknown
    used = pattern.significant & use
    if len(np.unique(factors[used])) < DISTINCT:
        return False
    if kind == "missing":
        bar = e.bar + ROUNDINGS * pattern.unit * np.abs(e.numeric) + pattern.dust
        fits = (np.abs(e.analytic * factors - e.numeric) <= bar)[use].all()
        return bool(fits and (np.abs(e.analytic) > pattern.dust)[pattern.wrong].any())
    if kind == "extra":
        return pattern.agrees(e.numeric * factors, e.bar * np.abs(factors))
    # Wrong only where the numeric side is 0: a mask is missing, and not a factor
    masked = (np.abs(e.numeric) <= e.bar + pattern.dust)[pattern.wrong].all()
    return not masked and pattern.agrees(factors, e.bar * 0, used)


# ---- the right numbers at the wrong places: transposed
SAMPLE = 64  # wrong elements that a move must explain before all are tested
ARRIVED = 0.4  # share of the wrong elements that are not 0: half of them in a sparse Jacobian
GRADIENT, COTANGENT = "the gradient", "grad_output"
SAVED, BOTH = "what forward saved", "grad_output and the gradient"
Places = Callable[[Index, Index], tuple[Index, Index]]
"""analytic[o, i] = numeric[o', i'] with (o', i') = places(o, i)."""


def transposed(pattern: Pattern) -> Iterator[Claim]:
    if np.mean(pattern.entries.analytic[pattern.wrong] != 0) < ARRIVED:
        return
    for words, places, freedom in _moves(pattern):
        if _fits(pattern, places, freedom):
            yield _named(
                "transposed", f"analytic = numeric with {words} {pattern.everywhere}", words
            )


def _moves(pattern: Pattern) -> Iterator[tuple[str, Places, int]]:
    """Yield each move (a permutation of elements): its description, the map of places, and the
    number of wrong elements that it must explain.

    Positions of the gradient permute the inputs of the Jacobian, those of grad_output its outputs,
    those of a saved tensor both; or the matrix between one axis of each is transposed.
    """
    x, y, e = pattern.input, pattern.output, pattern.entries
    each = (e.input == e.output)[pattern.significant].all()
    moved = {
        GRADIENT: x,
        COTANGENT: y if y.name else None,
        SAVED: x if (y.shape, y.parts) == (x.shape, x.parts) else None,
    }
    for what, side in moved.items():
        for words, of in _transposes(side) if side else ():
            out = np.arange(y.size) if what == GRADIENT else y.lifted(of)
            in_ = np.arange(x.size) if what == COTANGENT else x.lifted(of)
            yield (
                words.format(BOTH if what == SAVED and not each else what),
                partial(_taken, out, in_),
                min(ENOUGH, max(len(in_), len(out))),
            )
    for a in reversed(range(len(y.shape))):
        for b in reversed(range(len(x.shape))):
            if x.parts == y.parts and y.shape[a] == x.shape[b] > 1:
                words = (
                    f"the matrix between axis {b} of {x.name} and axis {a} of {y.name} "
                    "transposed, W where Wᵀ belongs,"
                )
                yield words, partial(_exchanged, y, a, x, b), ENOUGH


def _taken(out: Index, in_: Index, o: Index, i: Index) -> tuple[Index, Index]:
    return out[o], in_[i]


def _exchanged(y: Side, a: int, x: Side, b: int, o: Index, i: Index) -> tuple[Index, Index]:
    steps = x.along(b, i) - y.along(a, o)
    return o + steps * prod(y.shape[a + 1 :]) * y.parts, i - steps * prod(
        x.shape[b + 1 :]
    ) * x.parts


def _transposes(side: Side) -> Iterator[tuple[str, Index]]:
    """Yield each exchange of two axes, in words and as a permutation of the elements: of the tensor
    itself, and of its memory read with the exchanged shape, where that differs."""
    places = np.arange(side.elements)
    for a, b in combinations([axis for axis, n in enumerate(side.shape) if n > 1], 2):
        laid = list(side.shape)
        laid[a], laid[b] = laid[b], laid[a]
        words = "{} transposed" if len(laid) == 2 else f"{{}} with axes {a} and {b} exchanged"
        for shape in dict.fromkeys((side.shape, tuple(laid))):
            yield words, places.reshape(shape).swapaxes(a, b).reshape(-1)


def _fits(pattern: Pattern, places: Places, freedom: int) -> bool:
    """Return whether a move explains a sample of the elements, then all, and every number that it
    moves is found among the elements (a zero would not be)."""
    e, some = pattern.entries, np.flatnonzero(pattern.wrong)
    if len(some) < freedom:
        return False
    chosen = np.zeros(len(e.output), bool)
    chosen[some[:: max(1, len(some) // SAMPLE)]] = True
    if not (_explains(pattern, places, chosen) and _explains(pattern, places, ~pattern.unknown)):
        return False
    large = np.abs(e.numeric) > 3 * (e.bar + pattern.dust)
    _, _, found = pattern.numeric(*places(e.output, e.input))
    return bool(large[found[found >= 0]].sum() == large.sum())


def _explains(pattern: Pattern, places: Places, where: Mask) -> bool:
    e = pattern.entries
    value, bar = np.zeros(len(e.output)), np.zeros(len(e.output))
    i = np.flatnonzero(where)
    value[i], bar[i], found = pattern.numeric(*places(e.output[i], e.input[i]))
    usable = where.copy()
    usable[i] = (found < 0) | ~pattern.unknown[found]
    return not (~usable & where & pattern.wrong).any() and pattern.agrees(value, bar, usable)


# ---- wrong only in places: a block of positions, one side of a threshold
SURPRISE = 5.0  # bits: 1 in 32 by chance
TILES = (128, 64, 32, 16)
SEVERAL = 2  # wrong elements: the place of a single one is in the finding


def natural(pattern: Pattern) -> Iterator[Claim]:
    """Yield the claims of zeros, or of one factor, at a place that code often treats specially."""
    return (claim for claim in somewhere(pattern) if claim.natural)


def somewhere(pattern: Pattern) -> Iterator[Claim]:
    """Yield the claims of zeros, or of one factor, at any place."""
    if pattern.zero:
        yield from _regions(pattern, "is 0")
    elif (c := pattern.factor(pattern.wrong)) is not None:
        yield from _regions(pattern, f"is {factor(c)} × numeric")


def anything(pattern: Pattern) -> Iterator[Claim]:
    """Yield the claims of a place that code often treats specially, whatever is wrong there."""
    return (claim for claim in _regions(pattern, "is wrong") if claim.natural)


def _regions(pattern: Pattern, content: str) -> Iterator[Claim]:
    right = pattern.right & pattern.significant
    if pattern.count < SEVERAL or not right.any():
        return

    def claim(name: str, words: str, natural: bool, family: str = "block") -> Claim:
        rest = f"{pattern.everywhere}; the rest of {pattern.pair} is right"
        found = _named(name, f"analytic {content} {words}, {rest}", content, words)
        return replace(found, family=family, natural=natural)

    def beyond(name: str, sign: str, low: float, high: float) -> Claim:
        def cause(low: float, high: float) -> Cause:
            between = "" if low <= 0 <= high else f" (a threshold between {low:.4g} and {high:.4g})"
            words = f"where {name} {sign} {_roundest(low, high)}"
            rest = f"{pattern.everywhere}; the rest of {pattern.pair} is right"
            detail = f"analytic {content} {words}{between}, {rest}"
            return Cause(f"wrong only {words}", detail)

        zero = low <= 0 <= high and not name.startswith("|")
        return Claim((content, name, sign), cause, low, high, "values", zero)

    sides = (
        (pattern.input, pattern.entries.input, "zero block"),
        (pattern.output, pattern.entries.output, "unread block"),
    )
    for side, coordinate, unwritten in sides:
        if not side.name:
            continue
        bad, good = coordinate[pattern.wrong], coordinate[right]
        cells = len(np.unique(np.concatenate([bad, good]) // side.parts))
        blocks = (_block(side, axis, bad, good, cells) for axis in side.axes())
        block = next((each for each in blocks if each is not None), None)
        if block is not None:
            yield claim(unwritten if content == "is 0" else "wrong block", *block)
        for value in pattern.values if not side.complex else ():
            if (spread := value.over(side.shape)) is None:
                continue
            wrong, fine = spread[bad], spread[good]
            least = min(cells, value.numbers.size)
            if not np.isfinite(wrong).all() or not np.isfinite(fine).all():
                continue
            for name, w, f in (
                (value.name, wrong, fine),
                (f"|{value.name}|", np.abs(wrong), np.abs(fine)),
            ):
                found = None
                if (w == w[0]).all() and (f != w[0]).all() and (w[0] == 0 or (f == f[0]).all()):
                    words = f"where {name} is {w[0]:g}"
                    found = claim(f"wrong only {words}", words, True, "values")
                elif w.max() < f.min():
                    found = beyond(name, "<", float(w.max()), float(f.min()))
                elif w.min() > f.max():
                    found = beyond(name, ">", float(f.max()), float(w.min()))
                if found and _convincing(least, 4 if found.natural else 4 * least):
                    yield found
                    break


def _block(
    side: Side, axis: int | None, bad: Index, good: Index, cells: int
) -> tuple[str, bool] | None:
    """Return the block of positions of an axis that are all wrong while the others are all right:
    in words, and whether code often treats that place specially. None where there is none.

    Single positions, heads and tails are believed more easily than other runs.
    """
    n = side.length(axis)
    wrong, right = np.unique(side.along(axis, bad)), np.unique(side.along(axis, good))
    first, last = int(wrong[0]), int(wrong[-1])
    if ((right >= first) & (right <= last)).any():
        return None
    first = first if (right < first).any() else 0
    ends_late = not (right > last).any()
    last = n - 1 if ends_late else last
    single, tail = first == last, ends_late and first != 0
    if not _convincing(cells, 3 * n if single or tail or first == 0 else n * n / 2):
        return None
    # A head or tail of more than half is not special: the rest is
    at_end = (tail or first == 0) and 2 * (last - first + 1) <= n
    tile = next((tile for tile in TILES if tail and first % tile == 0), None)
    detail = f" ({first} is a multiple of {tile}: the tail of a tile)" if tile else ""
    reason = bool(tile) or (axis is not None and (single or at_end))
    return f"in {slices(side, axis, first, last)}{detail}", reason


def _roundest(low: float, high: float) -> str:
    """Return the number with the fewest digits between two."""
    if low <= 0 <= high:
        return "0"
    middle = (low + high) / 2
    texts = (f"{middle:.{digits}g}" for digits in range(1, 16))
    return next((text for text in texts if low <= float(text) <= high), repr(middle))


def _convincing(cells: int, members: float) -> bool:
    return cells >= log2(members) + SURPRISE


MISTAKES: tuple[Callable[[Pattern], Iterator[Claim]], ...] = (
    scaled,
    conjugate,
    swapped,
    overwritten,
    reduced,
    natural,
    part,
    transposed,
    operand,
    somewhere,
    anything,
)
"""All mistakes, the simplest first."""

REMEDIES = {
    "sign flipped": "look for a minus sign that is missing, or that is one too many",
    "scaled": "look for the constant factor in backward",
    "zero gradient": "forward moves with this input: look for what makes its gradient zero (a "
    "detach, a mask, zeros that are never filled)",
    "constant slightly off": "look for a constant, or an eps, that differs between forward and "
    "backward",
    "missing conjugate": "multiply grad_output by the conjugate of the derivative: `.conj()`",
    "swapped inputs": "look at the order of what backward returns, and for one formula that is "
    "written for both",
    "repeated index overwritten": "add up what repeats: index_add, scatter_add, "
    "index_put(accumulate=True)",
    "missing reduction": "add up what every position of that axis brings: where forward broadcast, "
    "`grad.sum(dim)` or `grad.sum_to_size(x.shape)`; in a loop, what each "
    "step adds",
    "transposed": "look for a transpose that is missing or one too many: of a matrix that is "
    "multiplied by, `.mT`, or of the result",
    "missing factor": "the gradient is grad_output times the derivative with respect to this input",
    "zero block": "backward gives nothing for these elements: look at the bounds of its loops and "
    "slices, and at its masks",
    "unread block": "backward takes no grad_output from there: look at the bounds of its loops and "
    "slices, and for an index where a sum belongs",
    "wrong block": "look at what treats these positions unlike the others",
    "keeps its first gradient": "backward keeps what it returned (on ctx, in a cache): compute "
    "it in each call",
    "wrong only": "backward is right for the others: look at what it does where this holds",
}
"""What to change, by the beginning of a cause's name."""


REVERSED = (
    "look for a minus sign that is missing or one too many; if the sign is turned on purpose "
    "(gradient reversal), name the function that backward is the gradient of: `surrogate`"
)


def remedy(cause: Cause) -> str | None:
    """Return the hint for a cause; None where the finding's own hint serves."""
    if cause.detail.startswith(("analytic = −", "analytic = -")) and "one term" not in cause.detail:
        return REVERSED
    return next((hint for name, hint in REMEDIES.items() if cause.name.startswith(name)), None)
