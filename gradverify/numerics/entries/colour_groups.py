"""One-hot numbers from compressed VJPs: what the backward of a row group has off the sparsity pattern, output by output.

The VJP of a row group is a sum of rows. It shows each row by itself only where the backward has no entry off the pattern, which is so
wherever its numbers are right. Where one is wrong, the outputs of the group are pulled back in halves by the bits of their numbers,
which tells the output that each number comes from, or that it comes from several. The latter are told apart one by one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from gradverify.numerics.entries.chunk import SPAN, ChunkResult
from gradverify.numerics.entries.confirm import Confirmations, measured_alone
from gradverify.numerics.entries.consistency import JacobianSums, moving_column
from gradverify.numerics.estimate.climb import EVERY_RUNG
from gradverify.numerics.estimate.ladder import at_rest
from gradverify.numerics.excuses.order import excused
from gradverify.numerics.grouped_vjps import pulled_groups, shared_groups
from gradverify.numerics.judging.bundle import Bundle, GroupLine
from gradverify.numerics.judging.judged import MOST_COLUMNS, Judged, columns_at_once, no_limits
from gradverify.numerics.judging.run import Run
from gradverify.numerics.pairs.tally import Tally
from gradverify.numerics.prepare import SMALL, Plan
from gradverify.numerics.probing.off_pattern import change_along, present_at_x
from gradverify.numerics.rungs import BASE, QUICK, RATIO, Array, Index, Mask, in_range
from gradverify.numerics.seed_vectors import WEIGHTS, gradient_of_rows
from gradverify.numerics.sparsity.pattern import NO_ENTRY, RowGroups
from gradverify.numerics.survey import STRAY
from gradverify.numerics.tolerance import verdicts
from gradverify.numerics.verdict import Limit, Verdict

# ---- One-hot numbers from compressed VJPs: what the backward of a row group has off the sparsity pattern, output by output
PARTS = 4  # of a set of outputs that is searched: a full search takes a third more backwards than there are outputs
MOST_ENTRIES = 1 << 21  # off the pattern of a group that are kept


@dataclass(frozen=True)
class OneHot:
    """What a row group's backward has off the pattern: entries (`out`, `column`, `value`) [E], as one-hot cotangents give them.

    `shared` [k]: columns of the pattern that other outputs reach too, and `own` [k], what their own output alone gives there; NaN where
    the budget ended before that was known.
    """

    out: Index
    column: Index
    value: Array
    shared: Index
    own: Array


def off_pattern(run: Run, plan: Plan, output: int, group: int, weights: Array) -> OneHot:
    """The entries of one row group off the pattern; `weights` [M] of its cotangents. 2 log₂(outputs) backwards; more where an input is
    reached from several outputs: at least as many as lead to one of them, the others as far as the budget goes."""
    search = _Search(run, plan, output, group, weights)
    source, several = search.sources()
    return search.found(source, several)


class _Search:
    """The outputs of one group, numbered from 0, and the inputs [N] of one tensor."""

    def __init__(self, run: Run, plan: Plan, output: int, group: int, weights: Array) -> None:
        point, rows, start = run.point, plan.rows[output], run.point.parts[output].start
        self.run, self.output, self.weights = run, output, weights
        self.columns = slice(plan.first, plan.first + plan.size)
        members = rows.members(group)
        owner = rows.row_of(group)
        self.outs, self.owner = members + start, np.where(owner < 0, -1, np.searchsorted(members, owner))
        least = run.floors()[self.outs].min(initial=np.inf)
        self.rounding = WEIGHTS[0] * (run.atol + least / point.columns.size[self.columns])
        self.value = np.zeros(plan.size)
        self.finished = True

    def pulled(self, which: Index) -> Array:
        """The gradient [N] of some of the outputs."""
        outs = self.outs[which]
        return gradient_of_rows(self.run.point, self.output, outs, self.weights[outs])[self.columns]

    def reached(self, gradient: Array) -> Mask:
        return np.asarray(~(np.abs(gradient) <= self.rounding))

    def sources(self) -> tuple[Index, Mask]:
        """The only output [N] that each input is reached from, or −1; and which are reached from several [N]."""
        n, size = len(self.outs), len(self.value)
        number, bits = np.arange(n), max(n - 1, 0).bit_length()
        source, seen = np.zeros(size, np.intp), np.zeros(size, np.intp)
        several, lost = np.zeros(size, bool), np.ones(size, bool)
        for bit in range(bits):
            off, on = (self.pulled(np.flatnonzero((number >> bit) & 1 == side)) for side in (0, 1))
            from_off, from_on = self.reached(off), self.reached(on)
            several |= from_off & from_on
            seen += from_off | from_on
            source += from_on.astype(np.intp) << bit
            self.value = np.where(from_on, on, np.where(from_off, off, self.value))
            lost &= ~np.isfinite(off) & ~np.isfinite(on)
        if not bits:
            return np.full(size, -1), self.owner != 0
        several |= (seen > 0) & (seen < bits)       # or backward is not linear
        several &= ~(lost & (self.owner >= 0))      # no number whatever the cotangent, as 0 · inf
        return np.where(several | (seen == 0) | lost, -1, source), several

    def found(self, source: Index, several: Mask) -> OneHot:
        alone = np.flatnonzero((source >= 0) & (source != self.owner))
        out, column, value = [source[alone]], [alone], [self.value[alone] / self.weights[self.outs[source[alone]]]]
        shared = np.flatnonzero((several | ((source >= 0) & (source != self.owner))) & (self.owner >= 0))
        own, place = np.zeros(len(self.value)), np.flatnonzero(several)
        rows = self._rows(place) if len(place) else {}
        for n, row in rows.items():
            here = self.owner[place] == n
            own[place[here]] = row[here]
            there = np.flatnonzero(~here & self.reached_at(place, row))
            out, column, value = [*out, np.full(len(there), n)], [*column, place[there]], [*value, row[there]]
        if not self.finished:
            own[place[~np.isin(self.owner[place], list(rows))]] = np.nan
        first = self.columns.start
        return OneHot(self.outs[np.concatenate(out)], np.concatenate(column) + first, np.concatenate(value), shared + first, own[shared])

    def reached_at(self, place: Index, gradient: Array) -> Mask:
        """`reached`, of some inputs."""
        return np.asarray(~(np.abs(gradient) <= self.rounding[place]))

    def _rows(self, place: Index) -> dict[int, Array]:
        """The gradients [k] at these inputs of the outputs that reach one of them, each pulled back alone; by the number of the output."""
        rows, left = dict[int, Array](), [np.arange(len(self.outs))]
        while left:
            which = left.pop()
            if rows and (len(rows) * len(place) > MOST_ENTRIES or self.run.over_budget()):
                self.finished = False
                break
            whole = len(which) == len(self.outs) > 1
            gradient = self.pulled(which)[place] if not whole else None
            if gradient is not None and not self.reached_at(place, gradient).any():
                continue
            if len(which) > 1:
                left += [part for part in np.array_split(which, PARTS) if len(part)]
            elif gradient is not None:
                rows[int(which[0])] = gradient / self.weights[self.outs[which[0]]]
        return rows


# ---- The analytic Jacobian through few backwards: outputs that share no input are pulled back together (method.md section 5)
@dataclass(frozen=True)
class OffPattern:
    """A row group whose gradient has numbers where none of its outputs depends on the input; `size`: the largest, in units of the inputs' sizes."""

    tensor: int
    output: int
    group: int
    size: float


@dataclass(frozen=True)
class Pulled:
    """Compressed VJPs of groups in a row: gradients [groups, N] of one tensor, and the output tensor's coordinate that each number is
    the derivative of (`row_of`), or NO_ENTRY; `weights` [m]: what each output has in the cotangent of its group."""

    plan: Plan
    output: int
    groups: range
    gradient: Array
    weights: Array

    @property
    def rows(self) -> RowGroups:
        return self.plan.rows[self.output]

    @cached_property
    def row_of(self) -> Index:
        return self.rows.rows_of(self.groups)

    @cached_property
    def in_pattern(self) -> Mask:
        """Numbers that the pattern has an entry for [groups, N]."""
        return np.asarray(self.row_of != NO_ENTRY)


class Compressed:
    """Compressed VJPs of the planned tensors. `weights` [M]: the cotangents of group members, continuous and signed; that of a lone one is 1."""

    def __init__(self, run: Run, plans: Sequence[Plan], weights: Array) -> None:
        self.run, self.plans, self.weights = run, plans, weights

    def fill(self, spans: Mapping[int, range]) -> tuple[dict[int, Array], list[OffPattern]]:
        """One pass: per tensor the analytic values [groups, M] of these column groups, and the row groups that have numbers off the pattern."""
        m = len(self.run.point.f0)
        values = {tensor: np.zeros((len(span), m)) for tensor, span in spans.items()}
        strays = list[OffPattern]()
        for pulled in self._pass([plan for plan in self.plans if plan.tensor in spans]):
            tensor = pulled.plan.tensor
            if pulled.plan.pointwise(pulled.output):
                self._add_pointwise(values[tensor], pulled)
                continue
            place, row, entry, off_pattern = self._entries_and_strays(pulled)
            group = pulled.plan.grouping.colour[place] - spans[tensor].start
            inside = (group >= 0) & (group < len(spans[tensor]))
            if not inside.all():
                inside = np.broadcast_to(inside, row.shape)
                group, row, entry = np.broadcast_to(group, row.shape)[inside], row[inside], entry[inside]
            values[tensor].reshape(-1)[group * m + row] = entry
            strays += off_pattern
        return values, strays

    def _entries_and_strays(self, pulled: Pulled) -> tuple[Index | slice, Index, Array, list[OffPattern]]:
        """As `_entries`, and the groups that have numbers off the pattern."""
        runs = pulled.rows.runs(pulled.groups)
        if runs:
            return slice(None), *self._of_runs(pulled, *runs), []
        place, row, entry = self._entries(pulled)
        self.run.reach.add_entries(row, pulled.plan.first + place, entry)
        return place, row, entry, self._strays(pulled)

    def _of_runs(self, pulled: Pulled, rows: Index, width: int) -> tuple[Index, Array]:
        """The row and the analytic value [groups, N] of gradients that are a run for each of these rows."""
        plan, shape = pulled.plan, pulled.gradient.shape
        entry = pulled.gradient.reshape(-1, width) / pulled.weights[rows, None]
        rows = rows + self.run.point.parts[pulled.output].start
        self.run.reach.add_runs(rows, slice(plan.first, plan.first + plan.size), entry)
        return rows.repeat(width).reshape(shape), entry.reshape(shape)

    def _add_pointwise(self, values: Array, pulled: Pulled) -> None:
        """A gradient of which every number belongs to the output in its own place, to the values [1 or 0, M]."""
        part, first = self.run.point.parts[pulled.output], pulled.plan.first
        entry = pulled.gradient[0] / pulled.weights
        self.run.reach.add_entries(part, slice(first, first + pulled.plan.size), entry)
        values[:, part] = entry

    def _entries(self, pulled: Pulled) -> tuple[Index, Index, Array]:
        """The entries of the pattern: the place among the columns, the row and the analytic value, [E] each.

        Where all numbers are such, [n], [groups, n] and [groups, n].
        """
        row, entry, held = pulled.row_of, pulled.gradient, pulled.in_pattern
        place = np.arange(row.shape[1])
        if not held.all():
            group, place = np.nonzero(held)
            row, entry = row[group, place], entry[group, place]
        return place, row + self.run.point.parts[pulled.output].start, entry / pulled.weights.take(row)

    def _pass(self, plans: Sequence[Plan]) -> Iterator[Pulled]:
        for shared in shared_groups([plan.rows for plan in plans]):
            sharing, rows, weights = [plans[n] for n in shared.users], shared.groups, self.weights[self.run.point.parts[shared.output]]
            weights = np.where(np.bincount(rows.group, minlength=rows.count)[rows.group] == 1, 1.0, weights)
            for groups, gradient in pulled_groups(self.run.point, shared, weights, [plan.tensor for plan in sharing]):
                columns = self.run.point.columns.combined(gradient)
                for plan in sharing:
                    yield Pulled(plan, shared.output, groups, columns[:, plan.first : plan.first + plan.size], weights)

    def _strays(self, pulled: Pulled) -> list[OffPattern]:
        lost = ~pulled.in_pattern & (pulled.gradient != 0)
        if not lost.any():
            return []
        plan, found = pulled.plan, list[OffPattern]()
        size = self.run.point.columns.size[plan.first : plan.first + plan.size]
        for n in np.flatnonzero(lost.any(1)).tolist():
            off = (np.abs(pulled.gradient[n]) / WEIGHTS[0] - self.run.atol) * size
            found.append(OffPattern(plan.tensor, pulled.output, pulled.groups[n], float(np.nan_to_num(off[lost[n]], nan=np.inf).max())))
        return found


# ---- Outputs that moved off the sparsity pattern of one tensor's groups, judged with the column that they moved with
STRAYS = 12  # numbers of a pair off the pattern that are followed at most


@dataclass(frozen=True)
class GroupStrays:
    """Follows what moved off the pattern of one tensor's groups."""

    run: Run
    plan: Plan
    tallies: Mapping[tuple[int, int], Tally]
    counts: Confirmations

    def moved(self, bundle: Bundle, strays: Mask, first: int) -> bool:
        """Follows outputs that moved off the pattern [n, outs], counted from the `first`: False where f truly depends on a column, and backward
        rightly, or where they are many."""
        if not strays.any():
            return True
        line, out = np.nonzero(strays)
        line, out = self._lasting(bundle, line, out + first)
        for n, j in zip(line[: STRAYS + 1].tolist(), out[: STRAYS + 1].tolist(), strict=True):
            if self.counts.budget_ended:
                return True
            group_line = bundle.lines[n]
            column = moving_column(self.run, group_line, j) if isinstance(group_line, GroupLine) else None
            if column is not None and not self.add(self.run.point.output_tensor(j), column, j):
                return False
        return len(line) <= STRAYS or any(self.counts.confirmed[self.plan.tensor, output] for output in range(len(self.run.point.parts)))

    def _lasting(self, bundle: Bundle, line: Index, out: Index) -> tuple[Index, Index]:
        """Those of the outputs that moved along these lines which do so near x: at most four calls a line."""
        lasts, point, sigma = np.ones(len(line), bool), self.run.point, self.run.survey.sigma
        still, noise = STRAY * sigma, self.run.noise
        for n in np.unique(line).tolist():
            i = np.flatnonzero(line == n)
            lasts[i] = present_at_x(change_along(bundle.lines[n], point.f0), out[i], QUICK[0], still, noise)
        return line[lasts], out[lasts]

    def add(self, output: int, column: int, out: int) -> bool:
        """Adds an element that no group has, as it is when measured alone, and once, in however many ways it is met.

        False where f does depend on it and backward is right: then the groups are not what they were taken for.
        """
        found = measured_alone(self.run, np.array([column]), np.array([out]))
        right = found.verdict[0] == Verdict.PASS and not found.is_zero[0]
        if (column, out) not in self.counts.counted_strays:
            self.counts.counted_strays.add((column, out))
            found = excused(self.run, found)
            self.counts.confirmed[self.plan.tensor, output] += int(np.sum(found.verdict == Verdict.MISMATCH))
            self.tallies[self.plan.tensor, output].add(found.pair_elements(self.run.point.parts[output].start, found.column - self.plan.first))
        return not right


# ---- Columns that no output shares, moved together in colour groups, against the analytic values of compressed VJPs (method.md section 5)
LEAST_STEP = WEIGHTS[0] * BASE * RATIO ** -QUICK[0]  # of the scale: what a group's columns are moved by at least


@dataclass(frozen=True)
class ColourGroups:
    """One tensor of a sweep, whose columns are moved in groups. `weights` [M]: those of compressed VJPs; `sums`: what its entries add up to;
    `one_hot`: what is known of row groups, by output tensor and number."""

    run: Run
    plan: Plan
    tallies: Mapping[tuple[int, int], Tally]
    weights: Array
    counts: Confirmations
    sums: JacobianSums
    one_hot: dict[tuple[int, int], OneHot] = field(default_factory=dict)

    @cached_property
    def _strays(self) -> GroupStrays:
        return GroupStrays(self.run, self.plan, self.tallies, self.counts)

    def confirmed(self, result: ChunkResult) -> ChunkResult | None:
        """The elements after the worst mismatches were measured alone; None where the forward's groups are wrong, or a small tensor is better
        compared column by column."""
        if not result.unconfirmed.any():
            return result
        if self._by_columns:
            return None
        result = self._with_one_hot(result)
        judged = self._confirmed(result.judged, result.unconfirmed)
        return None if judged is None else replace(result, judged=judged)

    @property
    def _by_columns(self) -> bool:
        """Is the tensor so small that its columns are better compared one by one?"""
        return self.plan.size <= SMALL and not self.run.over_budget(EVERY_RUNG)

    def _confirmed(self, judged: Judged, unconfirmed: Mask) -> Judged | None:
        for output in range(len(self.run.point.parts)):
            of_output = self._confirmed_in(output, judged, unconfirmed)
            if of_output is None:
                return None
            judged = of_output
        return judged

    def consistent(self, bundle: Bundle, result: ChunkResult, judged: Judged) -> bool:
        """Are the groups what they were taken for, by all that these elements show?"""
        self.sums.add_numeric(judged)
        return self._strays.moved(bundle, result.strays, result.outs.start)

    # ---- one-hot numbers
    def _with_one_hot(self, result: ChunkResult) -> ChunkResult:
        """With the one-hot numbers of the row groups that hold mismatches, and without the elements whose number the budget leaves unknown."""
        judged, keep = result.judged, np.ones(len(result.judged.out), bool)
        analytic = judged.analytic.copy()
        for output, part in enumerate(self.run.point.parts):
            wrong, group = np.flatnonzero(result.unconfirmed & in_range(judged.out, part)), self.plan.rows[output].group
            for g in np.unique(group[judged.out[wrong] - part.start]).tolist():
                found = self._off_pattern(output, g)
                i = np.flatnonzero(in_range(judged.out, part))
                i = i[group[judged.out[i] - part.start] == g]
                if found is None:
                    keep[i[judged.verdict[i] == Verdict.MISMATCH]] = False
                elif len(found.shared):
                    order = np.argsort(found.shared)
                    place = np.minimum(np.searchsorted(found.shared, judged.column[i], sorter=order), len(order) - 1)
                    here = found.shared[order[place]] == judged.column[i]
                    analytic[i[here]] = found.own[order[place[here]]]
                    keep[i[here]] = np.isfinite(analytic[i[here]])
        changed = np.flatnonzero(keep & (analytic != judged.analytic))
        if changed.size:
            judged = replace(judged, analytic=analytic)
            judged = judged.replaced(changed, replace(judged.take(changed), verdict=judged.take(changed).verdicts_with()).with_limits())
        for output, part in enumerate(self.run.point.parts):
            self.tallies[self.plan.tensor, output].leave(int(np.count_nonzero(~keep & in_range(judged.out, part))))
        kept = np.flatnonzero(keep)
        judged = judged.take(kept)
        unconfirmed = (result.unconfirmed | (analytic != result.judged.analytic))[kept] & (judged.verdict == Verdict.MISMATCH)
        return replace(result, judged=judged, quick=result.quick[kept], unconfirmed=unconfirmed)

    def _off_pattern(self, output: int, group: int) -> OneHot | None:
        """What a row group has off the pattern; None where the budget has ended, and something else is wrong."""
        if (output, group) not in self.one_hot:
            if self.counts.budget_ended:
                return None
            self.one_hot[output, group] = off_pattern(self.run, self.plan, output, group, self.weights)
        return self.one_hot[output, group]

    def off_pattern(self, strays: Sequence[OffPattern]) -> Iterator[Judged | None]:
        """Entries off the pattern, some at a time, as elements whose derivative is 0: of row groups that hold mismatches, and of `strays`.

        None where f does depend on one of these inputs, or a small tensor is better compared column by column.
        """
        floors = self.run.floors()
        for stray in strays:
            members = self.run.point.parts[stray.output].start + self.plan.rows[stray.output].members(stray.group)
            if not stray.size <= floors[members].min(initial=np.inf):
                if self._by_columns:
                    yield None
                    return
                self._off_pattern(stray.output, stray.group)
        for found in self.one_hot.values():
            places, counted = zip(found.column.tolist(), found.out.tolist(), strict=True), self.counts.counted_strays
            new = np.flatnonzero([place not in counted for place in places])
            for start in range(0, len(new), SPAN):
                i = new[start : start + SPAN]
                yield self._confirmed_off_pattern(found.column[i], found.out[i], found.value[i])

    def _confirmed_off_pattern(self, column: Index, out: Index, value: Array) -> Judged | None:
        run, c = self.run, self.run.point.columns
        bar = np.where(np.isfinite(run.point.f0), run.noise, np.inf)[out] / (LEAST_STEP * c.scale[column])
        d, tolerances = at_rest(bar), run.tolerances(column, out)
        judged = Judged(column, out, value, d, tolerances, verdicts(value, d, tolerances), no_limits(len(out))).with_limits()
        return self._confirmed(judged, judged.verdict == Verdict.MISMATCH)

    # ---- mismatches
    def _confirmed_in(self, output: int, judged: Judged, unconfirmed: Mask) -> Judged | None:
        """The same of one output tensor. None of its mismatches is reported before one was measured alone."""
        part, pair, measured = self.run.point.parts[output], (self.plan.tensor, output), 0
        while measured < MOST_COLUMNS and not (self.counts.budget_ended or self.counts.enough_confirmed(pair)):
            i = self._unconfirmed_mismatches(judged, part, unconfirmed)
            i = i[: columns_at_once(self.run)]
            if not i.size:
                break
            found = self._measure_alone(output, judged, i, unconfirmed)
            if found is None:
                return None
            judged, measured = found, measured + len(i)
        if not self.counts.cleared[pair] and self.counts.confirmed[pair]:
            return judged
        left = np.flatnonzero(unconfirmed & in_range(judged.out, part))
        left = left[judged.verdict[left] == Verdict.MISMATCH]
        why = Limit.COMPANY if self.counts.cleared[pair] else Limit.ALONE
        return judged.undecided(left, Limit.BUDGET if self.counts.budget_ended else why)

    def _unconfirmed_mismatches(self, judged: Judged, part: slice, unconfirmed: Mask) -> Index:
        """The mismatches of an output tensor that are not confirmed yet, the worst of each column, in this order."""
        i = np.flatnonzero(unconfirmed)
        i = i[(judged.verdict[i] == Verdict.MISMATCH) & in_range(judged.out[i], part)]
        i = i[judged.take(i).worst_first()]
        return np.asarray(i[np.sort(np.unique(judged.column[i], return_index=True)[1])])

    def _measure_alone(self, output: int, judged: Judged, i: Index, unconfirmed: Mask) -> Judged | None:
        """With elements i as they were measured alone; None where one is right though its group was not, by the same number of backward."""
        alone = measured_alone(self.run, judged.column[i], judged.out[i])
        before = judged.analytic[i]
        judged, unconfirmed[i] = judged.replaced(i, alone), False
        self.counts.count((self.plan.tensor, output), alone)
        for n in np.flatnonzero(alone.verdict == Verdict.PASS).tolist():
            if abs(before[n] - alone.analytic[n]) <= alone.tolerances.tolerance(alone.analytic, alone.analytic)[n]:
                return None
        return judged


def structural_zeros(run: Run, plan: Plan, tallies: Mapping[tuple[int, int], Tally]) -> None:
    """What no group has: f does not depend on it, and its gradient is 0."""
    missing = {output: plan.size * (part.stop - part.start) - tallies[plan.tensor, output].elements for output, part in enumerate(run.point.parts)}
    if not any(count > 0 for count in missing.values()):
        return
    columns, point = run.point.columns, run.point
    of_tensor = slice(plan.first, plan.first + plan.size)
    floors, rounding = run.floors(), point.unit * np.where(np.isfinite(point.f0), np.abs(point.f0), 0.0)
    for output, part in enumerate(point.parts):
        if missing[output] > 0:
            least_step = LEAST_STEP * columns.scale[of_tensor].min()
            resolution = run.atol + floors[part].max() / columns.size[of_tensor].min() + rounding[part].max() / least_step
            tallies[plan.tensor, output].add_structural(missing[output], float(resolution))
