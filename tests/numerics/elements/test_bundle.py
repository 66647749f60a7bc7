"""Lines of one column and of many: what they move, whose derivative each output shows, and which may be shared."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gradverify.numerics.elements.bundle import Grouping, GroupLine, lone_columns, merged_lines, widened
from gradverify.numerics.sparsity.colouring import column_groups
from gradverify.numerics.sparsity.pattern import NOBODY
from numerics.differentiable import DOUBLE, Differentiable, leaf, normal
from numerics.windows import along_last, axes, elementwise, prepared, windows

X = leaf(1.0, -2.0, 4.0, 0.5)


def point_of(forward=torch.square, x=X, **options):
    return prepared(Differentiable(forward, x), **options)[0]


def line_of(point, columns, owner, move=None):
    move = np.array([1.0, 1.0, -2.0, 1.0]) if move is None else np.array(move)
    return GroupLine(point, np.array(columns), move, np.array(owner))


def test_a_group_moves_its_columns_together_each_by_its_own_way():
    line = line_of(point_of(), [0, 2], [0, NOBODY, 2, NOBODY])
    f, change = line.at(0.5)
    assert f.tolist() == [1.5**2, 4.0, 3.0**2, 0.25]
    assert change.tolist() == [0.5, 0.5, -1.0, 0.5]         # of what nobody owns: the step itself
    assert line.size.tolist() == [1.0, 1.0, 2.0, 1.0]
    assert line.magnitude.tolist() == [1.0, 0.0, 4.0, 0.0]


def test_what_would_leave_its_domain_stays_and_its_outputs_have_no_value():
    point = point_of(domains=[(-3.0, 4.2)])
    line = line_of(point, [0, 2], [0, 0, 2, NOBODY], move=[1.0, 1.0, 1.0, 1.0])
    f, change = line.at(0.5)
    assert f[0] == 1.5**2 and np.isnan(f[2]) and f[3] == 0.25
    assert change.tolist() == [0.5, 0.5, 0.5, 0.5]
    f, _ = line.at(-0.5)
    assert f.tolist() == [0.25, 4.0, 3.5**2, 0.25]


def test_what_a_step_does_not_move_has_no_value():
    f, _ = line_of(point_of(x=leaf(1.0, -2.0, 4.0, 1e20)), [0, 3], [0, NOBODY, NOBODY, 3]).at(1.0)
    assert f[0] == 4.0 and np.isnan(f[3])


def test_the_point_is_left_as_it_was():
    point = point_of()
    line_of(point, [0, 2], [0, NOBODY, 2, NOBODY]).at(0.5)
    assert torch.equal(point.buffers[0], X)


def test_lone_lines_have_one_column_that_owns_every_output():
    point = point_of()
    bundle = lone_columns(point, np.array([2, 0]))
    assert bundle.owner.tolist() == [[2] * 4, [0] * 4]
    assert (bundle.grouped, bundle.owned.all(), bundle.columns.tolist(), bundle.tensor.tolist()) == (False, True, [2, 0], [0, 0])
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
    assert bundle.owner.tolist() == [[1, 5, 9], [2, 6, 10]]
    np.testing.assert_allclose(bundle.lines[0].move, -0.5 * np.abs(normal(1, 3, 4).numpy().ravel()))
    assert sorted(bundle.columns.tolist()) == [1, 2, 5, 6, 9, 10]
    f, change = bundle.lines[0].at(0.25)
    moved = normal(1, 3, 4).numpy()
    np.testing.assert_allclose(change, -0.125 * np.abs(moved[:, 1]), rtol=1e-9)
    np.testing.assert_allclose(f, moved.sum(1) + change, rtol=1e-14)


def test_columns_of_a_later_tensor_are_counted_through():
    point = prepared(Differentiable(torch.mul, normal(1, 6), normal(2, 6)))[0]
    bundle = grouping(point, elementwise(6), first=6, tensor=1).bundle(point, 0, 1)
    assert bundle.owner.tolist() == [[6, 7, 8, 9, 10, 11]] and bundle.tensor.tolist() == [1]
    f, change = bundle.lines[0].at(0.5)
    np.testing.assert_allclose(f, normal(1, 6) * (normal(2, 6) + torch.from_numpy(change)), rtol=1e-14)


def test_wide_lines_have_at_least_unit_scale():
    point = point_of(x=leaf(1e-3, -5.0, 1e-3, 2.0))
    assert [line.scale for line in widened(lone_columns(point, np.array([0, 1])), point).lines] == [1.0, 5.0]
    wide = widened(grouping(point, elementwise(4)).bundle(point, 0, 1), point)
    assert wide.lines[0].move.tolist() == [-0.5, -2.5, -0.5, -1.0]


def softmaxes():
    """Four groups of three columns, a row of the input each."""
    x = normal(1, 3, 4)
    point = prepared(Differentiable(lambda x: torch.softmax(x, -1), x))[0]
    return point, grouping(point, along_last(3, 4)).bundle(point, 0, 4)


def test_columns_that_move_nothing_that_is_wanted_of_another_share_a_line():
    _, bundle = softmaxes()
    lines, home = merged_lines(bundle, np.array([0, 1, 2]), np.array([0, 5, 11]))      # by columns (0, 0), (1, 1), (2, 2)
    assert (len(lines), home.tolist()) == (1, [0, 0, 0])
    assert lines[0].columns.tolist() == [0, 5, 10]
    assert lines[0].owner[[0, 5, 11]].tolist() == [0, 5, 10]


def test_columns_that_move_each_others_outputs_have_lines_of_their_own():
    _, bundle = softmaxes()
    lines, home = merged_lines(bundle, np.array([0, 1, 1]), np.array([0, 1, 4]))       # (0, 0) and (0, 1) lie in one row; (1, 1) does not
    assert home.tolist() == [0, 1, 1]
    assert [line.columns.tolist() for line in lines] == [[0], [1, 5]]


@pytest.mark.parametrize(("low", "high", "local", "out", "home"), [
    (0, 1, [0, 1], [0, 2], [0, 1]), (1, 0, [0, 1], [0, 1], [0, 1]),     # the one moves what is wanted of the other, not the other way round
    (0, 1, [0, 1], [0, 5], [0, 0]), (1, 0, [0, 1], [0, 5], [0, 0])],
    ids=["sums from the left", "sums from the right", "other rows, from the left", "other rows, from the right"])
def test_a_line_is_not_shared_where_one_of_two_moves_what_is_wanted_of_the_other(low, high, local, out, home):
    point = prepared(Differentiable(lambda x: x.cumsum(-1), normal(1, 3, 4)))[0]
    row, column = axes(3, 4)
    pattern = windows((3, 4), [row, low * column], [row, np.where(high, column, 3)])
    found = merged_lines(grouping(point, pattern).bundle(point, 0, 4), np.array(local), np.array(out))[1]
    assert found.tolist() == home


def test_shared_lines_measure_what_lone_ones_do():
    point, bundle = softmaxes()
    (line,), _ = merged_lines(bundle, np.array([0, 1, 2]), np.array([0, 5, 11]))
    f, change = line.at(1e-3)
    for out, column in ((0, 0), (5, 5), (11, 10)):
        alone = point.values_at(np.array([column]), np.array([point.columns.x[column] + change[out]]))
        assert f[out] == pytest.approx(alone[out], abs=1e-16)


def test_lone_lines_are_left_as_they_are():
    bundle, local = lone_columns(point_of(), np.array([2, 0])), np.array([0, 0, 1])
    lines, home = merged_lines(bundle, local, np.array([0, 1, 2]))
    assert lines == list(bundle.lines) and home is local


def test_float32_columns_move_by_what_rounding_leaves():
    point = prepared(Differentiable(torch.square, X.float()))[0]
    _, change = line_of(point, [0, 1, 2, 3], [0, 1, 2, 3], move=[1.0] * 4).at(1e-6)
    wanted = (X.float() + torch.tensor(1e-6, dtype=DOUBLE).float()).double() - X
    np.testing.assert_allclose(change, wanted, rtol=1e-12)
    assert change[3] != change[0]
