"""The mode `entries`: every element of the Jacobian, by finite differences along lines against the
analytic values of the columns that each line shows.

Elements that the quick rungs leave open climb further rungs until they are settled; a mismatch of a
single column is reported only after every rung.

A line moves a single column, or a colour group of columns that no output shares. The analytic
values of a group come from compressed VJPs, and a mismatch in it is confirmed by moving its column
individually. Memory is a tile of the analytic Jacobian and a chunk of lines within it, both of
fixed size; never N × M. A Jacobian larger than a tile is pulled back anew for each tile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from gradverify.model.interrupt import Spent
from gradverify.numerics.estimate.ladder import (
    EVERY_RUNG,
    NON_FINITE,
    PIECE,
    SMOOTH,
    Climb,
    Derivative,
    Judge,
    Ladders,
    at_rest,
    settled,
    smooth_estimate,
    solve,
)
from gradverify.numerics.estimate.samples import LOW_UNIT, Line
from gradverify.numerics.excuses.order import beyond_cancelling, excused
from gradverify.numerics.function.point import DirectionLine, Point
from gradverify.numerics.grouped_vjps import pulled_groups, shared_groups
from gradverify.numerics.judging import (
    MOST_COLUMNS,
    Bundle,
    Judged,
    Plan,
    Run,
    Structure,
    columns_at_once,
    enough_confirmed,
    judged_now,
    quick_samples,
    single_columns,
    single_derivatives,
    widened,
    worst_first,
)
from gradverify.numerics.pairs.pair import ElementRecord, Pair, Requested, Tally
from gradverify.numerics.prepare import SMALL, with_other_groups
from gradverify.numerics.records import Record, joined
from gradverify.numerics.rungs import (
    BASE,
    CLIMB,
    QUICK,
    RATIO,
    VISIBLE,
    WIDE_RUNG,
    Array,
    Codes,
    Index,
    Mask,
    Z,
    finite_size,
    in_a_row,
    in_range,
    pieces,
    step,
)
from gradverify.numerics.screen import (
    VERIFIED_ALONG,
    draw_directions,
    random_cotangent,
    screen,
)
from gradverify.numerics.seed_vectors import (
    WEIGHTS,
    gradient_of_rows,
    pull_back,
    signed_weights_float32,
)
from gradverify.numerics.sparsity.pattern import NO_ENTRY
from gradverify.numerics.survey import STRAY, Directions
from gradverify.numerics.verdict import MISMATCH, PASS, Limit, Verdict


# ---- Confirmation of single elements: the column moved individually at every step, against the VJP
# of the output alone (method.md section 5)
def measured_alone(run: Run, column: Index, out: Index) -> Judged:
    """Measure elements (column, output) [E] individually and apply the excuses: one backward per
    output, 48 forward calls per column. The order is kept."""
    a = run.analytic(column, out)
    d = single_derivatives(run, column, out)
    return excused(run, judged_now(run, column, out, a, d))


def excused_anew(run: Run, before: Judged) -> Judged:
    """Return the elements with all excuses applied, and mismatches confirmed again that were taken
    as wrong together with others that excuses have cleared.

    Each is measured individually, the worst first, until one is confirmed; 48 forward calls per
    column.
    """
    judged = excused(run, before)
    for _ in range(MOST_COLUMNS):
        wrong = judged.wrong
        if not wrong.any() or not (before.wrong & ~wrong).any() or run.over_budget(EVERY_RUNG):
            return judged
        i = np.flatnonzero(wrong)
        i = i[judged.column[i] == judged.column[i[judged.take(i).worst_first()[0]]]]
        judged = judged.replaced(i, measured_alone(run, judged.column[i], judged.out[i]))
        if (judged.verdict[i] == MISMATCH).any():
            return judged
    return judged.decided(np.flatnonzero(judged.wrong), Limit.COMPANY)


# ---- the requested element
def with_requested(run: Run, pairs: list[Pair]) -> list[Pair]:
    """Return the pairs, with the record of the requested element in the pair that it belongs to."""
    requested = run.requested
    if requested is None or column_at(run.point, requested.input, requested.input_index) is None:
        return pairs
    return [
        replace(pair, requested=pair_of_one(run, requested).requested, by_itself=True)
        if (pair.input, pair.output) == requested[:2] and pair.requested is None
        else pair
        for pair in pairs
    ]


def column_at(point: Point, tensor: int, coordinate: int) -> int | None:
    """Return the column that moves this coordinate of an input; None where the coordinate only
    follows its mirror image."""
    found = np.flatnonzero(point.columns.coordinate == int(point.starts[tensor]) + coordinate)
    return int(found[0]) if found.size else None


def pair_of_one(run: Run, requested: Requested) -> Pair:
    """Return a pair that consists of the requested element alone."""
    run, point, part = run.fresh(), run.point, run.point.parts[requested.output]
    column = np.array([column_at(point, requested.input, requested.input_index)])
    out = np.array([part.start + requested.output_index])
    with np.errstate(all="ignore"):  # judged as in its column; a mismatch is measured on every rung
        run.reach.add_surveyed()
        a = run.analytic(column, out)
        climb = climber(run, column, out, lambda _, d: judged_now(run, column, out, a, d).verdict)
        judged = judged_now(run, column, out, a, climb.run())
        judged = measured_alone(run, column, out) if judged.wrong[0] else excused(run, judged)
    tally = Tally(requested.input, requested.output, None, 1, requested)
    tally.add(judged.entries(point, tally))
    return run.result(tally)


def climber(run: Run, column: Index, out: Index, judge: Judge) -> Climb:
    """Return a `Climb` of one output [1] along the line of a single column [1]."""
    tensor = run.columns.tensor[column]
    wide = run.survey.wide[tensor, out]
    unmoved = run.survey.unmoved[tensor, out]
    line = single_columns(run.point, column, bool(wide[0])).lines[0]
    ladders = Ladders([line], run.outputs(), np.zeros_like(out), out)
    first = ladders.solve(np.arange(1), QUICK, False)
    first.unclear[:] |= unmoved | wide
    return Climb(ladders, first, judge, unmoved)


# Rungs for outputs that may have structure near x
FINER_RUNGS = range(QUICK[0], QUICK[-1] + 2 * CLIMB + 1)
# Elements of a chunk that are judged at a time: the data of each take some 500 bytes
SPAN = 1 << 17
# Elements of a piece of plain elements: arrays of 64 KiB take a fifth less time per element than
# those of 128 KiB
PLAIN_PIECE = 1 << 13


@dataclass(frozen=True)
class Cells(Record):
    """Elements [E] of a bundle by `line` and `out`put, ascending; `column`: the column whose
    derivative each element is."""

    line: Index
    out: Index
    column: Index


class Chunk:
    """The n lines of a bundle on the quick rungs (on one wide rung where f is linear), with the
    analytic values a [n, M] of the columns that their outputs show.

    `suspect`: outputs [M] that are examined nearer to x. `border`: columns, counted from the first,
    along which f is known to end at x. `unmoved`, `wide`: elements [n, M] that only a coarser step,
    or one beyond the scale of x, reliably moves.
    """

    def __init__(self, run: Run, bundle: Bundle, a: Array, suspect: Mask) -> None:
        self.run = run
        self.bundle = bundle
        self.a = a
        self.suspect = suspect
        self.linear = bool(len(bundle.tensor)) and run.linear.keys() >= {*bundle.tensor.tolist()}
        self.samples = (
            quick_samples(run.point, bundle, (WIDE_RUNG,), run.quiet)
            if self.linear
            else quick_samples(run.point, bundle)
        )
        self.border = self.samples.at_border
        self.unchanged = self.samples.unchanged
        self.unmoved = run.survey.unmoved[bundle.tensor]
        self.wide = run.survey.wide[bundle.tensor]
        self.masked = self.samples.masked & np.isfinite(a) & bundle.in_pattern

    def zeros(self, outs: slice) -> Mask:
        """Return the elements [n, outs] for which f is bitwise unchanged and the analytic value
        negligible: most of a Jacobian."""
        zeros = self.unchanged[:, outs] & self.bundle.in_pattern[:, outs]
        if zeros.any():
            zeros &= ~(self.unmoved | self.wide)[:, outs] & (
                np.abs(self.a[:, outs])
                <= self.run.zero_tolerance(self.bundle.column_of[:, outs], outs)
            )
        return zeros

    def settled(self, outs: slice, zeros: Mask) -> Judged:
        """Return the other elements with their verdicts."""
        here = ~(zeros | self.masked[:, outs]) & self.bundle.in_pattern[:, outs]
        # np.nonzero takes as long for an empty mask as for a full one
        line, out = np.nonzero(here) if here.any() else np.zeros((2, 0), np.intp)
        out = out + outs.start
        cells = Cells(line, out, self.bundle.column_of[line, out])
        d = self._quick(cells)
        unaffordable = np.zeros(len(cells.out), bool)
        suspect = self.suspect[cells.out]
        for i, wide in self._pieces(cells, np.flatnonzero(suspect)):
            ladders = self._ladders(cells.take(i), wide)
            d = d.replaced(i, ladders.solve(np.arange(len(i)), FINER_RUNGS, False))
        judged = self._judged(cells, d)
        open_ = ~settled(d, judged.verdict)
        quick = ~(open_ | suspect)
        if not open_.any():
            return replace(judged, quick=quick)
        d, mismatch = self._climbed(cells, d, open_)
        # Mismatches of a group are confirmed by moving their columns individually
        if mismatch.any() and not self.bundle.grouped:
            d, unaffordable = self._confirmed(cells, d, mismatch)
        # Along the border of a domain a backward may be non-finite for the whole column
        lost = np.flatnonzero(d.outcome == NON_FINITE)
        lost = lost[np.isfinite(self.samples.f0.take(cells.out[lost]))]
        self.border[
            cells.column[lost[~self.samples.settles(cells.line[lost], cells.out[lost])]]
        ] = True
        judged = replace(self._judged(cells, d), quick=quick)
        return judged.decided(np.flatnonzero(unaffordable & judged.wrong), Limit.BUDGET)

    def add_zeros(self, tallies: Mapping[tuple[int, int], Tally], outs: slice, zeros: Mask) -> None:
        """Add the zeros, which need no solver, with the largest derivative that would pass as a
        zero."""
        masked = self.masked[:, outs]
        if not (zeros.any() or masked.any()):
            return
        f0 = finite_size(self.samples.f0[outs])
        rounding = self.run.point.unit[outs] * f0 / self.samples.widest(outs)
        resolution = self.run.zero_tolerance(self.bundle.column_of[:, outs], outs) + rounding
        for tensor in dict.fromkeys(self.bundle.tensor.tolist()):
            rows = in_a_row(np.flatnonzero(self.bundle.tensor == tensor))
            for output, part in enumerate(self.run.point.parts):
                first, last = np.clip((part.start, part.stop), outs.start, outs.stop) - outs.start
                here = rows, slice(first, last)
                a = self.a[:, outs][here][zeros[here]]
                tally = tallies[tensor, output]
                tally.add_zeros(len(a), a, resolution[here][zeros[here]])
                tally.leave_out(int(np.count_nonzero(masked[here])))

    # ---- derivatives
    def _quick(self, cells: Cells) -> Derivative:
        """Return derivatives of elements [E], `unclear` where the quick rungs do not suffice."""
        run, s, c = self.run, self.samples, self.run.columns
        if self.linear:  # the wider the step, the better
            x, scale = c.x.take(cells.column), c.scale.take(cells.column)
            rungs = s.at(0, cells.line, cells.out)[:, None]
            result = solve(run.outputs().samples(rungs, cells.out, np.abs(x), scale), False)
        else:
            sigma, unit = run.survey.sigma, run.point.unit
            widths, parts = s.step_up + s.step_down, list[Derivative]()
            for first in range(0, len(cells.out), PLAIN_PIECE) or [0]:
                i, j = (each[first : first + PLAIN_PIECE] for each in (cells.line, cells.out))
                up, down, width = (s.of(each, i, j) for each in (s.up, s.down, widths))
                parts.append(smooth_estimate(up, down, width, s.f0[j], sigma[j], unit[j]))
            result = joined(parts)
            low = (unit > LOW_UNIT)[cells.out] & (not c.rounded)
            hard = np.flatnonzero(result.unclear | low)
            if hard.size:
                of_hard = cells.take(hard)
                found = (
                    self._ladders(of_hard.take(p)).solve(np.arange(len(p)), QUICK, False)
                    for p in _pieces(of_hard.line)
                )
                result = result.replaced(hard, joined(found))
        if self.run.survey.some_unmoved:
            result = replace(
                result, unclear=result.unclear | (self.unmoved | self.wide)[cells.line, cells.out]
            )
        return result

    def _ladders(self, cells: Cells, wide: bool = False) -> Ladders:
        """Return the ladders of elements, with the quick rungs if f was sampled there; `wide`: with
        steps of at least unit scale, for elements that only move beyond the scale of x."""
        lines = widened(self.bundle, self.run.point).lines if wide else self.bundle.lines
        ladders = Ladders(lines, self.run.outputs(), cells.line, cells.out)
        if not (self.linear or wide):
            for n, k in enumerate(QUICK):
                ladders.put(k, self.samples.at(n, cells.line, cells.out))
        return ladders

    def _judged(self, cells: Cells, d: Derivative) -> Judged:
        """Judge elements by what is known now; limits of the undecided ones are not determined."""
        border_column = self.border.take(cells.column)
        a = self.a[cells.line, cells.out]
        return judged_now(self.run, cells.column, cells.out, a, d, border_column)

    def _pieces(self, cells: Cells, i: Index) -> Iterator[tuple[Index, bool]]:
        """Yield elements i in pieces that climb together, with whether they are wide: first the
        elements on the scale of x, then those that only move beyond it."""
        wide = self.wide[cells.line[i], cells.out[i]]
        for group, is_wide in ((i[~wide], False), (i[wide], True)):
            yield from ((group[p], is_wide) for p in _pieces(cells.line[group]))

    def _climbed(self, cells: Cells, d: Derivative, hard: Mask) -> tuple[Derivative, Mask]:
        """Return derivatives after elements `hard` [E] have climbed until each is settled, and the
        mismatches that have not seen every rung [E].

        There are two passes, because what is learnt of a row can unsettle its other elements.
        """
        unconfirmed, exhausted = np.zeros((2, len(cells.out)), bool)
        for _ in range(2):
            floors = self.run.floors()
            for i, wide in self._pieces(cells, np.flatnonzero(hard)):
                part = cells.take(i)
                ladders = self._ladders(part, wide)
                quick, unmoved = d.take(i), self.unmoved[part.line, part.out]
                if self.linear or wide:
                    quick = ladders.solve(np.arange(len(i)), QUICK, False)
                    unmoved = np.zeros(len(i), bool)
                climb = Climb(ladders, quick, partial(self._verdicts, part), unmoved)
                d = d.replaced(i, climb.run())
                unconfirmed[i], exhausted[i] = climb.unconfirmed, climb.exhausted
            if self.run.floors() is floors:
                break  # nothing was learnt
            hard = ~settled(d, self._judged(cells, d).verdict) & ~unconfirmed & ~exhausted
        return d, unconfirmed

    def _verdicts(self, cells: Cells, i: Index, d: Derivative) -> Codes:
        return self._judged(cells.take(i), d).verdict

    # ---- confirming
    def _confirmed(self, cells: Cells, d: Derivative, mismatch: Mask) -> tuple[Derivative, Mask]:
        """Confirm mismatches by the whole ladder: the worst columns of each pair climb it until one
        mismatch is confirmed.

        Also return the elements left by the budget [E]; where it is spent, one column climbs for
        all pairs.
        """
        run, unaffordable = self.run, np.zeros(len(cells.out), bool)
        misses = np.nan_to_num(
            np.abs(self.a[cells.line, cells.out] - d.value) / (d.bar + 1e-300), nan=np.inf
        )
        for i in run.by_pair(cells.column, cells.out, np.flatnonzero(mismatch)):
            if run.certainly_wrong and run.over_budget(EVERY_RUNG):
                unaffordable[i] = True
                continue
            unmeasured = np.ones(len(i), bool)
            for places in worst_first(
                cells.line[i], np.argsort(-misses[i], kind="stable"), columns_at_once(run), None
            ):
                if not unmeasured.all() and run.over_budget(EVERY_RUNG):
                    unaffordable[i[unmeasured]] = True
                    break
                unmeasured[places], measured = False, i[places]
                for e, wide in self._pieces(cells, measured):
                    d = d.replaced(e, self._ladders(cells.take(e), wide).every_rung())
                judged = self._judged(cells.take(measured), d.take(measured))
                if judged.wrong.any():
                    run.certainly_wrong.update(judged.out[beyond_cancelling(run, judged)].tolist())
                    break
        return d, unaffordable


def _pieces(line: Index) -> Iterator[Index]:
    """Yield ranges of at most PIECE elements, whose lines [E] ascend, cut between lines where
    possible."""
    start, n = 0, len(line)
    while start < n:
        stop = min(start + PIECE, n)
        if stop < n and line[stop] != line[start]:
            stop = int(np.searchsorted(line, line[stop]))
        yield np.arange(start, stop)
        start = stop


# Columns that no output shares, moved together in colour groups, against the analytic values of
# compressed VJPs (method.md section 5).
# The VJP of a row group is a sum of rows. It shows each row individually only where the backward
# has no entry off the pattern, which is so wherever its numbers are right. Where one is wrong, the
# outputs of the group are pulled back in halves by the bits of their numbers. That identifies the
# output that each number comes from, or shows that it comes from several outputs, which are then
# pulled back one by one.
# Parts that a set of outputs is split into: a full search takes a third more backwards than there
# are outputs
PARTS = 4
NEARER = 5  # rungs finer (a step 600 times smaller) at which a tie must still be a tie
MOST_ENTRIES = 1 << 21  # most entries off the pattern of a group that are kept
# Error of a sum by backward, as a fraction of the magnitudes that add up (numbers inside may have
# cancelled), and as a multiple of the roundoff; the larger of both
ADDS_UP, ROUNDINGS = 1e-9, 64.0
# The smallest step of a group's columns, as a fraction of the scale
LEAST_STEP = WEIGHTS[0] * BASE * RATIO ** -QUICK[0]


# ---- The analytic Jacobian by few backwards: outputs that share no input are pulled back together
def analytic_values(
    run: Run, weights: Array, spans: Mapping[int, range], verify: bool = False
) -> tuple[dict[int, Array], dict[tuple[int, int, int], float]]:
    """Return per tensor the analytic values [groups, M] of the column groups in `spans`; and the
    row groups with numbers off the pattern, by (tensor, output, number), with the largest such
    number in units of the inputs' sizes. One backward per row group.

    `weights` [M]: the cotangents of group members, continuous and signed; the weight of a single
    member is 1.

    Numbers off the pattern show only where none of a group's outputs depends on the input. With
    `verify`, all outputs are also pulled back together once with other weights, one backward per
    output tensor: the result may differ from the sum of the values only by rounding, or the values
    are sums with such numbers.
    """
    point, plans = run.point, [run.structure.plans[tensor] for tensor in spans]
    m, strays = len(point.f0), dict[tuple[int, int, int], float]()
    values = {tensor: np.zeros((len(span), m)) for tensor, span in spans.items()}
    gradients = dict[int, Array]()  # of all outputs of a tensor together
    for shared in shared_groups([plan.rows for plan in plans]):
        sharing = [plans[n] for n in shared.users]
        rows = shared.groups
        part = point.parts[shared.output]
        members = np.bincount(rows.group, minlength=rows.count)
        weight = np.where(members[rows.group] == 1, 1.0, weights[part])
        verified = verify and bool((members > 1).any())
        if verified:
            together = random_cotangent(point, shared.output, "all rows")
            # The sums of the values, and of their magnitudes [2, N]
            sums = {plan.tensor: np.zeros((2, plan.size)) for plan in sharing}
        for groups, pulled in pulled_groups(
            point, shared, weight, [plan.tensor for plan in sharing]
        ):
            by_column = point.columns.combined(pulled)
            for plan in sharing:
                span = spans[plan.tensor]
                entry = by_column[:, plan.first : plan.first + plan.size]
                row = plan.rows[shared.output].rows_of(groups)
                held = row != NO_ENTRY
                if not held.all():
                    off = np.abs(np.where(held, 0.0, entry))
                    size = point.columns.size[plan.first : plan.first + plan.size]
                    for n in np.flatnonzero((off != 0).any(1)).tolist():
                        largest = ((off[n] / WEIGHTS[0] - run.atol) * size)[off[n] != 0]
                        place = plan.tensor, shared.output, groups[n]
                        strays[place] = float(np.nan_to_num(largest, nan=np.inf).max())
                at, column = np.nonzero(held)
                row = row[at, column]
                entry = entry[at, column] / weight.take(row)
                if verified:
                    terms = entry * together.take(row)
                    for total, each in zip(sums[plan.tensor], (terms, np.abs(terms)), strict=True):
                        total += np.bincount(column, each, plan.size)
                row = row + part.start
                run.reach.add_entries(row, plan.first + column, entry)
                group = plan.colour[column] - span.start
                inside = (group >= 0) & (group < len(span))
                values[plan.tensor].reshape(-1)[(group * m + row)[inside]] = entry[inside]
        if verified:
            gradient = gradients.get(shared.output)
            if gradient is None:
                gradient = point.by_column(pull_back(point, shared.output, together))
                gradients[shared.output] = gradient
            unit = max(float(point.unit[part].max()), point.backward_unit)
            for plan in sharing:
                of_tensor = slice(plan.first, plan.first + plan.size)
                total, magnitude = sums[plan.tensor]
                off = np.abs(gradient[of_tensor] - total)
                off -= max(ADDS_UP, ROUNDINGS * unit) * magnitude
                off = (off / WEIGHTS[0] - run.atol) * point.columns.size[of_tensor]
                largest = float(np.where(np.isfinite(off), off, 0.0).max(initial=0.0))
                for g in np.flatnonzero(members > 1).tolist() if largest > 0 else ():
                    place = plan.tensor, shared.output, g
                    strays[place] = max(largest, strays.get(place, 0.0))
    return values, strays


# ---- One-hot numbers from compressed VJPs: the entries of a row group's backward off the sparsity
# pattern, by output
class OneHot:
    """The entries off the pattern in the backward of a row group: `out`, `column`, `value` [E], as
    one-hot cotangents give them. They are found by a search among its outputs, numbered from 0, for
    those from which the inputs [N] of one tensor are reached. `weights` [M]: of cotangents.

    `shared` [N]: inputs of the pattern that other outputs reach too; `own` [N]: the gradients of
    these inputs by their own output alone, NaN where the budget ended before they were known.

    2 log₂(outputs) backwards; more where an input is reached from several outputs: at least as many
    as identify one of them, the others as far as the budget allows.
    """

    def __init__(self, run: Run, plan: Plan, output: int, group: int, weights: Array) -> None:
        self.run, self.output, self.weights, self.finished = run, output, weights, True
        first, rows = plan.first, plan.rows[output]
        self.columns = slice(first, first + plan.size)
        members, owner = rows.members(group), rows.rows_of(range(group, group + 1))[0]
        self.outs = members + run.point.parts[output].start
        self.owner = np.where(owner < 0, -1, np.searchsorted(members, owner))
        least = run.floors()[self.outs].min(initial=np.inf)
        self.rounding = WEIGHTS[0] * (run.atol + least / run.columns.size[self.columns])
        source, several, value = self._sources()
        stray = (source >= 0) & (source != self.owner)
        self.shared, self.own = (several | stray) & (self.owner >= 0), np.zeros(len(source))
        place = np.flatnonzero(several)
        weight = weights[self.outs[source[stray]]]
        found = [(source[stray], np.flatnonzero(stray), value[stray] / weight)]
        alone = self._rows(place) if len(place) else {}
        for n, row in alone.items():
            here = self.owner[place] == n
            self.own[place[here]] = row[here]
            there = np.flatnonzero(~here & self._reached(row, place))
            found.append((np.full(len(there), n), place[there], row[there]))
        if not self.finished:
            self.own[place[~np.isin(self.owner[place], list(alone))]] = np.nan
        out, column, self.value = (np.concatenate(each) for each in zip(*found, strict=True))
        self.out, self.column = self.outs[out], column + first

    def _pulled(self, which: Index) -> Array:
        """Return the gradient [N] of some of the outputs."""
        point, outs = self.run.point, self.outs[which]
        rows = outs - point.parts[self.output].start
        gradient = gradient_of_rows(point, self.output, rows, self.weights[outs])
        return point.columns.combined(gradient)[self.columns]

    def _reached(self, gradient: Array, place: Index | slice = slice(None)) -> Mask:
        """Return where a gradient at some inputs is more than rounding."""
        return np.asarray(~(np.abs(gradient) <= self.rounding[place]))

    def _sources(self) -> tuple[Index, Mask, Array]:
        """Return for each input [N] the only output that it is reached from, or −1; whether it is
        reached from several; and the value."""
        number, size = np.arange(len(self.outs)), len(self.owner)
        bits = max(len(number) - 1, 0).bit_length()
        source = np.zeros(size, np.intp)
        seen = np.zeros(size, np.intp)
        value = np.zeros(size)
        several, lost = np.zeros(size, bool), np.ones(size, bool)
        for bit in range(bits):
            off, on = (self._pulled(np.flatnonzero((number >> bit) & 1 == side)) for side in (0, 1))
            from_off, from_on = self._reached(off), self._reached(on)
            several |= from_off & from_on
            seen += from_off | from_on
            source += from_on.astype(np.intp) << bit
            value = np.where(from_on, on, np.where(from_off, off, value))
            lost &= ~np.isfinite(off) & ~np.isfinite(on)
        if not bits:
            return np.full(size, -1), self.owner != 0, value
        several |= (seen > 0) & (seen < bits)  # or the backward is not linear
        several &= ~(lost & (self.owner >= 0))  # NaN for every cotangent, as 0 · inf
        return np.where(several | (seen == 0) | lost, -1, source), several, value

    def _rows(self, place: Index) -> dict[int, Array]:
        """Return the gradients [k] at these inputs of each output that reaches one of them, pulled
        back individually; by the number of the output."""
        rows, left = dict[int, Array](), [np.arange(len(self.outs))]
        while left:
            which = left.pop()
            if rows and (len(rows) * len(place) > MOST_ENTRIES or self.run.over_budget()):
                self.finished = False
                break
            if not len(which) == len(self.outs) > 1:  # the gradient of all outputs reaches them
                gradient = self._pulled(which)[place]
                if not self._reached(gradient, place).any():
                    continue
                if len(which) == 1:
                    rows[int(which[0])] = gradient / self.weights[self.outs[which[0]]]
                    continue
            left += [part for part in np.array_split(which, PARTS) if len(part)]
        return rows


# ---- The colour groups of one tensor
@dataclass(frozen=True)
class ColourGroups:
    """One tensor of a sweep, whose columns are moved in groups.

    `plain` [N]: columns whose elements are all right and smooth; `one_hot`: one-hot numbers of row
    groups, by output tensor and number.
    """

    sweep: Sweep
    plan: Plan
    plain: Mask
    one_hot: dict[tuple[int, int], OneHot] = field(default_factory=dict)

    def confirmed(self, judged: Judged) -> Judged | None:
        """Return the elements after the worst mismatches were measured individually; None where the
        forward's groups are wrong, or a small tensor is better compared column by column."""
        unconfirmed = judged.wrong
        if not unconfirmed.any():
            return judged
        if self._by_columns:
            return None
        return self._confirmed(*self._with_one_hot(judged, unconfirmed))

    @property
    def _by_columns(self) -> bool:
        """Whether the tensor is so small that its columns are better compared one by one."""
        return self.plan.size <= SMALL and not self.sweep.run.over_budget(EVERY_RUNG)

    # ---- one-hot numbers
    def _with_one_hot(self, before: Judged, unconfirmed: Mask) -> tuple[Judged, Mask]:
        """Return the elements with one-hot numbers for the row groups that hold mismatches, without
        the elements whose number the budget leaves unknown; and which of them are not confirmed."""
        keep = np.ones(len(before.out), bool)
        analytic = before.analytic.copy()
        for output, part in enumerate(self.sweep.run.point.parts):
            of_output = np.flatnonzero(in_range(before.out, part))
            groups = self.plan.rows[output].group[before.out[of_output] - part.start]
            for g in np.unique(groups[unconfirmed[of_output]]).tolist():
                found = self._off_pattern(output, g)
                i = of_output[groups == g]
                if found is None:
                    keep[i[before.verdict[i] == MISMATCH]] = False
                else:
                    i = i[found.shared[before.column[i] - self.plan.first]]
                    analytic[i] = found.own[before.column[i] - self.plan.first]
                    keep[i] = np.isfinite(analytic[i])
            tally = self.sweep.tallies[self.plan.tensor, output]
            tally.leave(int(np.count_nonzero(~keep[of_output])))
        changed = analytic != before.analytic
        judged = before.judged_anew(analytic=analytic)
        kept = np.flatnonzero(keep)
        return judged.take(kept), ((unconfirmed | changed) & judged.wrong)[kept]

    def _off_pattern(self, output: int, group: int) -> OneHot | None:
        """Return the entries of a row group off the pattern; None where the budget has ended and
        another element is wrong."""
        found = self.one_hot.get((output, group))
        if found is None and not self.sweep.budget_ended:
            found = OneHot(self.sweep.run, self.plan, output, group, self.sweep.weights)
            self.one_hot[output, group] = found
        return found

    def add_off_pattern(self, strays: Mapping[tuple[int, int, int], float]) -> bool:
        """Add entries off the pattern, some at a time, as elements whose derivative is 0: those of
        row groups that hold mismatches, and of `strays`.

        Return False where f does depend on one of these inputs, or a small tensor is better
        compared column by column.
        """
        run = self.sweep.run
        c = run.columns
        floors = run.floors()
        for (tensor, output, group), size in strays.items():
            if tensor == self.plan.tensor:
                part = run.point.parts[output]
                members = self.plan.rows[output].members(group)
                if not size <= floors[part][members].min(initial=np.inf):
                    if self._by_columns:
                        return False
                    self._off_pattern(output, group)
        for found in self.one_hot.values():
            for i in pieces(len(found.out), SPAN):
                column = found.column[i]
                out = found.out[i]
                value = found.value[i]
                d = at_rest(
                    np.where(np.isfinite(run.point.f0), run.noise, np.inf)[out]
                    / (LEAST_STEP * c.scale[column])
                )
                judged = judged_now(run, column, out, value, d)
                confirmed = self._confirmed(judged, judged.wrong)
                if confirmed is None:
                    return False
                self.sweep.add([self.plan.tensor], excused_anew(run, confirmed))
        return True

    # ---- mismatches
    def _confirmed(self, judged: Judged, unconfirmed: Mask) -> Judged | None:
        """Measure the worst mismatch of each column individually before any mismatch of an output
        tensor is reported. Return None where one is right though its group was not, with the same
        analytic value."""
        sweep, run = self.sweep, self.sweep.run
        for output, part in enumerate(run.point.parts):
            pair = (self.plan.tensor, output)
            of_output = in_range(judged.out, part)
            measured = 0
            while measured < MOST_COLUMNS and not (
                sweep.budget_ended or enough_confirmed(sweep.confirmed[pair], sweep.cleared[pair])
            ):
                i = np.flatnonzero(unconfirmed & of_output & judged.wrong)
                i = i[judged.take(i).worst_first()]
                i = i[np.sort(np.unique(judged.column[i], return_index=True)[1])][
                    : columns_at_once(run)
                ]
                if not i.size:
                    break
                alone = measured_alone(run, judged.column[i], judged.out[i])
                before = judged.analytic[i]
                judged = judged.replaced(i, alone)
                unconfirmed[i] = False
                measured = measured + len(i)
                sweep.confirmed[pair] += int(np.sum(alone.wrong))
                sweep.cleared[pair] += int(np.sum(alone.verdict == PASS))
                same = np.abs(before - alone.analytic) <= alone.tolerances.tolerance(
                    alone.analytic, alone.analytic
                )
                if (same & (alone.verdict == PASS)).any():
                    return None
            if sweep.cleared[pair] or not sweep.confirmed[pair]:
                why = (
                    Limit.BUDGET
                    if sweep.budget_ended
                    else Limit.COMPANY
                    if sweep.cleared[pair]
                    else Limit.ALONE
                )
                judged = judged.decided(np.flatnonzero(unconfirmed & of_output & judged.wrong), why)
        return judged

    # ---- outputs that moved off the pattern
    def consistent(self, chunk: Chunk, outs: slice, judged: Judged) -> bool:
        """Return whether these elements, and the outputs that moved off the pattern, are consistent
        with the groups."""
        if judged.verdict.any() or judged.derivative.rough:  # PASS is 0
            odd = (judged.verdict != PASS) | (judged.derivative.outcome != SMOOTH)
            self.plain[judged.column[odd] - self.plan.first] = False
        strays = chunk.samples.strays(outs, self.sweep.run.survey.sigma)
        return self.sweep.budget_ended or not any(
            lasts(self.sweep.run, chunk.bundle.lines[n], np.flatnonzero(strays[n]) + outs.start)
            for n in np.flatnonzero(strays.any(1)).tolist()
        )


def lasts(run: Run, line: Line, out: Index) -> bool:
    """Return whether one of the outputs [k] that moved along a line, off the pattern, depends on it
    at x itself: two calls, or four.

    An apparent dependence (the next value in a sort, the loser of a maximum) ends as the step
    shrinks, unless noise would have hidden a linear dependence on the NEARER rung.
    """

    def moved(rung: int) -> Array:
        sides = (line.at(sign * step(line.scale, rung)) for sign in (1.0, -1.0))
        f0, nan = run.point.f0[out], np.full(len(out), np.nan)
        off = [nan if side is None else np.abs(side[0][out] - f0) for side in sides]
        return np.asarray(np.max(off, 0))

    near = moved(QUICK[0] + NEARER)
    if not (rests := near <= STRAY * run.survey.sigma[out]).all():
        return True
    shown = moved(QUICK[0]) * RATIO ** float(-NEARER) > VISIBLE * run.noise[out]
    return bool((rests & ~shown).any())


SLACK = 1e-3  # of the sum along the ray: tolerance for curvature
TILE_LIMIT = 64 << 20  # bytes of a tile and a chunk together
# Bytes of an element of a single column: both sides of the quick rungs, masks, tolerances
CHUNK_BYTES = 16 * len(QUICK) + 24
# Bytes of an element of a group whose derivative is solved: samples of the quick rungs, their
# steps, columns, the derivative and its copies
GROUP_BYTES = 600


def compare_entries(run: Run, keep: int) -> tuple[list[Pair], Structure, bool]:
    """Return a pair per (input, output) with every element judged; the structure that held; and
    whether the budget ended first, so that the remaining elements are undecided. `keep`: how many
    of the worst elements a pair keeps.

    The sweep is repeated with other groups for tensors whose groups proved wrong, for small tensors
    in groups that do not simply pass (column by column, which counts every wrong element), and
    where elements do not add up.
    """
    with np.errstate(all="ignore"):
        suspect = nothing = np.zeros(len(run.point.f0), bool)
        while True:
            sweep = Sweep(run.fresh(), keep, TILE_LIMIT, suspect)
            try:
                broken = sweep.judge_all()
            except Spent:
                for tally in sweep.tallies.values():
                    tally.leave_rest()
                return sweep.pairs(finished=False), run.structure, False
            if sweep.complete and not (suspect.any() or run.over_budget()):
                suspect = sweep.not_adding_up()
                if suspect.any():
                    continue
            pairs = sweep.pairs(finished=True)
            plans = run.structure.plans
            if not broken and not run.over_budget():
                broken = {
                    pair.input
                    for pair in pairs
                    if pair.verdict is not Verdict.PASS
                    and pair.input in plans
                    and plans[pair.input].size <= SMALL
                }
            if not broken:
                return pairs, run.structure, True
            try:
                run, suspect = with_other_groups(run, broken), nothing
            except Spent:
                return pairs, run.structure, False


class Sweep:
    """One pass over all elements, added to `tallies` by (input, output).

    `suspect`: outputs [M] that are examined nearer to x. `confirmed`, `cleared`: numbers of
    elements of groups, measured individually, that are mismatches or right. `limit`: bytes of a
    tile and a chunk together; `room`: columns, or groups, whose analytic values fit into a tile.
    `weights` [M]: the cotangents of row groups. `broken`: tensors whose groups proved wrong.
    """

    def __init__(self, run: Run, keep: int, limit: int, suspect: Mask) -> None:
        point, m = run.point, len(run.point.f0)
        self.run = run
        self.plans = run.structure.plans
        self.suspect = suspect
        self.known = np.ones(m, bool)
        self.confirmed, self.cleared = Counter[tuple[int, int]](), Counter[tuple[int, int]]()
        self.sum, self.bar = np.zeros((2, m))
        self.limit = limit
        self.room = self._at_once(2 * 8)
        self.weights = signed_weights_float32(m, point.seed.generator("row groups"))
        self.broken = set[int]()
        self.tallies = {
            (t, o): Tally(t, o, (part.stop - part.start, size), keep, run.requested)
            for t, size in enumerate(np.diff(point.starts).tolist())
            for o, part in enumerate(point.parts)
        }

    @property
    def budget_ended(self) -> bool:
        """Whether the budget affords no further column and an element measured individually
        is wrong, which suffices."""
        return self.run.over_budget(EVERY_RUNG) and self.confirmed.total() > 0

    def judge_all(self) -> set[int]:
        """Judge single columns, groups with the entries of their backwards off the pattern, and
        whether the elements add up; return the tensors whose groups contradict their plan. Raises
        Spent."""
        point, broken = self.run.point, self.broken
        grouped = {
            t: ColourGroups(self, plan, np.ones(plan.size, bool)) for t, plan in self.plans.items()
        }
        for groups, bundle, a in self._bundles(grouped):
            if not self._judge(groups, bundle, a):
                broken.update(bundle.tensor.tolist())
        for t, groups in grouped.items():
            if t not in broken and not groups.add_off_pattern(self.strays):
                broken.add(t)
        self.complete = not broken
        if grouped and self.complete:
            broken = self._off_together(
                grouped
            ) - {  # although no individually measured element is wrong
                tensor
                for tensor, output in self.tallies
                if self.confirmed[tensor, output] or self.budget_ended
            }
        for plan in self.plans.values():
            # Columns in no group: f does not depend on them, and their gradient is 0
            of_tensor = slice(plan.first, plan.first + plan.size)
            size = point.columns.size[of_tensor].min()
            least_step = LEAST_STEP * point.columns.scale[of_tensor].min()
            for output, part in enumerate(point.parts):
                tally = self.tallies[plan.tensor, output]
                missing = plan.size * (part.stop - part.start) - tally.elements
                if missing > 0:
                    rounding = point.unit[part] * finite_size(point.f0[part])
                    floor = self.run.floors()[part].max() / size
                    resolution = self.run.atol + floor + rounding.max() / least_step
                    tally.add_zeros(missing, np.zeros(1), np.array([resolution]))
        return broken

    def _bundles(
        self, grouped: Mapping[int, ColourGroups]
    ) -> Iterator[tuple[ColourGroups | None, Bundle, Array]]:
        """Yield bundles of n lines with their analytic values [n, M]: single columns, then the
        groups of each tensor, until one of them proves wrong."""
        run, point, m = self.run, self.run.point, len(self.run.point.f0)
        tensors = (t for t in range(len(point.buffers)) if t not in self.plans)
        single = np.concatenate([*map(point.columns.of, tensors), np.zeros(0, np.intp)])
        for span in pieces(len(single), self.room):
            tile = single[span]
            a = np.empty((len(tile), m))  # of the analytic Jacobian, transposed
            for j in range(m):
                row = point.row(j)
                run.reach.add_row(j, row)
                a[:, j] = row[tile]
            for chunk in pieces(len(tile), self._at_once(2 * CHUNK_BYTES)):
                yield None, single_columns(point, tile[chunk]), a[chunk]
        counts = {t: plan.groups.count for t, plan in self.plans.items()}
        one_tile = sum(counts.values()) <= self.room
        spans = {t: range(count if one_tile else 0) for t, count in counts.items()}
        values, self.strays = analytic_values(run, self.weights, spans, verify=True)
        for t, groups in grouped.items():
            for span in pieces(counts[t], counts[t] if one_tile else self.room):
                if not one_tile and t not in self.broken:
                    part = range(span.start, span.stop)
                    values = analytic_values(run, self.weights, {t: part})[0]
                for chunk in pieces(span.stop - span.start, self._at_once(GROUP_BYTES)):
                    if t not in self.broken:
                        a = values[t][chunk]
                        first = span.start + chunk.start
                        yield groups, groups.plan.bundle(point, first, len(a)), a

    def _at_once(self, size: int) -> int:
        """Return how many lines to judge together, with elements of this size in bytes."""
        return max(1, self.limit // (size * max(len(self.run.point.f0), 1)))

    def pairs(self, finished: bool) -> list[Pair]:
        """Return the results by pair."""
        point = self.run.point
        pairs = list[Pair]()
        for (tensor, output), tally in self.tallies.items():
            plan, part = self.plans.get(tensor), point.parts[output]
            pair = self.run.result(tally)
            columns = len(point.columns.of(tensor))
            rows = part.stop - part.start
            if plan:
                few = plan.rows[output].count < rows
                if finished and few and pair.verdict is not Verdict.PASS:
                    pair = _as_returned(self.run, plan, pair)
                columns = plan.groups.count
                rows = plan.rows[output].count
            pairs.append(replace(pair, groups=columns, row_groups=rows))
        return pairs

    def _off_together(self, grouped: Mapping[int, ColourGroups]) -> set[int]:
        """Return the tensors for which one direction and one cotangent of the whole function
        disagree, though the elements agree: their structure is another one."""
        run = self.run
        point = self.run.point
        patterns = dict(self.run.structure.patterns)
        along = list[Directions]()
        for t, groups in grouped.items():
            drawn = draw_directions(point, t, VERIFIED_ALONG, run.survey.direction_samples[t])
            if not groups.plain.all():  # a tie missed by the structure may move other outputs
                move = np.where(groups.plain, drawn.moves[0], 0.0)
                drawn = Directions(point, t, [move])
                plain = np.append(groups.plain, False)
                shown = np.zeros(len(point.f0), bool)
                for n in range(groups.plan.groups.count):  # NO_ENTRY indexes the last one
                    shown |= plain[groups.plan.groups.columns_of(range(n, n + 1))[0]]
                patterns[t] = tuple(
                    replace(pattern, nothing=~shown[part])
                    for pattern, part in zip(patterns[t], point.parts, strict=True)
                )
            along.append(drawn)
        seen = {pair: tally.deviation for pair, tally in self.tallies.items()}
        found = screen(run, patterns, along, rows=False, linear=run.linear, seen=seen)
        off = {pair.input for pair in found if len(pair.flagged)}
        moves = {each.tensor: DirectionLine(point, *each.moving()) for each in along}
        for pair in found:
            if pair.strays and pair.input not in off:
                moved = np.array([out for _, out in pair.strays])
                off |= {pair.input} if lasts(run, moves[pair.input], moved) else set()
        return off

    # ---- a chunk of either
    def _judge(self, groups: ColourGroups | None, bundle: Bundle, a: Array) -> bool:
        """Judge the lines of a bundle of n against analytic values a [n, M]; return False where its
        `groups` prove wrong.

        `groups`: None where each line moves one column.
        """
        if self.run.stops and self.run.over_budget():
            raise Spent("the budget was spent")
        run, m = self.run, a.shape[1]
        chunk = Chunk(run, bundle, a, self.suspect)
        width = max(1, SPAN // max(len(a), 1))
        for start in range(0, m, width) or [0]:
            outs = slice(start, min(start + width, m))
            zeros = chunk.zeros(outs)
            settled = chunk.settled(outs, zeros)
            confirmed = groups.confirmed(settled) if groups else settled
            if confirmed is None:
                return False
            judged = excused_anew(run, confirmed)
            chunk.add_zeros(self.tallies, outs, zeros)
            self.add(dict.fromkeys(bundle.tensor.tolist()), judged)
            # The elements times the survey ray's moves of their columns, per output
            d, by = judged.derivative, run.survey.moved_by[judged.column]
            rough = (judged.verdict != PASS) | ~d.smooth | ~np.isfinite(d.bar)
            self.known[judged.out[rough]] = False
            for sums, terms in ((self.sum, d.value * by), (self.bar, d.bar * np.abs(by))):
                sums += np.bincount(judged.out, np.where(rough, 0.0, terms), len(sums))
            if groups and not groups.consistent(chunk, outs, judged):
                return False
        return True

    def add(self, tensors: Collection[int], judged: Judged) -> None:
        """Add the elements, which are of columns of these tensors, to the tally of each pair."""
        point = self.run.point
        for tensor in tensors:
            for output, part in enumerate(point.parts):
                elements = judged
                if len(tensors) > 1 or len(point.parts) > 1:
                    of_pair = in_range(judged.out, part)
                    if len(tensors) > 1:
                        of_pair &= point.columns.tensor[judged.column] == tensor
                    elements = judged.take(np.flatnonzero(of_pair))
                quick = 0 if elements.quick is None else int(np.count_nonzero(elements.quick))
                tally = self.tallies[tensor, output]
                tally.add(elements.entries(point, tally), quick)

    def not_adding_up(self) -> Mask:
        """Return the outputs [M] whose elements do not add up to the change of f along the survey's
        ray: nearer to x than any step taken, f behaves differently."""
        change = self.run.survey.change
        slack = self.bar + 2 * Z * self.run.noise + SLACK * np.abs(self.sum)
        return self.known & np.isfinite(change) & (np.abs(self.sum - change) > slack)


def _as_returned(run: Run, plan: Plan, pair: Pair) -> Pair:
    """Return the pair with the numbers of one-hot cotangents for the elements that are shown; those
    of groups equal them but for rounding."""
    part = run.point.parts[pair.output]
    of_tensor = slice(plan.first, plan.first + plan.size)
    rows = {
        j: run.point.row(part.start + j)[of_tensor]
        for j in {record.output_index for record in pair.worst}
    }

    def returned(record: ElementRecord) -> ElementRecord:
        return record._replace(analytic=float(rows[record.output_index][record.input_index]))

    requested = pair.requested and (
        returned(pair.requested) if pair.requested.output_index in rows else pair.requested
    )
    return replace(pair, worst=tuple(map(returned, pair.worst)), requested=requested)
