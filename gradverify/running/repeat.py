"""Each check several times, with other seeds: a crew that asks another one, and tells one result of all repeats of a check."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from gradverify.model.case import Case
from gradverify.model.event import CheckFinished, CheckStarted
from gradverify.model.problem import ProblemsError
from gradverify.model.report import Gate, judged, repeat_of, told
from gradverify.model.result import Calls, CaseResult, Verdict
from gradverify.running.crew import CheckEvent, Crew
from gradverify.running.inline import Devices
from gradverify.running.signals import Stopped
from gradverify.running.supervisor import CannotStart

T = TypeVar("T")

SEEDS = 2**63       # what a spec's `seed` may be below
WORST_FIRST: dict[bool, tuple[Verdict, ...]] = {
    False: ("fail", "pass", "error", "undecided", "skip", "not_run"),       # what is wrong, a pass that ought to fail too, before what is not known
    True: ("fail", "error", "undecided", "pass", "skip", "not_run")}
"""By whether the result is as expected."""


@dataclass
class Repeating:
    """`crew` runs each case `times` times. `first_only`: a check has its result with the first repeat that is not as expected."""

    crew: Crew
    times: int
    gate: Gate
    first_only: bool = False
    _ended: dict[str, list[CaseResult]] = field(default_factory=dict, init=False)

    def machine(self) -> Devices:
        return self.crew.machine()

    def run(self, cases: Sequence[Case]) -> Iterator[CheckEvent]:
        """Where the run is interrupted, a check of which a repeat was not as expected has its result; others have none."""
        try:
            for event in self.crew.run([repeat for case in cases for repeat in repeats(case, self.times)]):
                yield from self._started(event) if isinstance(event, CheckStarted) else self._finished(event.result)
        except (Stopped, KeyboardInterrupt, CannotStart, ProblemsError):
            yield from [CheckFinished(joined(results)) for results in self._ended.values() if any(not result.ok for result in results)]
            raise

    def close(self) -> None:
        self.crew.close()

    def _started(self, event: CheckStarted) -> Iterator[CheckEvent]:
        if event.id not in self._ended:
            self._ended[event.id] = []
            yield event

    def _finished(self, result: CaseResult) -> Iterator[CheckEvent]:
        results, result = self._ended[result.id], judged(result, self.gate)
        results.append(result)
        if len(results) == self.times or (self.first_only and not result.ok):
            yield CheckFinished(joined(results))
            results.clear()


def repeats(case: Case, times: int) -> tuple[Case, ...]:
    """The case with its seed, the next one, and so on."""
    settings = case.settings
    return tuple(replace(case, settings=replace(settings, seed=(settings.seed + number) % SEEDS)) for number in range(times))


def joined(results: Sequence[CaseResult]) -> CaseResult:
    """The worst of the judged `results` stands for all of them, with their calls and seconds, and what each came to."""
    results = sorted(results, key=lambda result: result.seed)
    worst = min(results, key=_rank)
    flipped, each = told(results), tuple(map(repeat_of, results))
    return replace(
        worst, repeats=each, reason=": ".join(filter(None, (flipped, worst.reason))) or None, seconds=sum(result.seconds for result in results),
        calls=sum((result.calls for result in results), Calls()), changed=_all(result.changed for result in results),
        faults=_all(result.faults for result in results))


def _rank(result: CaseResult) -> tuple[bool, int]:
    """Whatever is not as expected first."""
    as_expected = result.ok is not False
    return as_expected, WORST_FIRST[as_expected].index(result.verdict)


def _all(lists: Iterable[tuple[T, ...]]) -> tuple[T, ...]:
    """Each once."""
    return tuple(dict.fromkeys(each for items in lists for each in items))
