"""Which comparison a check can afford: predicted calls and seconds of the four, and the choice with its reason in a sentence.

Pure functions of counts, so that one can ask before anything runs. What detection and the survey of noise cost is the same for all and not
counted here. Counts are those of a function with nothing wrong; what is flagged or open costs more, in every comparison.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Literal

from gradverify.numerics import blocks, directions
from gradverify.numerics.columns import projected, verified
from gradverify.numerics.rungs import QUICK
from gradverify.numerics.screen import SCREEN
from gradverify.report.numbers import duration

RUNG_CALLS = 2 * len(QUICK)  # a group's forward calls on the quick rungs
LINEAR_CALLS = 2  # of a group where f is linear: one wide rung
LOOKED = 2  # calls of a direction that the survey has taken: its first rung
CLIMBED = 0.6  # of the groups are moved again for elements that the quick rungs leave open: 0 to 0.6, measured, and counted in seconds only
CALLED = 5e-5  # seconds that a call costs beside the function's own (measured)
THEIRS = (2e-5, 7e-5)  # what gradcheck's forward and backward calls do (measured); that of its whole Jacobians is left out, in its favour
BACKWARD = 2.0  # forward calls that a backward costs, where it was not timed
RESIDENT = 48 << 20  # bytes that any comparison was measured to take
ELEMENT_BYTES = 380  # of an input or output coordinate (measured on 10⁴ to 10⁶ of them: within a third)
TILE_BYTES = 600  # of a column group's derivative with respect to one output
TILES = 64 << 20  # most of these at a time
FLOAT64 = 8  # bytes; gradcheck holds two whole Jacobians
SOLVED = 3e-7  # seconds to extrapolate an element from its quick rungs, and to judge it (measured)
PULLED = 5e-8  # seconds to take a number of a compressed gradient apart (measured)
FEW_CALLS = 300  # a comparison of so few is over before anybody waits: it is not given up for being slower than gradcheck


class Mode(Enum):
    """The comparisons, strongest first; `auto` chooses."""

    @property
    def lines(self) -> Literal["", "columns", "rows", "blocks"]:
        """What it compares, where that is not elements."""
        return {Mode.COLUMNS: "columns", Mode.ROWS: "rows", Mode.BLOCKS: "blocks"}.get(self, "")  # type: ignore[return-value]

    ENTRIES = "entries"
    COLUMNS = "columns"
    ROWS = "rows"
    BLOCKS = "blocks"


@dataclass(frozen=True)
class Counts:
    """What structure says of a function, over all tensors: real input coordinates N, real output coordinates M, and groups.

    `linear_groups` are the column groups of inputs in which f is linear, `column_groups` those of the others; `row_groups` of all
    pairs, where inputs with the same groups count once. `blocks`: independent blocks of all pairs. `linear_tensors`: inputs in which f is linear.
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


@dataclass(frozen=True)
class Speed:
    """Seconds of a forward call, a backward call and the solving of one element."""

    forward: float
    backward: float
    element: float = SOLVED


def speed(forward: float) -> Speed:
    """Where only the forward was timed."""
    return Speed(forward, BACKWARD * forward)


@dataclass(frozen=True)
class Cost:
    """Predicted calls, seconds that include solving, and bytes beyond torch's own."""

    forward: int
    backward: int
    seconds: float
    memory: int = 0

    @property
    def calls(self) -> int:
        return self.forward + self.backward

    def __str__(self) -> str:
        return f"{self.forward:,} forward and {self.backward:,} backward calls"

    @property
    def timed(self) -> str:
        """With the seconds, which are no two times the same."""
        return f"{self}, about {duration(self.seconds)}"


@dataclass(frozen=True)
class Costs:
    """Of the four comparisons, and of `torch.autograd.gradcheck` in slow mode."""

    of: Mapping[Mode, Cost]
    gradcheck: Cost


@dataclass(frozen=True)
class Limits:
    """What a check may spend; None: no limit."""

    calls: int | None = None
    seconds: float | None = None

    def excess(self, cost: Cost) -> str | None:
        """What is exceeded, in words."""
        if self.calls is not None and cost.calls > self.calls:
            return f"more than the budget of {self.calls:,} calls"
        if self.seconds is not None and cost.seconds > self.seconds:
            return f"more than the budget of {duration(self.seconds)}"
        return None


@dataclass(frozen=True)
class Choice:
    """The comparison to make, why, and what it could miss: two sentences."""

    mode: Mode
    reason: str
    could_miss: str
    cost: Cost


def predicted(n: Counts, timed: Speed) -> Costs:
    """Calls of each comparison where nothing is wrong (method.md section 3); gradcheck: 2N + 1 forward, M backward."""
    groups = RUNG_CALLS * n.column_groups + LINEAR_CALLS * n.linear_groups
    grouped = n.column_groups + n.linear_groups
    check = verified.PROBES if grouped < n.inputs or n.row_groups < n.outputs else 0
    along, curved = RUNG_CALLS - LOOKED, n.input_tensors - n.linear_tensors  # of a direction, whose first rung is known
    theirs = replace(timed, forward=timed.forward + THEIRS[0], backward=timed.backward + THEIRS[1])
    gradcheck = _cost(theirs, 2 * n.inputs + 1, n.outputs, 0, 2 * FLOAT64 * n.inputs * n.outputs)
    timed = replace(timed, forward=timed.forward + CALLED, backward=timed.backward + CALLED)
    climbs, pulled = CLIMBED * RUNG_CALLS * n.column_groups * timed.forward, PULLED * n.row_groups * n.inputs
    held = RESIDENT + ELEMENT_BYTES * (n.inputs + n.outputs)
    of = {
        Mode.ENTRIES: _cost(timed, groups + along * check * curved, n.row_groups + check, grouped * n.outputs,
                            held + min(TILES, TILE_BYTES * grouped * n.outputs), climbs + pulled),
        Mode.COLUMNS: _cost(timed, groups + along * n.input_tensors, (projected.PROBES + verified.PROBES) * n.output_tensors,
                            grouped * n.outputs, held),
        Mode.ROWS: _cost(timed, (RUNG_CALLS * directions.PROBES - LOOKED) * n.input_tensors, n.row_groups + verified.PROBES * n.output_tensors,
                         directions.PROBES * n.outputs * n.input_tensors, held, pulled),
        Mode.BLOCKS: _cost(timed, (RUNG_CALLS * blocks.PROBES - LOOKED) * n.input_tensors, blocks.PROBES * n.output_tensors,
                           blocks.PROBES * n.blocks, held),
    }
    return Costs(of, gradcheck)


def choose(mode: Mode | None, budget: Limits, costs: Costs, relative: float = SCREEN) -> Choice:
    """The comparison asked for; or (None: auto) the strongest that the budget affords and that is no slower than gradcheck.

    `relative`: the screen's tolerance, of a line's norm.
    """
    if mode is not None:
        return _choice(mode, costs, f"`mode: {mode.value}` was asked for: {costs.of[mode]}.", relative)
    passed_over: list[str] = []
    for candidate in (Mode.ENTRIES, *sorted((Mode.COLUMNS, Mode.ROWS), key=lambda m: costs.of[m].seconds), Mode.BLOCKS):
        against = _against(budget, costs.of[candidate], costs.gradcheck)
        if against is None:
            return _choice(candidate, costs, _reason(candidate, costs, passed_over), relative)
        passed_over.append(f"{candidate.value} would take {costs.of[candidate].timed}, {against}")
    last = f"Nothing fits: {'; '.join(passed_over)}. The cheapest comparison is made all the same."
    return _choice(Mode.BLOCKS, costs, last, relative)


def _against(budget: Limits, cost: Cost, gradcheck: Cost) -> str | None:
    """What speaks against a comparison, in words."""
    excess = budget.excess(cost)
    if excess is None and cost.calls > FEW_CALLS and cost.seconds > gradcheck.seconds:
        return f"slower than gradcheck with {gradcheck.timed}"
    return excess


def _choice(mode: Mode, costs: Costs, reason: str, relative: float) -> Choice:
    return Choice(mode, reason, could_miss(mode, relative), costs.of[mode])


def _reason(mode: Mode, costs: Costs, passed_over: list[str]) -> str:
    if not passed_over:
        return f"Every element is affordable: {costs.of[mode]}."
    return f"{'; '.join(passed_over)[:1].upper()}{'; '.join(passed_over)[1:]}. The strongest that fits is {mode.value}: {costs.of[mode]}."


def could_miss(mode: Mode, relative: float = SCREEN) -> str:
    """What a pass leaves open."""
    entry = f"an entry wrong by less than about {relative:.0e} of the norm of its"
    return {
        Mode.ENTRIES: "Nothing above the tolerance of an element.",
        Mode.COLUMNS: f"Could miss {entry} column: {projected.PROBES} random cotangents stand for all outputs.",
        Mode.ROWS: f"Could miss {entry} row: {directions.PROBES} random directions stand for all inputs.",
        Mode.BLOCKS: f"Could miss {entry} block (one entry among very many), and with a chance of 5 in 100,000 one of "
                     f"{100 * relative:.0e}: {blocks.PROBES} random probes stand for all elements.",
    }[mode]


def _cost(timed: Speed, forward: int, backward: int, solved: int, memory: int, more: float = 0.0) -> Cost:
    """`solved`: elements; `more`: further seconds."""
    return Cost(forward, backward, forward * timed.forward + backward * timed.backward + solved * timed.element + more, memory)
