"""Which comparison a check can afford: the choice among the three, and what spoke against the others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum

from gradverify.numerics.costs import Cost, Costs, Mode
from gradverify.numerics.probing import blocks
from gradverify.numerics.probing.thresholds import SCREEN

FEW_CALLS = 300  # a comparison of so few is over before anybody waits: it is not given up for being slower than gradcheck
FEW_ELEMENTS = 100  # nor is one of so few elements, up to 600 calls of a function of 100 inputs and one output (0.02 s for calls of 30 µs)
LENIENT = 2.0  # times the default seconds are theirs: on a quiet machine and a busy one the least time of a call differed by 1.0 to 1.9 (measured)


class Against(Enum):
    """What speaks against a comparison."""

    CALLS = "more calls than the budget"
    SECONDS = "more seconds than the budget"
    SLOWER = "slower than gradcheck"
    LONGER = "took longer than predicted"


class Why(Enum):
    """How a comparison was chosen."""

    ASKED = "asked for"
    FITS = "the strongest that fits"
    NOTHING_FITS = "the cheapest, where nothing fits"
    DECIDES = "what may decide the lines that a faster one left open"
    RAN_OUT = "the cheapest, as the budget ended before every element was compared"


@dataclass(frozen=True)
class Limits:
    """What a check may spend; None: no limit. `lenient`: nobody asked for these seconds, so that a small check may take longer."""

    calls: int | None = None
    seconds: float | None = None
    lenient: bool = False

    def excess(self, cost: Cost, small: bool = False) -> Against | None:
        """What is exceeded; `small`: by a check that is compared in full wherever that can be waited for."""
        if self.calls is not None and cost.calls > self.calls:
            return Against.CALLS
        if self.seconds is not None and cost.seconds > self.seconds * (LENIENT if small and self.lenient else 1.0):
            return Against.SECONDS
        return None


@dataclass(frozen=True)
class Candidate:
    """A comparison that can be made and its predicted cost. `probes`: of blocks."""

    mode: Mode
    cost: Cost
    probes: int = blocks.PROBES


@dataclass(frozen=True, kw_only=True)
class Choice(Candidate):
    """The comparison to make and why: what was `passed_over` for it, under which budget, beside what gradcheck costs.

    `relative`: its tolerance, of a line's norm, where it sums elements up. `left`: flagged lines that the end of the budget left.
    """

    why: Why
    relative: float
    passed_over: tuple[tuple[Candidate, Against], ...]
    budget: Limits
    gradcheck: Cost
    left: int = 0

    @property
    def spared_entries(self) -> bool:
        """Does the budget afford every element, which was passed over only because gradcheck is faster?"""
        return any(candidate.mode is Mode.ENTRIES and against is Against.SLOWER for candidate, against in self.passed_over)


def choose(mode: Mode | None, budget: Limits, costs: Costs, relative: float = SCREEN) -> Choice:
    """The comparison asked for; or (None: auto) the strongest that the budget affords and that is no slower than gradcheck.

    `relative`: the screen's tolerance, of a line's norm.
    """
    if mode is not None:
        return Choice(mode, costs.of[mode], why=Why.ASKED, relative=relative, passed_over=(), budget=budget, gradcheck=costs.gradcheck)
    passed_over: list[tuple[Candidate, Against]] = []
    why, candidate = Why.NOTHING_FITS, Candidate(Mode.BLOCKS, costs.of[Mode.BLOCKS])
    for candidate in _candidates(costs):
        against = _against(budget, candidate, costs)
        if against is None:
            why = Why.FITS
            break
        passed_over.append((candidate, against))
    return Choice(candidate.mode, candidate.cost, candidate.probes, why=why, relative=relative,
                  passed_over=tuple(passed_over), budget=budget, gradcheck=costs.gradcheck)


def cheapest(choice: Choice, costs: Costs) -> Choice:
    """What is made where the budget ended before the chosen comparison did."""
    cost, probes = (costs.one_probe, 1) if costs.one_probe else (costs.of[Mode.BLOCKS], blocks.PROBES)
    passed_over = (*choice.passed_over, (Candidate(choice.mode, choice.cost), Against.LONGER))
    return replace(choice, mode=Mode.BLOCKS, cost=cost, probes=probes, why=Why.RAN_OUT, passed_over=passed_over)


def _candidates(costs: Costs) -> Iterator[Candidate]:
    """The strongest first."""
    yield from (Candidate(mode, costs.of[mode]) for mode in Mode)
    if costs.one_probe:
        yield Candidate(Mode.BLOCKS, costs.one_probe, probes=1)


def _against(budget: Limits, candidate: Candidate, costs: Costs) -> Against | None:
    """What speaks against a comparison. That it is slower than gradcheck is told by calls, which no load of the machine changes."""
    cost = candidate.cost
    small = cost.calls <= FEW_CALLS or costs.elements <= FEW_ELEMENTS
    excess = budget.excess(cost, small and candidate.mode is Mode.ENTRIES)
    return Against.SLOWER if excess is None and not small and cost.work > costs.gradcheck.work else excess
