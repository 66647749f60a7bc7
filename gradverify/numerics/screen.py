"""The screen of sums: W·J·V compared with finite differences, one number per line and probe,
relative to the norm of the line (method.md section 6); with the seed matrices V and W, and
derivatives along them.

Directions are Gaussian × scale and cotangents signed: positive ones cannot detect errors in
gradients that sum to zero (softmax, norms). Each input tensor has its own directions and each
output tensor its own cotangents, so that every pair is judged individually: jointly, the tensor of
the largest values would determine the norm for all others.

A line is a row, or an independent block, of the Jacobian; rows and blocks are two settings of one
screen. Rows use the directions V only: each output's own change along a dense direction, six
forward calls each, against Σ_i a_ji v_i from groups of outputs that share no input, one backward
per group. Blocks use both seed matrices: one number WᵀJV per block and probe, Σ w_j (Jv)_j against
Σ (Jᵀw)_i v_i, six forward calls and one backward per probe, whatever the size. Memory is O(N + M).

The screen flags the lines that are not clearly right. It identifies no entry and calls nothing
wrong: flagged lines are resolved by entries.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

import numpy as np

from gradverify.numerics.estimate.ladder import solve
from gradverify.numerics.estimate.samples import LOW_UNIT, Rung, Samples
from gradverify.numerics.function.point import Point
from gradverify.numerics.grouped_vjps import pulled_groups, shared_groups
from gradverify.numerics.judging import Run
from gradverify.numerics.records import Record
from gradverify.numerics.rungs import (
    PIECE,
    QUICK,
    RATIO,
    RESOLVED,
    WIDE_RUNG,
    Array,
    Codes,
    Index,
    Mask,
    finite_size,
    in_a_row,
    joined,
    pieces,
    repeated,
)
from gradverify.numerics.seed_vectors import (
    WEIGHTS,
    Drawn,
    as_dtype_holds,
    moves_along,
    pull_back,
    signed_weights,
)
from gradverify.numerics.sparsity.pattern import NO_ENTRY, Pattern
from gradverify.numerics.survey import STRAY, Directions
from gradverify.numerics.tolerance import floors, guarded, is_resolved
from gradverify.numerics.verdict import MISMATCH, PASS, UNDECIDED

# ---- Derivatives along a probe of weighted sums of the outputs' changes, each with its error bar
# Rungs that open lines are measured on next: kinks and curvature are smaller there ...
FINER = (
    (7, 8, 9),
    (9, 10, 11),
)
# ... and noise is smaller on these, which reach above the scale up to 1
COARSER = (
    (0, 1, 2, 3),
    (-2, -1, 0),
    (-5, -4, -3),
    (-8, -7, -6),
)
LOW_START, LOW_FINER = (2, 3, 4), (QUICK, FINER[0])  # rounding to float32 hides the usual rungs
DROWNS = RATIO**-2  # of a bar: larger noise widens it on finer rungs

Stage = tuple[int, ...]


@dataclass(frozen=True)
class ProbeDerivative(Record):
    """Derivatives along t of m elements, value ± bar; `clear`: the rungs agree and show no kink;
    `noisy`: finer rungs would widen the bar."""

    value: Array
    bar: Array
    clear: Mask
    noisy: Mask


def probe_derivative(s: Samples) -> ProbeDerivative:
    """Return the derivative of every element, 0 ± 0 where f is bitwise unchanged."""
    d = solve(s, False)
    finite, bar = np.isfinite(d.bar), d.bar
    clear = ~d.unclear & (finite | d.unchanged)
    noisy = finite & (d.noise_bar > DROWNS * bar) & (len(s.up) > 2)
    if d.rough:
        clear, noisy = clear & d.smooth, noisy & d.smooth
    return ProbeDerivative(d.value, np.where(d.unchanged, 0.0, bar), clear, noisy)


@dataclass(frozen=True)
class Schedule:
    """The initial rungs, and those for lines that stay open: limited by noise, or by anything else.

    Not `sure`: lines that fail on the first rungs are measured again as well, because these rest on
    an assumption. `only_off`: only lines that fail are measured again; those that do not surely
    fail pass.
    """

    start: Stage
    coarser: tuple[Stage, ...]
    finer: tuple[Stage, ...]
    sure: bool = True
    only_off: bool = False


def draw_directions(
    point: Point, tensor: int, probes: int, sample: Directions | None = None
) -> Directions:
    """Draw directions, Gaussian × scale, inside the domain and zero on inputs that are not finite.
    The first is the direction of `sample`, whose samples are known."""
    columns = point.columns.of(tensor)

    def drawn(k: int) -> Array:
        generator = point.seed.generator("direction", tensor, k)
        return moves_along(point, columns, generator.standard_normal(len(columns)))

    if sample is None:
        return Directions(point, tensor, Drawn(probes, drawn))
    return replace(sample, moves=Drawn(probes, drawn, sample.moves))


def random_cotangent(point: Point, output: int, purpose: str, *which: object) -> Array:
    """Return signed weights [outputs of the tensor], rounded to its dtype; 0 where f is
    infinite."""
    part = point.parts[output]
    return as_dtype_holds(
        point,
        output,
        signed_weights(
            part.stop - part.start, point.seed.generator(purpose, *which, "of output", output)
        ),
    )


# ---- What a screen knows of f before it probes: its noise, the limit between rounding and change,
# and the accepted error of a line
SCREEN = 1e-8
SCREEN_LOW = 1e-3
SCREEN_NARROW = 1e-4  # where only backward is float32: its sums over 10⁶ elements are good to 6e-5
# ... and of that norm for lines that agree within a bar that no rung narrows
SLACK = 1e-6
SLACK_LOW = 1e-2
# A rounding error is uniform: its standard deviation is its maximum over this
SQRT3 = 3.0**0.5


@dataclass(frozen=True)
class Sums:
    """Weighted sums [m] of the changes of one tensor's outputs: `add_up` computes them from f [M];
    `sigma`: their noise [m]."""

    output: int
    add_up: Callable[[Array], Array]
    sigma: Array


def relative(point: Point, tensor: int, output: int) -> tuple[float, float]:
    """Return the accepted error of a line of a pair, relative to its norm, and the largest one for
    a line that agrees within its bar."""
    if point.unit_of(output) > LOW_UNIT or point.unit_of_x(tensor) > LOW_UNIT:
        return SCREEN_LOW, SLACK_LOW
    return screen_of(point), max(screen_of(point), SLACK)


def schedule(point: Point, tensor: int, linear: bool = False, only_off: bool = False) -> Schedule:
    """Return the rungs for lines of a tensor, by precision. `linear`: f seems to be linear in the
    tensor, which is doubted where a line fails. `only_off`: two rungs near x, or one for a linear
    f."""
    low = point.unit_of_x(tensor) > LOW_UNIT or any(
        point.unit_of(o) > LOW_UNIT for o in range(len(point.parts))
    )
    start, finer = (LOW_START, LOW_FINER) if low else (QUICK, FINER)
    if only_off:
        return Schedule(QUICK[: 2 - linear], (), (QUICK,), False, True)
    if linear:
        return Schedule((WIDE_RUNG,), COARSER, (start, *finer), sure=False)
    return Schedule(start, COARSER, finer)


def noise_along(point: Point, tensor: int, noise: Array, norm: Array) -> Array:
    """Return the noise of lines along a dense direction: the rounding of x ± t·v is propagated by
    J, about u·‖line‖."""
    return np.hypot(noise, point.unit_of_x(tensor) / SQRT3 * norm)


def read(
    directions: Directions,
    k: int,
    rungs: Stage,
    of: Sequence[Sums],
    see: Callable[[bool, Rung], None] | None = None,
) -> list[ProbeDerivative]:
    """Return derivatives of sums along direction k, whose f(x) is 0: the rounding of f is in their
    noise. `see` receives whether a rung is the first, and f on it."""
    point = directions.point
    sums = [np.empty((2, len(rungs), len(each.sigma))) for each in of]
    steps = np.ones((len(rungs), 2))
    for r, rung in enumerate(directions.sampled(k, rungs)):
        steps[r] = rung.step_up, rung.step_down
        for each, found in zip(of, sums, strict=True):
            found[0, r] = each.add_up(rung.up)
            found[1, r] = each.add_up(rung.down)
        if not k:
            directions.keep(rungs[r], rung)
        if see:
            see(r == 0, rung)
        del rung  # freed before the next one is sampled
    h = 0.5 * steps.sum(1)[:, None]
    result = list[ProbeDerivative]()
    for each, (up, down) in zip(of, sums, strict=True):
        zero, one = np.zeros(len(each.sigma)), np.ones(len(each.sigma))
        wide = np.broadcast_to(h, up.shape)
        samples = Samples(
            up * (h / steps[:, :1]),
            down * (h / steps[:, 1:]),
            wide,
            wide,
            zero,
            each.sigma,
            zero + point.unit_of(each.output),
            one / WEIGHTS[0],
            one,
            not point.columns.rounded,
        )
        result.append(probe_derivative(samples))
    return result


def screen_of(point: Point) -> float:
    """Return the accepted error relative to a line's norm, where its values are float64."""
    return SCREEN_NARROW if point.backward_unit > LOW_UNIT else SCREEN


DIRECTIONS = 2  # of rows: an error that one direction misses by chance is not missed by both
# Probes that verify entries and rows by blocks: signed weights away from 0, so that no leak is
# missed by chance
VERIFIED_ALONG = 1
PROBES = 3  # of blocks: detect an error of 100·tol of a block's norm with probability 1 − 5e-5
SEEN = 4  # times the largest relative deviation of its elements: the accepted error of their sum
RARE = 0.01  # of the lines: if fewer agree within a wide bar only, more calls are not worthwhile
KEPT_STRAYS = 4096  # of a pair; all are counted
SPARSE = 4  # times as many lines as a piece has values: values are then added one by one


@dataclass(frozen=True)
class Screened:
    """One screened (input tensor, output tensor) pair: how many `lines`, `rows` or blocks, were
    screened and which are `flagged`, in descending order of error / tolerance.

    Lines are numbers of outputs (as in `Point.f0`), or of blocks (as in
    `Pattern.block_of_outputs`). `strays` lie off the pattern; few are kept, `stray_count` in total:
    (group, column) where backward reaches a column; (NO_ENTRY, output) of blocks, where an output
    moved that depends on nothing. `resolution`: the maximum of tol + U of the lines that passed, as
    a derivative along the probe; `resolved`: some of these lines are well above rounding. `lost`:
    the flagged lines whose analytic sum is not finite.
    """

    input: int
    output: int
    rows: bool
    lines: int
    flagged: Index
    strays: Sequence[tuple[int, int]]
    stray_count: int
    resolution: float
    resolved: bool
    lost: Index


@dataclass
class PairLines:
    """The lines of one pair: their sums by the backward and their squared norms, [K, lines] for K
    directions. Sums as large as a tensor are accumulated piece by piece."""

    run: Run
    tensor: int
    output: int
    pattern: Pattern
    rows: bool
    probes: int

    def __post_init__(self) -> None:
        self.part = self.run.point.parts[self.output]
        self.columns = self.run.point.columns_of(self.tensor)
        lines = len(self.pattern) if self.rows else self.pattern.blocks
        self.analytic, self.square = np.zeros((2, self.probes, lines))
        self.strays = list[tuple[int, int, float]]()
        self.stray_count = 0

    def add(
        self, k: int, move: Array, line: Index, gradient: Array, part: slice = slice(None)
    ) -> None:
        """Add gradients […, n] of some columns, whose numbers belong to these lines; columns that a
        direction does not move are skipped."""
        by = move[part]
        gradient = np.where(by == 0, 0.0, gradient)
        _add_up(self.analytic[k], line, gradient * by)
        _add_up(self.square[k], line, (gradient * self.columns.scale[part]) ** 2)

    def add_block(self, k: int, move: Array, gradient: Array) -> None:
        """Add the gradient [n] of all outputs."""
        for part in pieces(len(gradient)):
            line = self.pattern.block_of_inputs(
                part if self.columns.whole else self.columns.coordinate[part]
            )
            self.add(k, move, line, gradient[part], part)

    def add_rows(self, groups: range, moves: Sequence[Array], gradients: Array) -> None:
        """Add the gradients [groups, N] of these groups."""
        line, columns = self.pattern.rows.rows_of(groups), self.columns
        if (line == NO_ENTRY).any():
            self._find_strays(groups, line == NO_ENTRY, gradients)
        if not columns.whole:
            line = line[:, columns.coordinate]
            gradients = columns.combined(gradients)
        for k, move in enumerate(moves):
            self.add(k, move, line, gradients)

    def _find_strays(self, groups: range, off_pattern: Mask, gradients: Array) -> None:
        """Find strays: gradients must be exactly 0 where no output of the group depends on the
        column. A NaN is no stray where f itself is not finite."""
        point = self.run.point
        finite = bool(np.isfinite(point.f0).all() and np.isfinite(point.x).all())
        found = off_pattern & (gradients != 0) & (np.isfinite(gradients) | finite)
        numbers = point.columns.of(self.tensor)
        for n in np.flatnonzero(found.any(1)).tolist():
            local = np.flatnonzero(self.columns.any_of(found[n]))
            sizes = np.abs(self.columns.combined(gradients[n])[local]) * self.columns.size[local]
            self.add_strays(groups[n], numbers[local], sizes)

    def add_strays(self, group: int, lines: Index, sizes: Array) -> None:
        """Record lines of a group that moved, or that a backward reached, off the pattern; few are
        kept."""
        kept = slice(KEPT_STRAYS - len(self.strays))
        self.stray_count += len(lines)
        for line, size in zip(lines[kept].tolist(), sizes[kept].tolist(), strict=True):
            self.strays.append((group, line, size))

    def of_outputs(self, values: Callable[[slice], Array]) -> Array:
        """Return sums over the outputs of each line; `values` returns those of a slice of all
        outputs."""
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
        """Return the changes of the lines along direction k; `w` [M]: the weights of outputs."""
        run, point = self.run, self.run.point

        def changed(f: Array, part: slice) -> Array:
            change = point.changes(f, part)
            return change if w is None else w[part] * change

        def variance(part: slice) -> Array:
            noise = run.survey.noise(part)
            return (noise if w is None else w[part] * noise) ** 2

        noise = noise_along(point, self.tensor, np.sqrt(self.of_outputs(variance)), self.norm(k))
        return Sums(self.output, lambda f: self.of_outputs(partial(changed, f)), noise)

    def norm(self, k: int) -> Array:
        """Return the norm of each line, in units of the scales."""
        return np.sqrt(finite_size(self.square[k]))


def _add_up(total: Array, line: Index, values: Array) -> None:
    """Add values to the totals of their lines; values with NO_ENTRY are skipped."""
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
    run: Run,
    patterns: Mapping[int, Sequence[Pattern]],
    directions: Sequence[Directions],
    *,
    rows: bool,
    linear: Collection[int] = (),
    seen: Mapping[tuple[int, int], float] | None = None,
) -> list[Screened]:
    """Screen every row, or independent block, of every pair of an input tensor that has
    `directions`, and an output.

    `patterns`: by input tensor, then output tensor. `seen`: the relative errors of the elements of
    each pair, which passed; lines are then flagged only where they surely deviate by more, with
    fewer calls.

    Six forward calls per direction, two where f is `linear` in the tensor; one backward per row
    group (inputs with the same groups share it), or one per probe and output tensor. More only
    along directions that the first rungs left open. Raises what the backward raises.
    """
    point, outputs = run.point, range(len(run.point.parts))
    shapes = [patterns[each.tensor] for each in directions]
    lines = [
        [PairLines(run, each.tensor, o, shape[o], rows, len(each.moves)) for o in outputs]
        for each, shape in zip(directions, shapes, strict=True)
    ]
    w = None
    if rows:
        moves = [[*each.moves] for each in directions]
        weights = [random_cotangent(point, o, "row groups") for o in outputs]
        for shared in shared_groups([[pattern.rows for pattern in shape] for shape in shapes]):
            o = shared.output
            for span, pulled in pulled_groups(point, shared, weights[o], shared.users):
                for t in shared.users:
                    gradients = pulled[:, point.starts[t] : point.starts[t + 1]]
                    lines[t][o].add_rows(span, moves[t], gradients)
        for of_tensor in lines:
            for pair, weight in zip(of_tensor, weights, strict=True):
                # 0 where f is infinite: such rows are left out
                used = np.where(weight == 0, 1.0, weight)
                pair.analytic /= used
                pair.square /= used**2
    else:
        w = Drawn(
            len(directions[0].moves),
            lambda k: joined([random_cotangent(point, o, "cotangent", k) for o in outputs]),
        )
        for k, cotangent in enumerate(w):
            for o, part in enumerate(point.parts):
                gradient = point.by_column(pull_back(point, o, cotangent[part]))
                for each, of_tensor in zip(directions, lines, strict=True):
                    columns = in_a_row(point.columns.of(each.tensor))
                    of_tensor[o].add_block(k, each.moves[k], gradient[columns])
                del gradient  # freed before the next one is pulled back
            del cotangent
    return [
        pair
        for each, of_tensor in zip(directions, lines, strict=True)
        for pair in _screened(
            run,
            each,
            of_tensor,
            w,
            schedule(point, each.tensor, each.tensor in linear, seen is not None),
            seen or {},
        )
    ]


def _screened(
    run: Run,
    directions: Directions,
    lines: Sequence[PairLines],
    w: Drawn | None,
    steps: Schedule,
    seen: Mapping[tuple[int, int], float],
) -> list[Screened]:
    """Return the screened pairs of one input tensor, whose directions move all output tensors at
    once."""
    point = run.point
    survey = run.survey
    tensor = directions.tensor
    m = len(run.point.f0)
    reach = survey.reach.copy()  # for all inputs, as the reach of elements
    alive = np.zeros(m, bool)
    moved = np.zeros(m, bool)
    # The largest change of an output that counts as none: 0 (bitwise) unless f is noisier than
    # rounding
    noisy = survey.noisy
    still = np.where(noisy, STRAY * survey.sigma, 0.0) if noisy.any() else repeated(0.0, m)

    def see(first: bool, rung: Rung) -> None:
        """Record which outputs move, and on the first rung by how much."""
        for f in rung[:2]:
            for part in pieces(0 if np.isnan(f).all() else m):
                moved[part] |= ~(np.abs(point.changes(f, part)) <= still[part])
        for part in pieces(m if first else 0):
            change = finite_size(rung.up[part] - rung.down[part])
            reach[part] = np.maximum(reach[part], change / (rung.step_up + rung.step_down))
            alive[part] |= change > RESOLVED * survey.noise(part)

    @cache
    def measured(k: int, rungs: Stage) -> list[ProbeDerivative]:
        sums = [each.sums(k, None if w is None else w[k]) for each in lines]
        return read(directions, k, rungs, sums, see if rungs == steps.start else None)

    first = [measured(k, steps.start) for k in range(len(directions.moves))]
    magnitudes = survey.magnitudes(point.shared(reach))
    row_floors = floors(magnitudes, is_resolved(magnitudes, alive, magnitudes.reach))

    # Outputs that move on wider rungs only: a screen proves nothing there
    unmoved = (survey.unmoved | survey.wide)[tensor]

    def pair(o: int, each: PairLines) -> Screened:
        part = each.part
        nothing = each.pattern.nothing & moved[each.part]
        numbers = np.arange(each.analytic.shape[1])
        floor = np.sqrt(each.of_outputs(lambda piece: row_floors[piece] ** 2))
        # Rounding there may hide a term
        floor = np.where(
            floor == 0,
            WEIGHTS[0] * row_floors[part].min(initial=np.inf) if part.stop > part.start else 0.0,
            floor,
        )
        count = np.ones(len(numbers), bool)
        doubt = np.full(len(numbers), not steps.only_off and unmoved[part].any())
        if each.rows:
            numbers = numbers + part.start
            count = ~np.isinf(point.f0[part]) | moved[part]
            doubt = doubt | nothing
        else:
            outs = np.flatnonzero(nothing) + part.start
            each.add_strays(NO_ENTRY, outs, np.full(len(outs), np.inf))
        share, slack = relative(point, tensor, o)
        share = max(share, SEEN * seen.get((tensor, o), 0.0))
        off = np.zeros(len(numbers))
        resolution = 0.0
        resolved = False

        def again(k: int, i: Index, rungs: Stage) -> ProbeDerivative:
            return measured(k, rungs)[o].take(i)

        for k, derivatives in enumerate(first):
            d, a = derivatives[o], each.analytic[k]
            norm = np.maximum(each.norm(k), np.where(d.clear, np.abs(d.value), 0.0))
            tolerance = share * norm + floor
            passed, bar, surely = _judged(
                a,
                d,
                tolerance,
                slack * norm + floor,
                steps,
                partial(again, k),
            )
            off, right = np.maximum(off, surely), passed & count
            resolution = max(resolution, float((tolerance + bar).max(initial=0.0, where=right)))
            resolved |= bool((right & (tolerance > 2 * floor)).any())
            doubt |= ~passed
        # Strays no larger than the rounding of forward, which may hide such a term, are left out
        rounding = WEIGHTS[0] * row_floors[part].min(initial=np.inf) if each.rows else 0.0
        strays = [(group, line) for group, line, size in each.strays if not size <= rounding]
        flagged = np.flatnonzero(count & doubt & (len(each.columns) > 0))
        flagged = flagged[np.argsort(-off[flagged], kind="stable")]
        lost = flagged[~np.isfinite(each.analytic[:, flagged]).all(0)]
        return Screened(
            tensor,
            o,
            each.rows,
            int(np.count_nonzero(count)),
            numbers[flagged],
            strays,
            each.stray_count - len(each.strays) + len(strays),
            resolution,
            resolved,
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
    """Return which lines pass, |a − D| + U ≤ tol, or agree within a bar that is not too wide; their
    bars; and their certain errors in tolerances.

    Lines that are open after the first rungs, and not surely off, are measured on coarser or finer
    ones.
    """

    def verdict_of(i: Index | slice, d: ProbeDerivative) -> Codes:
        found = guarded(np.abs(a[i] - d.value), d.bar, tolerance[i])
        found[~d.clear] = UNDECIDED
        found[~np.isfinite(a[i])] = MISMATCH
        if steps.only_off:
            found[found == UNDECIDED] = PASS
        return found

    def within(d: ProbeDerivative) -> Mask:
        return d.clear & (np.abs(a - d.value) <= d.bar) & (np.abs(a - d.value) + d.bar <= widest)

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
