"""The elements of an (input, output) pair as arrays, each of which a cause has to explain; and the factors by which they are off."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradverify.numerics.records import Record
from gradverify.numerics.rungs import RESOLVED, U32, U64, Array, Codes, Index, Mask

ROUNDINGS = 8.0  # of the analytic value, which a backward of a few operations makes


@dataclass(frozen=True)
class ElementValues(Record):
    """Elements [E] of one pair: real coordinates within output and input (re and im are neighbours), both derivatives and the bar."""

    output: Index
    input: Index
    analytic: Array
    numeric: Array
    bar: Array


@dataclass(frozen=True)
class Entries(ElementValues):
    """Elements [E] with their `Outcome` codes, and at a kink the slopes from the left and the right (NaN elsewhere).

    `complete`: all are here that are not zero on both sides. `ratio`: the factors c for which analytic = c · numeric holds within the bars
    of *every* mismatched element, kept or not (low > high: there is none).
    """

    outcome: Codes
    left: Array
    right: Array
    complete: bool = False
    ratio: tuple[float, float] = (-np.inf, np.inf)


def ratios(a: Array, value: Array, bar: Array, rounding: Array | float | None = None) -> tuple[Array, Array]:
    """For each element the least and the largest c with |a − c·D| within the bar of D and the rounding of a; all c where D is not resolved."""
    slack = _rounding(a) if rounding is None else rounding
    resolved: Mask = np.isfinite(bar) & (np.abs(value) > RESOLVED * bar) & np.isfinite(a)
    with np.errstate(all="ignore"):
        size = np.abs(value)
        signed = a * np.sign(value)
        ends = np.stack([(signed + s) / (size + b) for s in (-slack, slack) for b in (-bar, bar)])
    return np.where(resolved, ends.min(0), -np.inf), np.where(resolved, ends.max(0), np.inf)


def _rounding(a: Array) -> Array:
    """Of float32 where all values are representable in it, else of float64."""
    single = bool((a == a.astype(np.float32)).all())
    return np.asarray(ROUNDINGS * (U32 if single else U64) * np.abs(a))
