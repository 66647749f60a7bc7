"""Rows of the Jacobian: a few random directions V, Jv by finite differences, exact on every output element (method.md section 6).

(Jv)_j along a dense direction, six forward calls each, against Σ_i a_ji v_i from groups of outputs that share no input: one backward a group.
Memory is O(N + M).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from gradverify.numerics.estimate.samples import Samples
from gradverify.numerics.function.point import Point
from gradverify.numerics.grouped_vjps import pulled_groups, shared_groups
from gradverify.numerics.probing.directional import ProbeDerivative, probe_derivative
from gradverify.numerics.probing.off_pattern import Strays
from gradverify.numerics.probing.screen import Again, DirectionScreen, ProbedLines, Screened, by_probe
from gradverify.numerics.probing.seed_matrices import DirectionRungs, Directions, draw_directions, random_cotangent
from gradverify.numerics.probing.thresholds import SurveyedPoint
from gradverify.numerics.rungs import RESOLVED, Array, Index, Mask, finite_size, repeated
from gradverify.numerics.seed_vectors import WEIGHTS
from gradverify.numerics.sparsity.pattern import Pattern, RowGroups, paired, row_groups
from gradverify.numerics.survey import DirectionSample

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
