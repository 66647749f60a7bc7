"""Predicted calls, seconds and bytes of the four comparisons, from what structure says of a function.

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
from gradverify.numerics.probing import columns as projected
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
WORTH = 0.8  # of the seconds of one comparison for all tensors: two must cost less than this to be worth two names in the report
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
    sharing: tuple[SharingInputs, ...] = ()


@dataclass(frozen=True)
class SharingInputs:
    """Input tensors whose outputs fall into the same row groups, so that they share their backwards; their counts as in `Counts`.

    `linear`: tensors among them in which f is linear.
    """

    tensors: tuple[int, ...]
    inputs: int
    column_groups: int
    linear_groups: int
    row_groups: int
    linear: int

    @property
    def nonlinear(self) -> int:
        return len(self.tensors) - self.linear


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
class Split:
    """Columns for some input tensors, rows for the others; `mode`: that of most input coordinates. `by`: of each tensor."""

    mode: Mode
    by: Mapping[int, Mode]
    cost: Cost


@dataclass(frozen=True)
class Costs:
    """Of the four comparisons, of `torch.autograd.gradcheck` in slow mode, and of columns and rows each where it is cheaper (None: nowhere).

    `elements`: of the whole Jacobian. `one_probe`: of blocks by a single probe.
    """

    of: Mapping[Mode, Cost]
    gradcheck: Cost
    split: Split | None = None
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
    columns = _cost(timed, groups + _direction_calls(1, tensors), projected.COTANGENTS * counts.output_tensors + shared,
                    grouped * counts.outputs, held)
    rows = _cost(timed, _calls_of_rows(nonlinear, linear), counts.row_groups + shared,
                 directions.DIRECTIONS * counts.outputs * tensors, held, pulling)
    held = RESIDENT + BLOCKS_BYTES * (counts.inputs + counts.outputs)
    three, one = (_cost(timed, _direction_calls(probes, tensors), probes * counts.output_tensors, probes * counts.blocks, held)
                  for probes in (blocks.PROBES, 1))
    of = {Mode.ENTRIES: entries, Mode.COLUMNS: columns, Mode.ROWS: rows, Mode.BLOCKS: three}
    return Costs(of, gradcheck, _split(counts, timed, min(columns.seconds, rows.seconds)), counts.inputs * counts.outputs, one)


def _direction_calls(probes: int, tensors: int, each: int = RUNG_CALLS) -> int:
    """Forward calls of `probes` directions of each tensor, of whose first the survey has taken one rung."""
    return max(0, each * probes - SURVEYED) * tensors


def _calls_of_rows(nonlinear: int, linear: int) -> int:
    """Forward calls of rows; those of `linear` tensors, in which f is linear, take one wide rung, and are verified near x."""
    wide = (LINEAR_CALLS * directions.DIRECTIONS - SURVEYED) * linear
    return _direction_calls(directions.DIRECTIONS, nonlinear) + wide + _direction_calls(consistency.VERIFIED_ALONG, linear)


def _split(counts: Counts, timed: Speed, whole: float) -> Split | None:
    """For each input tensor the cheaper of columns and rows, where that saves much of the `whole` seconds that one of them takes for all."""
    columns = [inputs for inputs in counts.sharing if _by_columns(inputs, counts, timed).seconds < _by_rows(inputs, counts, timed).seconds]
    rows = [inputs for inputs in counts.sharing if inputs not in columns]
    if not columns or not rows:
        return None
    parts = [*(_by_columns(inputs, counts, timed) for inputs in columns), *(_by_rows(inputs, counts, timed) for inputs in rows)]
    shared = (projected.COTANGENTS + consistency.VERIFIED_ALONG) * counts.output_tensors
    cost = Cost(sum(p.forward for p in parts), sum(p.backward for p in parts) + shared,
                sum(p.seconds for p in parts) + shared * timed.backward, RESIDENT + ELEMENT_BYTES * (counts.inputs + counts.outputs))
    by = {tensor: mode for mode, of_mode in ((Mode.COLUMNS, columns), (Mode.ROWS, rows)) for inputs in of_mode for tensor in inputs.tensors}
    most = Mode.COLUMNS if sum(inputs.inputs for inputs in columns) > sum(inputs.inputs for inputs in rows) else Mode.ROWS
    return Split(most, by, cost) if cost.seconds < WORTH * whole else None


def _by_columns(inputs: SharingInputs, counts: Counts, timed: Speed) -> Cost:
    """Of some tensors, without the cotangents that all share."""
    forward = RUNG_CALLS * inputs.column_groups + LINEAR_CALLS * inputs.linear_groups + _direction_calls(1, len(inputs.tensors))
    return _cost(timed, forward, 0, (inputs.column_groups + inputs.linear_groups) * counts.outputs, 0)


def _by_rows(inputs: SharingInputs, counts: Counts, timed: Speed) -> Cost:
    """Of some tensors that share their backwards."""
    forward = _calls_of_rows(inputs.nonlinear, inputs.linear)
    solved = directions.DIRECTIONS * counts.outputs * len(inputs.tensors)
    return _cost(timed, forward, inputs.row_groups, solved, 0, PULLED * inputs.row_groups * counts.inputs)


def _cost(timed: Speed, forward: int, backward: int, solved: int, memory: int, extra: float = 0.0) -> Cost:
    """`solved`: elements; `extra`: further seconds."""
    return Cost(forward, backward, forward * timed.forward + backward * timed.backward + solved * timed.element + extra, memory)
