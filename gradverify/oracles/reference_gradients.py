"""Two backwards of one function, element by element, at the calls that the structure of its
Jacobian takes.

A VJP of one is compared with the same VJP of the other: of a group of outputs that share no input,
which gives each of their elements, or, where the mode or the budget allows fewer, of a few random
cotangents, which show the columns that differ. What differs is pulled back again, with other
weights or row by row, before it counts: off the pattern a compressed VJP is a sum of elements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import pairwise

import numpy as np

from gradverify.model.case import Settings
from gradverify.numerics.choose import Mode, Why
from gradverify.numerics.exact import exact_elements
from gradverify.numerics.function.coordinates import columns_of, numbers, real_shape
from gradverify.numerics.function.point import Function, Point
from gradverify.numerics.grouped_vjps import shared_groups
from gradverify.numerics.judging import OverBudget, no_budget
from gradverify.numerics.pairs.pair import Entries, Outcome, Pair, Tally
from gradverify.numerics.rungs import U64, Array, Index, Mask, nonzero
from gradverify.numerics.screen import SCREEN, SCREEN_LOW, SLACK, SLACK_LOW
from gradverify.numerics.seed_vectors import WEIGHTS, as_dtype_holds, pull_back, signed_weights
from gradverify.numerics.seeds import Seed
from gradverify.numerics.sparsity.pattern import NO_ENTRY, RowGroups, dense
from gradverify.numerics.tolerance import FLOOR
from gradverify.numerics.verdict import Limit
from gradverify.oracles.finite_difference import WORST, Jacobian

ONE_BY_ONE = 16  # outputs: so few are pulled back one by one, whatever the structure
COTANGENTS = 3  # random ones, where rows are too many
# Rows that are pulled back one by one because a group of theirs differs, and so many halvings of
# random cotangents
FOLLOWED = 256

Revised = Callable[[int, int, Entries], Entries]
"""Elements of an (input, output) pair with those that differ for a good reason as right."""


def reference_gradients(
    function: Function,
    reference: Function,
    settings: Settings,
    measured: Callable[[], Jacobian],
    revised: Revised = lambda tensor, output, elements: elements,
    over_budget: OverBudget = no_budget,
) -> dict[tuple[int, int], Pair]:
    """Compare every (input, output) pair of two Jacobians.

    `measured`: by finite differences; its structure is needed from ONE_BY_ONE outputs on.
    """
    with np.errstate(all="ignore"):
        return _Comparison(function, reference, settings, revised, over_budget).pairs(measured)


class _Comparison:
    """`resolved`: rows pulled back one by one because their group could not be read."""

    def __init__(
        self,
        function: Function,
        reference: Function,
        settings: Settings,
        revised: Revised,
        over_budget: OverBudget,
    ) -> None:
        n = len(function.inputs)
        self.columns = columns_of(function.inputs, [None] * n, [False] * n)
        self.point, self.other = (Point(each, self.columns) for each in (function, reference))
        self.settings, self.revised, self.over_budget = settings, revised, over_budget
        self.unit, self.resolved = float(self.point.unit.max(initial=U64)), 0
        self.seed = Seed(settings.seed).within("reference")
        self.tensors = [slice(a, b) for a, b in pairwise(self.point.starts.tolist())]
        self.tallies = {
            (t, o): Tally(t, o, (part.stop - part.start, tensor.stop - tensor.start), WORST)
            for t, tensor in enumerate(self.tensors)
            for o, part in enumerate(self.point.parts)
        }

    def pairs(self, measured: Callable[[], Jacobian]) -> dict[tuple[int, int], Pair]:
        jacobian = measured() if len(self.point.f0) > ONE_BY_ONE else None
        patterns = jacobian.structure.patterns if jacobian else {}
        choice = jacobian.choice if jacobian else None
        asked = choice is None or choice.why is Why.ASKED
        sums = choice is not None and choice.mode is Mode.BLOCKS
        found = dict[tuple[int, int], Pair]()
        for o, part in enumerate(self.point.parts):
            m, grouped = part.stop - part.start, list[RowGroups]()
            for t, x in enumerate(self.point.buffers):
                whole = dense(real_shape(x.shape, x.dtype), m)
                grouped.append((patterns[t][o] if t in patterns else whole).rows)
            shared = shared_groups([[groups] for groups in grouped])
            backwards = sum(each.groups.count for each in shared)
            few = choice is None or backwards <= COTANGENTS
            if not few and (sums or (not asked and self.over_budget(2 * backwards))):
                found.update({(t, o): pair for t, pair in enumerate(self._by_sums(o, m))})
                continue
            for each in shared:
                self._by_groups(o, each.groups.count, {t: grouped[t] for t in each.users})
            for t, (groups, tensor) in enumerate(zip(grouped, self.tensors, strict=True)):
                tally = self.tallies[t, o]  # in what no group has both give the same
                if (missing := m * (tensor.stop - tensor.start) - tally.elements) > 0:
                    tally.add_structural(missing, tally.resolution)
                found[t, o] = replace(tally.result(self.unit, False), row_groups=groups.count)
        return found

    def _by_groups(self, output: int, count: int, grouped: Mapping[int, RowGroups]) -> None:
        """The elements of input tensors whose rows fall into the same groups."""
        groups = next(iter(grouped.values()))
        for group in range(count):
            rows = groups.members(group)
            if count == len(groups.group):  # every row by itself
                self._by_rows(output, rows, grouped)
                continue
            row_of = {t: own.rows_of(range(group, group + 1))[0] for t, own in grouped.items()}
            first, off = self._read(output, rows, row_of, 0)
            if off or any(elements.outcome.any() for elements in first.values()):
                second, off = self._read(output, rows, row_of, 1)
                if off or not all(_same(first[t], again) for t, again in second.items()):
                    self._resolved(output, rows, first)
                    continue
            self._add(output, first)

    def _resolved(self, output: int, rows: Index, read: Mapping[int, Entries]) -> None:
        """Pull the rows of an unreadable group back one by one, FOLLOWED at most in all.

        What differs in the others is undecided.
        """
        differ = [each.output[each.outcome != np.int8(Outcome.PASS)] for each in read.values()]
        order = np.argsort(~np.isin(rows, np.concatenate(differ)), kind="stable")
        room = 1 if self.over_budget(2 * len(rows)) else FOLLOWED
        some = rows[order][: max(0, room - self.resolved)]
        self.resolved += len(some)
        self._by_rows(output, some, read)
        for t, each in read.items():
            rest = each.take(np.flatnonzero(~np.isin(each.output, some)))
            open_ = rest.outcome != np.int8(Outcome.PASS)
            outcome, limit = rest.outcome.copy(), rest.limit.copy()
            outcome[open_], limit[open_] = Outcome.UNDECIDED, Limit.BUDGET
            self.tallies[t, output].add(replace(rest, outcome=outcome, limit=limit))

    def _by_rows(self, output: int, rows: Index, tensors: Iterable[int]) -> None:
        for row in rows.tolist():
            self._add(output, self._row(output, row, tensors))

    def _add(self, output: int, read: Mapping[int, Entries]) -> None:
        """Elements, but for infinities that both give."""
        for t, elements in read.items():
            rest = _apart(elements)
            masked = np.ones(len(elements.output) - len(rest.output), bool)
            self.tallies[t, output].add_zeros(np.zeros(0), np.zeros(0), masked)
            self.tallies[t, output].add(self.revised(t, output, rest))

    # ---- one cotangent of both
    def _pulled(self, output: int, weights: Array) -> tuple[Array, Array]:
        """The gradients [N] of both for a cotangent of one output tensor."""
        mine, theirs = (
            np.concatenate([*map(numbers, pull_back(point, output, weights)), np.zeros(0)])
            for point in (self.point, self.other)
        )
        return mine, theirs

    def _weights(self, output: int, rows: Index, *which: object) -> Array:
        """Random weights [m] at these rows of an output tensor, 0 elsewhere and where f is
        infinite."""
        weights = self._zeros(output)
        weights[rows] = signed_weights(len(rows), self.seed.generator("cotangent", output, *which))
        return as_dtype_holds(self.point, output, weights)

    def _zeros(self, output: int) -> Array:
        return np.zeros(self.point.parts[output].stop - self.point.parts[output].start)

    def _read(
        self, output: int, rows: Index, row_of: Mapping[int, Index], reading: int
    ) -> tuple[dict[int, Entries], bool]:
        """`_elements` of a group."""
        weights = self._weights(output, rows, int(rows[0]), reading)
        return self._elements(self._pulled(output, weights), weights, row_of)

    def _row(self, output: int, row: int, tensors: Iterable[int]) -> dict[int, Entries]:
        """The elements of a row by input tensor."""
        one, sizes = (
            self._zeros(output),
            {t: self.tensors[t].stop - self.tensors[t].start for t in tensors},
        )
        one[row] = 1.0
        every = {t: np.full(size, row) for t, size in sizes.items()}
        return self._elements(self._pulled(output, one), one, every)[0]

    def _elements(
        self, pulled: tuple[Array, Array], weights: Array, row_of: Mapping[int, Index]
    ) -> tuple[dict[int, Entries], bool]:
        """The elements by input tensor, each the gradient over the weight of its row.

        And whether the two differ at inputs that no row with a weight depends on.
        """
        (atol, rtol), found, stray = self.settings.tolerances(), dict[int, Entries](), False
        for t, rows in row_of.items():
            of_tensor = self.tensors[t]
            mine, theirs = (gradient[of_tensor] for gradient in pulled)
            used = np.where(rows == NO_ENTRY, 0.0, weights[rows])
            column, beside = np.flatnonzero(used), used == 0
            out, a, v = rows[column], mine[column] / used[column], theirs[column] / used[column]
            largest = np.maximum(np.abs(a), np.abs(v)) * self.columns.scale[of_tensor][column]
            reach = np.zeros(len(weights))
            np.maximum.at(reach, out, np.nan_to_num(largest, nan=0.0, posinf=0.0))
            floor = FLOOR * self.unit / nonzero(self.columns.size[of_tensor])
            allowed = floor[beside] * reach.max(initial=0.0)
            stray |= bool((~(np.abs(mine[beside] - theirs[beside]) <= allowed)).any())
            found[t] = exact_elements(
                out, column, a, v, floor[column] * reach[out], atol=atol, rtol=rtol, unit=self.unit
            )
        return found, stray

    # ---- random cotangents
    def _by_sums(self, output: int, m: int) -> list[Pair]:
        """By columns: sums of rows under random cotangents, and the rows behind what differs.

        Columns with a wrong element are wrong; those with a difference that was not found are open.
        """
        weights = [self._weights(output, np.arange(m), k) for k in range(COTANGENTS)]
        pulled = [self._pulled(output, each) for each in weights]
        norm = np.max([np.maximum(np.abs(mine), np.abs(theirs)) for mine, theirs in pulled], 0)
        single = self.unit > U64
        allowed = self._allowed(norm, SCREEN_LOW if single else SCREEN)
        slack = self._allowed(norm, SLACK_LOW if single else SLACK)
        wrong, open_ = np.zeros((2, len(norm)), bool)

        def worst(off: Array) -> float:
            """By how many times what is allowed; of columns that are wrong anyway by nothing."""
            times = np.nan_to_num(np.abs(off) / nonzero(allowed), nan=np.inf)
            return float(np.where(wrong, 0.0, times).max(initial=0.0))

        for of_rows, (mine, theirs) in zip(weights, pulled, strict=True):
            waiting = [(worst(mine - theirs), np.arange(m), mine - theirs)]
            for _ in range(FOLLOWED):  # halve what differs most, down to rows
                n = max(range(len(waiting)), key=lambda n: waiting[n][0], default=None)
                if n is None or (wrong.any() and self.over_budget(2)):
                    break
                _, rows, off = waiting.pop(n)
                if worst(off) <= 1:
                    continue
                if len(rows) == 1:
                    for t, each in self._row(
                        output, int(rows[0]), range(len(self.tensors))
                    ).items():
                        each = self.revised(t, output, _apart(each))
                        bad = np.flatnonzero(each.outcome == np.int8(Outcome.MISMATCH))
                        wrong[self.tensors[t].start + each.input[bad]] = True
                        self.tallies[t, output].add(each.take(bad) if len(bad) else each)
                    continue
                half = self._zeros(output)
                first, second = rows[: len(rows) // 2], rows[len(rows) // 2 :]
                half[first] = of_rows[first]
                mine, theirs = self._pulled(output, half)
                for part, by in ((first, mine - theirs), (second, off - (mine - theirs))):
                    waiting.append((worst(by), part, by))
            for *_, off in waiting:
                open_ |= ~(np.abs(off) <= slack)
        return [
            self._lines(self.tallies[t, output], wrong[own], open_[own] & ~wrong[own], allowed[own])
            for t, own in enumerate(self.tensors)
        ]

    def _allowed(self, norm: Array, share: float) -> Array:
        """What the sums of columns [N] of such a norm may differ by."""
        norm, allowed = np.nan_to_num(norm, posinf=0.0), np.empty(len(norm))
        for tensor in self.tensors:
            reach = (norm[tensor] * self.columns.scale[tensor]).max(initial=0.0)
            floor = FLOOR * self.unit * reach / nonzero(self.columns.size[tensor])
            allowed[tensor] = share * norm[tensor] + floor
        return allowed

    def _lines(self, tally: Tally, wrong: Mask, open_: Mask, allowed: Array) -> Pair:
        """The pair, with its columns counted."""
        counts, undecided = [0] * len(Outcome), int(open_.sum())
        counts[Outcome.MISMATCH], counts[Outcome.UNDECIDED] = int(wrong.sum()), undecided
        counts[Outcome.PASS] = len(wrong) - sum(counts)
        return replace(
            tally.result(self.unit, False),
            elements=len(wrong),
            counts=tuple(counts),
            masked=0,
            limits=((Limit.LINE, undecided),) if undecided else (),
            lines="columns",
            row_groups=COTANGENTS,
            resolution=float(allowed.max(initial=0.0)) / WEIGHTS[0],
            ratios=None,
        )


def _apart(elements: Entries) -> Entries:
    """Without infinities that both give."""
    both = (elements.analytic == elements.numeric) & np.isinf(elements.numeric)
    return elements.take(np.flatnonzero(~both)) if both.any() else elements


def _same(first: Entries, second: Entries) -> bool:
    """Do two readings of a group agree, so that no gradient of another element is in them?"""
    return all(
        ((np.abs(a - b) <= first.tolerance) | (a == b) | (np.isnan(a) & np.isnan(b))).all()
        for a, b in ((first.analytic, second.analytic), (first.numeric, second.numeric))
    )
