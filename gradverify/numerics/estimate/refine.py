"""Adaptive refinement: the elements that are still open are measured at further steps, until none is open or no steps are left.

How a stage is measured, which elements it may help and what of it is believed is the caller's: the ladder of single elements, the
screens of reduced comparisons and the search for one wrong entry differ in nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from gradverify.numerics.rungs import Index

Step = TypeVar("Step")
Found = TypeVar("Found")


def refine(stages: Iterable[Step], still_open: Callable[[Step], Index], measure: Callable[[Index, Step], Found],
           keep: Callable[[Index, Found], None]) -> None:
    """Stage by stage: `measure` the elements that are `still_open`, indices [k], on the stage's steps, and `keep` what is better than before.

    Ends before a stage that no element needs. Stages are whatever names steps: rungs, or how often the range of rungs was widened.
    """
    for stage in stages:
        elements = still_open(stage)
        if not elements.size:
            return
        keep(elements, measure(elements, stage))
