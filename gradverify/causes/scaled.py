"""One factor over all elements: the sign, 2, ½, a mean instead of a sum, a constant that is slightly off."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from math import copysign

import numpy as np

from gradverify.causes.pattern import Claim, Explanation, Pattern, Side, settled
from gradverify.causes.words import LARGEST_DENOMINATOR, factor
from gradverify.model.result import Cause

SLIGHT = 5e-3  # |c − 1| up to which a constant is rounded, not wrong: a bfloat16 constant is off by 2⁻⁸ at most
SIMPLE = (-1.0, 0.0, 0.5, 2.0, -2.0, -0.5)
NARROW = 1e-5  # relative: in an interval so narrow none of a few likely factors lies by chance
ROUND_DIGITS = 4  # of a factor that somebody wrote
ALL_ALIKE = 64  # roundings by which a right float32 gradient may be off throughout: −0.9999999 is a sign
FEW = 2  # elements that must share a factor that nobody would have thought of


def explain(pattern: Pattern) -> Iterator[Claim]:
    c = _factor(pattern)
    if c is not None and c != 1 and (pattern.count >= FEW or c in SIMPLE or _size(pattern, c)):
        yield partial(_confirmed, pattern, c)


def _confirmed(here: Pattern, c: float, there: Pattern) -> Cause | None:
    """One factor for both points."""
    again = _factor(there)
    if c == 0 or again is None or again == 0:
        return _named(here, c) if c == again else None
    (low, high), (least, most) = _interval(here), _interval(there)
    both = _likely(here, max(low, least), min(high, most))
    if both is None or not all(_fits(pattern, both) for pattern in (here, there)):
        return None
    return _named(here, both) if both != 1 else None


def _likely(pattern: Pattern, low: float, high: float) -> float | None:
    """The factor in an interval that float32 leaves wider than float64 does: a size or a fraction before its digits."""
    c = settled(low, high)
    if c is None or not high - low <= NARROW * abs(c) or float(f"{c:.{ROUND_DIGITS}g}") == c:
        return c
    likely = [copysign(each, c) for n, _ in _sizes(pattern) if n > 1 for each in (n, 1 / n)]
    fraction = float(Fraction(c).limit_denominator(LARGEST_DENOMINATOR))
    return next((each for each in (fraction, *likely) if low <= each <= high), c)


def _factor(pattern: Pattern) -> float | None:
    """The factor of all wrong elements that no right one contradicts."""
    if pattern.entries.complete and pattern.agrees(np.zeros(len(pattern.wrong)), pattern.entries.bar * 0, pattern.wrong):
        return 0.0 if _fits(pattern, 0.0) else None
    c = settled(*_interval(pattern))
    return c if c is not None and _fits(pattern, c) else None


def _interval(pattern: Pattern) -> tuple[float, float]:
    return pattern.interval(pattern.wrong) if pattern.entries.complete else pattern.entries.ratio


def _fits(pattern: Pattern, c: float) -> bool:
    """Where not all elements are here, the wrong ones that are not were seen to have this factor."""
    return pattern.scaled_by(c, ~pattern.unknown if pattern.entries.complete else pattern.right & pattern.significant)


def _named(pattern: Pattern, c: float) -> Cause:
    if c == 0:
        return Cause("zero gradient", f"analytic = 0 {pattern.everywhere}")
    if abs(c + 1) <= ALL_ALIKE * pattern.unit:
        return Cause("sign flipped", f"analytic = −1 × numeric {pattern.everywhere}")
    if abs(c - 1) <= SLIGHT:
        return Cause("constant slightly off", f"analytic = (1 {'+' if c > 1 else '−'} {abs(c - 1):.3g}) × numeric {pattern.everywhere}")
    size, evidence = _size(pattern, c), f"analytic = {factor(c)} × numeric {pattern.everywhere}"
    if size is None:
        return Cause("scaled", evidence)
    number, what = size
    guess = ": a sum instead of a mean?" if abs(c) > 1 else ": a mean instead of a sum?"
    return Cause("scaled", f"{evidence}; {number} is {what}{guess}")


def _size(pattern: Pattern, c: float) -> tuple[int, str] | None:
    """The size n of a tensor for which c is n or 1/n, and what it is; 2 and ½ are common mistakes beside any size."""
    wanted = max(abs(c), 1 / abs(c)) if c else 0.0
    for n, what in _sizes(pattern):
        if n > 2 and c > 0 and abs(wanted - n) <= 1e-9 * n:
            return n, what
    return None


def _sizes(pattern: Pattern) -> Iterator[tuple[int, str]]:
    sides: list[Side] = [side for side in (pattern.input, pattern.output) if side.name]
    for side in sides:
        yield side.elements, f"the number of elements of {side.name}"
        for axis, n in enumerate(side.shape):
            yield n, f"the size of axis {axis} of {side.name}"
    for side in sides:
        for axis, n in enumerate(side.shape):
            yield side.elements // max(n, 1), f"the number of elements of {side.name} per index of axis {axis}"


EXPLANATIONS = (Explanation(10, explain, of_stream=True),)
REMEDIES = {
    "sign flipped": "look for a minus sign that is missing, or that is one too many",
    "scaled": "look for the constant factor in backward",
    "zero gradient": "forward moves with this input: look for what makes its gradient zero (a detach, a mask, zeros that are never filled)",
    "constant slightly off": "look for a constant, or an eps, that differs between forward and backward",
}
