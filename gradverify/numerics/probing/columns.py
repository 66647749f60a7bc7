"""Columns of the Jacobian: a few random cotangents W, WᵀJ by backwards, exact on every input element (method.md section 6).

(Jᵀw)_i from one backward a cotangent, against Σ_j w_j ∂f_j/∂x_i from colour groups of columns, which share no output: six forward calls a group.
Memory is O(N + M): K numbers a column and rung, and what is known of each output.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gradverify.numerics.probing.directional import ProbeDerivative, Stage, derivative_of_sums
from gradverify.numerics.probing.group_sums import GroupSums
from gradverify.numerics.probing.screen import ProbedLines, Screened, by_probe, judged, passes
from gradverify.numerics.probing.seed_matrices import Cotangents
from gradverify.numerics.probing.thresholds import SurveyedPoint
from gradverify.numerics.rungs import Array, Index, Mask, nonzero, step
from gradverify.numerics.seed_vectors import moves_along, signed_weights
from gradverify.numerics.sparsity.pattern import Pattern, paired

COTANGENTS = 2  # cotangents: what hides from one by chance does not hide from both


def check_columns(
    surveyed: SurveyedPoint, patterns: Sequence[Sequence[Pattern]], *, linear: Sequence[bool] | None = None,
    only: Sequence[int] | None = None,
) -> list[Screened]:
    """Screens every column of every (input, output) pair. `patterns`: by input tensor, then output tensor; `only` these inputs.

    6·column groups forward calls (2 where `linear` says that f is linear in the input), COTANGENTS backward calls an output tensor; more
    only for groups with columns that the first rungs left open. Raises what the backward raises.
    """
    cotangents, pairs = Cotangents(surveyed.point, COTANGENTS, "cotangent of columns"), list[Screened]()
    for t in range(len(surveyed.point.buffers)) if only is None else only:
        pairs += _TensorColumns(surveyed, t, paired(surveyed.point, t, patterns[t]), cotangents, bool(linear and linear[t])).screened()
    return pairs


class _TensorColumns:
    """The n columns of one input tensor under K cotangents, "probes". Derivatives are along t, in units of each column's own move."""

    def __init__(self, surveyed: SurveyedPoint, tensor: int, patterns: Sequence[Pattern], cotangents: Cotangents, linear: bool) -> None:
        self.surveyed, self.tensor, self.schedule = surveyed, tensor, surveyed.schedule(tensor, linear)
        point, self.probes = surveyed.point, len(cotangents.w)
        self.columns = point.columns.of(tensor)
        gradients = cotangents.gradients(tensor)  # [K, output tensors, n]
        self.move = moves_along(point, self.columns, signed_weights(len(self.columns), point.seed.generator("columns move", tensor)))
        self.analytic = np.where(self.move == 0, 0.0, gradients * self.move)
        self.sums = GroupSums(surveyed, tensor, patterns, np.array([*cotangents.w]), self.move)

    def screened(self) -> list[Screened]:
        """One pair an output tensor. Floors take a pass over the groups: they are asked for where a column needs one."""
        n, rungs, outputs = len(self.columns), self.schedule.start, range(len(self.surveyed.point.parts))
        samples = self.sums.sampled(np.arange(n), rungs, first=True)
        everything = np.arange(self.probes * n)
        first = [self._derivatives(o, sampled.reshape(2, len(rungs), -1), rungs, everything) for o, sampled in enumerate(samples)]
        clear = [self._clearly_right(o, first[o]) for o in outputs]
        floor = self.sums.floors(np.flatnonzero(~np.all(clear, 0))) if outputs else np.zeros((0, n))
        return [self._probed(o, first[o], floor[o]).screened(self.surveyed) for o in outputs]

    def _clearly_right(self, o: int, first: ProbeDerivative) -> Mask:
        """Columns [n] that pass without a floor under every cotangent."""
        allowed = self.surveyed.allowed(self.tensor, self._norm(o), np.zeros(self.probes * len(self.columns)), o)
        return np.asarray(passes(self.analytic[:, o].ravel(), first, allowed).reshape(self.probes, len(self.columns)).all(0))

    def _probed(self, o: int, first: ProbeDerivative, floor: Array) -> ProbedLines:
        """The columns against output tensor o, those that the first rungs leave open on further ones."""
        allowed = self.surveyed.allowed(self.tensor, self._norm(o), np.tile(floor, self.probes), o)
        result = judged(self.analytic[:, o].ravel(), first, allowed, self.schedule, lambda i, rungs: self._remeasured(o, i, rungs))
        left_out = self.move == 0
        return ProbedLines((self.tensor, o), self.columns, self.analytic[:, o], by_probe([result], self.probes), floor, ~left_out,
                     self.sums.unknown[o], self.sums.strays[o], self.columns[left_out], nonzero(np.abs(self.move)))

    def _norm(self, o: int) -> Array:
        """Of each column, once a probe [K · n]."""
        return np.tile(np.maximum(np.sqrt(self.sums.square[o]), np.abs(self.analytic[:, o]).max(0)), self.probes)

    def _remeasured(self, o: int, i: Index, rungs: Stage) -> ProbeDerivative:
        """Elements i of [K · n] on other rungs."""
        samples = self.sums.sampled(np.unique(i % len(self.columns)), rungs)
        return self._derivatives(o, samples[o].reshape(2, len(rungs), -1)[:, :, i], rungs, i)

    def _derivatives(self, o: int, samples: Array, rungs: Stage, i: Index) -> ProbeDerivative:
        """Of elements i of [K · n] from their samples [up and down, rungs, len(i)]."""
        h, sigma = np.array([step(1.0, k) for k in rungs]), np.sqrt(self.sums.variance[o].ravel()[i])
        return derivative_of_sums(samples[0], samples[1], h, sigma, self.surveyed.part_unit(o), self.surveyed.rounds_x())
