"""The choice of the comparison that a check can afford: predicted calls, seconds and bytes of the
three, from the structure of a function.

These are pure functions of counts, so that costs are known before anything runs. Detection and the
survey of noise cost the same for all and are not counted. Counts are those of a function without
errors; flagged or open elements cost more, in every comparison.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

from gradverify.model.case import Mode as Mode
from gradverify.numerics.grouped_vjps import shared_groups
from gradverify.numerics.judging import Run
from gradverify.numerics.rungs import QUICK
from gradverify.numerics.screen import DIRECTIONS, PROBES, SCREEN, VERIFIED_ALONG

# ---- Predicted calls, seconds and bytes of the three comparisons, from the structure of a function
RUNG_CALLS = 2 * len(QUICK)  # a group's forward calls on the quick rungs
LINEAR_CALLS = 2  # of a group where f is linear: one wide rung
VERIFYING = 4  # forward calls per direction that verifies sums: two rungs
SURVEYED = 2  # calls of a direction that the survey has made already: its first rung
# Fraction of the groups that are moved again for elements that the quick rungs leave open: 0 to 0.6
# (measured), counted in seconds only
CLIMBED = 0.6
CALL_OVERHEAD = 5e-5  # seconds per call in addition to the function's own (measured)
# Overhead of gradcheck's forward and backward calls (measured); that of its whole Jacobians is left
# out, in its favour
GRADCHECK_CALL = (2e-5, 7e-5)
BACKWARD = 2.0  # cost of a backward in forward calls, where it was not timed
RESIDENT = 48 << 20  # bytes of any comparison (measured)
# Bytes per input or output coordinate (measured on 10⁴ to 10⁶ of them: within a third)
ELEMENT_BYTES = 380
# Bytes per coordinate where blocks are compared (measured on 10⁶ to 10⁷ of them)
BLOCKS_BYTES = 120
TILE_BYTES = 600  # bytes per derivative of an output along a column group
TILES = 64 << 20  # limit of these bytes at a time
FLOAT64 = 8  # bytes; gradcheck holds two whole Jacobians
SOLVED = 3e-7  # seconds to extrapolate an element from its quick rungs, and to judge it (measured)
PULLED = 5e-8  # seconds to extract a number from a compressed gradient (measured)


@dataclass(frozen=True)
class Counts:
    """Counts that describe the structure of a function, over all tensors: real input coordinates N,
    real output coordinates M, and groups.

    `linear_groups`: column groups of inputs in which f is linear; `column_groups`: those of the
    others; `row_groups`: of all pairs, where inputs with the same groups count once. `blocks`:
    independent blocks of all pairs. `linear_tensors`: inputs in which f is linear.
    """

    inputs: int
    outputs: int
    input_tensors: int
    output_tensors: int
    column_groups: int
    linear_groups: int
    row_groups: int
    blocks: int
    linear_tensors: int = 0


def to_power_of_two(seconds: float) -> float:
    """Round a measured time to a power of two, so that two runs, whose times always differ, mostly
    predict the same; 0 where there is no time."""
    return float(2.0 ** round(math.log2(seconds))) if 0 < seconds < math.inf else 0.0


@dataclass(frozen=True)
class Cost:
    """Predicted calls, seconds including solving, and bytes in addition to torch's own."""

    forward: int
    backward: int
    seconds: float
    memory: int = 0

    @property
    def calls(self) -> int:
        return self.forward + self.backward

    @property
    def work(self) -> float:
        """The calls in units of forward calls, independent of the machine and its load."""
        return self.forward + BACKWARD * self.backward


@dataclass(frozen=True)
class Costs:
    """The costs of the three comparisons, and of `torch.autograd.gradcheck` in slow mode.

    `elements`: number of elements of the whole Jacobian. `one_probe`: cost of blocks by a single
    probe.
    """

    of: Mapping[Mode, Cost]
    gradcheck: Cost
    elements: int
    one_probe: Cost


def predicted(counts: Counts, seconds: float) -> Costs:
    """Return the cost of each comparison where nothing is wrong (method.md section 5) for a
    function whose forward takes this many seconds; gradcheck: 2N + 1 forward, M backward."""
    forward = seconds + CALL_OVERHEAD
    backward = BACKWARD * seconds + CALL_OVERHEAD

    def cost(calls: int, pulled: int, solved: int, memory: int, extra: float) -> Cost:
        return Cost(
            calls, pulled, calls * forward + pulled * backward + solved * SOLVED + extra, memory
        )

    def directions(probes: int, tensors: int, each: int = RUNG_CALLS) -> int:
        """Return the forward calls of `probes` directions of each tensor; the survey has made those
        of the first one's first rung."""
        return max(0, each * probes - SURVEYED) * tensors

    n = counts.inputs
    m = counts.outputs
    tensors = counts.input_tensors
    linear = counts.linear_tensors
    nonlinear = tensors - linear
    grouped = counts.column_groups + counts.linear_groups
    held = n + m
    check = VERIFIED_ALONG if grouped < n or counts.row_groups < m else 0
    room = max(1, TILES // 2 // (FLOAT64 * max(m, 1)))
    pulling = PULLED * counts.row_groups * n
    # Each tile of the Jacobian is pulled back anew
    passes = 1 if grouped <= room else 1 + -(-grouped // room)
    entries = cost(
        RUNG_CALLS * counts.column_groups
        + LINEAR_CALLS * counts.linear_groups
        + directions(check, nonlinear, VERIFYING),
        passes * counts.row_groups + check * counts.output_tensors,
        grouped * m,
        RESIDENT + ELEMENT_BYTES * held + min(TILES, TILE_BYTES * grouped * m),
        CLIMBED * RUNG_CALLS * counts.column_groups * forward + pulling,
    )
    # Rows of tensors in which f is linear take one wide rung, and are verified near x
    wide = (LINEAR_CALLS * DIRECTIONS - SURVEYED) * linear + directions(VERIFIED_ALONG, linear)
    rows = cost(
        directions(DIRECTIONS, nonlinear) + wide,
        counts.row_groups + VERIFIED_ALONG * counts.output_tensors,
        DIRECTIONS * m * tensors,
        RESIDENT + ELEMENT_BYTES * held,
        pulling,
    )
    three, one = (
        cost(
            directions(probes, tensors),
            probes * counts.output_tensors,
            probes * counts.blocks,
            RESIDENT + BLOCKS_BYTES * held,
            0.0,
        )
        for probes in (PROBES, 1)
    )
    calls, pulls = 2 * n + 1, m
    gradcheck = Cost(
        calls,
        pulls,
        calls * (seconds + GRADCHECK_CALL[0]) + pulls * (BACKWARD * seconds + GRADCHECK_CALL[1]),
        2 * FLOAT64 * n * m,
    )
    return Costs(
        {Mode.ENTRIES: entries, Mode.ROWS: rows, Mode.BLOCKS: three}, gradcheck, n * m, one
    )


# ---- Counts of columns, rows, groups and blocks, which determine the calls of a comparison
def counts(run: Run) -> Counts:
    """Count coordinates, tensors, groups and blocks."""
    point, structure = run.point, run.structure
    planned = {t: plan.groups.count for t, plan in structure.plans.items()}
    column_groups = {t: planned.get(t, len(point.columns.of(t))) for t in structure.patterns}
    linear_groups = sum(count for t, count in column_groups.items() if t in run.linear)
    blocks = sum(pattern.blocks for patterns in structure.patterns.values() for pattern in patterns)
    row_groups = sum(
        shared.groups.count
        for shared in shared_groups([plan.rows for plan in structure.plans.values()])
    )
    if structure.patterns.keys() - planned.keys():
        row_groups += len(point.f0)  # one-hot rows, which serve all tensors without structure
    return Counts(
        len(point.x),
        len(point.f0),
        len(point.buffers),
        len(point.parts),
        sum(column_groups.values()) - linear_groups,
        linear_groups,
        row_groups,
        blocks,
        len(run.linear),
    )


# ---- The comparison that a check can afford: the choice among the three, and the objections to the
# others
# Calls up to which a comparison is not rejected for being slower than gradcheck: it ends before
# anybody waits
FEW_CALLS = 300
# The same for elements: up to 600 calls of a function of 100 inputs and one output (0.02 s for
# calls of 30 µs)
FEW_ELEMENTS = 100
# Multiple of the default seconds for small checks: between a quiet machine and a busy one the
# fastest call differed by a factor of 1.0 to 1.9 (measured)
LENIENT = 2.0


class Against(Enum):
    """An objection to a comparison."""

    CALLS = "more calls than the budget"
    SECONDS = "more seconds than the budget"
    SLOWER = "slower than gradcheck"
    LONGER = "took longer than predicted"


class Why(Enum):
    """The reason for the choice of a comparison."""

    REQUESTED = "requested"
    FITS = "the strongest that fits"
    NOTHING_FITS = "the cheapest, where nothing fits"
    DECIDES = "what may decide the lines that a faster one left open"
    RAN_OUT = "the cheapest, as the budget ended before every element was compared"


@dataclass(frozen=True)
class Limits:
    """The calls and seconds that a check may spend; None: no limit. `lenient`: the seconds are a
    default, so that a small check may take longer."""

    calls: int | None = None
    seconds: float | None = None
    lenient: bool = False

    def excess(self, cost: Cost, small: bool = False) -> Against | None:
        """Return which limit is exceeded, or None. `small`: the check is small enough to be
        compared in full even if it takes longer."""
        if self.calls is not None and cost.calls > self.calls:
            return Against.CALLS
        if self.seconds is not None and cost.seconds > self.seconds * (
            LENIENT if small and self.lenient else 1.0
        ):
            return Against.SECONDS
        return None


@dataclass(frozen=True)
class Candidate:
    """A possible comparison and its predicted cost. `probes`: of blocks."""

    mode: Mode
    cost: Cost
    probes: int = PROBES


@dataclass(frozen=True, kw_only=True)
class Choice(Candidate):
    """The chosen comparison and the reason: the candidates `passed_over` for it, the budget, and
    the cost of gradcheck.

    `relative`: the tolerance relative to a line's norm, where elements are summed. `left`: flagged
    lines that were not followed when the budget ended.
    """

    why: Why
    relative: float
    passed_over: tuple[tuple[Candidate, Against], ...]
    budget: Limits
    gradcheck: Cost
    left: int = 0

    @property
    def spared_entries(self) -> bool:
        """Whether entries were passed over only because gradcheck is faster, so that the budget
        affords every element."""
        return any(
            candidate.mode is Mode.ENTRIES and against is Against.SLOWER
            for candidate, against in self.passed_over
        )


def choose(mode: Mode | None, budget: Limits, costs: Costs, relative: float = SCREEN) -> Choice:
    """Return the comparison in this mode; or (None: auto) the strongest that the budget affords and
    that is not slower than gradcheck.

    `relative`: the screen's tolerance, relative to a line's norm.
    """
    passed_over: list[tuple[Candidate, Against]] = []
    if mode is not None:
        why, candidate = Why.REQUESTED, Candidate(mode, costs.of[mode])
    else:
        why = Why.NOTHING_FITS
        of_mode = (Candidate(mode, costs.of[mode]) for mode in Mode)  # the strongest first
        for candidate in (*of_mode, Candidate(Mode.BLOCKS, costs.one_probe, probes=1)):
            against = _against(budget, candidate, costs)
            if against is None:
                why = Why.FITS
                break
            passed_over.append((candidate, against))
    return Choice(
        candidate.mode,
        candidate.cost,
        candidate.probes,
        why=why,
        relative=relative,
        passed_over=tuple(passed_over),
        budget=budget,
        gradcheck=costs.gradcheck,
    )


def cheapest(choice: Choice, costs: Costs) -> Choice:
    """Return the comparison to make when the budget ended before the chosen one was complete."""
    passed_over = (*choice.passed_over, (Candidate(choice.mode, choice.cost), Against.LONGER))
    return replace(
        choice,
        mode=Mode.BLOCKS,
        cost=costs.one_probe,
        probes=1,
        why=Why.RAN_OUT,
        passed_over=passed_over,
    )


def _against(budget: Limits, candidate: Candidate, costs: Costs) -> Against | None:
    """Return the objection to a comparison, or None. Whether it is slower than gradcheck is
    determined by calls, which no load of the machine changes."""
    cost = candidate.cost
    small = cost.calls <= FEW_CALLS or costs.elements <= FEW_ELEMENTS
    excess = budget.excess(cost, small and candidate.mode is Mode.ENTRIES)
    if excess is None and not small and cost.work > costs.gradcheck.work:
        return Against.SLOWER
    return excess
