"""A backward that computes in a narrower type: all its numbers are of that type, and off by its roundings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from gradverify.causes.pattern import Claim, Explanation, Pattern
from gradverify.model.result import Cause
from gradverify.numerics.rungs import U32, U_BF16, U_FP16, Array, Mask

DISTINCT = 6  # analytic numbers
ODD = 0.2  # of them end in a 1: about half do where a number is rounded
ROUNDINGS = 64.0  # of the largest number of the pair, which a sum in the narrower type may leave


def _bfloat16(a: Array) -> Mask:
    single = np.ascontiguousarray(a, np.float32)
    return np.asarray((single == a) & ((single.view(np.uint32) & 0xFFFF) == 0))


NARROW: tuple[tuple[str, float, Callable[[Array], Mask]], ...] = (
    ("bfloat16", U_BF16, _bfloat16), ("float16", U_FP16, lambda a: a == a.astype(np.float16)), ("float32", U32, lambda a: a == a.astype(np.float32)))


def explain(pattern: Pattern) -> Iterator[Claim]:
    """From the coarsest: what is a bfloat16 is nearly always a float16 too, and a float32."""
    for name, unit, is_of in NARROW:
        if unit > pattern.unit and _fits(pattern, unit, is_of):
            cause = Cause(f"computed in {name}", f"every analytic number is a {name}, and off by at most {_most(pattern):.1g} of the largest, "
                          f"{pattern.everywhere}")
            yield partial(_confirmed, cause, unit, is_of)
            return


def narrower(a: Array, unit: float) -> str | None:
    """The coarsest type, below `unit`, whose roundings all of these numbers are; None where there is none."""
    with np.errstate(all="ignore"):
        return next((name for name, narrow, is_of in NARROW if narrow > unit and _rounded(a, narrow, is_of)), None)


def _rounded(a: Array, unit: float, is_of: Callable[[Array], Mask]) -> bool:
    """Numbers of a type that use its last bit: whole numbers and halves are of every type."""
    sizes = np.unique(np.abs(a))
    last = np.frexp(sizes)[0] / unit % 2 == 1
    return len(sizes) >= DISTINCT and bool(is_of(a).all()) and np.mean(last) >= ODD


def _confirmed(cause: Cause, unit: float, is_of: Callable[[Array], Mask], there: Pattern) -> Cause | None:
    return cause if _fits(there, unit, is_of) else None


def _fits(pattern: Pattern, unit: float, is_of: Callable[[Array], Mask]) -> bool:
    used = pattern.significant & ~pattern.unknown
    a = pattern.entries.analytic[used]
    return _rounded(a, unit, is_of) and _most(pattern) <= ROUNDINGS * unit


def _most(pattern: Pattern) -> float:
    """The largest error over the largest number."""
    e, use = pattern.entries, ~pattern.unknown
    return float(np.abs(e.analytic - e.numeric)[use].max() / np.abs(e.numeric[use]).max(initial=0.0))


EXPLANATIONS = (Explanation(150, explain),)
REMEDIES = {
    "computed in": "look for what is saved, computed or returned in fewer bits than the inputs have",
}
