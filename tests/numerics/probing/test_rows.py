"""Rows against random directions: shared groups, strays, what a direction moves."""

import numpy as np
import torch
from torch.nn import functional as F

from gradverify.numerics.probing.screen import check_rows
from gradverify.numerics.probing.seed_matrices import SurveyedPoint, draw_directions
from gradverify.numerics.sparsity.pattern import dense
from gradverify.numerics.survey import linear_inputs
from numerics.differentiable import DOUBLE, Differentiable, normal
from numerics.windows import along_last, axes, elementwise, prepared, product, screen, windows

R, C = 6, 10


def norm(x, weight, bias):
    return F.layer_norm(x, (C,), weight, bias)


def test_inputs_whose_groups_are_the_same_share_their_backwards():
    column = axes(R, C)[1]
    shared = windows((C,), [column], [column])
    inputs = [normal(1, R, C), normal(2, C), normal(3, C)]
    result = screen("rows", norm, inputs, [[along_last(R, C)], [shared], [shared]])
    assert result.clean
    assert (result.forward, result.backward) == (3 * (12 - 2), C + R)


def test_a_product_takes_a_backward_for_each_column_and_each_row():
    result = screen("rows", torch.matmul, [normal(1, 5, 7), normal(2, 7, 3)], product(5, 7, 3))
    assert (result.forward, result.backward) == (2 * (12 - 2), 3 + 5)


def test_a_gradient_outside_of_what_a_group_owns_is_a_stray_by_group_and_column():
    index = np.arange(8)
    first_half = windows((8,), [index % 4], [index % 4])

    class Wide(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return torch.cat([x[:4], x[:4]])

        @staticmethod
        def backward(ctx, g):
            d = torch.zeros(8, dtype=DOUBLE)
            d[:4] = g[:4] + g[4:]
            d[6] = 1e-9 * g[1]
            return d

    pair = screen("rows", Wide.apply, normal(1, 8), first_half).pairs[0]
    assert pair.flagged.tolist() == []
    assert set(pair.strays[:, 1].tolist()) == {6}
    assert pair.stray_count == 1


def test_directions_are_as_large_as_the_inputs_and_still_where_those_are_not_finite():
    x = normal(1, 2000) * 1e-3
    x[5] = torch.nan
    point, _ = prepared(Differentiable(torch.tanh, x))
    moves = np.array([*draw_directions(point, 0, 2).moves])
    relative = np.delete(moves, 5, 1) / np.delete(np.abs(x.numpy()), 5)
    assert abs(np.std(relative) - 1) < 0.05
    assert (moves[:, 5] == 0).all()


def test_wrong_outputs_are_told_from_right_ones_beside_them():
    def damage(grads):
        g = grads[0].clone()
        g[3] *= 1 + 1e-6
        return [g]

    pair = screen("rows", lambda x: x.softmax(-1), normal(1, R, C), along_last(R, C), damage=damage).pairs[0]
    assert pair.flagged.tolist() == list(range(3 * C, 4 * C))


def test_a_weight_of_a_group_is_divided_out_again():
    assert screen("rows", torch.exp, normal(1, 200), elementwise(200)).clean
    lost = screen("rows", torch.exp, normal(1, 200), elementwise(200), damage=lambda grads: [grads[0].abs()])
    assert 50 < len(lost.pairs[0].flagged) < 150  # those of a negative weight


def test_a_linear_input_takes_two_calls_a_direction():
    inputs, patterns, linear = [normal(1, 5, 7), normal(2, 7, 3)], product(5, 7, 3), {0: None, 1: None}
    result = screen("rows", torch.matmul, inputs, patterns, linear=linear)
    assert result.clean and result.forward == 2 * 2 * 2
    off = screen("rows", torch.matmul, inputs, patterns, linear=linear, damage=lambda grads: [grads[0], grads[1] * (1 + 1e-7)])
    assert [len(pair.flagged) for pair in off.pairs] == [0, 15]


def test_what_showed_that_an_input_is_linear_is_its_first_direction():
    x, w = normal(1, 40), normal(2, 8, 40)
    point, known = prepared(Differentiable(lambda x: w @ x, x))
    straight = linear_inputs(point, known)
    before = point.forward
    result, = check_rows(SurveyedPoint(point, known), [[dense((40,), 8)]], linear=straight)
    assert result.clean and point.forward - before == 2


def test_what_is_wrongly_called_linear_is_measured_again_not_flagged():
    result = screen("rows", torch.sin, normal(3, 6, 10), elementwise(6, 10), linear={0: None})
    assert result.clean
    assert result.forward > 6
