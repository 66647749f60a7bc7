"""Which comparison a check can afford: the choice among the four, with its reason in a sentence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from gradverify.numerics import blocks, directions
from gradverify.numerics.columns import projected
from gradverify.numerics.columns.costs import Cost, Costs, Mode, Split
from gradverify.numerics.screen import SCREEN
from gradverify.report.numbers import duration

FEW_CALLS = 300  # a comparison of so few is over before anybody waits: it is not given up for being slower than gradcheck
FEW_ELEMENTS = 100  # nor is one of so few elements, up to 600 calls of a function of 100 inputs and one output (0.02 s for calls of 30 µs)
LENIENT = 2.0  # times the default seconds are theirs: on a quiet machine and a busy one the least time of a call differed by 1.0 to 1.9 (measured)
STAND_INS = {Mode.COLUMNS: ("column", f"{projected.PROBES} random cotangents", "outputs"),
             Mode.ROWS: ("row", f"{directions.PROBES} random directions", "inputs")}
"""What a screen sums up, with what, and what that stands for."""


@dataclass(frozen=True)
class Limits:
    """What a check may spend; None: no limit. `lenient`: nobody asked for these seconds, so that a small check may take longer."""

    calls: int | None = None
    seconds: float | None = None
    lenient: bool = False

    def excess(self, cost: Cost, small: bool = False) -> str | None:
        """What is exceeded, in words; `small`: by a check that is compared in full wherever that can be waited for."""
        if self.calls is not None and cost.calls > self.calls:
            return f"more than the budget of {self.calls:,} calls"
        if self.seconds is not None and cost.seconds > self.seconds * (LENIENT if small and self.lenient else 1.0):
            return f"more than the budget of {duration(self.seconds)}"
        return None


@dataclass(frozen=True)
class Choice:
    """The comparison to make, why, and what it could miss: two sentences. `by`: of the input tensors, where they are not all compared in `mode`.
    `probes`: of blocks."""

    mode: Mode
    reason: str
    could_miss: str
    cost: Cost
    by: Mapping[int, Mode] = field(default_factory=dict)
    probes: int = blocks.PROBES

    def of(self, tensor: int) -> Mode:
        """The comparison of one input tensor."""
        return self.by.get(tensor, self.mode)


def choose(mode: Mode | None, budget: Limits, costs: Costs, relative: float = SCREEN) -> Choice:
    """The comparison asked for; or (None: auto) the strongest that the budget affords and that is no slower than gradcheck.

    `relative`: the screen's tolerance, of a line's norm.
    """
    if mode is not None:
        return _choice(mode, costs, f"`mode: {mode.value}` was asked for: {costs.of[mode]}.", relative)
    passed_over: list[str] = []
    candidate = _choice(Mode.BLOCKS, costs, "", relative)
    for name, candidate in _candidates(costs, relative):
        against = _against(budget, candidate, costs)
        if against is None:
            return replace(candidate, reason=_reason(name, candidate.cost, passed_over))
        passed_over.append(f"{name} would take {candidate.cost.timed}, {against}")
    return replace(candidate, reason=f"Nothing fits: {'; '.join(passed_over)}. The cheapest comparison is made all the same.")


def _candidates(costs: Costs, relative: float) -> Iterator[tuple[str, Choice]]:
    """By name, the strongest first, and of columns, rows and both of them the cheapest first; no reason is given yet."""
    yield Mode.ENTRIES.value, _choice(Mode.ENTRIES, costs, "", relative)
    if costs.split:
        yield _both(costs.split, relative)
    for mode in (*sorted((Mode.COLUMNS, Mode.ROWS), key=lambda m: costs.of[m].seconds), Mode.BLOCKS):
        yield mode.value, _choice(mode, costs, "", relative)
    if costs.one_probe:
        yield "blocks by one probe", Choice(Mode.BLOCKS, "", could_miss(Mode.BLOCKS, relative, 1), costs.one_probe, probes=1)


def _both(split: Split, relative: float) -> tuple[str, Choice]:
    """Columns for some tensors, rows for the others."""
    some = f"{sum(mode is split.other for mode in split.by.values())} of {len(split.by)} inputs"
    (line, probes, what), (other, others, rest) = STAND_INS[split.mode], STAND_INS[split.other]
    missed = f"{_below(relative)} {line}, or {other} for {some}: {probes} stand for all {what}, or {others} for all {rest}."
    return f"{split.mode.value}, and {split.other.value} for {some}", Choice(split.mode, "", missed, split.cost, split.by)


def _against(budget: Limits, candidate: Choice, costs: Costs) -> str | None:
    """What speaks against a comparison, in words. That it is slower than gradcheck is told by calls, which no load of the machine changes."""
    cost = candidate.cost
    small = cost.calls <= FEW_CALLS or costs.elements <= FEW_ELEMENTS
    excess = budget.excess(cost, small and candidate.mode is Mode.ENTRIES)
    if excess is None and not small and cost.work > costs.gradcheck.work:
        return f"slower than gradcheck with {costs.gradcheck.timed}"
    return excess


def _choice(mode: Mode, costs: Costs, reason: str, relative: float) -> Choice:
    return Choice(mode, reason, could_miss(mode, relative), costs.of[mode])


def _reason(name: str, cost: Cost, passed_over: list[str]) -> str:
    if not passed_over:
        return f"Every element is affordable: {cost}."
    before = "; ".join(passed_over)
    return f"{before[:1].upper()}{before[1:]}. The strongest that fits is {name}: {cost}."


def could_miss(mode: Mode, relative: float = SCREEN, probes: int = blocks.PROBES) -> str:
    """What a pass leaves open."""
    if mode is Mode.ENTRIES:
        return "Nothing above the tolerance of an element."
    if mode is Mode.BLOCKS and probes == 1:
        return (f"{_below(relative)} block (one entry among very many), and with a chance of 4 in 100 one of {100 * relative:.0e}: "
                f"one random probe stands for all elements.")
    if mode is Mode.BLOCKS:
        return (f"{_below(relative)} block (one entry among very many), and with a chance of 5 in 100,000 one of {100 * relative:.0e}: "
                f"{blocks.PROBES} random probes stand for all elements.")
    line, stand_ins, what = STAND_INS[mode]
    return f"{_below(relative)} {line}: {stand_ins} stand for all {what}."


def _below(relative: float) -> str:
    return f"Could miss an entry wrong by less than about {relative:.0e} of the norm of its"
