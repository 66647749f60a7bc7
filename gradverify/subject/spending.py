"""What a check has spent of its budget: calls, and for its seconds every call as long as the
fastest took, whatever the machine did meanwhile; or the CPU seconds of the process, where these are
more: gradverify's own arithmetic counts, too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import inf
from typing import TypeVar

from gradverify.model.case import Budget
from gradverify.model.interrupt import Spent
from gradverify.model.result import Calls
from gradverify.numerics.choose import LENIENT
from gradverify.report.numbers import limit
from gradverify.subject.subject import Subject

Sample = TypeVar("Sample")

# Forward and backward calls: a small comparison and all rules that vary the call; what affords
# these is in no hurry
PLENTY = (300, 120)
SHARE = 0.2  # of the seconds is left to rules that vary the call, whatever the comparison took
SLACK = 0.1  # of the seconds, for a rule that takes more calls than it was thought to
# Times the seconds in CPU time: no call is made any more; twice that where nobody asked for these
# seconds (`choose.LENIENT`)
MOST = 1.5
# Of `timeout`: nothing is begun any more that a verdict does not need; no call is made any more, so
# that what was found is reported before the process is ended
SOON, EARLY = 0.5, 0.8


class Spending:
    """Of one check, whose calls are all counted by `subject`, from now on. Its rules run inside
    `limited`, those that vary the call inside `bound`.

    `timeout`: seconds after which the process is ended, if it is.
    """

    def __init__(self, subject: Subject, budget: Budget, timeout: float = inf) -> None:
        self._subject, self._before, self._default = subject, subject.calls, budget == Budget()
        self._calls: float = inf if budget.calls is None else budget.calls
        self._limit: float = inf if budget.seconds is None else budget.seconds
        self._cpu, self._wall, self._timeout = subject.clock.cpu(), subject.clock.wall(), timeout
        self._most: float = inf  # CPU seconds of the check
        # Of a rule that varies the call: are the calls that it takes at least afforded?
        self._bound: bool | None = None
        self._varied = 0.0  # seconds of the rules that vary the call
        self._allowed: float = inf  # seconds of the check up to which such a rule may go
        self._patient = False  # the comparison is made, in seconds that nobody named
        self.cut: str | None = None  # what that rule left out, in words
        self.unexplained = set[str]()  # codes of findings whose cause was not looked for

    @property
    def tight(self) -> bool:
        """Is the budget no more than a comparison in full takes?"""
        return sum(PLENTY) > self._calls or self._seconds(Calls(), *PLENTY) > self._limit

    @property
    def over(self) -> bool:
        """Is nothing left?"""
        return self.short_of()

    def short_of(self, ahead: int = 0) -> bool:
        """Would nothing be left after so many forward calls more?"""
        made = self._made
        return (
            self._late(SOON)
            or made.forward + made.backward + ahead >= self._calls
            or self._seconds(made, ahead) >= self._limit
        )

    @property
    def ending(self) -> bool:
        """Is the process about to be ended?"""
        return self._late(EARLY)

    def _late(self, share: float) -> bool:
        return (
            self._timeout < inf and self._subject.clock.wall() - self._wall >= share * self._timeout
        )

    @property
    def name(self) -> str:
        """`the budget of 10 s`, by what it was exceeded in, or would be."""
        if self._calls < inf and (self._limit == inf or self._spent() <= self._allowed):
            return f"the budget of {self._calls:,} calls"
        return f"the budget of {limit(self._limit)}" if self._limit < inf else "the budget"

    @property
    def ended(self) -> str:
        """Why no more calls are made, in a clause: the time limit was near, or what of the budget
        was spent."""
        if self._late(SOON):
            return f"the time limit of {limit(self._timeout)} was near"
        return f"{self.name} was spent"

    def affords(self, forward: int, backward: int, slack: float = 0.0) -> bool:
        """So many calls more, of a rule that runs in `bound`."""
        made = self._made
        return made.forward + made.backward + forward + backward <= self._calls and (
            self._allowed == inf
            or self._seconds(made, forward, backward) <= self._allowed + slack * self._limit
        )

    def heed(self, seconds: float) -> None:
        """Raises Spent where so many seconds of our own arithmetic are not afforded to a rule that
        runs in `bound`."""
        if self._spent() + seconds > self._allowed + SLACK * self._limit:
            raise Spent(f"{self.name} was spent")

    def some(
        self, samples: Sequence[Sample], forward: int, backward: int, what: str
    ) -> Sequence[Sample]:
        """The samples, halved until the calls of each are afforded, but one at least; `cut` says
        how many were left out."""
        count = len(samples)
        while count > 1 and not self.affords(count * forward, count * backward):
            count //= 2
        if count < len(samples):
            self.cut = (
                f"{len(samples) - count} of {len(samples)} {what} left out: {self.name} was spent"
            )
        return samples[:count]

    @contextmanager
    def limited(self, asked_for: bool) -> Iterator[None]:
        """All rules: before a call `Spent` is raised where the check has taken MOST of its seconds,
        or its process is about to be ended. `asked_for`: the comparison, which may then take longer
        than seconds that nobody named."""
        self._most = (
            inf
            if asked_for and self._default
            else self._limit * MOST * (LENIENT if self._default else 1.0)
        )
        self._subject.before_call = self._guard if min(self._most, self._timeout) < inf else None
        try:
            yield
        finally:
            self._subject.before_call = None

    def _guard(self) -> None:
        if self.ending:
            raise Spent(self.ended)
        if (self._own >= self._most and not self._patient) or not (
            self._bound is None or (self._bound and self.affords(1, 0, SLACK))
        ):
            raise Spent(f"{self.name} was spent")

    @contextmanager
    def patient(self) -> Iterator[None]:
        """The comparison, by which a large function is judged or not at all: of the default seconds
        it may take more, up to the time limit."""
        before, self._patient = self._patient, self._default
        try:
            yield
        finally:
            self._patient = before

    @contextmanager
    def bound(self, forward: int, backward: int) -> Iterator[None]:
        """A rule that varies the call, in so many calls: before one that is not afforded `Spent` is
        raised, before its first where these are not."""
        before, outer = self._spent(), self._subject.before_call
        self._allowed = max(self._limit, before - self._varied + SHARE * self._limit)
        self._bound, self._subject.before_call = self.affords(forward, backward), self._guard
        try:
            yield
        finally:
            self._bound, self._subject.before_call, self.cut = None, outer, None
            self._varied += self._spent() - before

    def _spent(self) -> float:
        return self._seconds(self._made)

    @property
    def _own(self) -> float:
        """CPU seconds of the process."""
        return self._subject.clock.cpu() - self._cpu

    @property
    def _made(self) -> Calls:
        return self._subject.calls - self._before

    def _seconds(self, made: Calls, forward: int = 0, backward: int = 0) -> float:
        """Of calls, of which those that ran in batches took next to nothing each, and of so many
        more."""
        of_forward, of_backward = self._subject.fastest
        number = made.forward + made.backward
        spent = (made.forward * of_forward + made.backward * of_backward) * (
            1 - made.batched / number if number else 1.0
        )
        return (
            max(spent, self._own if number else 0.0) + forward * of_forward + backward * of_backward
        )
