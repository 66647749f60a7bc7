"""The sequence of steps of finite differences, and constants and small helpers used by several
parts of it.

All arrays of `numerics` are float64 NumPy arrays on the CPU; [n, m] is n rungs (coarsest first) of
m elements, and an element is one output along one line. A bar is a half width: the true value
should lie within value ± bar. Constants were set by measurement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Index = NDArray[np.intp]
Codes = NDArray[np.int8]
AnyArray = NDArray[Any]

U64, U32, U_BF16 = 2.0**-53, 2.0**-24, 2.0**-8
"""Unit roundoffs of float64, float32 and bfloat16."""

ULP = 2.0  # roundoffs
# Ratio of successive steps; no integer, because with 4 a period that one step hits is hit by every
# coarser one too
RATIO = 3.6
BASE = 0.23  # rung 0 as a fraction of the scale; no power of two, for the same reason
RUNGS = 24  # down to 2e-14 of the scale, where rounding hides any function
WIDE_RUNG = 0  # the one rung that a linear function needs
# The first rungs: 3-5 raised false alarms, 5-6 cannot settle kinks and climb more than they save
QUICK = (4, 5, 6)
CLIMB = 3  # rungs added at a time
Z = 6.0  # noise multiples in a bar: 3 sigma, doubled because sigma is itself an estimate
NEAR = 0.3  # of the scale: larger steps are not used for kinks, second readings and "unchanged"
RESOLVED = 3.0  # bars: a derivative larger than this is resolved
# Numbers per piece, where arrays as large as an input go through several steps of arithmetic
PIECE = 1 << 16
VISIBLE = 20  # times the rounding (or noise): a larger change is surely visible


def step(scale: float, rung: int) -> float:
    """Return the nominal step of a rung; negative rungs are above the scale."""
    return float(BASE * scale * RATIO ** float(-rung))


def smallest(unit: float) -> float:
    """Return the smallest number above 0 of float64, or of float32 where the unit roundoff is not
    that of float64, below which results underflow."""
    return 2.0**-1074 if unit <= U64 else 2.0**-149


def repeated(value: float | np.generic, m: int) -> AnyArray:
    """Return m times one number, in the memory of one and read-only, like `np.broadcast_to`, which
    takes five times as long."""
    one = np.asarray(value)
    return np.ndarray((m,), one.dtype, one.tobytes(), 0, (0,))


def pieces(n: int, size: int = PIECE) -> Iterator[slice]:
    """Yield slices of 0 … n − 1, whose temporary arrays fit into the cache."""
    for first in range(0, n, size):
        yield slice(first, min(first + size, n))


def piecewise(f: Callable[..., AnyArray], *arrays: AnyArray) -> AnyArray:
    """Evaluate an elementwise function of arrays [n] piece by piece, so that only its result is as
    large as the arrays."""
    n = len(arrays[0])
    if n <= PIECE:
        return f(*arrays)
    out = None
    for part in pieces(n):
        of_part = f(*(a[part] for a in arrays))
        out = np.empty(n, of_part.dtype) if out is None else out
        out[part] = of_part
    assert out is not None
    return out


def joined(parts: Sequence[AnyArray]) -> AnyArray:
    """Concatenate arrays. Where all hold the same number in the memory of one, so does the result;
    a single array is returned as it is."""
    if len(parts) == 1:
        return parts[0]
    some = [part for part in parts if len(part)]
    if some and all(
        part.strides == (0,) and part[:1].tobytes() == some[0][:1].tobytes() for part in some
    ):
        return np.broadcast_to(some[0][:1], sum(map(len, some)))
    return np.concatenate(parts) if parts else np.zeros(0)


def in_a_row(places: Index) -> Index | slice:
    """Return indices as a slice where they ascend one by one, so that NumPy makes a view instead of
    a copy; else as they are."""
    if (
        not len(places)
        or int(places[-1]) - int(places[0]) + 1 != len(places)
        or not (places[1:] > places[:-1]).all()
    ):
        return places
    return slice(int(places[0]), int(places[-1]) + 1)


def in_range(numbers: Index, part: slice) -> Mask:
    """Return which of these numbers lie in a range, such as outputs in the part of one tensor."""
    return np.asarray((numbers >= part.start) & (numbers < part.stop))


def nonzero(a: Array) -> Array:
    """Return `a` with 1 where it is 0, for use as a divisor; `a` itself where it is 0 nowhere."""
    return a if a.min(initial=1.0) > 0 else np.where(a > 0, a, 1.0)


def finite_size(a: Array) -> Array:
    """Return |a|, 0 where it is not finite."""
    return np.where(np.isfinite(a), np.abs(a), 0.0)


def nanmedian(a: Array) -> Array:
    """Return the median over rungs [n, m] -> [m], NaN left out; NaN where nothing is left (without
    a warning)."""
    count, ordered = np.sum(~np.isnan(a), 0), np.sort(a, 0)
    elements = np.arange(a.shape[1])
    return np.asarray(
        0.5
        * (
            ordered[np.maximum(count - 1, 0) // 2, elements]
            + ordered[np.minimum(count // 2, len(a) - 1), elements]
        )
    )
