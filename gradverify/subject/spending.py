"""The budget of a check and how much of it is spent: calls and seconds. Every call counts as long
as the fastest took, whatever else the machine did meanwhile; or the CPU seconds of the process
count, where these are more, so that gradverify's own arithmetic is included."""

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

# Forward and backward calls of a small comparison and all rules that vary the call; a budget that
# affords these is not tight
PLENTY = (300, 120)
SHARE = 0.2  # of the seconds, reserved for rules that vary the call, whatever the comparison took
SLACK = 0.1  # of the seconds, for a rule that takes more calls than predicted
# Multiple of the seconds, as CPU time, after which no call is made; twice that if the seconds are
# the default (`choose.LENIENT`)
MOST = 1.5
# Shares of `timeout` after which only what a verdict needs is begun, and after which no call is
# made, so that findings are reported before the process is killed
SOON, EARLY = 0.5, 0.8


class Spending:
    """The budget of one check from now on; `subject` counts all its calls. Rules run inside
    `limited`, those that vary the call inside `bound`.

    `timeout`: seconds after which the process is killed; infinite if it is not.
    """

    def __init__(self, subject: Subject, budget: Budget, timeout: float = inf) -> None:
        self._subject, self._before, self._default = subject, subject.calls, budget == Budget()
        self._calls: float = inf if budget.calls is None else budget.calls
        self._limit: float = inf if budget.seconds is None else budget.seconds
        self._cpu, self._wall, self._timeout = subject.clock.cpu(), subject.clock.wall(), timeout
        self._most: float = inf  # CPU seconds of the check
        # In a rule that varies the call: whether its minimal number of calls is afforded
        self._bound: bool | None = None
        self._varied = 0.0  # seconds of the rules that vary the call
        self._allowed: float = inf  # seconds of the check at which such a rule has to stop
        self._patient = False  # whether the comparison runs with the default seconds
        self.cut: str | None = None  # what such a rule left out, in words
        self.unexplained = set[str]()  # codes of findings whose cause was not searched for

    @property
    def tight(self) -> bool:
        """Whether the budget allows no more than a complete comparison."""
        return sum(PLENTY) > self._calls or self._seconds(Calls(), *PLENTY) > self._limit

    @property
    def over(self) -> bool:
        """Whether the budget is spent."""
        return self.short_of()

    def short_of(self, ahead: int = 0) -> bool:
        """Return whether the budget would be spent after `ahead` more forward calls."""
        made = self._made
        return (
            self._late(SOON)
            or made.forward + made.backward + ahead >= self._calls
            or self._seconds(made, ahead) >= self._limit
        )

    @property
    def ending(self) -> bool:
        """Whether the process is about to be killed."""
        return self._late(EARLY)

    def _late(self, share: float) -> bool:
        return (
            self._timeout < inf and self._subject.clock.wall() - self._wall >= share * self._timeout
        )

    @property
    def name(self) -> str:
        """The budget in words, such as `the budget of 10 s`: the calls or the seconds, whichever
        was or would be exceeded."""
        if self._calls < inf and (self._limit == inf or self._spent() <= self._allowed):
            return f"the budget of {self._calls:,} calls"
        return f"the budget of {limit(self._limit)}" if self._limit < inf else "the budget"

    @property
    def ended(self) -> str:
        """The reason why no more calls are made, as a clause: the time limit was near, or the
        budget was spent."""
        if self._late(SOON):
            return f"the time limit of {limit(self._timeout)} was near"
        return f"{self.name} was spent"

    def affords(self, forward: int, backward: int, slack: float = 0.0) -> bool:
        """Return whether the budget allows so many more calls of a rule that runs in `bound`."""
        made = self._made
        return made.forward + made.backward + forward + backward <= self._calls and (
            self._allowed == inf
            or self._seconds(made, forward, backward) <= self._allowed + slack * self._limit
        )

    def heed(self, seconds: float) -> None:
        """Raise Spent if the budget does not allow a rule that runs in `bound` so many seconds of
        our own arithmetic."""
        if self._spent() + seconds > self._allowed + SLACK * self._limit:
            raise Spent(f"{self.name} was spent")

    def some(
        self, samples: Sequence[Sample], forward: int, backward: int, what: str
    ) -> Sequence[Sample]:
        """Return the samples, halved until their calls are afforded, but at least one; set `cut` to
        a text on how many were left out."""
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
        """Context of all rules: `Spent` is raised before a call if the check has taken MOST times
        its seconds, or its process is about to be killed. `asked_for`: whether the user requested
        the comparison, which may then take longer than the default seconds."""
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
        """Context of the comparison, without which there is no verdict on a large function: it may
        take more than the default seconds, up to the time limit."""
        before, self._patient = self._patient, self._default
        try:
            yield
        finally:
            self._patient = before

    @contextmanager
    def bound(self, forward: int, backward: int) -> Iterator[None]:
        """Context of a rule that varies the call and takes so many calls: `Spent` is raised before
        a call that the budget does not allow, and before the first if it does not allow all."""
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
        """The CPU seconds of the process since the check began."""
        return self._subject.clock.cpu() - self._cpu

    @property
    def _made(self) -> Calls:
        return self._subject.calls - self._before

    def _seconds(self, made: Calls, forward: int = 0, backward: int = 0) -> float:
        """Return the seconds of the calls made, where batched ones count as nothing, and of so many
        more."""
        of_forward, of_backward = self._subject.fastest
        number = made.forward + made.backward
        spent = (made.forward * of_forward + made.backward * of_backward) * (
            1 - made.batched / number if number else 1.0
        )
        return (
            max(spent, self._own if number else 0.0) + forward * of_forward + backward * of_backward
        )
