"""Calls of the checked function: counted, timed, and refused where no more are afforded."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from gradverify.model.interrupt import heed
from gradverify.model.result import Calls
from gradverify.numerics.function.point import Clock, Stopwatch

TIMED, BACKWARD = 3, 2.0    # backwards that must have been timed; forward calls that one takes else


class Counted:
    """What counts its calls, and those of its twins: `_original` is whose twin this is."""

    def __init__(self) -> None:
        self._forward = self._backward = self._batched = 0
        self._original: Counted | None = None
        self.before_call: Callable[[], None] | None = None      # may raise Spent
        self.watches = Stopwatch(Clock()), Stopwatch(Clock())   # of forward and of backward

    @property
    def calls(self) -> Calls:
        """All calls so far."""
        return Calls(self._forward, self._backward, self._batched)

    def count(self, forward: int = 0, backward: int = 0, batched: int = 0) -> None:
        """Adds calls that are about to be made, or that one call stood for. Raises Interrupted where an earlier one swallowed Ctrl-C, and Spent
        where no more are afforded."""
        heed()
        if self.before_call is not None:
            self.before_call()
        self._forward += forward
        self._backward += backward
        self._batched += batched
        if self._original is not None:
            self._original.count(forward, backward, batched)

    def count_for(self, other: Counted) -> None:
        """From now on the calls of `other` are counted here too, and those here no longer there."""
        self._original, other._original = None, self

    @property
    def clock(self) -> Clock:
        """What calls are timed by."""
        return self.watches[0].clock

    @clock.setter
    def clock(self, clock: Clock) -> None:
        self.watches = Stopwatch(clock), Stopwatch(clock)

    @property
    def fastest(self) -> tuple[float, float]:
        """Seconds of the fastest forward and of the fastest backward, which is a guess where few were timed; 0 where none was."""
        watch, of_backward = self.watches
        forward = 0.0 if watch.fastest == inf else watch.fastest
        return forward, of_backward.fastest if of_backward.calls >= TIMED else BACKWARD * forward
