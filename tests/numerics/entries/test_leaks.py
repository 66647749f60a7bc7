"""Which column an output moves with, off the pattern."""

import numpy as np
import torch

from gradverify.numerics.entries.consistency import moving_column
from gradverify.numerics.judging.bundle import Grouping
from gradverify.numerics.judging.run import Reach, Run
from gradverify.numerics.sparsity.pattern import column_groups
from numerics.differentiable import DOUBLE, Differentiable, normal
from numerics.windows import elementwise, prepared

N = 40


def run(forward, x):
    point, known = prepared(Differentiable(forward, x))
    return Run(point, known, 0.0, None, Reach(point))


def leaky(x):
    return x.sin() + 0.1 * x[31] * torch.eye(N, dtype=DOUBLE)[7]


def test_the_column_that_moves_an_output_off_the_pattern_is_found_by_halving():
    at = run(leaky, normal(1, N))
    line, = Grouping(0, 0, column_groups([elementwise(N)]), np.linspace(0.7, 1.4, N)).bundle(at.point, 0, 1).lines
    others = type(line)(line.point, np.flatnonzero(np.arange(N) != 7), line.move, line.column_of)
    assert moving_column(at, others, 7) == 31
    assert moving_column(at, type(line)(line.point, np.arange(8, 20), line.move, line.column_of), 7) is None
