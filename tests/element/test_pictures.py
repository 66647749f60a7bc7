"""Pictures of a failing check: the true Jacobian and the wrong one, on a grid; the worst element; the source of backward."""

import torch
from live import evidence, randn

from gradverify.element.pictures import CELLS, pictures
from gradverify.verify import verify


class TransposedWeight(torch.autograd.Function):
    """x @ w.T whose gradient of w is transposed."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w.T

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return g @ w, (g.T @ x).T


class OneWrong(torch.autograd.Function):
    """Twice x, but for the gradient of one element."""

    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, g):
        g = 2 * g
        g[57] = -7.0 * g[57]
        return g


def drawn(function, *values, **changes):
    seen = evidence(function, *values, **changes)
    return pictures(seen, verify(seen.subject, evidence=seen))


def test_a_map_holds_both_jacobians_and_marks_the_worst_element():
    x, w = randn(3, 3), randn(3, 3, seed=1)
    found = drawn(TransposedWeight, x, w)
    (seen,) = found.maps
    truth = torch.func.jacrev(lambda w: x @ w.T)(w).reshape(9, 9)
    wrong = torch.func.jacrev(lambda w: x @ w.T)(w).mT.reshape(9, 9)
    assert (seen.input[-1], seen.output, seen.rows, seen.columns) == ("1", 0, 9, 9) or seen.rows == seen.columns == 9
    torch.testing.assert_close(torch.tensor(seen.numeric, dtype=torch.float64), truth, rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(torch.tensor(seen.analytic, dtype=torch.float64), wrong)
    torch.testing.assert_close(torch.tensor(seen.error, dtype=torch.float64), (truth - wrong).abs(), rtol=1e-7, atol=1e-9)
    off = (truth - wrong).abs()
    assert off[seen.worst] > 0


def test_a_large_jacobian_is_drawn_in_cells_that_show_their_worst_element():
    (seen,) = drawn(OneWrong, randn(200)).maps
    assert len(seen.error) == len(seen.error[0]) == 50 <= CELLS and (seen.rows, seen.columns) == (200, 200)
    cells = {(row, column) for row, line in enumerate(seen.error) for column, value in enumerate(line) if value}
    assert cells == {(57 // 4, 57 // 4)} and seen.worst == (57, 57)
    assert (seen.analytic[14][14], round(seen.numeric[14][14], 6)) == (-14.0, 2.0)
    assert round(seen.numeric[3][3], 6) == 2.0      # of a right cell, the largest value


def test_the_worst_element_comes_with_every_step():
    (element,) = drawn(OneWrong, randn(60)).elements
    assert element.input.index == element.output.index == (57,)
    assert element.measured.outcome == "mismatch" and len(element.measured.rungs) > 10


def test_a_pass_has_no_pictures():
    assert drawn(torch.sin, randn(3)) is None


def test_lines_that_were_compared_in_place_of_elements_have_no_map():
    found = drawn(OneWrong, randn(60), mode="rows")
    assert not found.maps and found.elements
