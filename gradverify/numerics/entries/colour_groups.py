"""Columns that no output shares, moved together in colour groups, against the analytic values of
compressed VJPs (method.md section 5).

The VJP of a row group is a sum of rows. It shows each row by itself only where the backward has no
entry off the pattern, which is so wherever its numbers are right. Where one is wrong, the outputs
of the group are pulled back in halves by the bits of their numbers, which tells the output that
each number comes from, or that it comes from several. The latter are pulled back one by one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from gradverify.numerics.entries.chunk import SPAN, ChunkResult
from gradverify.numerics.entries.confirm import Confirmations, confirmed_anew, measured_alone
from gradverify.numerics.estimate.climb import EVERY_RUNG
from gradverify.numerics.estimate.ladder import SMOOTH, at_rest
from gradverify.numerics.estimate.samples import Line
from gradverify.numerics.excuses.order import excused
from gradverify.numerics.grouped_vjps import pulled_groups, shared_groups
from gradverify.numerics.judging import (
    MOST_COLUMNS,
    Bundle,
    Judged,
    Plan,
    Run,
    columns_at_once,
    judged_now,
)
from gradverify.numerics.pairs.pair import Tally
from gradverify.numerics.prepare import SMALL
from gradverify.numerics.rungs import (
    BASE,
    QUICK,
    RATIO,
    VISIBLE,
    Array,
    Index,
    Mask,
    in_range,
    pieces,
    step,
)
from gradverify.numerics.seed_vectors import WEIGHTS, gradient_of_rows
from gradverify.numerics.sparsity.pattern import NO_ENTRY
from gradverify.numerics.survey import STRAY
from gradverify.numerics.verdict import Limit, Verdict

# of a set of outputs that is searched: a full search takes a third more backwards than there are
# outputs
PARTS = 4
NEARER = 5  # rungs below, 600 times nearer, a tie must be a tie still
MOST_ENTRIES = 1 << 21  # off the pattern of a group that are kept
# Of the scale: what a group's columns are moved by at least
LEAST_STEP = WEIGHTS[0] * BASE * RATIO ** -QUICK[0]


# ---- The analytic Jacobian through few backwards: outputs that share no input are pulled back
# together
def analytic_values(
    run: Run, of: Mapping[int, Plan], weights: Array, spans: Mapping[int, range]
) -> tuple[dict[int, Array], dict[tuple[int, int, int], float]]:
    """Per tensor the analytic values [groups, M] of these column groups; and by tensor, output and
    number the row groups that have numbers where none of their outputs depends on the input, with
    the largest in units of the inputs' sizes: one backward a row group. `weights` [M]: the
    cotangents of group members, continuous and signed; that of a lone one is 1."""
    point, plans = run.point, [of[tensor] for tensor in spans]
    m, strays = len(point.f0), dict[tuple[int, int, int], float]()
    values = {tensor: np.zeros((len(span), m)) for tensor, span in spans.items()}
    for shared in shared_groups([plan.rows for plan in plans]):
        sharing = [plans[n] for n in shared.users]
        rows = shared.groups
        part = point.parts[shared.output]
        weight = np.where(
            np.bincount(rows.group, minlength=rows.count)[rows.group] == 1, 1.0, weights[part]
        )
        for groups, pulled in pulled_groups(
            point, shared, weight, [plan.tensor for plan in sharing]
        ):
            by_column = point.columns.combined(pulled)
            for plan in sharing:
                span, entry = spans[plan.tensor], by_column[:, plan.first : plan.first + plan.size]
                row, column = plan.rows[shared.output].rows_of(groups), np.arange(plan.size)
                held = row != NO_ENTRY
                if not held.all():
                    off = np.abs(np.where(held, 0.0, entry))
                    size = point.columns.size[plan.first : plan.first + plan.size]
                    for n in np.flatnonzero((off != 0).any(1)).tolist():
                        largest = ((off[n] / WEIGHTS[0] - run.atol) * size)[off[n] != 0]
                        place = plan.tensor, shared.output, groups[n]
                        strays[place] = float(np.nan_to_num(largest, nan=np.inf).max())
                    at, column = np.nonzero(held)
                    row, entry = row[at, column], entry[at, column]
                entry = entry / weight.take(row)
                row = row + part.start
                run.reach.add_entries(row, plan.first + column, entry)
                group = plan.colour[column] - span.start
                inside = (group >= 0) & (group < len(span))
                if not inside.all():
                    inside = np.broadcast_to(inside, row.shape)
                    group = np.broadcast_to(group, row.shape)[inside]
                    row = row[inside]
                    entry = entry[inside]
                values[plan.tensor].reshape(-1)[group * m + row] = entry
    return values, strays


# ---- One-hot numbers from compressed VJPs: what the backward of a row group has off the sparsity
# pattern, output by output
@dataclass(frozen=True)
class OneHot:
    """What a row group's backward has off the pattern: entries (`out`, `column`, `value`) [E], as
    one-hot cotangents give them.

    `shared` [k]: columns of the pattern that other outputs reach too, and `own` [k], what their own
    output alone gives there; NaN where the budget ended before that was known.
    """

    out: Index
    column: Index
    value: Array
    shared: Index
    own: Array


class _Search:
    """The search among the outputs of one row group, numbered from 0, for those that the inputs [N]
    of one tensor are reached from; `weights` [M] of its cotangents."""

    def __init__(self, run: Run, plan: Plan, output: int, group: int, weights: Array) -> None:
        rows, start = plan.rows[output], run.point.parts[output].start
        self.run = run
        self.output = output
        self.weights = weights
        self.columns = slice(plan.first, plan.first + plan.size)
        members, owner = rows.members(group), rows.rows_of(range(group, group + 1))[0]
        self.outs = members + start
        self.owner = np.where(owner < 0, -1, np.searchsorted(members, owner))
        least = run.floors()[self.outs].min(initial=np.inf)
        self.rounding = WEIGHTS[0] * (run.atol + least / run.point.columns.size[self.columns])
        self.finished = True

    def found(self) -> OneHot:
        """2 log₂(outputs) backwards; more where an input is reached from several outputs: at least
        as many as lead to one of them, the others as far as the budget goes."""
        source, several, value = self._sources()
        stray = (source >= 0) & (source != self.owner)
        shared = np.flatnonzero((several | stray) & (self.owner >= 0))
        place = np.flatnonzero(several)
        out = [source[stray]]
        column = [np.flatnonzero(stray)]
        values = [value[stray] / self.weights[self.outs[source[stray]]]]
        own, rows = np.zeros(len(source)), self._rows(place) if len(place) else {}
        for n, row in rows.items():
            here = self.owner[place] == n
            own[place[here]] = row[here]
            there = np.flatnonzero(~here & self._reached(row, place))
            out = [*out, np.full(len(there), n)]
            column = [*column, place[there]]
            values = [*values, row[there]]
        if not self.finished:
            own[place[~np.isin(self.owner[place], list(rows))]] = np.nan
        first = self.columns.start
        return OneHot(
            self.outs[np.concatenate(out)],
            np.concatenate(column) + first,
            np.concatenate(values),
            shared + first,
            own[shared],
        )

    def _pulled(self, which: Index) -> Array:
        """The gradient [N] of some of the outputs."""
        outs = self.outs[which]
        return gradient_of_rows(self.run.point, self.output, outs, self.weights[outs])[self.columns]

    def _reached(self, gradient: Array, place: Index | slice = slice(None)) -> Mask:
        """What is more than rounding, of a gradient at some inputs."""
        return np.asarray(~(np.abs(gradient) <= self.rounding[place]))

    def _sources(self) -> tuple[Index, Mask, Array]:
        """The only output [N] that each input is reached from, or −1; which are reached from
        several [N]; what they are reached by [N]."""
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
        several |= (seen > 0) & (seen < bits)  # or backward is not linear
        several &= ~(lost & (self.owner >= 0))  # no number whatever the cotangent, as 0 · inf
        return np.where(several | (seen == 0) | lost, -1, source), several, value

    def _rows(self, place: Index) -> dict[int, Array]:
        """The gradients [k] at these inputs of the outputs that reach one of them, each pulled back
        alone; by the number of the output."""
        rows, left = dict[int, Array](), [np.arange(len(self.outs))]
        while left:
            which = left.pop()
            if rows and (len(rows) * len(place) > MOST_ENTRIES or self.run.over_budget()):
                self.finished = False
                break
            if not len(which) == len(self.outs) > 1:  # that of all reaches them
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
    """One tensor of a sweep, whose columns are moved in groups. `weights` [M]: those of compressed
    VJPs; `plain` [N]: columns whose elements are all right and smooth; `one_hot`: what is known of
    row groups, by output tensor and number."""

    run: Run
    plan: Plan
    tallies: Mapping[tuple[int, int], Tally]
    weights: Array
    counts: Confirmations
    plain: Mask
    one_hot: dict[tuple[int, int], OneHot] = field(default_factory=dict)

    def confirmed(self, result: ChunkResult) -> ChunkResult | None:
        """The elements after the worst mismatches were measured alone; None where the forward's
        groups are wrong, or a small tensor is better compared column by column."""
        unconfirmed = result.judged.verdict == Verdict.MISMATCH
        if not unconfirmed.any():
            return result
        if self._by_columns:
            return None
        kept, judged, unconfirmed = self._with_one_hot(result.judged, unconfirmed)
        confirmed = self._confirmed(judged, unconfirmed)
        return (
            None
            if confirmed is None
            else replace(result, judged=confirmed, quick=result.quick[kept])
        )

    @property
    def _by_columns(self) -> bool:
        """Is the tensor so small that its columns are better compared one by one?"""
        return self.plan.size <= SMALL and not self.run.over_budget(EVERY_RUNG)

    # ---- one-hot numbers
    def _with_one_hot(self, before: Judged, unconfirmed: Mask) -> tuple[Index, Judged, Mask]:
        """With the one-hot numbers of the row groups that hold mismatches, and without the elements
        whose number the budget leaves unknown: those that are left, with which of them are not
        confirmed."""
        keep, analytic = np.ones(len(before.out), bool), before.analytic.copy()
        for output, part in enumerate(self.run.point.parts):
            of_output = np.flatnonzero(in_range(before.out, part))
            groups = self.plan.rows[output].group[before.out[of_output] - part.start]
            for g in np.unique(groups[unconfirmed[of_output]]).tolist():
                found, i = self._off_pattern(output, g), of_output[groups == g]
                if found is None:
                    keep[i[before.verdict[i] == Verdict.MISMATCH]] = False
                elif len(found.shared):
                    order = np.argsort(found.shared)
                    place = np.minimum(
                        np.searchsorted(found.shared, before.column[i], sorter=order),
                        len(order) - 1,
                    )
                    here = found.shared[order[place]] == before.column[i]
                    analytic[i[here]] = found.own[order[place[here]]]
                    keep[i[here]] = np.isfinite(analytic[i[here]])
            self.tallies[self.plan.tensor, output].leave(int(np.count_nonzero(~keep[of_output])))
        judged, other = before, keep & (analytic != before.analytic)
        if other.any():
            changed = replace(before, analytic=analytic).take(np.flatnonzero(other))
            judged = replace(before, analytic=analytic).replaced(
                np.flatnonzero(other),
                replace(changed, verdict=changed.verdicts_with()).with_limits(),
            )
        kept = np.flatnonzero(keep)
        judged = judged.take(kept)
        return (
            kept,
            judged,
            (unconfirmed | (analytic != before.analytic))[kept]
            & (judged.verdict == Verdict.MISMATCH),
        )

    def _off_pattern(self, output: int, group: int) -> OneHot | None:
        """What a row group has off the pattern; None where the budget has ended, and something else
        is wrong."""
        if (output, group) not in self.one_hot:
            if self.counts.budget_ended:
                return None
            self.one_hot[output, group] = _Search(
                self.run, self.plan, output, group, self.weights
            ).found()
        return self.one_hot[output, group]

    def add_off_pattern(self, strays: Mapping[tuple[int, int, int], float]) -> bool:
        """Entries off the pattern, some at a time, as elements whose derivative is 0: of row groups
        that hold mismatches, and of `strays`.

        False where f does depend on one of these inputs, or a small tensor is better compared
        column by column.
        """
        run = self.run
        c = self.run.point.columns
        floors = self.run.floors()
        for (tensor, output, group), size in strays.items():
            if tensor == self.plan.tensor:
                part, members = run.point.parts[output], self.plan.rows[output].members(group)
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
                judged = judged_now(run, column, out, value, d).with_limits()
                confirmed = self._confirmed(judged, judged.verdict == Verdict.MISMATCH)
                if confirmed is None:
                    return False
                self._add(confirmed_anew(run, confirmed, excused(run, confirmed)))
        return True

    def _add(self, judged: Judged) -> None:
        for output, part in enumerate(self.run.point.parts):
            elements = judged.take(np.flatnonzero(in_range(judged.out, part)))
            if len(elements.out):
                self.tallies[self.plan.tensor, output].add(
                    elements.pair_elements(part.start, elements.column - self.plan.first)
                )

    # ---- mismatches
    def _confirmed(self, judged: Judged, unconfirmed: Mask) -> Judged | None:
        """None of the mismatches of an output tensor is reported before one was measured alone, the
        worst of each column first; None where one is right though its group was not, by the same
        number of backward."""
        run, counts = self.run, self.counts
        for output, part in enumerate(run.point.parts):
            pair = (self.plan.tensor, output)
            of_output = in_range(judged.out, part)
            measured = 0
            while measured < MOST_COLUMNS and not (
                counts.budget_ended or counts.enough_confirmed(pair)
            ):
                i = np.flatnonzero(unconfirmed & of_output & (judged.verdict == Verdict.MISMATCH))
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
                counts.count(pair, alone)
                same = np.abs(before - alone.analytic) <= alone.tolerances.tolerance(
                    alone.analytic, alone.analytic
                )
                if (same & (alone.verdict == Verdict.PASS)).any():
                    return None
            if counts.cleared[pair] or not counts.confirmed[pair]:
                why = (
                    Limit.BUDGET
                    if counts.budget_ended
                    else Limit.COMPANY
                    if counts.cleared[pair]
                    else Limit.ALONE
                )
                judged = judged.undecided(
                    np.flatnonzero(unconfirmed & of_output & (judged.verdict == Verdict.MISMATCH)),
                    why,
                )
        return judged

    # ---- outputs that moved off the pattern
    def consistent(self, bundle: Bundle, strays: Mask, first: int, judged: Judged) -> bool:
        """Are the groups what they were taken for, by all that these elements show, and by the
        outputs that moved off the pattern [n, outs], counted from the `first`?"""
        if judged.verdict.any() or judged.derivative.rough:  # PASS is 0
            odd = (judged.verdict != Verdict.PASS) | (judged.derivative.outcome != SMOOTH)
            self.plain[judged.column[odd] - self.plan.first] = False
        if not strays.any():
            return True
        return self.counts.budget_ended or not any(
            lasts(self.run, bundle.lines[n], np.flatnonzero(strays[n]) + first)
            for n in np.flatnonzero(strays.any(1)).tolist()
        )


def lasts(run: Run, line: Line, out: Index) -> bool:
    """Does one of the outputs [k] that moved with a line, off the pattern, depend on it at x
    itself: two calls, or four. What is not there (the next in a sort, the loser of a maximum) stops
    as the step shrinks, unless noise would have hidden a linear dependence on the NEARER rung."""

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


def structural_zeros(run: Run, plan: Plan, tallies: Mapping[tuple[int, int], Tally]) -> None:
    """What no group has: f does not depend on it, and its gradient is 0."""
    columns = run.point.columns
    point = run.point
    of_tensor = slice(plan.first, plan.first + plan.size)
    for output, part in enumerate(point.parts):
        tally = tallies[plan.tensor, output]
        missing = plan.size * (part.stop - part.start) - tally.elements
        if missing > 0:
            rounding = point.unit[part] * np.where(
                np.isfinite(point.f0[part]), np.abs(point.f0[part]), 0.0
            )
            least_step = LEAST_STEP * columns.scale[of_tensor].min()
            tally.add_structural(
                missing,
                float(
                    run.atol
                    + run.floors()[part].max() / columns.size[of_tensor].min()
                    + rounding.max() / least_step
                ),
            )
