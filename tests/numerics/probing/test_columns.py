"""Columns against random cotangents: groups, strays, linear inputs."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from gradverify.numerics.sparsity.pattern import dense
from numerics.differentiable import DOUBLE, normal
from numerics.windows import along_last, elementwise, flagged, product, screen, windows

R, C = 6, 10


def test_a_group_moves_at_once_and_costs_six_calls():
    result = screen("columns", F.gelu, normal(1, 50, 40), elementwise(50, 40))
    assert (result.forward, result.backward) == (6, 2)
    assert result.pairs[0].lines == 2000


def test_a_linear_input_takes_two_calls_a_group_and_sharper_bars():
    inputs, patterns = [normal(1, 5, 7), normal(2, 7, 3)], product(5, 7, 3)
    result = screen("columns", torch.matmul, inputs, patterns, linear=[True, True])
    assert result.clean
    assert result.forward == 2 * (7 + 7)
    off = screen("columns", torch.matmul, inputs, patterns, linear=[True, True], damage=lambda grads: [grads[0], grads[1] * (1 + 1e-7)])
    assert [len(pair.flagged) for pair in off.pairs] == [0, 21]


def test_what_is_wrongly_called_linear_is_measured_again_not_flagged():
    result = screen("columns", torch.sin, normal(3, R, C), elementwise(R, C), linear=[True])
    assert result.clean
    assert result.forward > 2


def test_outputs_that_move_off_the_pattern_are_strays_by_group_and_output():
    index = np.arange(8)
    only_even = windows((8,), [np.where(index % 2, 1, index)], [np.where(index % 2, 0, index)], index % 2 == 1)
    result = screen("columns", lambda x: x * torch.arange(8, dtype=DOUBLE), normal(1, 8), only_even).pairs[0]
    assert result.strays.tolist() == [[0, n] for n in (1, 3, 5, 7)]
    assert result.stray_count == 4


def test_each_output_tensor_is_judged_by_its_own_norm():
    def forward(x):
        return 1e8 * x.sin(), x.cos()

    patterns = [[elementwise(R, C), elementwise(R, C)]]
    assert screen("columns", forward, normal(1, R, C), patterns).clean

    class Off(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return forward(x)

        @staticmethod
        def backward(ctx, large, small):
            x, = ctx.saved_tensors
            return 1e8 * large * x.cos() - small * x.sin() * (1 + 1e-6)

    result = screen("columns", Off.apply, normal(1, R, C), patterns)
    assert len(result.pair(0, 0).flagged) == 0
    assert len(result.pair(0, 1).flagged) == R * C


def test_only_groups_with_open_columns_take_more_calls():
    x = normal(1, R, C)
    x[2, 3], x[2, 4] = 0.5, 0.5 + 1e-5
    result = screen("columns", lambda x: x.sort(-1)[0], x, along_last(R, C))
    assert 6 * C < result.forward < 6 * C + 12 * 6
    assert result.clean


@pytest.mark.parametrize("factor", [1 - 1e-6, 1 + 1e-6])
def test_errors_far_below_the_entries_tolerance_are_flagged(factor):
    a = normal(4, 12, 9)
    off = screen("columns", lambda x: torch.tanh(a @ x), normal(5, 9), dense((9,), 12), damage=lambda grads: [grads[0] * factor])
    assert flagged(off) == list(range(9))
