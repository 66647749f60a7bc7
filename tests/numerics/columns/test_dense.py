from __future__ import annotations

import pytest
import torch

from gradverify.numerics.columns.dense import LIMIT, Layout, Tolerances, pairs, rows
from gradverify.numerics.derivative import Outcome
from gradverify.numerics.flat import real_size
from numerics.plain import Largest, Plain, randn

AUTO, FIXED = Tolerances(0.0, 1e-6), Tolerances(1e-5, 1e-3, 1e-6)


def analytic(function):
    outputs = function.values([x.requires_grad_() for x in map(torch.clone, function.inputs)])
    layout = Layout(tuple(map(real_size, function.inputs)), tuple(map(real_size, outputs)))
    return rows(function, outputs, layout, next(iter(layout.tiles(LIMIT))))


def test_the_analytic_rows_of_a_linear_map_are_its_matrix():
    matrix = randn(3, 4)
    (found,), (absent,) = analytic(Plain(lambda x: matrix @ x, randn(4, seed=1)))
    torch.testing.assert_close(found, matrix)
    assert absent == (False,)


def test_the_analytic_rows_of_softmax_are_its_closed_form():
    x = randn(4)
    p = x.softmax(0)
    (found,), _ = analytic(Plain(lambda x: x.softmax(0), x))
    torch.testing.assert_close(found, p.diag() - p.outer(p))


@pytest.mark.parametrize(("call", "matrix"), [
    (torch.conj_physical, [[1.0, 0.0], [0.0, -1.0]]),
    (lambda z: (2 + 3j) * z, [[2.0, -3.0], [3.0, 2.0]]),
    (torch.abs, [[0.6, 0.8]]),
    (torch.real, [[1.0, 0.0]]),
], ids=["conj", "mul", "abs", "real"])
def test_complex_functions_are_the_real_maps_they_are(call, matrix):
    function = Plain(call, torch.tensor(3 + 4j, dtype=torch.complex128))
    (found,), _ = analytic(function)
    torch.testing.assert_close(found, torch.tensor(matrix, dtype=torch.float64))
    assert pairs(function, AUTO)[0, 0].count(Outcome.PASS) == len(matrix) * 2
    assert pairs(function, FIXED)[0, 0].count(Outcome.PASS) == len(matrix) * 2


def two_by_two(x, z):
    """A real and a complex input, a complex and a 0-dim output."""
    return x.sum() * z.sin(), (x * x).sum() + z.abs().sum()


SMALL = 2 * 8 * 16 * 20


@pytest.mark.parametrize("tolerances", [AUTO, FIXED], ids=["auto", "fixed"])
@pytest.mark.parametrize("limit", [1, SMALL, 4 * SMALL])
def test_a_tiny_limit_changes_no_number(tolerances, limit):
    function = Plain(two_by_two, randn(3), randn(5, dtype=torch.complex128), damage=lambda i, g: g * (1 + 0.1 * i))
    tiled, whole = pairs(function, tolerances, limit), pairs(function, tolerances)
    assert tiled.keys() == whole.keys() == {(0, 0), (0, 1), (1, 0), (1, 1)}
    assert whole[1, 0].count(Outcome.MISMATCH) > 0
    for key in whole:
        assert tiled[key].counts == whole[key].counts
        assert tiled[key].max_abs_error == whole[key].max_abs_error
        assert [(e.output, e.input, e.error) for e in tiled[key].worst] == [(e.output, e.input, e.error) for e in whole[key].worst]
        assert torch.equal(tiled[key].ratios, whole[key].ratios)


@pytest.mark.parametrize("sizes", [(3, 10), (1, 4, 1, 6), (5, 2), (0, 4), (7,), (1, 1, 1)])
@pytest.mark.parametrize("room", [2, 4, 6, 8])
def test_tiles_cover_every_column_once_and_never_part_a_complex_element(sizes, room):
    layout = Layout(sizes, (1,))
    tiles = list(layout.tiles(2 * 8 * room))
    seen = [(index, column) for tile in tiles for index, first, last in tile for column in range(first, last)]
    assert seen == [(index, column) for index, size in enumerate(sizes) for column in range(size)]
    assert all(sum(last - first for _, first, last in tile) <= room for tile in tiles)
    assert all(first % 2 == 0 for tile in tiles for _, first, _ in tile)


def test_the_analytic_rows_are_computed_again_for_every_tile_and_the_columns_once():
    function = Plain(torch.sin, randn(8))
    pairs(function, FIXED)
    one_pass = function.forwards, function.backwards
    function.forwards = function.backwards = 0
    pairs(function, FIXED, limit=2 * 8 * 8 * 2)        # two columns of eight rows at a time
    assert one_pass[1] == 8
    assert function.backwards == 8 * 4
    assert function.forwards == one_pass[0]


@pytest.mark.parametrize("limit", [2**16, 2**17])
def test_no_tensor_is_larger_than_the_limit(limit):
    function = Plain(lambda x: x.sin(), randn(200))
    assert limit < 200 * 200 * 8
    with Largest() as largest:
        result = pairs(function, FIXED, limit)
    assert result[0, 0].elements == 200 * 200
    assert 0 < largest.bytes <= limit


def test_none_throughout_is_absent_and_none_for_one_output_only_there():
    result = pairs(Plain(lambda x, y: (x * 2, y * x), randn(2), randn(2, seed=1)), AUTO)
    assert {key: seen.absent for key, seen in result.items()} == {(0, 0): False, (0, 1): False, (1, 0): True, (1, 1): False}
    assert result[1, 0].count(Outcome.MISMATCH) == 0
    result = pairs(Plain(lambda x, y: x * y, randn(2), randn(2, seed=1), damage=lambda i, g: None if i else g), AUTO)
    assert result[1, 0].absent
    assert result[1, 0].count(Outcome.MISMATCH) == 2


@pytest.mark.parametrize("damage", [lambda g: g * 1.01, lambda g: -g, lambda g: g.roll(1), torch.zeros_like, lambda g: g * torch.nan])
@pytest.mark.parametrize("tolerances", [AUTO, FIXED], ids=["auto", "fixed"])
def test_a_wrong_backward_is_counted_and_a_right_one_not(tolerances, damage):
    assert pairs(Plain(torch.exp, randn(4)), tolerances)[0, 0].count(Outcome.MISMATCH) == 0
    assert pairs(Plain(torch.exp, randn(4), damage=lambda i, g: damage(g)), tolerances)[0, 0].count(Outcome.MISMATCH) >= 4


def test_scalars_and_empty_tensors_are_compared_too():
    assert pairs(Plain(lambda x: x * x, torch.tensor(3.0, dtype=torch.float64)), AUTO)[0, 0].counts[Outcome.PASS] == 1
    empty = pairs(Plain(lambda x, y: (x * 2, y.sum(0)), randn(0, 3), randn(2, seed=1)), AUTO)
    assert sum(seen.elements for seen in empty.values()) == 2
    assert pairs(Plain(lambda x: x[:0], randn(3)), AUTO)[0, 0].elements == 0


def test_masked_infinities_are_left_out_of_the_count():
    mask = torch.tensor([0.0, -torch.inf, 0.0], dtype=torch.float64)
    result = pairs(Plain(lambda x: x + mask, randn(3)), AUTO)[0, 0]
    assert (result.elements, result.count(Outcome.PASS), result.counts[Outcome.MASKED]) == (6, 6, 3)


def test_a_border_within_reach_of_the_probe_costs_its_elements_only():
    def border(x):
        if (x > 1).any():
            raise ValueError("outside")
        return x * 2

    result = pairs(Plain(border, torch.tensor([1.0, 0.5], dtype=torch.float64)), AUTO)[0, 0]
    assert (result.count(Outcome.NON_FINITE), result.count(Outcome.PASS)) == (2, 2)


def test_a_forward_that_differentiates_inside_is_measured():
    function = Plain(lambda x: torch.autograd.grad((x**3).sum(), x, create_graph=True)[0], randn(3))
    assert pairs(function, AUTO)[0, 0].count(Outcome.PASS) == 9
