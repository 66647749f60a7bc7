"""The screen of sums: W·J·V compared with finite differences, one number a row or block and probe, relative to the norm of the line
(method.md section 6).

Rows take the directions V alone, Jv by finite differences, exact on every output element: (Jv)_j along a dense direction, six forward calls each,
against Σ_i a_ji v_i from groups of outputs that share no input, one backward a group. Blocks take both seed matrices: one number WᵀJV per independent
block and probe, Σ w_j (Jv)_j against Σ (Jᵀw)_i v_i, six forward calls and one backward a probe, whatever the size. Memory is O(N + M).

What rows and blocks hand over is the same: for each line the sum by the backward and its derivative by the forward. The screen names the lines that
are not clearly right. It names no entry and calls nothing wrong: what is flagged is resolved by entries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from types import MappingProxyType

import numpy as np

from gradverify.numerics.estimate.samples import Rung, Samples
from gradverify.numerics.function.point import Point
from gradverify.numerics.grouped_vjps import pulled_groups, shared_groups
from gradverify.numerics.probing.off_pattern import Strays, with_off_pattern_floor
from gradverify.numerics.probing.seed_matrices import (
    Allowed,
    Cotangents,
    DirectionRungs,
    Directions,
    ProbeDerivative,
    Schedule,
    Stage,
    SurveyedPoint,
    draw_directions,
    probe_derivative,
    random_cotangent,
)
from gradverify.numerics.records import Record, joined
from gradverify.numerics.rungs import PIECE, RESOLVED, Array, Codes, Index, Mask, finite_size, in_a_row, pieces, repeated, step
from gradverify.numerics.seed_vectors import WEIGHTS, pull_back
from gradverify.numerics.sparsity.pattern import NO_ENTRY, Pattern, RowGroups, paired, row_groups
from gradverify.numerics.survey import DirectionSample
from gradverify.numerics.tolerance import guarded
from gradverify.numerics.verdict import MISMATCH, PASS, UNDECIDED

# ---- Probes of rows and blocks: two sums a line and probe, by forward and by backward, compared relative to the norm of the line
RARE = 0.01  # of the lines: fewer that agree within a wide bar are not worth more calls


@dataclass(frozen=True)
class Screened:
    """One (input tensor, output tensor) pair: how many `lines` were screened and which are `flagged` (ascending).

    Lines are numbers of outputs (as `Point.f0`), or of blocks (as `Pattern.block_of_outputs`). `strays` [s, 2] lie off the pattern; few are
    kept, `stray_count` of them in all: (row group, column) that was pulled back; of blocks,
    both for outputs that depend on nothing: (−1, output) and (0, column).
    `left_out`: columns that no probe moved (not finite, at the end of their domain). `resolution`: the largest tol + U of the lines that
    passed, as a derivative along the probe; `relative`: the same over the line's norm, for lines that stand out of rounding. `lost`: those of the
    flagged whose analytic sum is not finite. `worst`: the flagged, those that are off by most tolerances first; empty where that is not known.
    """

    input: int
    output: int
    lines: int
    flagged: Index
    strays: Index
    stray_count: int
    left_out: Index
    resolution: float
    relative: float
    lost: Index = field(default_factory=lambda: np.zeros(0, np.intp))
    worst: Index = field(default_factory=lambda: np.zeros(0, np.intp))

    @property
    def clean(self) -> bool:
        return not (len(self.flagged) or self.stray_count)


# ---- the verdict on one number a line
@dataclass(frozen=True)
class LineVerdicts(Record):
    """Lines [m], or [K, m] of K probes, that passed (else they are flagged), their norms, tolerances and bars, and by how many tolerances they
    are surely off."""

    passed: Mask
    norm: Array
    tolerance: Array
    bar: Array
    off: Array


def by_probe(results: Sequence[LineVerdicts], probes: int) -> LineVerdicts:
    """Of each probe in turn, or of all of them one after the other [K · m], as [K, m]."""
    return LineVerdicts(*(values.reshape(probes, -1) for values in vars(joined(results)).values()))


Again = Callable[[Index, Stage], ProbeDerivative]
"""Measures elements (indices) once more on other rungs."""


def judged(analytic: Array, first: ProbeDerivative, allowed: Allowed, steps: Schedule, again: Again) -> LineVerdicts:
    """PASS where |a − D| + U ≤ tol; what is open after the first rungs, and not surely off, is measured on coarser or finer ones."""
    latest, verdict = first, _verdict(analytic, first, allowed)
    if (verdict == PASS).all():
        return LineVerdicts(np.ones(len(verdict), bool), allowed.norm, allowed.tolerance, first.bar, np.zeros(len(verdict)))
    if not steps.sure:
        verdict[verdict == MISMATCH] = UNDECIDED
    within = _within(analytic, first, allowed) & (verdict == UNDECIDED)
    if within.sum() <= RARE * len(within):
        verdict[within] = PASS

    for stages, route in ((steps.coarser, first.noisy), (steps.finer, ~first.noisy)):
        for stage in stages:
            i = np.flatnonzero((verdict == UNDECIDED) & route & (latest.noisy == first.noisy))
            if not i.size:
                break
            new = again(i, stage)
            new_verdict = _verdict(analytic[i], new, allowed.take(i))
            better = (new_verdict == PASS) | (new.clear & (new.bar < latest.bar[i]))
            latest = latest.replaced(i[better], new.take(better))
            verdict[i[better]] = new_verdict[better]
    off = np.nan_to_num((np.abs(analytic - latest.value) - latest.bar) / allowed.tolerance)
    return LineVerdicts((verdict == PASS) | _within(analytic, latest, allowed), allowed.norm, allowed.tolerance, latest.bar, off)


def _within(a: Array, d: ProbeDerivative, allowed: Allowed) -> Mask:
    off = np.abs(a - d.value)
    return np.asarray(d.clear & (off <= d.bar) & (off + d.bar <= allowed.widest))


def _verdict(a: Array, d: ProbeDerivative, allowed: Allowed) -> Codes:
    verdict, finite = guarded(np.abs(a - d.value), d.bar, allowed.tolerance), np.isfinite(a)
    if not d.clear.all():
        verdict[~d.clear] = UNDECIDED
    if not finite.all():
        verdict[~finite] = MISMATCH
    return verdict


# ---- the probes of one pair
@dataclass(frozen=True)
class ProbedLines:
    """The lines [m] of one pair: their `numbers`, what the backward says of each [K, m] and what came of it, the floor of each, those that `count`
    and those that are in `doubt` whatever the probes say. `left_out`: columns that no probe moves."""

    pair: tuple[int, int]
    numbers: Index
    analytic: Array
    judged: LineVerdicts
    floor: Array
    count: Mask
    doubt: Mask
    strays: Strays
    left_out: Index

    def screened(self, surveyed: SurveyedPoint) -> Screened:
        """Flags the lines that a probe did not pass, and those in doubt."""
        j, (tensor, output) = self.judged, self.pair
        has_columns = len(surveyed.point.columns.of(tensor)) > 0
        flagged = np.flatnonzero(self.count & (~j.passed.all(0) | self.doubt | surveyed.unmoved(tensor, output)) & has_columns)
        lost = flagged[~np.isfinite(self.analytic[:, flagged]).all(0)]
        worst = flagged[np.argsort(-j.off[:, flagged].max(0), kind="stable")]
        return Screened(tensor, output, int(np.count_nonzero(self.count)), self.numbers[flagged], self.strays.pairs(), self.strays.count,
                        self.left_out, *self._sharpness(), self.numbers[lost], self.numbers[worst])

    def _sharpness(self) -> tuple[float, float]:
        """The largest tol + U of what passed, and of it over the norm where that stands out of rounding."""
        j, passed = self.judged, self.judged.passed & self.count
        seen, stands = j.tolerance + j.bar, passed & (j.tolerance > 2 * self.floor)  # what is relative of it is more than rounding
        relative = np.divide(seen, j.norm, out=np.zeros(seen.shape), where=stands)
        return float(seen.max(initial=0.0, where=passed)), float(relative.max(initial=0.0))


class DirectionScreen:
    """The dense directions of one tensor, which move all output tensors at once; `moved` [M]: what the first rungs of any have moved."""

    def __init__(self, surveyed: SurveyedPoint, tensor: int, directions: Directions, linear: bool = False) -> None:
        self.surveyed, self.tensor, self.directions, self.schedule = surveyed, tensor, directions, surveyed.schedule(tensor, linear)
        self.moved = np.zeros(len(surveyed.point.f0), bool)

    def first(self) -> Iterator[DirectionRungs]:
        """f on the first rungs of each direction in turn."""
        for k in range(len(self.directions.moves)):
            samples = self.directions.samples(k, self.schedule.start)
            self.see(*samples.up, *samples.down)
            yield samples

    def see(self, *values: Array) -> None:
        """Learn from these f [M] what moves."""
        if not self.moved.all():
            self.moved |= self.surveyed.moved(values)

    def judged(self, analytic: Array, first: ProbeDerivative, norm: Array, floor: Array, again: Again, output: int | None = None) -> LineVerdicts:
        """The lines [m] along one direction, of one `output` tensor or of all; `norm` as the backward has it."""
        norm = np.maximum(norm, np.where(first.clear, np.abs(first.value), 0.0))
        allowed = self.surveyed.allowed(self.tensor, norm, floor, output)
        return judged(analytic, first, allowed, self.schedule, again)


# ---- Rows of the Jacobian: a few random directions V, Jv by finite differences, exact on every output element (method.md section 6)
DIRECTIONS = 2  # directions: what hides from one by chance does not hide from both
Straight = Mapping[int, DirectionSample | None]
"""The input tensors in which f is linear, each with the samples that showed it, if they are good for a direction."""
NOWHERE: Straight = MappingProxyType({})


def check_rows(
    surveyed: SurveyedPoint, patterns: Sequence[Sequence[Pattern]], *, directions: Sequence[Directions] | None = None,
    linear: Straight = NOWHERE,
) -> list[Screened]:
    """Screens every output of every (input, output) pair. `patterns`: by input tensor, then output tensor.

    One backward a row group (inputs with the same groups share it), 6·DIRECTIONS forward calls an input tensor, 2·DIRECTIONS where f is `linear`
    in it; more only along directions that the first rungs left open. `directions` of all tensors that are drawn already. Raises what
    the backward raises.
    """
    point, tensors = surveyed.point, range(len(surveyed.point.buffers))
    samples = surveyed.survey.direction_samples
    directions = directions or [draw_directions(point, t, DIRECTIONS, linear.get(t) or samples[t]) for t in tensors]
    shapes = [paired(point, t, patterns[t]) for t in tensors]
    rows = [[RowSums(point, t, part, np.array([*d.moves])) for part in point.parts] for t, d in enumerate(directions)]
    weights = [random_cotangent(point, o, "row groups") for o in range(len(point.parts))]
    grouped = [[row_groups(pattern) for pattern in shape] for shape in shapes]
    for shared in shared_groups(grouped):
        o = shared.output
        used = np.where(weights[o] == 0, 1.0, weights[o])  # 0 where f is infinite: such rows are left out
        for span, pulled in pulled_groups(point, shared, weights[o], shared.users):
            for t in shared.users:
                rows[t][o].add(span, grouped[t][o], pulled[:, point.starts[t] : point.starts[t + 1]], used)
    return [pair for t in tensors for pair in _screened(DirectionScreen(surveyed, t, directions[t], t in linear), rows[t], shapes[t])]


class RowSums:
    """What the backwards tell of the outputs [m] of one pair: (Jv) [K, m] and the norm of each row in units of the scales."""

    def __init__(self, point: Point, tensor: int, part: slice, move: Array) -> None:
        m = part.stop - part.start
        self.columns, self.strays = point.columns_of(tensor), Strays()
        self.numbers = point.columns.of(tensor)
        self.value, self.square = np.zeros((len(move), m)), np.zeros(m)
        self._move, self._moves = move, (move != 0).any(0)
        self._all_move = bool(self._moves.all())
        self._finite = bool(np.isfinite(point.f0).all() and np.isfinite(point.x).all())

    def add(self, groups: range, of: RowGroups, gradients: Array, w: Array) -> None:
        """A backward for each of these groups, with weights w [m]: gradients [groups, N]."""
        runs = of.runs(groups) if self.columns.whole and self._all_move else None
        if runs is None:
            self._add_entries(groups, of.rows_of(groups), gradients, w)
            return
        rows, width = runs
        windows, weights = gradients.reshape(len(groups), -1, width), w[rows]
        for value, sums in zip(self.value, np.einsum("grw,krw->kgr", windows, self._move.reshape(len(self._move), -1, width)), strict=True):
            value[rows] += sums.reshape(-1) / weights
        scaled = windows * self.columns.scale.reshape(-1, width)
        self.square[rows] += np.einsum("grw,grw->gr", scaled, scaled).reshape(-1) / weights**2

    def _add_entries(self, groups: range, row_of: Index, gradients: Array, w: Array) -> None:
        """`row_of` [groups, N]: the output of the group that depends on each coordinate."""
        in_pattern = row_of >= 0
        if not in_pattern.all():
            self._find_strays(groups, ~in_pattern, gradients)
        if not self.columns.whole:
            row_of, gradients = row_of[:, self.columns.coordinate], self.columns.combined(gradients)
            in_pattern = row_of >= 0
        column: Index | slice = slice(None)
        if self._all_move and in_pattern.all():
            rows = row_of.reshape(-1)
        else:
            at, column = np.nonzero(in_pattern & self._moves)
            rows, gradients = row_of[at, column], gradients[at, column]
        for k, move in enumerate(self._move):
            self.value[k] += np.bincount(rows, (gradients * move[column]).reshape(-1), len(w)) / w
        self.square += np.bincount(rows, ((gradients * self.columns.scale[column]) ** 2).reshape(-1), len(w)) / w**2

    def _find_strays(self, groups: range, off_pattern: Mask, gradients: Array) -> None:
        """What no output of the group owns must be exactly 0; a NaN is no stray where f is not finite itself."""
        found = off_pattern & (gradients != 0) & (np.isfinite(gradients) | self._finite)
        for n in np.flatnonzero(found.any(1)).tolist():
            local = np.flatnonzero(self.columns.any_of(found[n]))
            self.strays.add(groups[n], self.numbers[local], np.abs(self.columns.combined(gradients[n])[local]) * self.columns.size[local])

    @property
    def norm(self) -> Array:
        return np.asarray(np.sqrt(finite_size(self.square)))


def _screened(screen: DirectionScreen, rows: Sequence[RowSums], patterns: Sequence[Pattern]) -> list[Screened]:
    """The pairs of one input tensor."""
    surveyed, norm, value = screen.surveyed, np.concatenate([sums.norm for sums in rows]), np.concatenate([sums.value for sums in rows], 1)
    noise = surveyed.noise_along(screen.tensor, surveyed.noise, norm)

    def read(samples: DirectionRungs, i: Index | None = None) -> ProbeDerivative:
        return _read(surveyed, samples, noise, slice(None) if i is None else i)

    first = [read(samples) for samples in screen.first()]
    floor = surveyed.floors(norm, np.any([np.abs(d.value) > RESOLVED * d.bar for d in first], 0))
    def again(k: int) -> Again:
        return lambda i, rungs: read(screen.directions.samples(k, rungs), i)

    result = by_probe([screen.judged(value[k], d, norm, floor, again(k)) for k, d in enumerate(first)], len(value))
    pairs = []
    for o, part in enumerate(surveyed.point.parts):
        moved = screen.moved[part]
        rows[o].strays.forget(WEIGHTS[0] * floor[part].min(initial=np.inf))
        lines = ProbedLines((screen.tensor, o), np.arange(part.start, part.stop), value[:, part], result.take(part), floor[part],
                    ~np.isinf(surveyed.point.f0[part]) | moved, patterns[o].nothing & moved, rows[o].strays, screen.directions.left_out)
        pairs.append(lines.screened(surveyed))
    return pairs


def _read(surveyed: SurveyedPoint, samples: DirectionRungs, noise: Array, i: Index | slice) -> ProbeDerivative:
    """Derivatives of outputs i along a direction, with their noise [M]."""
    point, noise = surveyed.point, noise[i]
    one = repeated(1.0, len(noise))
    wide = np.broadcast_to(samples.steps[:, :, None], (*samples.steps.shape, len(one)))
    return probe_derivative(Samples(samples.up[:, i], samples.down[:, i], wide[:, 0], wide[:, 1], point.f0[i], noise, point.unit[i], one, one,
                           surveyed.rounds_x()))


# ---- Blocks of the Jacobian: one number WᵀJV per independent block and probe (method.md section 6), the cheapest comparison
SPARSE = 4  # times as many blocks as a piece has values: these are added one by one
PROBES = 3  # see an error of 100·tol of a block's norm with probability 1 − 5e-5


def check_blocks(
    surveyed: SurveyedPoint, patterns: Sequence[Sequence[Pattern]], *, probes: int = PROBES,
    directions: Sequence[Directions] | None = None,
) -> list[Screened]:
    """Screens every independent block of every (input, output) pair. `patterns`: by input tensor, then output tensor.

    6·`probes` forward calls an input tensor, `probes` backward calls an output tensor, one more where outputs depend on nothing; more only
    along directions that the first rungs left open. `directions` of all tensors, `probes` each, that are drawn already. Raises what the
    backward raises.
    """
    point, tensors = surveyed.point, range(len(surveyed.point.buffers))
    shapes = [paired(point, t, patterns[t]) for t in tensors]
    cotangents = Cotangents(point, probes)
    directions = directions or [draw_directions(point, t, probes, surveyed.survey.direction_samples[t]) for t in tensors]
    blocks = [_TensorBlocks(DirectionScreen(surveyed, t, directions[t]), cotangents, shapes[t]) for t in tensors]
    for k in range(probes):
        w = cotangents.w[k]
        for o in range(len(point.parts)):
            gradient = cotangents.pulled(w, o)
            for of_tensor in blocks:
                of_tensor.add(o, k, gradient, w)
            del gradient    # not held while the next one is pulled back
        del w
    dead = [_dead(point, o, cotangents.w, [shape[o] for shape in shapes]) for o in range(len(point.parts))]
    return [pair for t in tensors for pair in blocks[t].screened([strays[t] for strays in dead])]


def _dead(point: Point, output: int, w: Sequence[Array], patterns: Sequence[Pattern]) -> list[Strays]:
    """By input tensor, the columns that outputs which depend on nothing pull back to: their gradient must be exactly 0.

    The group of a stray is 0: all outputs that do not depend on that tensor.
    """
    found, done = [Strays() for _ in patterns], list[tuple[Mask, Array]]()
    for t, pattern in enumerate(patterns):
        if not pattern.nothing.any():
            continue
        gradients = next((g for nothing, g in done if np.array_equal(nothing, pattern.nothing)), None)
        if gradients is None:
            gradients = point.by_column(pull_back(point, output, np.where(pattern.nothing, w[0][point.parts[output]], 0.0)))
            done.append((pattern.nothing, gradients))
        columns = point.columns.of(t)
        found[t].add(0, columns[gradients[columns] != 0])
    return found


@dataclass(frozen=True)
class _Sums:
    """Of the blocks [B] of one pair and probe: the analytic sum, its norm, the standard deviation of the numeric sum."""

    analytic: Array
    norm: Array
    sigma: Array


class _TensorBlocks:
    """The blocks of one input tensor with every output tensor. What is as large as a tensor is added up piece by piece."""

    def __init__(self, screen: DirectionScreen, cotangents: Cotangents, patterns: Sequence[Pattern]) -> None:
        self.screen, self.surveyed, self.point, self.patterns, self.w = screen, screen.surveyed, screen.surveyed.point, patterns, cotangents.w
        self.directions, self.columns = screen.directions, in_a_row(screen.directions.columns)
        self.coordinates = None if self.point.columns.whole else self.point.columns_of(screen.tensor).coordinate
        self.sums: list[list[_Sums]] = [[] for _ in patterns]

    def add(self, o: int, k: int, gradient: Array, w: Array) -> None:
        """The gradient [C] of cotangent k, which is w [M], of one output tensor."""
        pattern, move, scale = self.patterns[o], self.directions.moves[k], self.point.columns.scale[self.columns]
        gradient, n = gradient[self.columns], len(move)

        def moved(part: slice) -> Array:
            return gradient[part] if move[part].all() else np.where(move[part] == 0, 0.0, gradient[part])

        def block(part: slice) -> Index:
            return pattern.block_of_inputs(part if self.coordinates is None else self.coordinates[part])

        analytic = _summed(n, pattern.blocks, block, lambda part: moved(part) * move[part])
        norm = np.sqrt(_summed(n, pattern.blocks, block, lambda part: (moved(part) * scale[part]) ** 2))
        first, noise = self.point.parts[o].start, partial(self.surveyed.survey.noise, self.point)

        def variance_of(part: slice) -> Array:
            of_all = slice(first + part.start, first + part.stop)
            return np.asarray((w[of_all] * noise(of_all)) ** 2)

        variance = self._of_outputs(o, variance_of)
        self.sums[o].append(_Sums(analytic, norm, self.surveyed.noise_along(self.screen.tensor, np.sqrt(variance), finite_size(norm))))

    def screened(self, dead: Sequence[Strays]) -> list[Screened]:
        """One pair an output tensor; what those that are `dead` pull back to."""
        m = len(self.point.f0)
        reach, alive, survey = np.zeros(m), np.zeros(m, bool), self.surveyed.survey

        def learn(first: bool, rung: Rung) -> None:
            self.screen.see(rung.up, rung.down)
            for part in pieces(m if first else 0):
                change = finite_size(rung.up[part] - rung.down[part])
                reach[part] = np.maximum(reach[part], change / (rung.step_up + rung.step_down))
                alive[part] |= change > RESOLVED * survey.noise(self.point, part)

        first = [self._read(k, self.screen.schedule.start, learn) for k in range(len(self.directions.moves))]
        floors = self.surveyed.floors(reach, alive)
        return [self._pair(o, [read[o] for read in first], floors[part], dead[o]).screened(self.surveyed) for o, part in enumerate(self.point.parts)]

    def _of_outputs(self, o: int, values: Callable[[slice], Array]) -> Array:
        """Sums over the outputs of each block [B]."""
        pattern = self.patterns[o]
        return _summed(len(pattern), pattern.blocks, pattern.block_of_outputs, values)

    def _read(self, k: int, rungs: Stage, learn: Callable[[bool, Rung], None] | None = None) -> list[ProbeDerivative]:
        """For each output tensor the derivatives of the sums of its blocks along direction k. `learn` gets f on each rung, and if it is the first."""
        outputs, w = range(len(self.patterns)), self.w[k]
        sums, steps = [np.empty((2, len(rungs), pattern.blocks)) for pattern in self.patterns], np.ones((len(rungs), 2))
        for r, rung in enumerate(self.directions.sampled(k, rungs)):
            nowhere, h = repeated(np.nan, len(w)), step(1.0, rungs[r])
            at = rung or Rung(nowhere, nowhere, h, h)
            steps[r] = at.step_up, at.step_down
            for o, (side, f) in product(outputs, enumerate(at[:2])):
                sums[o][side, r] = self._of_outputs(o, partial(self._weighted, w, f, self.point.parts[o].start))
            if learn:
                learn(r == 0, at)
            del rung, at    # not held while the next one is taken
        return [self.surveyed.derivative_of_sums(o, sums[o][0], sums[o][1], steps, self.sums[o][k].sigma) for o in outputs]

    def _weighted(self, w: Array, f: Array, start: int, part: slice) -> Array:
        """How a part of the outputs of one tensor changed, weighted."""
        of_all = slice(start + part.start, start + part.stop)
        return np.asarray(w[of_all] * self.surveyed.changes(f, of_all))

    def _pair(self, o: int, first: Sequence[ProbeDerivative], floors: Array, dead: Strays) -> ProbedLines:
        part, pattern = self.point.parts[o], self.patterns[o]
        floor = with_off_pattern_floor(np.sqrt(self._of_outputs(o, lambda piece: floors[piece] ** 2)), floors)

        def again(k: int) -> Again:
            return lambda i, rungs: self._read(k, rungs)[o].take(i)

        results = [self.screen.judged(sums.analytic, first[k], sums.norm, floor, again(k), o) for k, sums in enumerate(self.sums[o])]
        dead.add(NO_ENTRY, np.flatnonzero(pattern.nothing & self.screen.moved[part]) + part.start)
        doubt, missing = np.zeros(pattern.blocks, bool), np.isnan(self.point.f0[part])
        if missing.any():
            blocks = pattern.block_of_outputs()
            doubt[blocks[missing & (blocks != NO_ENTRY)]] = True
        return ProbedLines((self.screen.tensor, o), np.arange(pattern.blocks), np.array([sums.analytic for sums in self.sums[o]]),
                     by_probe(results, len(results)), floor, np.ones(pattern.blocks, bool), doubt, dead, self.directions.left_out)


def _summed(n: int, blocks: int, block: Callable[[slice], Index], values: Callable[[slice], Array]) -> Array:
    """Sums of n values over each block [B], which are given piece by piece, as their blocks are; NO_ENTRY is none."""
    total = np.zeros(blocks)
    for part in pieces(n):
        at, added = block(part), values(part)
        lowest = int(at.min())
        if lowest == NO_ENTRY:
            inside = at != NO_ENTRY
            at, added = at[inside], added[inside]
            lowest = int(at.min(initial=blocks))
        span = int(at.max(initial=lowest - 1)) + 1 - lowest
        if span > SPARSE * PIECE:
            np.add.at(total, at, added)
        elif span:
            total[lowest : lowest + span] += np.bincount(at - lowest, added, span)
    return total
