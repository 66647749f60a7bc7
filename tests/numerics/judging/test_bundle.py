"""Lines of one column and of many: what they move, and whose derivative each output shows."""

from __future__ import annotations

import numpy as np
import torch

from gradverify.numerics.judging.bundle import Grouping, GroupLine, lone_columns, widened
from gradverify.numerics.sparsity.pattern import NO_ENTRY, column_groups
from numerics.differentiable import DOUBLE, Differentiable, leaf, normal
from numerics.windows import elementwise, prepared, windows

X = leaf(1.0, -2.0, 4.0, 0.5)


def point_of(forward=torch.square, x=X, **options):
    return prepared(Differentiable(forward, x), **options)[0]


def line_of(point, columns, column_of, move=None):
    move = np.array([1.0, 1.0, -2.0, 1.0]) if move is None else np.array(move)
    return GroupLine(point, np.array(columns), move, np.array(column_of))


def test_a_group_moves_its_columns_together_each_by_its_own_way():
    line = line_of(point_of(), [0, 2], [0, NO_ENTRY, 2, NO_ENTRY])
    f, change = line.at(0.5)
    assert f.tolist() == [1.5**2, 4.0, 3.0**2, 0.25]
    assert change.tolist() == [0.5, 0.5, -1.0, 0.5]         # off the pattern: the step itself
    assert line.size.tolist() == [1.0, 1.0, 2.0, 1.0]
    assert line.magnitude.tolist() == [1.0, 0.0, 4.0, 0.0]


def test_what_would_leave_its_domain_stays_and_its_outputs_have_no_value():
    point = point_of(domains=[(-3.0, 4.2)])
    line = line_of(point, [0, 2], [0, 0, 2, NO_ENTRY], move=[1.0, 1.0, 1.0, 1.0])
    f, change = line.at(0.5)
    assert f[0] == 1.5**2 and np.isnan(f[2]) and f[3] == 0.25
    assert change.tolist() == [0.5, 0.5, 0.5, 0.5]
    f, _ = line.at(-0.5)
    assert f.tolist() == [0.25, 4.0, 3.5**2, 0.25]


def test_what_a_step_does_not_move_has_no_value():
    f, _ = line_of(point_of(x=leaf(1.0, -2.0, 4.0, 1e20)), [0, 3], [0, NO_ENTRY, NO_ENTRY, 3]).at(1.0)
    assert f[0] == 4.0 and np.isnan(f[3])


def test_the_point_is_left_as_it_was():
    point = point_of()
    line_of(point, [0, 2], [0, NO_ENTRY, 2, NO_ENTRY]).at(0.5)
    assert torch.equal(point.buffers[0], X)


def test_lone_lines_have_one_column_that_owns_every_output():
    point = point_of()
    bundle = lone_columns(point, np.array([2, 0]))
    assert bundle.column_of.tolist() == [[2] * 4, [0] * 4]
    assert (bundle.grouped, bundle.in_pattern.all(), bundle.columns.tolist(), bundle.tensor.tolist()) == (False, True, [2, 0], [0, 0])
    f, change = bundle.lines[1].at(0.5)
    assert (f.tolist(), change) == ([2.25, 4.0, 16.0, 0.25], 0.5)


def grouping(point, pattern, first=0, tensor=0):
    weights = np.full(len(point.columns), -0.5)
    return Grouping(tensor, first, column_groups([pattern]), weights)


def test_a_grouping_has_its_columns_once_each_and_moves_them_by_weight_and_scale():
    point = prepared(Differentiable(lambda x: x.sum(1), normal(1, 3, 4)))[0]
    rows = np.arange(3)
    own = grouping(point, windows((3, 4), [rows, 0 * rows], [rows, 0 * rows + 3]))
    assert [own.members(group).tolist() for group in range(4)] == [[k, k + 4, k + 8] for k in range(4)]
    bundle = own.bundle(point, 1, 2)
    assert bundle.column_of.tolist() == [[1, 5, 9], [2, 6, 10]]
    np.testing.assert_allclose(bundle.lines[0].move, -0.5 * np.abs(normal(1, 3, 4).numpy().ravel()))
    assert sorted(bundle.columns.tolist()) == [1, 2, 5, 6, 9, 10]
    f, change = bundle.lines[0].at(0.25)
    moved = normal(1, 3, 4).numpy()
    np.testing.assert_allclose(change, -0.125 * np.abs(moved[:, 1]), rtol=1e-9)
    np.testing.assert_allclose(f, moved.sum(1) + change, rtol=1e-14)


def test_columns_of_a_later_tensor_are_counted_through():
    point = prepared(Differentiable(torch.mul, normal(1, 6), normal(2, 6)))[0]
    bundle = grouping(point, elementwise(6), first=6, tensor=1).bundle(point, 0, 1)
    assert bundle.column_of.tolist() == [[6, 7, 8, 9, 10, 11]] and bundle.tensor.tolist() == [1]
    f, change = bundle.lines[0].at(0.5)
    np.testing.assert_allclose(f, normal(1, 6) * (normal(2, 6) + torch.from_numpy(change)), rtol=1e-14)


def test_wide_lines_have_at_least_unit_scale():
    point = point_of(x=leaf(1e-3, -5.0, 1e-3, 2.0))
    assert [line.scale for line in widened(lone_columns(point, np.array([0, 1])), point).lines] == [1.0, 5.0]
    wide = widened(grouping(point, elementwise(4)).bundle(point, 0, 1), point)
    assert wide.lines[0].move.tolist() == [-0.5, -2.5, -0.5, -1.0]


def test_float32_columns_move_by_what_rounding_leaves():
    point = prepared(Differentiable(torch.square, X.float()))[0]
    _, change = line_of(point, [0, 1, 2, 3], [0, 1, 2, 3], move=[1.0] * 4).at(1e-6)
    wanted = (X.float() + torch.tensor(1e-6, dtype=DOUBLE).float()).double() - X
    np.testing.assert_allclose(change, wanted, rtol=1e-12)
    assert change[3] != change[0]
