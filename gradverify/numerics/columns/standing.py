"""How far mismatches are confirmed: the worst first, a few columns at a time, until so many stand that the others are believed unasked."""

from __future__ import annotations

from gradverify.numerics.columns.run import Run
from gradverify.numerics.estimate.climb import ALONE

STOOD = 3  # confirmed mismatches, after which the rest is believed, if none was cleared
ASKED = 24  # that are confirmed at most
AT_ONCE = 3  # columns that are measured together


def believed(stood: int, cleared: int) -> bool:
    """Do so many stand, and was none cleared, that the others need no confirmation?"""
    return stood >= STOOD and not cleared


def at_once(run: Run) -> int:
    """How many columns are measured together: one where the budget does not afford more."""
    return 1 if run.enough(AT_ONCE * ALONE) else AT_ONCE
