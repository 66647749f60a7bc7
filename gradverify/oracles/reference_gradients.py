"""Two backwards of one function, element by element, at the calls that the structure of its Jacobian takes.

A VJP of one is compared with the same VJP of the other: of a group of outputs that share no input,
which gives each of their elements, or, where the mode or the budget allows fewer, of a few random
cotangents, which show the columns that differ. What differs is pulled back again, with other weights
or row by row, before it counts: off the pattern a compressed VJP is a sum of elements.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gradverify.model.case import Settings
from gradverify.numerics.choose import Choice, Mode, Why
from gradverify.numerics.exact import exact_elements
from gradverify.numerics.function.coordinates import Columns, columns_of, numbers, real_shape
from gradverify.numerics.function.point import Function, Point
from gradverify.numerics.grouped_vjps import shared_groups
from gradverify.numerics.judging.bundle import Structure
from gradverify.numerics.judging.run import OverBudget, no_budget
from gradverify.numerics.pairs.pair import Entries, Outcome, Pair
from gradverify.numerics.pairs.tally import Tally
from gradverify.numerics.probing.seed_matrices import SCREEN, SCREEN_LOW, SLACK, SLACK_LOW
from gradverify.numerics.rungs import U64, Array, Index, Mask, nonzero
from gradverify.numerics.seed_vectors import WEIGHTS, as_dtype_holds, pull_back, signed_weights
from gradverify.numerics.seeds import Seed
from gradverify.numerics.sparsity.pattern import NO_ENTRY, Pattern, RowGroups, dense, row_groups
from gradverify.numerics.tolerance import FLOOR
from gradverify.numerics.verdict import Limit
from gradverify.oracles.finite_difference import WORST

ONE_BY_ONE = 16  # outputs: so few are pulled back one by one, whatever the structure
COTANGENTS = 3  # random ones, where rows are too many
FOLLOWED = 256  # rows that are pulled back one by one because a group of theirs differs, and so many halvings of a random cotangent

Revised = Callable[[int, int, Entries], Entries]
"""Elements of an (input, output) pair with those that differ for a good reason as right."""


@dataclass(frozen=True)
class Layout:
    """How the Jacobian was compared with finite differences, and its structure."""

    structure: Structure
    choice: Choice | None

    @property
    def sums(self) -> bool:
        """Are sums over rows enough?"""
        return self.choice is not None and self.choice.mode is Mode.BLOCKS

    @property
    def asked(self) -> bool:
        """Was it asked for, whatever it costs?"""
        return self.choice is None or self.choice.why is Why.ASKED


def reference_gradients(
    function: Function,
    reference: Function,
    settings: Settings,
    layout: Callable[[], Layout] | None = None,
    revised: Revised | None = None,
    over_budget: OverBudget = no_budget,
) -> dict[tuple[int, int], Pair]:
    """Compare every (input, output) pair of two Jacobians.

    `layout`: needed from ONE_BY_ONE outputs on. `revised`: see `Revised`.
    """
    with np.errstate(all="ignore"):
        return _Comparison(
            function,
            reference,
            settings,
            revised or (lambda tensor, output, elements: elements),
            over_budget,
        ).pairs(layout)


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
        self.columns: Columns = columns_of(function.inputs, [None] * n, [False] * n)
        self.points = [Point(each, self.columns) for each in (function, reference)]
        self.point, self.settings, self.revised, self.over_budget = (
            self.points[0],
            settings,
            revised,
            over_budget,
        )
        self.unit, self.resolved = float(self.point.unit.max(initial=U64)), 0
        self.tensors = [
            slice(int(a), int(b))
            for a, b in zip(self.point.starts[:-1], self.point.starts[1:], strict=True)
        ]
        self.tallies = {
            (t, o): Tally(t, o, (part.stop - part.start, tensor.stop - tensor.start), WORST)
            for t, tensor in enumerate(self.tensors)
            for o, part in enumerate(self.point.parts)
        }
        self.seed = Seed(settings.seed).within("reference")

    def pairs(self, layout: Callable[[], Layout] | None) -> dict[tuple[int, int], Pair]:
        few = len(self.point.f0) <= ONE_BY_ONE or layout is None
        known = Layout(Structure(), None) if few or layout is None else layout()
        found = dict[tuple[int, int], Pair]()
        for o, part in enumerate(self.point.parts):
            grouped = [
                row_groups(self._pattern(known.structure, t, o)) for t in range(len(self.tensors))
            ]
            shared = shared_groups([[groups] for groups in grouped])
            backwards = sum(each.groups.count for each in shared)
            short = not known.asked and self.over_budget(2 * backwards)
            if not few and backwards > COTANGENTS and (known.sums or short):
                found.update({(t, o): pair for t, pair in enumerate(self._by_sums(o))})
                continue
            for each in shared:
                self._by_groups(o, {t: grouped[t] for t in each.users})
            for t, groups in enumerate(grouped):
                found[t, o] = self._told(t, o, groups.count, part)
        return found

    def _pattern(self, structure: Structure, tensor: int, output: int) -> Pattern:
        if tensor in structure.patterns:
            return structure.patterns[tensor][output]
        x, part = self.point.buffers[tensor], self.point.parts[output]
        return dense(real_shape(x.shape, x.dtype), part.stop - part.start)

    def _pulled(self, output: int, weights: Array) -> tuple[Array, Array]:
        """The gradients [N] of both for a cotangent of one output tensor."""
        mine, theirs = (
            np.concatenate([*map(numbers, pull_back(point, output, weights)), np.zeros(0)])
            for point in self.points
        )
        return mine, theirs

    # ---- groups of rows
    def _by_groups(self, output: int, grouped: Mapping[int, RowGroups]) -> None:
        """The elements of input tensors whose rows fall into the same groups."""
        groups = next(iter(grouped.values()))
        for group in range(groups.count):
            rows = groups.members(group)
            if groups.count == len(groups.group):  # every row by itself
                self._by_rows(output, rows, list(grouped))
                continue
            first = self._read(output, group, rows, grouped, 0)
            if any(off or elements.outcome.any() for elements, off in first.values()):
                second = self._read(output, group, rows, grouped, 1)
                if any(off or not _same(first[t][0], again) for t, (again, off) in second.items()):
                    self._resolved(
                        output, rows, {t: elements for t, (elements, _) in first.items()}
                    )
                    continue
            for t, (elements, _) in first.items():
                self.tallies[t, output].add(self.revised(t, output, elements))

    def _weights(self, output: int, rows: Index, *which: object) -> Array:
        """Random weights [m] at these rows of an output tensor, 0 elsewhere and where f is infinite."""
        weights = np.zeros(self.point.parts[output].stop - self.point.parts[output].start)
        weights[rows] = signed_weights(len(rows), self.seed.generator("cotangent", output, *which))
        return as_dtype_holds(self.point, output, weights)

    def _read(
        self, output: int, group: int, rows: Index, grouped: Mapping[int, RowGroups], reading: int
    ) -> dict[int, tuple[Entries, bool]]:
        """The elements of a group by input tensor, each the gradient over the weight of its row.

        And whether the two differ at inputs that no row of the group depends on.
        """
        weights, found = self._weights(output, rows, int(rows[0]), reading), dict[int, tuple[Entries, bool]]()
        pulled = self._pulled(output, weights)
        for t, groups in grouped.items():
            of_tensor, row_of = self.tensors[t], groups.rows_of(range(group, group + 1))[0]
            mine, theirs = (gradient[of_tensor] for gradient in pulled)
            scale, size = self.columns.scale[of_tensor], nonzero(self.columns.size[of_tensor])
            used = np.where(row_of == NO_ENTRY, 0.0, weights[row_of])
            column, beside = np.flatnonzero(used), used == 0
            out = row_of[column]
            a, v = mine[column] / used[column], theirs[column] / used[column]
            reach = np.zeros(len(weights))
            largest = np.maximum(np.abs(a), np.abs(v)) * scale[column]
            np.maximum.at(reach, out, np.nan_to_num(largest, nan=0.0, posinf=0.0))
            floor = FLOOR * self.unit * reach[out] / size[column]
            allowed = FLOOR * self.unit * reach.max(initial=0.0) / size[beside]
            off = bool((~(np.abs(mine[beside] - theirs[beside]) <= allowed)).any())
            found[t] = self._elements(out, column, a, v, floor), off
        return found

    def _elements(
        self, out: Index, column: Index, a: Array, v: Array, floor: Array
    ) -> Entries:
        atol, rtol = self.settings.tolerances()
        return exact_elements(out, column, a, v, floor, atol=atol, rtol=rtol, unit=self.unit)

    def _resolved(self, output: int, rows: Index, read: Mapping[int, Entries]) -> None:
        """Pull the rows of an unreadable group back one by one, FOLLOWED at most in all.

        What differs in the others is undecided.
        """
        differ = [each.output[each.outcome != np.int8(Outcome.PASS)] for each in read.values()]
        order = np.argsort(~np.isin(rows, np.concatenate(differ)), kind="stable")
        room = 1 if self.over_budget(2 * len(rows)) else FOLLOWED
        some = rows[order][: max(0, room - self.resolved)]
        self.resolved += len(some)
        self._by_rows(output, some, list(read))
        for t, each in read.items():
            rest = each.take(np.flatnonzero(~np.isin(each.output, some)))
            open_ = rest.outcome != np.int8(Outcome.PASS)
            outcome, limit = rest.outcome.copy(), rest.limit.copy()
            outcome[open_], limit[open_] = Outcome.UNDECIDED, Limit.BUDGET
            self.tallies[t, output].add(replace(rest, outcome=outcome, limit=limit))

    # ---- rows, one by one
    def _by_rows(self, output: int, rows: Index, tensors: Sequence[int]) -> None:
        for row in rows.tolist():
            for t, elements, masked in self._row(output, row):
                if t in tensors:
                    tally = self.tallies[t, output]
                    tally.add_zeros(np.zeros(0), np.zeros(0), masked)
                    tally.add(elements)

    def _row(self, output: int, row: int) -> Iterator[tuple[int, Entries, Mask]]:
        """The elements of a row by input tensor; infinities that both give are left out."""
        one = np.zeros(self.point.parts[output].stop - self.point.parts[output].start)
        one[row] = 1.0
        pulled = self._pulled(output, one)
        for t, of_tensor in enumerate(self.tensors):
            mine, theirs = (gradient[of_tensor] for gradient in pulled)
            masked = (mine == theirs) & np.isinf(theirs)
            column = np.flatnonzero(~masked)
            a, v, size = mine[column], theirs[column], self.columns.size[of_tensor][column]
            reach = np.nan_to_num(
                np.maximum(np.abs(mine), np.abs(theirs)) * self.columns.scale[of_tensor],
                nan=0.0,
                posinf=0.0,
            ).max(initial=0.0)
            elements = self._elements(
                np.full(len(column), row), column, a, v, FLOOR * self.unit * reach / nonzero(size)
            )
            yield t, self.revised(t, output, elements), masked

    def _told(self, tensor: int, output: int, row_groups: int, part: slice) -> Pair:
        """With what no group has: both give the same there."""
        tally = self.tallies[tensor, output]
        missing = (part.stop - part.start) * (
            self.tensors[tensor].stop - self.tensors[tensor].start
        ) - tally.elements
        if missing > 0:
            tally.add_structural(missing, tally.resolution)
        return replace(tally.result(self.unit, False), row_groups=row_groups)

    # ---- random cotangents
    def _by_sums(self, output: int) -> list[Pair]:
        """By columns: sums of rows under random cotangents. Rows that differ are searched for."""
        everything = np.arange(self.point.parts[output].stop - self.point.parts[output].start)
        weights = [self._weights(output, everything, k) for k in range(COTANGENTS)]
        pulled = [self._pulled(output, each) for each in weights]
        norm = np.max([np.maximum(np.abs(mine), np.abs(theirs)) for mine, theirs in pulled], 0)
        single = self.unit > U64
        allowed = self._allowed(norm, SCREEN_LOW if single else SCREEN)
        search = _Search(allowed, self._allowed(norm, SLACK_LOW if single else SLACK))
        for of_weights, (mine, theirs) in zip(weights, pulled, strict=True):
            self._searched(search, output, everything, of_weights, mine - theirs)
        return [self._lines(t, output, search) for t in range(len(self.tensors))]

    def _allowed(self, norm: Array, share: float) -> Array:
        """What the sums of columns [N] of such a norm may differ by."""
        norm, allowed = np.nan_to_num(norm, posinf=0.0), np.empty(len(norm))
        for tensor in self.tensors:
            reach = (norm[tensor] * self.columns.scale[tensor]).max(initial=0.0)
            floor = FLOOR * self.unit * reach / nonzero(self.columns.size[tensor])
            allowed[tensor] = share * norm[tensor] + floor
        return allowed

    def _searched(
        self, search: _Search, output: int, rows: Index, weights: Array, off: Array
    ) -> None:
        """Halve a cotangent under which sums differ, the half that differs most first, down to rows."""
        waiting = [(0.0, 0, rows, off)]
        for number in range(1, FOLLOWED):
            if not waiting or (search.wrong.any() and self.over_budget(2)):
                break
            _, _, rows, off = heapq.heappop(waiting)
            if not (search.differs(off) & ~search.wrong).any():
                continue
            if len(rows) == 1:
                for t, elements, _ in self._row(output, int(rows[0])):
                    search.add(self.tensors[t], t, elements)
                continue
            first, second = rows[: len(rows) // 2], rows[len(rows) // 2 :]
            half = np.zeros(len(weights))
            half[first] = weights[first]
            mine, theirs = self._pulled(output, half)
            for n, (part, by) in enumerate(
                ((first, mine - theirs), (second, off - (mine - theirs)))
            ):
                worst = np.nan_to_num(np.abs(by) / nonzero(search.allowed), nan=np.inf)
                worst = np.where(search.wrong, 0.0, worst).max(initial=0.0)
                heapq.heappush(waiting, (-float(worst), 2 * number + n, part, by))
        for *_, off in waiting:
            search.open |= ~(np.abs(off) <= search.slack)

    def _lines(self, tensor: int, output: int, search: _Search) -> Pair:
        """The pair, with its columns counted: wrong where an element is."""
        tally, of_tensor = self.tallies[tensor, output], self.tensors[tensor]
        for elements in search.rows.get(tensor, ()):
            bad = np.flatnonzero(elements.outcome == np.int8(Outcome.MISMATCH))
            tally.add(elements.take(bad) if len(bad) else elements)
        wrong, open_ = search.wrong[of_tensor], search.open[of_tensor]
        counts = [0] * len(Outcome)
        counts[Outcome.MISMATCH] = int(wrong.sum())
        counts[Outcome.UNDECIDED] = undecided = int((open_ & ~wrong).sum())
        counts[Outcome.PASS] = len(wrong) - sum(counts)
        return replace(
            tally.result(self.unit, False),
            elements=len(wrong),
            counts=tuple(counts),
            masked=0,
            limits=((Limit.LINE, undecided),) if undecided else (),
            lines="columns",
            row_groups=COTANGENTS,
            resolution=float(search.allowed[of_tensor].max(initial=0.0)) / WEIGHTS[0],
            ratios=None,
        )


class _Search:
    """Columns [N] whose sums differ by more than is `allowed`, and the rows found behind that.

    `slack`: what the sums of rows that were not looked at one by one may differ by. `wrong`: columns
    with an element that is; `open`: with a difference that was not found.
    """

    def __init__(self, allowed: Array, slack: Array) -> None:
        self.allowed, self.slack = allowed, slack
        self.wrong, self.open = np.zeros(len(allowed), bool), np.zeros(len(allowed), bool)
        self.rows = dict[int, list[Entries]]()

    def differs(self, off: Array) -> Mask:
        return np.asarray(~(np.abs(off) <= self.allowed))

    def add(self, of_tensor: slice, tensor: int, elements: Entries) -> None:
        """The elements of a row."""
        bad = elements.input[elements.outcome == np.int8(Outcome.MISMATCH)]
        self.wrong[of_tensor.start + bad] = True
        self.rows.setdefault(tensor, []).append(elements)


def _same(first: Entries, second: Entries) -> bool:
    """Do two readings of a group agree, so that no gradient of another element is in them?"""
    near = [
        np.abs(a - b) <= first.tolerance
        for a, b in ((first.analytic, second.analytic), (first.numeric, second.numeric))
    ]
    same = [
        (a == b) | (np.isnan(a) & np.isnan(b))
        for a, b in ((first.analytic, second.analytic), (first.numeric, second.numeric))
    ]
    return bool(((near[0] | same[0]) & (near[1] | same[1])).all())
