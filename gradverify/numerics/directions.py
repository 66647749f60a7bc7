"""Rows: the Jacobian against a few random directions, exact on every output element (method.md section 3).

(Jv)_j by finite differences along a dense direction, six forward calls each, against Σ_i a_ji v_i from groups of outputs that share no input:
one backward a group. Each input tensor has its own directions, so that a pair is judged alone. Memory is O(N + M).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType

import numpy as np

from gradverify.numerics.columns.batched import gradients
from gradverify.numerics.columns.survey import Look, Survey
from gradverify.numerics.compare import RESOLVED
from gradverify.numerics.flat import rms
from gradverify.numerics.lines import Rung, rung
from gradverify.numerics.pattern import Pattern, RowGroups, row_groups
from gradverify.numerics.point import Point
from gradverify.numerics.point_lines import DirectionLine
from gradverify.numerics.reduction import WEIGHTS, gather, gaussian, held, moves, paired, signed
from gradverify.numerics.rungs import Array, Index, Mask, finite_size, repeated, step
from gradverify.numerics.samples import Samples
from gradverify.numerics.screen import (
    Judged,
    Known,
    Reading,
    Screen,
    Screened,
    Stage,
    judged,
    linear_reading,
    lost,
    plan,
    reachable,
    reading,
    sharpness,
)
from gradverify.numerics.strays import Strays

BATCH = 1 << 18  # numbers of gradients that are taken apart together
PROBES = 2  # directions: what hides from one by chance does not hide from both
Straight = Mapping[int, Look | None]
"""The input tensors in which f is linear, each with the samples that showed it, if they are good for a direction."""
NOWHERE: Straight = MappingProxyType({})
SQRT3 = 3.0**0.5  # a rounding error is uniform: its standard deviation is its largest value over this


@dataclass(frozen=True)
class Directions:
    """Dense directions [K, n] of one input tensor in its columns [n]; 0 where a column cannot move. `taken`: rungs of the first, once sampled."""

    point: Point
    columns: Index
    moves: Array
    taken: dict[int, Rung | None] = field(default_factory=dict)

    def first(self) -> Directions:
        """The first direction alone; its samples are shared."""
        return replace(self, moves=self.moves[:1])

    @cached_property
    def left_out(self) -> Index:
        """Columns that no direction moves."""
        return self.columns[:0] if self.moves.all() else self.columns[~self.moves.any(0)]

    def _rung(self, k: int, line: DirectionLine, number: int) -> Rung | None:
        if k:
            return rung(line, number)
        if number not in self.taken:
            self.taken[number] = rung(line, number)
        return self.taken[number]

    def samples(self, k: int, rungs: Stage) -> tuple[Array, Array, Array]:
        """f above and below x [rungs, M] and steps [rungs, 2] along direction k: two calls a rung."""
        count = len(rungs)
        up, down, steps = np.full((count, len(self.point.f0)), np.nan), np.full((count, len(self.point.f0)), np.nan), np.ones((count, 2))
        columns, move = self.columns, self.moves[k]
        if rungs[0] <= 0:
            typical = np.full(1, rms(self.point.columns.scale[columns]))
            if not reachable(typical, typical, rungs).all():
                return up, down, steps
        if not move.all():
            moving = np.flatnonzero(move)
            columns, move = columns[moving], move[moving]
        line = DirectionLine(self.point, columns, move)
        for r, number in enumerate(rungs):
            taken = self._rung(k, line, number) if len(columns) else None
            steps[r] = step(1.0, number)
            if taken is not None:
                up[r], down[r], steps[r] = taken.up, taken.down, (taken.step_up, taken.step_down)
        return up, down, steps


def directions(point: Point, tensor: int, probes: int, generator: np.random.Generator, look: Look | None = None) -> Directions:
    """Gaussian × scale; inside the domain, zero on inputs that are not finite. The first is that of `look`, whose samples are known."""
    columns = point.columns.of(tensor)
    drawn = [moves(point, columns, gaussian(len(columns), generator)) for _ in range(probes - 1 if look else probes)]
    if look is None or not probes:
        return Directions(point, columns, np.array(drawn))
    first = np.zeros(len(columns))
    first[np.searchsorted(columns, look.columns)] = look.direction
    return Directions(point, columns, np.array([first, *drawn]), {look.rung: look.taken})


def check_rows(
    point: Point, survey: Survey, patterns: Sequence[Sequence[Pattern]], generator: np.random.Generator, *, relative: float | None = None,
    probes: int = PROBES, only: Sequence[int] | None = None, along: Sequence[Directions] | None = None, linear: Straight = NOWHERE,
) -> Screen:
    """Screens every output of every (input, output) pair. `patterns`: by input tensor, then output tensor; `only` these inputs.

    One backward a row group (inputs with the same groups share it), 6·`probes` forward calls an input tensor, 2·`probes` where f is `linear`
    in it; more only along directions that the first rungs left open. `along`: directions of these tensors that are there already. Raises what
    the backward raises.
    """
    before, known = (point.forward, point.backward), Known(point, survey, relative)
    tensors = list(range(len(point.buffers))) if only is None else list(only)
    with np.errstate(all="ignore"):
        along = along or [directions(point, t, probes, generator, linear.get(t) or survey.looks[t]) for t in tensors]
        shapes = [paired(point, t, patterns[t]) for t in tensors]
        rows = [[Rows(point, t, part, d.moves) for part in point.parts] for t, d in zip(tensors, along, strict=True)]
        each = range(len(tensors))
        for o, part in enumerate(point.parts):
            w = held(point, o, signed(part.stop - part.start, generator))
            grouped = [row_groups(shape[o]) for shape in shapes]
            for groups, sharing in _shared(grouped):
                _pull_groups(point, o, w, groups, [(grouped[n], rows[n][o]) for n in sharing])
        pairs = [pair for n in each for pair in _screened(known, tensors[n], along[n], rows[n], shapes[n], tensors[n] in linear)]
    return Screen(tuple(pairs), point.forward - before[0], point.backward - before[1])


class Rows:
    """What the backwards tell of the outputs [m] of one pair: (Jv) [K, m] and the norm of each row in units of the scales."""

    def __init__(self, point: Point, tensor: int, part: slice, move: Array) -> None:
        m = part.stop - part.start
        self.tensor, self.gather, self.strays = tensor, gather(point, tensor), Strays()
        self.value, self.square = np.zeros((len(move), m)), np.zeros(m)
        self._move, self._moves = move, (move != 0).any(0)
        self._all_move = bool(self._moves.all())
        self._scale = point.columns.scale[self.gather.columns]
        self._size = point.columns.size[self.gather.columns]
        self._finite = bool(np.isfinite(point.f0).all() and np.isfinite(point.x).all())

    def add(self, groups: range, of: RowGroups, gradients: Array, w: Array) -> None:
        """A backward for each of these groups, with weights w [m]: gradients [groups, N]."""
        runs = of.runs(groups) if self.gather.plain and self._all_move else None
        if runs is None:
            self._add_owned(groups, of.owners(groups), gradients, w)
            return
        rows, width = runs
        each, weights = gradients.reshape(len(groups), -1, width), w[rows]
        for value, sums in zip(self.value, np.einsum("grw,krw->kgr", each, self._move.reshape(len(self._move), -1, width)), strict=True):
            value[rows] += sums.reshape(-1) / weights
        scaled = each * self._scale.reshape(-1, width)
        self.square[rows] += np.einsum("grw,grw->gr", scaled, scaled).reshape(-1) / weights**2

    def _add_owned(self, groups: range, owner: Index, gradients: Array, w: Array) -> None:
        """`owner` [groups, N]: the output of the group that depends on each coordinate."""
        owned = owner >= 0
        if not owned.all():
            self._find_strays(groups, ~owned, gradients)
        if not self.gather.plain:
            owner, gradients = owner[:, self.gather.place], self.gather.combined(gradients)
            owned = owner >= 0
        column: Index | slice = slice(None)
        if self._all_move and owned.all():
            rows = owner.reshape(-1)
        else:
            at, column = np.nonzero(owned & self._moves)
            rows, gradients = owner[at, column], gradients[at, column]
        for k, move in enumerate(self._move):
            self.value[k] += np.bincount(rows, (gradients * move[column]).reshape(-1), len(w)) / w
        self.square += np.bincount(rows, ((gradients * self._scale[column]) ** 2).reshape(-1), len(w)) / w**2

    def _find_strays(self, groups: range, unowned: Mask, gradients: Array) -> None:
        """What no output of the group owns must be exactly 0; a NaN is no stray where f is not finite itself."""
        found = unowned & (gradients != 0) & (np.isfinite(gradients) | self._finite)
        for n in np.flatnonzero(found.any(1)).tolist():
            local = np.flatnonzero(self.gather.any_of(found[n]))
            self.strays.add(groups[n], self.gather.columns[local], np.abs(self.gather.of(gradients[n])[local]) * self._size[local])

    @property
    def norm(self) -> Array:
        return np.asarray(np.sqrt(finite_size(self.square)))


def _shared(groups: Sequence[RowGroups]) -> list[tuple[RowGroups, list[int]]]:
    """Distinct groupings of one tensor's outputs, and the (places of) inputs that share each: one backward serves them all."""
    found: list[tuple[RowGroups, list[int]]] = []
    for t, own in enumerate(groups):
        same = next((users for other, users in found if np.array_equal(other.group, own.group)), None)
        if same is None:
            found.append((own, [t]))
        else:
            same.append(t)
    return found


def _pull_groups(point: Point, output: int, w: Array, groups: RowGroups, users: Sequence[tuple[RowGroups, Rows]]) -> None:
    """One backward a group; w [m] of the output tensor, 0 where f is infinite: such rows are left out."""
    known = np.where(w == 0, 1.0, w)
    for span in groups.spans(BATCH * groups.pattern.size // max(len(point.x), 1)):
        pulled = gradients(point, output, groups.weighted(span, w), [rows.tensor for _, rows in users])
        for own, rows in users:
            rows.add(span, own, pulled[:, point.starts[rows.tensor] : point.starts[rows.tensor + 1]], known)


def _screened(
    known: Known, tensor: int, along: Directions, rows: Sequence[Rows], patterns: Sequence[Pattern], linear: bool,
) -> list[Screened]:
    """The pairs of one input tensor: its directions move all output tensors at once."""
    point, probes, stages = known.point, range(len(along.moves)), plan(known, tensor, linear)
    norm = np.concatenate([own.norm for own in rows])
    noise = np.hypot(known.noise, known.unit_of_x(tensor) / SQRT3 * norm)   # the rounding of x ± t·v is carried on by J: about u·‖row‖
    first, moved = [], np.zeros(len(point.f0), bool)
    for k in probes:
        up, down, steps = along.samples(k, stages.start)
        if not moved.all():
            moved |= moved_at(known, [*up, *down])
        first.append(_read(known, (up, down, steps), noise))
    floor = known.floors(norm, np.any([np.abs(d.value) > RESOLVED * d.bar for d in first], 0))

    def judge(k: int) -> Judged:
        def again(i: Index, rungs: Stage) -> Reading:
            return _read(known, along.samples(k, rungs), noise, i)

        own = np.maximum(norm, np.where(first[k].clear, np.abs(first[k].value), 0.0))
        return judged(np.concatenate([r.value[k] for r in rows]), first[k], known.allowed(tensor, own, floor), stages, again)

    results = [judge(k) for k in probes]
    return [_pair(known, tensor, o, results, floor, rows[o], patterns[o], moved, along.left_out) for o in range(len(point.parts))]


def _read(known: Known, taken: tuple[Array, Array, Array], noise: Array, i: Index | None = None) -> Reading:
    """Derivatives of outputs i (None: all) along a direction, with their noise [M]."""
    point, out = known.point, slice(None) if i is None else i
    up, down, steps = taken
    one = repeated(1.0, len(noise[out]))
    wide = np.broadcast_to(steps[:, :, None], (*steps.shape, len(one)))
    s = Samples(up[:, out], down[:, out], wide[:, 0], wide[:, 1], point.f0[out], noise[out], point.unit[out], one, one, known.rounds_x())
    return reading(s) if len(up) > 1 else linear_reading(s)


def moved_at(known: Known, values: Sequence[Array]) -> Mask:
    """Outputs [M] that changed beyond the noise of the forward somewhere."""
    still, moved = known.still, np.zeros(len(known.point.f0), bool)
    for f in values:
        if not np.isnan(f).all():
            moved |= ~(np.abs(known.changes(f)) <= still)
        if moved.all():
            break
    return moved


def _pair(known: Known, tensor: int, o: int, results: Sequence[Judged], floor: Array, rows: Rows, pattern: Pattern, moved: Mask,
          left_out: Index) -> Screened:
    part = known.point.parts[o]
    masked = np.isinf(known.point.f0[part]) & ~moved[part]
    own = [Judged(r.passed[part] & ~masked, r.allowed.take(part), r.bar[part]) for r in results]
    rows.strays.forget(WEIGHTS[0] * floor[part].min(initial=np.inf))
    bad = ~np.all([r.passed for r in own], 0) | known.asleep(tensor, o) | (pattern.nothing & moved[part])
    found = [sharpness(r, floor[part]) for r in own]
    bad &= ~masked & bool(len(rows.gather.columns))
    flagged = np.flatnonzero(bad)
    return Screened(tensor, o, int((~masked).sum()), flagged + part.start, rows.strays.pairs(), rows.strays.count, left_out,
                    max(f[0] for f in found), max(f[1] for f in found), lost(rows.value, flagged) + part.start)
