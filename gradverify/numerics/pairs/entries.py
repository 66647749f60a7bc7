"""The elements of an (input, output) pair, kept up to a fixed number while they are streamed; a cause has to explain each of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from gradverify.numerics.records import Record, joined
from gradverify.numerics.rungs import RESOLVED, U32, U64, Array, Codes, Index, Mask

KEPT = 2**16  # elements of a pair: 2.7 MB at most, whatever N×M is
ROUNDINGS = 8.0  # of the analytic value, which a backward of a few operations makes


@dataclass(frozen=True)
class Numbers(Record):
    """Elements [E] of one pair: real coordinates within output and input (re and im are neighbours), both derivatives and the bar."""

    output: Index
    input: Index
    analytic: Array
    numeric: Array
    bar: Array


@dataclass(frozen=True)
class Entries(Numbers):
    """Elements [E] with their `Outcome` codes.

    `complete`: all are here that are not zero on both sides. `ratio`: the factors c for which analytic = c · numeric holds within the bars
    of *every* mismatched element, kept or not (low > high: there is none).
    """

    outcome: Codes
    complete: bool = False
    ratio: tuple[float, float] = (-np.inf, np.inf)


@dataclass
class Collector:
    """Takes the elements of one pair as they come; `right` and `wrong` are the outcome codes of a pass and of a mismatch."""

    right: int
    wrong: int
    low: float = -np.inf
    high: float = np.inf
    kept: int = 0
    dropped: bool = False
    parts: list[Entries] = field(default_factory=list)

    def add(self, seen: Entries) -> None:
        """Whole chunks, without the right zeros: of what no longer fits only the ratio is kept."""
        off = seen.outcome == self.wrong
        if off.any():
            low, high = ratios(seen.analytic[off], seen.numeric[off], seen.bar[off])
            self.low, self.high = max(self.low, float(low.max())), min(self.high, float(high.min()))
        told = np.flatnonzero((seen.outcome != self.right) | (seen.analytic != 0) | (seen.numeric != 0))
        self.dropped = self.dropped or self.kept + len(told) > KEPT
        if not self.dropped:
            self.parts.append(seen.take(told))
            self.kept += len(told)

    def entries(self, everything: bool) -> Entries | None:
        """`everything`: all elements of the pair were compared, the zeros of both sides among them. None where nothing was added."""
        if not self.parts:
            return None
        return replace(joined(self.parts), complete=everything and not self.dropped, ratio=(self.low, self.high))


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
