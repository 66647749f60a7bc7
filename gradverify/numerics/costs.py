"""Predicted calls, seconds and bytes of the three comparisons, from what structure says of a function.

Pure functions of counts, so that one can ask before anything runs. What detection and the survey of noise cost is the same for all and not
counted here. Counts are those of a function with nothing wrong; what is flagged or open costs more, in every comparison.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from gradverify.model.case import Mode as Mode
from gradverify.numerics.entries import consistency
from gradverify.numerics.probing import blocks
from gradverify.numerics.probing import rows as directions
from gradverify.numerics.rungs import QUICK

RUNG_CALLS = 2 * len(QUICK)  # a group's forward calls on the quick rungs
LINEAR_CALLS = 2  # of a group where f is linear: one wide rung
VERIFYING = 4  # forward calls a direction that adds up: two rungs
SURVEYED = 2  # calls of a direction that the survey has taken: its first rung
CLIMBED = 0.6  # of the groups are moved again for elements that the quick rungs leave open: 0 to 0.6, measured, and counted in seconds only
CALL_OVERHEAD = 5e-5  # seconds that a call costs beside the function's own (measured)
GRADCHECK_CALL = (2e-5, 7e-5)  # what gradcheck's forward and backward calls do (measured); that of its whole Jacobians is left out, in its favour
BACKWARD = 2.0  # forward calls that a backward costs, where it was not timed
RESIDENT = 48 << 20  # bytes that any comparison was measured to take
ELEMENT_BYTES = 380  # of an input or output coordinate (measured on 10⁴ to 10⁶ of them: within a third)
BLOCKS_BYTES = 120  # of such a coordinate, where blocks are compared (measured on 10⁶ to 10⁷ of them)
TILE_BYTES = 600  # of a column group's derivative with respect to one output
TILES = 64 << 20  # most of these at a time
FLOAT64 = 8  # bytes; gradcheck holds two whole Jacobians
SOLVED = 3e-7  # seconds to extrapolate an element from its quick rungs, and to judge it (measured)
PULLED = 5e-8  # seconds to take a number of a compressed gradient apart (measured)


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


def to_power_of_two(seconds: float) -> float:
    """A measured time to the next power of two, so that two runs, whose times are never the same, mostly predict the same; 0 where none was."""
    return float(2.0 ** round(math.log2(seconds))) if 0 < seconds < math.inf else 0.0


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

    @property
    def work(self) -> float:
        """In forward calls: what it takes on any machine, busy or not."""
        return self.forward + BACKWARD * self.backward


@dataclass(frozen=True)
class Costs:
    """Of the three comparisons, and of `torch.autograd.gradcheck` in slow mode.

    `elements`: of the whole Jacobian. `one_probe`: of blocks by a single probe.
    """

    of: Mapping[Mode, Cost]
    gradcheck: Cost
    elements: int = 0
    one_probe: Cost | None = None


def predicted(counts: Counts, timed: Speed) -> Costs:
    """Calls of each comparison where nothing is wrong (method.md section 5); gradcheck: 2N + 1 forward, M backward."""
    groups = RUNG_CALLS * counts.column_groups + LINEAR_CALLS * counts.linear_groups
    grouped = counts.column_groups + counts.linear_groups
    check = consistency.VERIFIED_ALONG if grouped < counts.inputs or counts.row_groups < counts.outputs else 0
    nonlinear, linear = counts.input_tensors - counts.linear_tensors, counts.linear_tensors
    of_gradcheck = replace(timed, forward=timed.forward + GRADCHECK_CALL[0], backward=timed.backward + GRADCHECK_CALL[1])
    gradcheck = _cost(of_gradcheck, 2 * counts.inputs + 1, counts.outputs, 0, 2 * FLOAT64 * counts.inputs * counts.outputs)
    timed = replace(timed, forward=timed.forward + CALL_OVERHEAD, backward=timed.backward + CALL_OVERHEAD)
    climbing, pulling = CLIMBED * RUNG_CALLS * counts.column_groups * timed.forward, PULLED * counts.row_groups * counts.inputs
    held = RESIDENT + ELEMENT_BYTES * (counts.inputs + counts.outputs)
    tensors, shared = counts.input_tensors, consistency.VERIFIED_ALONG * counts.output_tensors
    room = max(1, TILES // 2 // (FLOAT64 * max(counts.outputs, 1)))
    passes = 1 if grouped <= room else 1 + -(-grouped // room)      # each tile of the Jacobian is pulled back anew
    entries = _cost(timed, groups + _direction_calls(check, nonlinear, VERIFYING), passes * counts.row_groups + check, grouped * counts.outputs,
                    held + min(TILES, TILE_BYTES * grouped * counts.outputs), climbing + pulling)
    rows = _cost(timed, _calls_of_rows(nonlinear, linear), counts.row_groups + shared,
                 directions.DIRECTIONS * counts.outputs * tensors, held, pulling)
    held = RESIDENT + BLOCKS_BYTES * (counts.inputs + counts.outputs)
    three, one = (_cost(timed, _direction_calls(probes, tensors), probes * counts.output_tensors, probes * counts.blocks, held)
                  for probes in (blocks.PROBES, 1))
    of = {Mode.ENTRIES: entries, Mode.ROWS: rows, Mode.BLOCKS: three}
    return Costs(of, gradcheck, counts.inputs * counts.outputs, one)


def _direction_calls(probes: int, tensors: int, each: int = RUNG_CALLS) -> int:
    """Forward calls of `probes` directions of each tensor, of whose first the survey has taken one rung."""
    return max(0, each * probes - SURVEYED) * tensors


def _calls_of_rows(nonlinear: int, linear: int) -> int:
    """Forward calls of rows; those of `linear` tensors, in which f is linear, take one wide rung, and are verified near x."""
    wide = (LINEAR_CALLS * directions.DIRECTIONS - SURVEYED) * linear
    return _direction_calls(directions.DIRECTIONS, nonlinear) + wide + _direction_calls(consistency.VERIFIED_ALONG, linear)


def _cost(timed: Speed, forward: int, backward: int, solved: int, memory: int, extra: float = 0.0) -> Cost:
    """`solved`: elements; `extra`: further seconds."""
    return Cost(forward, backward, forward * timed.forward + backward * timed.backward + solved * timed.element + extra, memory)
