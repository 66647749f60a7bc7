"""Ties that the sparsity pattern misses: of equal numbers of which a maximum takes any, one that was moved down by itself moved nothing.

What is right of the members that were seen, such as a zero gradient at each kink, may be wrong of all of them together.
"""

from __future__ import annotations

import numpy as np

from gradverify.numerics.entries.leaks import moved_near_x
from gradverify.numerics.estimate.kinks import KINK
from gradverify.numerics.excuses.kink_sums import beyond_slopes
from gradverify.numerics.judging.judged import Judged
from gradverify.numerics.judging.run import Run
from gradverify.numerics.rungs import Array, Index, Mask
from gradverify.numerics.sparsity.pattern import Pattern

AGREES = 0.5  # of a kinked element's own change along the survey's direction: more is not the curvature of anything within the step


def hidden_ties(run: Run, tensor: int, pattern: Pattern, first_output: int, entries: Judged) -> bool:
    """Is the gradient of an output with a kink among these elements wrong along all numbers that are equal there, inside its window or not?

    Two forward calls an output, twelve more and a backward where it moves with those outside; none where nothing outside is equal, or where an
    output of a single element goes as that element says when everything is moved. `first_output`: the first output of the pattern.
    """
    kinked = np.flatnonzero(entries.derivative.outcome == KINK)
    for out in np.unique(entries.out[kinked]).tolist():
        kinks = kinked[entries.out[kinked] == out]
        outside = _equal_outside(run, tensor, pattern, out - first_output, entries.column[kinks])
        hides = len(outside) and not _one_element_explains(run, tensor, pattern, out - first_output, entries, kinks)
        if hides and moved_near_x(run, outside, run.point.columns.scale[outside])[out]:
            together = np.union1d(entries.column[kinks], outside)
            if beyond_slopes(run, together, np.array([out]), run.point.row(out)[None, together])[0]:
                return True
    return False


def _equal_outside(run: Run, tensor: int, pattern: Pattern, local: int, columns: Index) -> Index:
    """The columns that hold the number of any of these, and that the output does not depend on, as far as was seen."""
    c = run.point.columns
    equal = c.of(tensor)
    equal = equal[np.isin(c.x[equal], c.x[columns])]
    return equal[~inside(pattern, local, c.coordinate[equal] - int(run.point.starts[tensor]))]


def inside(pattern: Pattern, local: int, coordinates: Index) -> Mask:
    """Which coordinates of the input lie in the window of an output."""
    places = np.unravel_index(coordinates, pattern.shape) if pattern.shape else ()
    within = np.full(len(coordinates), not pattern.nothing[local])
    for place, low, high in zip(places, pattern.low, pattern.high, strict=True):
        within &= (low[local] <= place) & (place <= high[local])
    return within


def _one_element_explains(run: Run, tensor: int, pattern: Pattern, local: int, entries: Judged, elements: Index) -> bool:
    """Is the output's window a single element, whose slopes explain how it moved along the survey's direction? That takes no calls."""
    sample = run.survey.direction_samples[tensor]
    if sample is None or len(elements) > 1 or any(high[local] > low[local] for low, high in zip(pattern.low, pattern.high, strict=True)):
        return False
    n, d = int(elements[0]), entries.derivative
    move = sample.direction[np.searchsorted(sample.columns, entries.column[n])]
    right, left = (float(d.right[n]), float(d.left[n])) if move > 0 else (float(d.left[n]), float(d.right[n]))
    rung, out = sample.values, entries.out[n]
    sides = ((_at(rung.up, out), right * _at(rung.step_up, out)), (_at(rung.down, out), -left * _at(rung.step_down, out)))
    size = max(abs(right), abs(left)) * abs(move)
    return all(abs(f - run.point.f0[out] - slope * move) <= AGREES * size * _at(rung.step_up, out) for f, slope in sides)


def _at(values: float | Array, out: int) -> float:
    return float(values[out]) if isinstance(values, np.ndarray) else values
