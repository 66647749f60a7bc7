"""One factor over all elements: the sign, 2, ½, a mean instead of a sum, a constant that is slightly off."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from math import copysign, e, log, pi, sqrt

import numpy as np

from gradverify.causes.pattern import Claim, Explanation, Pattern, Side, settled
from gradverify.causes.words import LARGEST_DENOMINATOR, exact, factor
from gradverify.model.result import Cause

SLIGHT = 5e-3  # |c − 1| up to which a constant is rounded, not wrong: a bfloat16 constant is off by 2⁻⁸ at most
SAME = 1e-3  # of c − 1: a typed constant explains c if it is off by the same amount
TYPED = range(2, 8)  # significant digits of a constant that somebody typed
CONSTANTS = {"π": pi, "√π": sqrt(pi), "√(2π)": sqrt(2 * pi), "√(2/π)": sqrt(2 / pi), "2/√π": 2 / sqrt(pi), "√2": sqrt(2), "1/√2": 1 / sqrt(2), "e": e,
             "ln 2": log(2), "ln 10": log(10), "1/ln 2": 1 / log(2)}
SIMPLE = (-1.0, 0.0, 0.5, 2.0, -2.0, -0.5)
ROOT = 1e-9  # relative, of c²
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
    """The factor in an interval that float32 leaves wider than float64 does: a size, a fraction or a constant of the call before its digits."""
    c = settled(low, high)
    if c is None or not high - low <= NARROW * abs(c) or float(f"{c:.{ROUND_DIGITS}g}") == c:
        return c
    numbers = [float(n) for n, _ in _sizes(pattern) if n > 1] + [abs(n) for _, n in pattern.constants if n]
    ratios = [n / (n - 1) for n in numbers if n > 1]
    likely = [copysign(each, c) for n in (*numbers, *(sqrt(n) for n in numbers), *(sqrt(n) for n in ratios)) for each in (n, 1 / n)]
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
        return Cause("constant slightly off", f"analytic = (1 {'+' if c > 1 else '−'} {abs(c - 1):.3g}) × numeric {pattern.everywhere}{_rounded(c)}")
    size, constant = _size(pattern, c), _constant(pattern, c)
    evidence = f"analytic = {factor(c)} × numeric {pattern.everywhere}"
    if constant is not None:
        return Cause("scaled", f"{evidence}; {constant}{f' and {size[1]}' if size else ''}: left out, or applied twice?")
    if size is None:
        return Cause("scaled", evidence + _root(pattern, c))
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


def _constant(pattern: Pattern, c: float) -> str | None:
    """The argument n for which c is n or 1/n, or of a probability 1 − n; 2 and ½ are common mistakes beside any."""
    for name, n in pattern.constants:
        for value, what in ((n, f"{n:g} is {name}"), (1 - n, f"{1 - n:g} is 1 − {name}") if 0 < n < 1 else (n, "")):
            if abs(value) not in (0.0, 0.5, 1.0, 2.0) and min(abs(c - value), abs(c - 1 / value)) <= 1e-9 * abs(c):
                return what
    return None


def _root(pattern: Pattern, c: float) -> str:
    """What c is, where its square is n or n/(n − 1) of a size n: the scale of attention, a variance with or without Bessel's correction."""
    square = max(c * c, 1 / (c * c))
    for n, what in _sizes(pattern) if c > 0 and not exact(c) else ():
        if n > 1 and abs(square - n) <= ROOT * n:
            return f"; {'' if c > 1 else '1/'}√{n}, and {n} is {what}: a scale of 1/√{n} {'left out' if c > 1 else 'applied twice'}?"
        if n > 1 and abs(square - n / (n - 1)) <= ROOT:
            return f"; its square is {n}/{n - 1} or {n - 1}/{n}, and {n} is {what}: a variance over {n} instead of {n - 1}, or the reverse?"
    return ""


def _sizes(pattern: Pattern) -> Iterator[tuple[int, str]]:
    sides: list[Side] = [side for side in (pattern.input, pattern.output) if side.name]
    for side in sides:
        yield side.elements, f"the number of elements of {side.name}"
        for axis, n in enumerate(side.shape):
            yield n, f"the size of axis {axis} of {side.name}"
    for side in sides:
        for axis, n in enumerate(side.shape):
            yield side.elements // max(n, 1), f"the number of elements of {side.name} per index of axis {axis}"


def _rounded(c: float) -> str:
    """Which typed constant is off by as much."""
    for name, constant in CONSTANTS.items():
        for digits in TYPED:
            typed = f"{constant:.{digits}g}"
            for ratio in (float(typed) / constant, constant / float(typed)):
                if ratio != 1 and abs(ratio - c) <= SAME * abs(c - 1):
                    return f"; {typed} for {name} is off by as much"
    return ""


EXPLANATIONS = (Explanation(10, explain, of_stream=True),)
REMEDIES = {
    "sign flipped": "look for a minus sign that is missing, or that is one too many",
    "scaled": "look for the constant factor in backward",
    "zero gradient": "forward moves with this input: look for what makes its gradient zero (a detach, a mask, zeros that are never filled)",
    "constant slightly off": "look for a constant, or an eps, that differs between forward and backward",
}
