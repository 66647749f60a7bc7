"""Elements of a chunk by line and output; of a block as of any others."""

from __future__ import annotations

import numpy as np
import pytest

from gradverify.numerics.judging.bundle import Bundle, Cells, cells_where, summed_by_output

OWNER = np.array([[0, 0, 0, 0], [1, 2, 1, 2], [5, 4, 3, 3]])
BUNDLE = Bundle([None] * 3, OWNER, np.zeros(3, int))
VALUES = np.arange(12.0).reshape(3, 4) ** 2


def mask(*elements):
    found = np.zeros((3, 4), bool)
    for local, out in elements:
        found[local, out] = True
    return found


def test_elements_are_those_of_the_mask_in_order_with_their_columns():
    cells = cells_where(BUNDLE, mask((2, 1), (0, 3), (1, 0))[:, 0:4], slice(0, 4))
    assert (cells.line.tolist(), cells.out.tolist(), cells.column.tolist()) == ([0, 1, 2], [3, 0, 1], [0, 1, 4])
    assert (len(cells), cells.block, cells.lines) == (3, None, 0)
    assert cells.by_line_and_output(VALUES).tolist() == [9, 16, 81]


def test_outputs_are_counted_through_although_the_mask_has_some_of_them_only():
    cells = cells_where(BUNDLE, mask((1, 1), (2, 3))[:, 1:4], slice(1, 4))
    assert (cells.out.tolist(), cells.column.tolist()) == ([1, 3], [2, 3])
    assert cells.by_output(np.array([10, 11, 12, 13])).tolist() == [11, 13]


@pytest.mark.parametrize("outs", [slice(0, 4), slice(1, 3), slice(3, 4)])
def test_a_block_is_all_elements_of_its_outputs(outs):
    width = outs.stop - outs.start
    block = cells_where(BUNDLE, np.ones((3, width), bool), outs)
    by_hand = Cells(BUNDLE, np.repeat([0, 1, 2], width), np.tile(range(outs.start, outs.stop), 3))
    assert (block.block, block.lines) == (outs, 3)
    assert block.line.tolist() == by_hand.line.tolist() and block.out.tolist() == by_hand.out.tolist()
    assert block.column.tolist() == by_hand.column.tolist() == OWNER[:, outs].ravel().tolist()
    assert block.by_line_and_output(VALUES).tolist() == by_hand.by_line_and_output(VALUES).tolist() == VALUES[:, outs].ravel().tolist()


def test_nothing_is_chosen_by_an_empty_mask():
    assert len(cells_where(BUNDLE, np.zeros((3, 4), bool), slice(0, 4))) == 0
    assert len(cells_where(BUNDLE, np.zeros((3, 0), bool), slice(4, 4))) == 0


def test_part_of_a_block_is_no_block_and_all_of_it_is_itself():
    block = cells_where(BUNDLE, np.ones((3, 2), bool), slice(1, 3))
    assert block.take(np.arange(6)) is block
    part = block.take(np.array([1, 4]))
    assert (part.line.tolist(), part.out.tolist(), part.column.tolist(), part.lines) == ([0, 2], [2, 1], [0, 4], 0)


@pytest.mark.parametrize("outs", [slice(0, 4), slice(1, 3), slice(2, 3)])
def test_sums_by_output_of_a_block_are_those_of_its_elements(outs):
    width = outs.stop - outs.start
    block = cells_where(BUNDLE, np.ones((3, width), bool), outs)
    values, wanted = VALUES[:, outs], np.zeros(4)
    wanted[outs] = values.sum(0)
    assert summed_by_output(block.out, values.ravel(), 4, block.lines).tolist() == wanted.tolist()
    assert summed_by_output(block.out, values.ravel(), 4, 0).tolist() == wanted.tolist()


def test_sums_of_scattered_elements_are_by_output():
    assert summed_by_output(np.array([3, 0, 0, 3]), np.array([1.0, 2.0, 4.0, 8.0]), 4, 0).tolist() == [6, 0, 0, 9]
    assert summed_by_output(np.zeros(0, int), np.zeros(0), 3, 0).tolist() == [0, 0, 0]


@pytest.mark.parametrize("outs", [slice(0, 4), slice(1, 3), slice(3, 4)])
@pytest.mark.parametrize("column_of", [[2, 3, 4, 5], [5, 4, 3, 2], [2, 4, 3, 5], [7, 7, 7, 7], [-1, 0, 1, 2]])
def test_what_is_known_by_column_or_output_is_that_of_each_element_whatever_a_line_shows(column_of, outs):
    bundle = Bundle([None], np.array([column_of]), np.zeros(1, int))
    block = Cells(bundle, np.zeros(outs.stop - outs.start, int), np.arange(outs.start, outs.stop), outs)
    by_column, by_output = np.arange(10.0) ** 2, np.arange(4.0) + 100
    assert block.by_column(by_column).tolist() == by_column[np.array(column_of)[outs]].tolist()
    assert block.by_output(by_output).tolist() == by_output[outs].tolist()


def test_what_is_known_by_column_or_output_of_several_lines():
    block = cells_where(BUNDLE, np.ones((3, 2), bool), slice(1, 3))
    assert block.by_column(np.arange(6.0)).tolist() == [0, 0, 2, 1, 4, 3]
    assert block.by_output(np.arange(4.0)).tolist() == [1, 2] * 3


@pytest.mark.parametrize(("column_of", "shift"), [([[2, 3, 4]], 2), ([[0]], 0), ([[3, 2, 4]], None), ([[0, 2, 1, 3]], None), ([[1, 1]], None),
                                              ([[0, 1], [2, 3]], None), ([[]], None)])
def test_a_line_is_shifted_where_it_shows_neighbouring_columns_in_order(column_of, shift):
    bundle = Bundle([None] * len(column_of), np.array(column_of, int), np.zeros(len(column_of), int))
    assert bundle.shift == shift
