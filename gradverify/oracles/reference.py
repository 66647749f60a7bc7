"""Comparison with another implementation of the function, a `reference`: its forward values, and
autograd through it.

Where a float32 forward is too noisy for its values to be compared, the noise is either that of
float32 (cancellation in this algorithm) or the kernel's (lower precision inside). The function
under `Disguised` in float32 shows only the former."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial

import numpy as np
import torch

from gradverify.model.case import Settings
from gradverify.numerics.choose import Mode, Why
from gradverify.numerics.estimate.ladder import KINK
from gradverify.numerics.function.coordinates import (
    UNITS,
    columns_of,
    numbers,
    one_hot,
    real_shape,
    rms,
)
from gradverify.numerics.function.point import Function, Point
from gradverify.numerics.grouped_vjps import shared_groups
from gradverify.numerics.halving import most_off
from gradverify.numerics.judging import OverBudget, no_budget, single_derivatives
from gradverify.numerics.pairs.pair import Entries, Outcome, Pair, Tally
from gradverify.numerics.prepare import prepare
from gradverify.numerics.rungs import U32, U64, Array, Index, Z, nonzero
from gradverify.numerics.screen import SCREEN, SCREEN_LOW, SLACK, SLACK_LOW
from gradverify.numerics.seed_vectors import WEIGHTS, as_dtype_holds, pull_back, signed_weights
from gradverify.numerics.seeds import Seed
from gradverify.numerics.sixteen_bit import TensorResult
from gradverify.numerics.sparsity.pattern import NO_ENTRY, dense
from gradverify.numerics.survey import survey
from gradverify.numerics.tolerance import FLOOR
from gradverify.numerics.verdict import Limit
from gradverify.oracles.along import parts
from gradverify.oracles.convergence import ByPlace, by_place, small_leftovers_passed
from gradverify.oracles.finite_difference import WORST, Filled, Jacobian, WithBackward
from gradverify.oracles.given import (
    apart,
    exact_elements,
    exactly,
    rounding_floor,
    rounding_left_open,
)
from gradverify.oracles.implementation import Implementation
from gradverify.oracles.legs import Kernel, as_reference
from gradverify.oracles.oracle import Checked
from gradverify.subject.differentiable import Differentiable
from gradverify.subject.failure import tried
from gradverify.subject.subject import Cotangents, Tensors
from gradverify.subject.wide import InDouble, widened

# ---- Two backwards of one function, compared element by element, with as few calls as the
# structure of its Jacobian allows.
#
# A VJP of one is compared with the same VJP of the other: either of a group of outputs that share
# no input, which gives each of their elements, or, where the mode or the budget allows fewer calls,
# of a few random cotangents, which show the columns that differ. Off the pattern a VJP is a sum of
# elements: a difference there is followed, by halving the outputs, to the row that has it.
ONE_BY_ONE = 16  # up to so many outputs are pulled back one by one, whatever the structure
COTANGENTS = 3  # random ones, where there are too many rows
FOLLOWED = 256  # the most groups that are halved, of all outputs
ROWS = 32  # the most rows to which the difference of one random cotangent is followed

Read = Mapping[int, Entries]
"""Elements by input tensor."""
Revised = Callable[[int, int, Entries], Entries]
"""Returns elements of an (input, output) pair with justified differences passed."""


@np.errstate(all="ignore")
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
    n = len(function.inputs)
    columns = columns_of(function.inputs, [None] * n, [False] * n)
    point, other = (Point(each, columns) for each in (function, reference))
    unit, seed = float(point.unit.max(initial=U64)), Seed(settings.seed).within("reference")
    tensors = parts(function.inputs)
    widths, heights = ([p.stop - p.start for p in each] for each in (tensors, point.parts))
    tallies = {
        (t, o): Tally(t, o, (height, width), WORST)
        for t, width in enumerate(widths)
        for o, height in enumerate(heights)
    }
    halved = 0  # ambiguous groups

    # ---- one cotangent of both
    def pulled(output: int, weights: Array) -> Array:
        """Return the gradients [2, N] of both for a cotangent of one output tensor."""
        return np.array(
            [
                np.concatenate([*map(numbers, pull_back(each, output, weights)), np.zeros(0)])
                for each in (point, other)
            ]
        )

    def drawn(output: int, rows: Index, *which: object) -> Array:
        """Draw random weights [m] for these rows of an output tensor, 0 elsewhere and where f is
        infinite."""
        weights = np.zeros(heights[output])
        weights[rows] = signed_weights(len(rows), seed.generator("cotangent", output, *which))
        return as_dtype_holds(point, output, weights)

    def read(output: int, weights: Array, row_of: Mapping[int, Index]) -> tuple[Read, bool]:
        """Return the elements by input tensor, each the gradient divided by the weight of its row;
        and whether the two differ at inputs that no row with a weight depends on.
        """
        gradients, found, stray = pulled(output, weights), dict[int, Entries](), False
        for t, rows in row_of.items():
            mine, theirs = gradients[:, tensors[t]]
            used = np.where(rows == NO_ENTRY, 0.0, weights[rows])
            column, off_pattern = np.flatnonzero(used), used == 0
            out, a, v = rows[column], mine[column] / used[column], theirs[column] / used[column]
            scale, size = columns.scale[tensors[t]], nonzero(columns.size[tensors[t]])
            floor = rounding_floor(unit, out, a, v, scale[column], size[column])
            allowed = (floor * size[column]).max(initial=0.0) / size[off_pattern]
            strays = mine[off_pattern] - theirs[off_pattern]
            stray |= bool((~(np.abs(strays) <= allowed)).any())
            found[t] = exact_elements(out, column, a, v, floor, settings, unit)
        return found, stray

    def row_of(output: int, row: int, which: Iterable[int]) -> Read:
        """Return the elements of a row by input tensor."""
        one = (np.arange(heights[output]) == row) * 1.0
        return read(output, one, {t: np.full(widths[t], row) for t in which})[0]

    # ---- groups of rows that share no input
    def by_groups(output: int, rows: Index, places: Mapping[int, Index]) -> None:
        """Compare a group of rows in some input tensors; `places`: the row that each of their
        elements depends on.

        A group whose elements change with the weights, because some are off the pattern, is halved,
        down to single rows; beyond FOLLOWED, and the budget, its differences are undecided.
        """
        nonlocal halved
        ambiguous = False
        if len(rows) == 1:
            found = row_of(output, int(rows[0]), places)
        else:
            found, off = read(output, drawn(output, rows, len(rows), int(rows[0]), 0), places)
            if off or any(elements.outcome.any() for elements in found.values()):
                again, off = read(output, drawn(output, rows, len(rows), int(rows[0]), 1), places)
                ambiguous = off or not all(_same(found[t], each) for t, each in again.items())
        shown = any(tallies[t, output].counts[Outcome.MISMATCH] for t in places)
        if ambiguous and halved < FOLLOWED and not (shown and over_budget(2 * len(rows))):
            halved += 1
            for half in np.array_split(rows, 2):
                held = {t: np.where(np.isin(each, half), each, -1) for t, each in places.items()}
                by_groups(output, half, held)
            return
        for t, elements in found.items():
            rest = apart(_undecided(elements) if ambiguous else elements, tallies[t, output])
            tallies[t, output].add(revised(t, output, rest))

    # ---- random cotangents
    def difference(output: int, weights: Array, column: int, rows: Index) -> float:
        """Return the difference in a column for a cotangent with these weights in `rows` alone."""
        some = np.isin(np.arange(heights[output]), rows)
        mine, theirs = pulled(output, np.where(some, weights, 0.0))
        return float(mine[column] - theirs[column])

    def by_sums(output: int) -> Iterator[Pair]:
        """Compare columns, as sums of rows with random cotangents; then the rows of those that
        differ.

        Columns with a wrong element are mismatches; columns with a difference whose element was not
        found are undecided.
        """
        every = np.arange(heights[output])
        weights = [drawn(output, every, k) for k in range(COTANGENTS)]
        gradients = [pulled(output, each) for each in weights]
        norm = np.max(np.abs(gradients), (0, 1))
        largest, floors = np.nan_to_num(norm, posinf=0.0), np.empty(len(norm))
        for tensor in tensors:
            reach = (largest[tensor] * columns.scale[tensor]).max(initial=0.0)
            floors[tensor] = FLOOR * unit * reach / nonzero(columns.size[tensor])
        single = unit > U64
        allowed = (SCREEN_LOW if single else SCREEN) * largest + floors
        slack = (SLACK_LOW if single else SLACK) * largest + floors
        wrong, open_ = np.zeros((2, len(norm)), bool)
        for of_rows, (mine, theirs) in zip(weights, gradients, strict=True):
            off = mine - theirs
            for _ in range(ROWS):
                times = np.nan_to_num(np.abs(off) / nonzero(allowed), nan=np.inf)
                column = int(np.argmax(np.where(wrong, 0.0, times)))
                if wrong[column] or times[column] <= 1 or (wrong.any() and over_budget(2)):
                    break
                total = float(off[column])
                row = most_off(every, partial(difference, output, of_rows, column), total)
                for t, each in row_of(output, row, range(n)).items():
                    own = off[tensors[t]]
                    own -= np.nan_to_num(of_rows[row] * (each.analytic - each.numeric))
                    each = revised(t, output, apart(each, tallies[t, output]))
                    bad = np.flatnonzero(each.outcome == np.int8(Outcome.MISMATCH))
                    wrong[tensors[t].start + each.input[bad]] = True
                    tallies[t, output].add(each.take(bad) if len(bad) else each)
                of_rows[row] = 0.0
            open_ |= ~(np.abs(off) <= slack)
        for t, own in enumerate(tensors):
            counts = [0] * len(Outcome)
            counts[Outcome.MISMATCH] = int(wrong[own].sum())
            counts[Outcome.UNDECIDED] = undecided = int((open_ & ~wrong)[own].sum())
            counts[Outcome.PASS] = widths[t] - sum(counts)
            yield replace(
                tallies[t, output].result(unit, False),
                elements=widths[t],
                counts=tuple(counts),
                masked=0,
                limits=((Limit.LINE, undecided),) if undecided else (),
                lines="columns",
                row_groups=COTANGENTS,
                resolution=float(allowed[own].max(initial=0.0)) / WEIGHTS[0],
                ratios=None,
            )

    jacobian = measured() if len(point.f0) > ONE_BY_ONE else None
    patterns = jacobian.structure.patterns if jacobian else {}
    choice = jacobian.choice if jacobian else None
    pairs = dict[tuple[int, int], Pair]()
    for o, height in enumerate(heights):
        grouped = [
            (patterns[t][o] if t in patterns else dense(real_shape(x.shape, x.dtype), height)).rows
            for t, x in enumerate(point.buffers)
        ]
        shared = shared_groups([[groups] for groups in grouped])
        backwards = sum(each.groups.count for each in shared)
        if (
            choice is not None
            and backwards > COTANGENTS
            and (
                choice.mode is Mode.BLOCKS
                or (choice.why is not Why.REQUESTED and over_budget(2 * backwards))
            )
        ):
            pairs.update({(t, o): pair for t, pair in enumerate(by_sums(o))})
            continue
        for each in shared:
            for group in range(each.groups.count):
                one = range(group, group + 1)
                places = {t: grouped[t].rows_of(one)[0] for t in each.users}
                by_groups(o, each.groups.members(group), places)
        for t, (groups, width) in enumerate(zip(grouped, widths, strict=True)):
            tally = tallies[t, o]  # elements in no group are equal in both
            if (missing := height * width - tally.elements) > 0:
                tally.add_zeros(missing, np.zeros(1), np.array([tally.resolution]))
            pairs[t, o] = replace(tally.result(unit, False), row_groups=groups.count)
    return pairs


def _undecided(elements: Entries) -> Entries:
    """Return elements of an ambiguous group, with those that differ undecided."""
    outcome, limit = elements.outcome.copy(), elements.limit.copy()
    differs = outcome != np.int8(Outcome.PASS)
    outcome[differs], limit[differs] = Outcome.UNDECIDED, Limit.BUDGET
    return replace(elements, outcome=outcome, limit=limit)


def _same(first: Entries, second: Entries) -> bool:
    """Return whether two readings of a group agree, so that neither contains the gradient of
    another element."""
    return all(
        ((np.abs(a - b) <= first.tolerance) | (a == b) | (np.isnan(a) & np.isnan(b))).all()
        for a, b in ((first.analytic, second.analytic), (first.numeric, second.numeric))
    )


# ---- Two conventions at a kink: backward and a reference may differ, and both be right. Any value
# between the one-sided slopes is a subgradient (Clarke, Optimization and Nonsmooth Analysis, 1983):
# of |x| at 0 any from −1 to 1
# Columns of a check moved individually, 48 forward calls each, where elements were not kept
ALONE = 8


def at_kinks(checked: Checked) -> Revised:
    """Return a function that passes elements that differ from a reference where both values are
    subgradients. Each kink of forward that the comparison meets is measured once.

    Where there are more kinks than can be measured, the others are undecided.
    """
    room = ALONE
    # By (input, output), then by element: the slopes from the left and from the right, their bar
    kept = dict[tuple[int, int], ByPlace]()

    def alone(tensor: int, output: int, out: Index, in_: Index) -> ByPlace:
        """Return the kinks among elements, each column moved individually."""
        constraints = checked.constraints
        prepared = prepare(
            Filled(checked.measured),
            domains=constraints.domains,
            symmetric=constraints.symmetric,
            specified=constraints.specified,
            grouped=False,
        )
        if prepared is None:
            return {}
        point = prepared.point
        column = np.searchsorted(point.columns.coordinate, int(point.starts[tensor]) + in_)
        with np.errstate(all="ignore"):
            run = prepared.fresh()
            d = single_derivatives(run, column, out + point.parts[output].start)
        bar = np.maximum(d.left_bar, d.right_bar)
        kinks = np.flatnonzero(d.outcome == KINK)
        return by_place(out[kinks], in_[kinks], d.left[kinks], d.right[kinks], bar[kinks])

    def revised(tensor: int, output: int, elements: Entries) -> Entries:
        nonlocal room
        wrong = np.flatnonzero(elements.outcome == np.int8(Outcome.MISMATCH))
        if not len(wrong):
            return elements
        values = np.array([elements.analytic[wrong], elements.numeric[wrong]])
        out, in_ = elements.output[wrong], elements.input[wrong]
        jacobian, key = checked.jacobian, (tensor, output)
        seen = jacobian.pairs[key].entries
        if key not in kept:  # kinks that the comparison with finite differences recorded
            kept[key] = {}
            if seen is not None:
                e = seen.take(np.flatnonzero(seen.outcome == np.int8(Outcome.KINK)))
                kept[key] = by_place(e.output, e.input, e.left, e.right, e.bar)
        slopes, places = kept[key], list(zip(out.tolist(), in_.tolist(), strict=True))
        known = np.array([place in slopes for place in places])
        if jacobian.choice is None or (seen and seen.complete):
            known[:] = True  # elements not recorded have no kink, or kinks are not searched for
        if not known.all() and room:
            rest = np.flatnonzero(~known)
            # Elements with the same two values are represented by one of them
            first = rest[np.unique(values[:, rest], axis=1, return_index=True)[1]]
            columns = list(dict.fromkeys([*in_[first].tolist(), *in_[rest].tolist()]))[:room]
            room -= len(columns)
            some = rest[np.isin(in_[rest], columns)]
            slopes.update(alone(tensor, output, out[some], in_[some]))
            known[some] = True
        left, right, bar = np.array([slopes.get(place, (np.nan,) * 3) for place in places]).T
        pad = bar + elements.tolerance[wrong]
        low, high = np.minimum(left, right) - pad, np.maximum(left, right) + pad
        both = ((low <= values) & (values <= high)).all(0)
        outcome, limit = elements.outcome.copy(), elements.limit.copy()
        outcome[wrong[both]] = Outcome.KINK
        if both.any():
            outcome[wrong[~known]], limit[wrong[~known]] = Outcome.UNDECIDED, Limit.KINK
        sides = [elements.left.copy(), elements.right.copy()]
        for side, slope in zip(sides, (left, right), strict=True):
            side[wrong] = slope
        return replace(elements, outcome=outcome, limit=limit, left=sides[0], right=sides[1])

    return revised


# ---- Another implementation, called with the same arguments in the same order: its values, and
# autograd through it
class AgainstReference(Implementation):
    """Comparison of forward and backward with those of the function or module that the spec names
    under `reference`, both up to rounding."""

    def __init__(self, checked: Checked) -> None:
        self._seen = checked
        super().__init__(checked.subject, "reference", checked.forward.checked)

    @cached_property
    def value_pairs(self) -> Mapping[int, Pair | str]:
        """The comparison of forward values per checked output, within bars: a Pair, or a sentence
        that states how the shapes differ."""
        seen = self._seen

        def again(place: int, function: Differentiable) -> Pair:
            found = self._values(function, function.values(function.inputs))[place]
            assert isinstance(found, Pair)
            return found

        return {
            place: each
            if isinstance(each, str)
            else small_leftovers_passed(each, seen, partial(again, place))
            for place, each in self._values(seen.function, seen.outputs).items()
        }

    def _values(self, function: Differentiable, outputs: Tensors) -> dict[int, Pair | str]:
        """Compare forward values; the noise of both functions is measured where they differ."""
        result, noise = dict[int, Pair | str](), list[Array]()

        def compared(noise: Array | float) -> Pair:
            """Compare one output. The floor is the rounding of the tensor's typical size; equal
            infinities agree."""
            a, v, unit = numbers(mine), numbers(theirs), UNITS.get(mine.dtype, U32)
            with np.errstate(all="ignore"):
                floor = FLOOR * unit * rms(np.abs(v))
            settings = self._seen.settings
            return exactly((0, place), a[:, None], v[:, None], floor, settings, unit, noise)

        for place, (mine, theirs) in enumerate(zip(outputs, self.outputs, strict=True)):
            if mine.shape != theirs.shape:
                result[place] = (
                    f"the function returns shape {list(mine.shape)}, the reference "
                    f"{list(theirs.shape)}"
                )
            elif mine.is_complex() != theirs.is_complex():
                result[place] = f"the function returns {mine.dtype}, the reference {theirs.dtype}"
            else:
                result[place] = pair = compared(0.0)
                if not pair.count(Outcome.MISMATCH, Outcome.UNDECIDED):
                    continue
                if not noise:
                    # Z standard deviations of both per output [M], or of the function alone where
                    # the reference has another shape
                    constraints = self._seen.constraints
                    points = [constraints.point(Filled(each)) for each in (function, self)]
                    with np.errstate(all="ignore"):
                        one, other = (survey(point).sigma for point in points)
                    noise = [
                        Z * (one[a] + (other[b] if len(one[a]) == len(other[b]) else 0.0))
                        for a, b in zip(points[0].parts, points[1].parts, strict=True)
                    ]
                result[place] = compared(noise[place][:, None])
        return result

    @cached_property
    def beyond_float32(self) -> Sequence[tuple[TensorResult, TensorResult] | None]:
        """For each checked output its distances from the reference and from the function itself in
        float64, where both are larger than float32 explains; None otherwise.

        All are None where the origin of the noise cannot be determined: where a differentiable
        input is not float32, where one of the two does not run in float64, and where the function
        computes outside of torch.
        """
        subject, checked = self._seen.subject, self._seen.forward.checked

        def measured() -> list[tuple[TensorResult, TensorResult] | None] | None:
            alone, other = (widened(subject, InDouble(lifts=True)) for _ in range(2))
            alone.case = replace(alone.case, oracles=replace(alone.case.oracles, reference=None))
            kernel = Kernel(alone, subject, checked)
            if not (any(each.miss for each in kernel.outputs) and kernel.rounds):
                return None
            reference = Kernel(as_reference(other), subject, checked).outputs
            pairs = zip(reference, kernel.outputs, strict=True)
            return [(a, b) if a.miss and b.miss else None for a, b in pairs]

        measurable = not subject.parameter_names and all(
            x.dtype == torch.float32 for x in subject.inputs
        )
        return (tried(measured) if measurable else None) or [None] * len(checked)

    @cached_property
    def rows(self) -> Mapping[tuple[int, int], Pair]:
        """The comparison of the two Jacobians. Mismatches that the rounding inside either of the
        two explains, or a kink where both give a subgradient, are passed."""
        seen = self._seen

        def compared(function: Differentiable) -> dict[tuple[int, int], Pair]:
            return reference_gradients(
                Filled(function),
                Filled(self),
                seen.settings,
                lambda: seen.jacobian,
                at_kinks(seen),
                seen.spending.short_of,
            )

        def row_of(output: int, function: WithBackward, inputs: Tensors, row: int) -> Cotangents:
            y = seen.outputs[output]
            one = one_hot(y.shape, y.dtype, y.device, row)
            every = range(len(seen.outputs))
            return function.vjp([one if place == output else None for place in every], inputs)

        def again(key: tuple[int, int], function: Differentiable) -> Pair:
            return compared(function)[key]

        return {
            key: rounding_left_open(
                small_leftovers_passed(pair, seen, partial(again, key)),
                seen.subject,
                [partial(row_of, key[1], each) for each in (seen.function, self)],
            )
            for key, pair in compared(seen.function).items()
        }
