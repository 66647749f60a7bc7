"""A backward that computes in a narrower type: all its numbers are of that type, and off by its roundings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from gradverify.causes.pattern import Claim, Pattern
from gradverify.model.result import Cause
from gradverify.numerics.rungs import U32, U_BF16, U_FP16, Array, Mask

DISTINCT = 6  # analytic numbers: a few round ones are of every type
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
                          f"{pattern.everywhere}: backward computes in {name}")
            yield partial(_confirmed, cause, unit, is_of)
            return


def narrower(a: Array, unit: float) -> str | None:
    """The narrowest type, below `unit`, that all of enough numbers are of; None where there is none."""
    if len(np.unique(np.abs(a))) < DISTINCT:
        return None
    return next((name for name, narrow, is_of in NARROW if narrow > unit and is_of(a).all()), None)


def _confirmed(cause: Cause, unit: float, is_of: Callable[[Array], Mask], there: Pattern) -> Cause | None:
    return cause if _fits(there, unit, is_of) else None


def _fits(pattern: Pattern, unit: float, is_of: Callable[[Array], Mask]) -> bool:
    used = pattern.significant & ~pattern.unknown
    a = pattern.entries.analytic[used]
    return len(np.unique(np.abs(a))) >= DISTINCT and bool(is_of(a).all()) and _most(pattern) <= ROUNDINGS * unit


def _most(pattern: Pattern) -> float:
    """The largest error over the largest number."""
    e, use = pattern.entries, ~pattern.unknown
    return float(np.abs(e.analytic - e.numeric)[use].max() / np.abs(e.numeric[use]).max(initial=0.0))
