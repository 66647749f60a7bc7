"""The screen of sums: W·J·V compared with finite differences, one number a line and probe, relative
to the norm of the line (method.md section 6).

A line is a row, or an independent block, of the Jacobian; rows and blocks are two settings of one
screen. Rows take the directions V alone: each output's own change along a dense direction, six
forward calls each, against Σ_i a_ji v_i from groups of outputs that share no input, one backward a
group. Blocks take both seed matrices: one number WᵀJV per block and probe, Σ w_j (Jv)_j against Σ
(Jᵀw)_i v_i, six forward calls and one backward a probe, whatever the size. Memory is O(N + M).

The screen names the lines that are not clearly right. It names no entry and calls nothing wrong:
what is flagged is resolved by entries.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from gradverify.numerics.estimate.samples import Rung
from gradverify.numerics.function.point import Point
from gradverify.numerics.grouped_vjps import pulled_groups, shared_groups
from gradverify.numerics.probing.seed_matrices import (
    ProbeDerivative,
    Schedule,
    Stage,
    Sums,
    SurveyedPoint,
    random_cotangent,
)
from gradverify.numerics.rungs import (
    PIECE,
    RESOLVED,
    Array,
    Codes,
    Index,
    Mask,
    finite_size,
    joined,
    pieces,
)
from gradverify.numerics.seed_vectors import WEIGHTS, Drawn, pull_back
from gradverify.numerics.sparsity.pattern import NO_ENTRY, Pattern, RowGroups, paired, row_groups
from gradverify.numerics.survey import Directions
from gradverify.numerics.tolerance import guarded
from gradverify.numerics.verdict import MISMATCH, PASS, UNDECIDED

DIRECTIONS = 2  # of rows: what hides from one by chance does not hide from both
# of entries and rows, by blocks: signed weights that stay away from 0, so that no leak hides by
# chance
VERIFIED_ALONG = 1
PROBES = 3  # of blocks: see an error of 100·tol of a block's norm with probability 1 − 5e-5
SEEN = 4  # times the largest relative deviation of its elements: what their sum may be off by
RARE = 0.01  # of the lines: fewer that agree within a wide bar are not worth more calls
KEPT_STRAYS = 4096  # of a pair; they are all counted
SPARSE = 4  # times as many lines as a piece has values: these are added one by one


@dataclass(frozen=True)
class Screened:
    """One (input tensor, output tensor) pair: how many `lines` were screened and which are
    `flagged`, those that are off by most tolerances first.

    Lines are numbers of outputs (as `Point.f0`), or of blocks (as `Pattern.block_of_outputs`).
    `strays` lie off the pattern; few are kept, `stray_count` of them in all: (group, column)
    that was pulled back; (NO_ENTRY, output) of blocks, where an output moved that depends on
    nothing. `resolution`: the largest tol + U of the lines that passed, as a derivative along the
    probe; `stands`: some of them stand out of rounding. `lost`: those of the flagged whose analytic
    sum is not finite.
    """

    input: int
    output: int
    lines: int
    flagged: Index
    strays: Sequence[tuple[int, int]]
    stray_count: int
    resolution: float
    stands: bool
    lost: Index


class PairLines:
    """The lines of one pair: their sums by the backward and their squared norms, [K, lines] for K
    directions. What is as large as a tensor is added up piece by piece."""

    def __init__(
        self,
        surveyed: SurveyedPoint,
        tensor: int,
        output: int,
        pattern: Pattern,
        rows: bool,
        probes: int,
    ) -> None:
        self.surveyed, self.tensor, self.output, self.pattern, self.rows = (
            surveyed,
            tensor,
            output,
            pattern,
            rows,
        )
        self.part, self.columns = surveyed.point.parts[output], surveyed.point.columns_of(tensor)
        self.analytic, self.square = np.zeros((2, probes, len(pattern) if rows else pattern.blocks))
        self.strays, self.stray_count = list[tuple[int, int, float]](), 0

    def add(
        self, k: int, move: Array, line: Index, gradient: Array, part: slice = slice(None)
    ) -> None:
        """Gradients […, n] of some columns, whose numbers belong to these lines; without what a
        direction does not move."""
        by = move[part]
        gradient = gradient if by.all() else np.where(by == 0, 0.0, gradient)
        _add_up(self.analytic[k], line, gradient * by)
        _add_up(self.square[k], line, (gradient * self.columns.scale[part]) ** 2)

    def add_block(self, k: int, move: Array, gradient: Array) -> None:
        """The gradient [n] of all outputs."""
        for part in pieces(len(gradient)):
            line = self.pattern.block_of_inputs(
                part if self.columns.whole else self.columns.coordinate[part]
            )
            self.add(k, move, line, gradient[part], part)

    def add_rows(
        self, groups: range, of: RowGroups, moves: Sequence[Array], gradients: Array
    ) -> None:
        """A gradient for each of these groups [groups, N]."""
        line, columns = of.rows_of(groups), self.columns
        if (line == NO_ENTRY).any():
            self._find_strays(groups, line == NO_ENTRY, gradients)
        if not columns.whole:
            line, gradients = line[:, columns.coordinate], columns.combined(gradients)
        for k, move in enumerate(moves):
            self.add(k, move, line, gradients)

    def _find_strays(self, groups: range, off_pattern: Mask, gradients: Array) -> None:
        """What no output of the group owns must be exactly 0; a NaN is no stray where f is not
        finite itself."""
        point = self.surveyed.point
        finite = bool(np.isfinite(point.f0).all() and np.isfinite(point.x).all())
        found, numbers = (
            off_pattern & (gradients != 0) & (np.isfinite(gradients) | finite),
            point.columns.of(self.tensor),
        )
        for n in np.flatnonzero(found.any(1)).tolist():
            local = np.flatnonzero(self.columns.any_of(found[n]))
            sizes = np.abs(self.columns.combined(gradients[n])[local]) * self.columns.size[local]
            self.add_strays(groups[n], numbers[local], sizes)

    def add_strays(self, group: int, lines: Index, sizes: Array) -> None:
        """Lines of a group that moved, or were pulled back, off the pattern; few are kept."""
        kept = slice(KEPT_STRAYS - len(self.strays))
        self.stray_count += len(lines)
        for line, size in zip(lines[kept].tolist(), sizes[kept].tolist(), strict=True):
            self.strays.append((group, line, size))

    def of_outputs(self, values: Callable[[slice], Array]) -> Array:
        """Sums over the outputs of each line; `values` of a part of all outputs."""
        if self.rows:
            return values(self.part)
        total, first = np.zeros(self.pattern.blocks), self.part.start
        for part in pieces(len(self.pattern)):
            _add_up(
                total,
                self.pattern.block_of_outputs(part),
                values(slice(first + part.start, first + part.stop)),
            )
        return total

    def sums(self, k: int, w: Array | None) -> Sums:
        """How the lines change along direction k; `w` [M]: the weights of outputs."""
        surveyed, point = self.surveyed, self.surveyed.point

        def changed(f: Array, part: slice) -> Array:
            change = surveyed.changes(f, part)
            return change if w is None else np.asarray(w[part] * change)

        def variance(part: slice) -> Array:
            noise = surveyed.survey.noise(point, part)
            return np.asarray((noise if w is None else w[part] * noise) ** 2)

        noise = np.sqrt(self.of_outputs(variance))
        return Sums(
            self.output,
            lambda f: self.of_outputs(partial(changed, f)),
            surveyed.noise_along(self.tensor, noise, self.norm(k)),
        )

    def norm(self, k: int) -> Array:
        """Of each line, in units of the scales."""
        return np.sqrt(finite_size(self.square[k]))


def _add_up(total: Array, line: Index, values: Array) -> None:
    """Adds values to their lines; NO_ENTRY is none."""
    line, values = line.reshape(-1), values.reshape(-1)
    lowest = int(line.min(initial=len(total)))
    if lowest == NO_ENTRY:
        inside = line != NO_ENTRY
        line, values = line[inside], values[inside]
        lowest = int(line.min(initial=len(total)))
    span = int(line.max(initial=lowest - 1)) + 1 - lowest
    if span > SPARSE * max(PIECE, len(line)):
        np.add.at(total, line, values)
    elif span:
        total[lowest : lowest + span] += np.bincount(line - lowest, values, span)


def screen(
    surveyed: SurveyedPoint,
    patterns: Mapping[int, Sequence[Pattern]],
    directions: Sequence[Directions],
    *,
    rows: bool,
    linear: Collection[int] = (),
    seen: Mapping[tuple[int, int], float] | None = None,
) -> list[Screened]:
    """Screens every row, or independent block, of every pair of an input tensor that has
    `directions`, and an output. `patterns`: by input tensor, then output tensor. `seen`: how far
    the elements of each pair were seen to be off, which passed; only what is surely off by more is
    flagged, by fewer calls.

    Six forward calls a direction, two where f is `linear` in the tensor; one backward a row group
    (inputs with the same groups share it), or one a probe and output tensor. More only along
    directions that the first rungs left open. Raises what the backward raises.
    """
    point, outputs = surveyed.point, range(len(surveyed.point.parts))
    shapes = [paired(point, each.tensor, patterns[each.tensor]) for each in directions]
    lines = [
        [PairLines(surveyed, each.tensor, o, shape[o], rows, len(each.moves)) for o in outputs]
        for each, shape in zip(directions, shapes, strict=True)
    ]
    w = (
        None
        if rows
        else Drawn(
            len(directions[0].moves),
            lambda k: joined([random_cotangent(point, o, "cotangent", k) for o in outputs]),
        )
    )
    if w is None:
        _pull_row_groups(point, shapes, directions, lines)
    else:
        _pull_probes(point, w, directions, lines)
    return [
        pair
        for each, of_tensor in zip(directions, lines, strict=True)
        for pair in _screened(
            surveyed,
            each,
            of_tensor,
            w,
            surveyed.schedule(each.tensor, each.tensor in linear, seen is not None),
            seen or {},
        )
    ]


def _pull_row_groups(
    point: Point,
    shapes: Sequence[Sequence[Pattern]],
    directions: Sequence[Directions],
    lines: Sequence[Sequence[PairLines]],
) -> None:
    grouped, moves = (
        [[row_groups(pattern) for pattern in shape] for shape in shapes],
        [[*each.moves] for each in directions],
    )
    weights = [random_cotangent(point, o, "row groups") for o in range(len(point.parts))]
    for shared in shared_groups(grouped):
        for span, pulled in pulled_groups(point, shared, weights[shared.output], shared.users):
            for t in shared.users:
                lines[t][shared.output].add_rows(
                    span,
                    grouped[t][shared.output],
                    moves[t],
                    pulled[:, point.starts[t] : point.starts[t + 1]],
                )
    for of_tensor in lines:
        for each, w in zip(of_tensor, weights, strict=True):
            used = np.where(w == 0, 1.0, w)  # 0 where f is infinite: such rows are left out
            each.analytic /= used
            each.square /= used**2


def _pull_probes(
    point: Point, w: Drawn, directions: Sequence[Directions], lines: Sequence[Sequence[PairLines]]
) -> None:
    for k, cotangent in enumerate(w):
        for o, part in enumerate(point.parts):
            gradient = point.by_column(pull_back(point, o, cotangent[part]))
            for each, of_tensor in zip(directions, lines, strict=True):
                columns = point.columns.of(each.tensor)
                of_tensor[o].add_block(
                    k,
                    each.moves[k],
                    gradient[columns[0] : columns[-1] + 1] if len(columns) else gradient[:0],
                )
            del gradient  # not held while the next one is pulled back
        del cotangent


def _screened(
    surveyed: SurveyedPoint,
    directions: Directions,
    lines: Sequence[PairLines],
    w: Drawn | None,
    schedule: Schedule,
    seen: Mapping[tuple[int, int], float],
) -> list[Screened]:
    """The pairs of one input tensor, whose directions move all output tensors at once."""
    point, tensor, m = surveyed.point, directions.tensor, len(surveyed.point.f0)
    reach, alive, moved = np.zeros(m), np.zeros(m, bool), np.zeros(m, bool)
    known, still = dict[tuple[int, Stage], list[ProbeDerivative]](), surveyed.still

    def see(first: bool, rung: Rung) -> None:
        """Learns what moves, and of the first rung how far."""
        for f in rung[:2]:
            for part in pieces(0 if moved.all() or np.isnan(f).all() else m):
                moved[part] |= ~(np.abs(surveyed.changes(f, part)) <= still[part])
        for part in pieces(m if first else 0):
            change = finite_size(rung.up[part] - rung.down[part])
            reach[part] = np.maximum(reach[part], change / (rung.step_up + rung.step_down))
            alive[part] |= change > RESOLVED * surveyed.survey.noise(point, part)

    def read(
        k: int, rungs: Stage, see: Callable[[bool, Rung], None] | None = None
    ) -> list[ProbeDerivative]:
        if (k, rungs) not in known:
            weights = None if w is None else w[k]
            known[k, rungs] = surveyed.read(
                directions, k, rungs, [each.sums(k, weights) for each in lines], see
            )
        return known[k, rungs]

    first = [read(k, schedule.start, see) for k in range(len(directions.moves))]
    floors, has_columns = surveyed.floors(reach, alive), len(point.columns.of(tensor)) > 0

    def pair(o: int, each: PairLines) -> Screened:
        part, nothing, numbers = (
            each.part,
            each.pattern.nothing & moved[each.part],
            np.arange(each.analytic.shape[1]),
        )
        floor = np.sqrt(each.of_outputs(lambda piece: floors[piece] ** 2))
        # A term may hide there
        floor = np.where(
            floor == 0,
            WEIGHTS[0] * floors[part].min(initial=np.inf) if part.stop > part.start else 0.0,
            floor,
        )
        count, doubt = (
            np.ones(len(numbers), bool),
            np.full(len(numbers), not schedule.only_off and surveyed.unmoved(tensor, o)),
        )
        if each.rows:
            numbers, count, doubt = (
                numbers + part.start,
                ~np.isinf(point.f0[part]) | moved[part],
                doubt | nothing,
            )
        else:
            outs = np.flatnonzero(nothing) + part.start
            each.add_strays(NO_ENTRY, outs, np.full(len(outs), np.inf))
        share, slack = surveyed.relative(tensor, o)
        share = max(share, SEEN * seen.get((tensor, o), 0.0))
        off, resolution, stands = np.zeros(len(numbers)), 0.0, False

        def again(k: int, i: Index, rungs: Stage) -> ProbeDerivative:
            return read(k, rungs)[o].take(i)

        for k, derivatives in enumerate(first):
            d, a = derivatives[o], each.analytic[k]
            norm = np.maximum(each.norm(k), np.where(d.clear, np.abs(d.value), 0.0))
            tolerance = share * norm + floor
            passed, bar, surely = _judged(
                a,
                d,
                tolerance,
                slack * norm + floor,
                schedule,
                partial(again, k),
            )
            off, right = np.maximum(off, surely), passed & count
            resolution = max(resolution, float((tolerance + bar).max(initial=0.0, where=right)))
            stands |= bool((right & (tolerance > 2 * floor)).any())
            doubt |= ~passed
        # without what is no larger than the rounding of forward, in which such a term may hide
        rounding = WEIGHTS[0] * floors[part].min(initial=np.inf) if each.rows else 0.0
        strays = [(group, line) for group, line, size in each.strays if not size <= rounding]
        flagged = np.flatnonzero(count & doubt & has_columns)
        flagged = flagged[np.argsort(-off[flagged], kind="stable")]
        lost = flagged[~np.isfinite(each.analytic[:, flagged]).all(0)]
        return Screened(
            tensor,
            o,
            int(np.count_nonzero(count)),
            numbers[flagged],
            strays,
            each.stray_count - len(each.strays) + len(strays),
            resolution,
            stands,
            numbers[lost],
        )

    return [pair(o, each) for o, each in enumerate(lines)]


def _judged(
    a: Array,
    first: ProbeDerivative,
    tolerance: Array,
    widest: Array,
    steps: Schedule,
    again: Callable[[Index, Stage], ProbeDerivative],
) -> tuple[Mask, Array, Array]:
    """Which lines pass, |a − D| + U ≤ tol, or agree within a bar that is not too wide; their bars;
    by how many tolerances they are surely off.

    What is open after the first rungs, and not surely off, is measured on coarser or finer ones.
    """

    def verdict_of(i: Index | slice, d: ProbeDerivative) -> Codes:
        found = guarded(np.abs(a[i] - d.value), d.bar, tolerance[i])
        found[~d.clear] = UNDECIDED
        found[~np.isfinite(a[i])] = MISMATCH
        if steps.only_off:
            found[found == UNDECIDED] = PASS
        return found

    def within(d: ProbeDerivative) -> Mask:
        return np.asarray(
            d.clear & (np.abs(a - d.value) <= d.bar) & (np.abs(a - d.value) + d.bar <= widest)
        )

    latest, verdict = first, verdict_of(slice(None), first)
    if not steps.sure:
        verdict[verdict == MISMATCH] = UNDECIDED
    agrees = within(first) & (verdict == UNDECIDED)
    if agrees.sum() <= RARE * len(agrees):
        verdict[agrees] = PASS
    for stages, route in ((steps.coarser, first.noisy), (steps.finer, ~first.noisy)):
        for stage in stages:
            i = np.flatnonzero((verdict == UNDECIDED) & route & (latest.noisy == first.noisy))
            if not i.size:
                break
            new = again(i, stage)
            found = verdict_of(i, new)
            better = (found == PASS) | (new.clear & (new.bar < latest.bar[i]))
            latest = latest.replaced(i[better], new.take(better))
            verdict[i[better]] = found[better]
    off = np.nan_to_num((np.abs(a - latest.value) - latest.bar) / tolerance)
    return (verdict == PASS) | within(latest), latest.bar, np.where(verdict == PASS, 0.0, off)
