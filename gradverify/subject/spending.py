"""What a check has spent of its budget: calls, and for its seconds every call as long as the fastest took, whatever the machine did meanwhile."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from gradverify.model.case import Budget
from gradverify.model.result import Calls
from gradverify.report.numbers import limit
from gradverify.subject.failure import Spent
from gradverify.subject.subject import Subject

Sample = TypeVar("Sample")

PLENTY = (300, 120)     # forward and backward calls: a small comparison and all rules that vary the call; what affords these is in no hurry
SHARE = 0.2     # of the seconds is left to rules that vary the call, whatever the comparison took
SLACK = 0.1     # of the seconds, for a rule that takes more calls than it was thought to


class Spending:
    """Of one check, whose calls are all counted by `subject`, from now on. Rules that vary the call run inside `bound`."""

    def __init__(self, subject: Subject, budget: Budget) -> None:
        self._subject, self._budget, self._before = subject, budget, subject.calls
        self._varied = 0.0                  # seconds of the rules that vary the call
        self._allowed: float = math.inf     # seconds of the check up to which such a rule may go
        self.cut: str | None = None         # what that rule left out, in words
        self.unexplained = set[str]()       # codes of findings whose cause was not looked for

    @property
    def tight(self) -> bool:
        """Is the budget no more than a comparison in full takes?"""
        calls, seconds = self._budget.calls, self._budget.seconds
        return (calls is not None and sum(PLENTY) > calls) or (seconds is not None and self._seconds(Calls(), *PLENTY) > seconds)

    @property
    def over(self) -> bool:
        """Is nothing left?"""
        return self.short_of()

    def short_of(self, ahead: int = 0) -> bool:
        """Would nothing be left after so many forward calls more?"""
        calls, seconds, made = self._budget.calls, self._budget.seconds, self._made
        if calls is not None and made.forward + made.backward + ahead >= calls:
            return True
        return seconds is not None and self._seconds(made, ahead) >= seconds

    @property
    def name(self) -> str:
        """`the budget of 10 s`, by what it was exceeded in, or would be."""
        calls, seconds = self._budget.calls, self._budget.seconds
        if calls is not None and (seconds is None or self._spent() <= self._allowed):
            return f"the budget of {calls:,} calls"
        return f"the budget of {limit(seconds)}" if seconds is not None else "the budget"

    def affords(self, forward: int, backward: int, slack: float = 0.0) -> bool:
        """So many calls more, of a rule that runs in `bound`."""
        calls, seconds = self._budget.calls, self._budget.seconds
        if calls is None and (seconds is None or self._allowed == math.inf):
            return True
        made = self._made
        if calls is not None and made.forward + made.backward + forward + backward > calls:
            return False
        return seconds is None or self._seconds(made, forward, backward) <= self._allowed + slack * seconds

    def some(self, samples: Sequence[Sample], forward: int, backward: int, what: str) -> Sequence[Sample]:
        """The samples, halved until the calls of each are afforded, but one at least; `cut` says how many were left out."""
        count = len(samples)
        while count > 1 and not self.affords(count * forward, count * backward):
            count //= 2
        if count < len(samples):
            self.cut = f"{len(samples) - count} of {len(samples)} {what} left out: {self.name} was spent"
        return samples[:count]

    @contextmanager
    def bound(self, forward: int, backward: int) -> Iterator[None]:
        """A rule that varies the call, in so many calls: before one that is not afforded `Spent` is raised, before its first where these are not."""
        before, seconds = self._spent(), self._budget.seconds
        self._allowed = math.inf if seconds is None else max(seconds, before - self._varied + SHARE * seconds)
        none = not self.affords(forward, backward)

        def guard() -> None:
            if none or not self.affords(1, 0, SLACK):
                raise Spent(f"{self.name} was spent")

        self._subject.before_call = guard
        try:
            yield
        finally:
            self._subject.before_call, self.cut = None, None
            self._varied += self._spent() - before

    def _spent(self) -> float:
        return self._seconds(self._made)

    @property
    def _made(self) -> Calls:
        return self._subject.calls - self._before

    def _seconds(self, made: Calls, forward: int = 0, backward: int = 0) -> float:
        """Of calls, of which those that ran in batches took next to nothing each, and of so many more."""
        of_forward, of_backward = self._subject.fastest
        number = made.forward + made.backward
        spent = (made.forward * of_forward + made.backward * of_backward) * (1 - made.batched / number if number else 1.0)
        return spent + forward * of_forward + backward * of_backward
