"""Another point of the same kind: drawn anew where a recipe says how, else perturbed within what
the numbers show of their kind."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from live import case, fixed, given, plain, randn, subject, tensor

from gradverify.subject.another import looks_symmetric, other_points
from gradverify.subject.prepare import assemble, prepare
from gradverify.subject.subject import Argument
from gradverify.subject.target import live


def points(*values, function=lambda *x: x[0]):
    return [[a.value for a in arguments] for arguments in other_points(subject(function, *values))]


def drawn(*recipes, **settings):
    """(the arguments of a spec, those of its first other point)."""
    described = case("torch:sin", recipes, **settings)
    made = [replace(argument, name="") for argument in prepare(described).arguments]
    here = assemble(described, live("live", lambda *x: x[0], None, torch.float64), made)
    return [a.value for a in here.arguments], [a.value for a in next(other_points(here))]


def test_what_a_recipe_draws_is_drawn_with_another_seed():
    recipes = (
        tensor(50, draw="uniform", arguments=(2.0, 3.0)),
        tensor(40, draw="integers", arguments=(0, 5)),
        plain(4),
    )
    (x, n, factor), (other_x, other_n, other_factor) = drawn(*recipes)
    assert not torch.equal(x, other_x) and 2 <= other_x.min() <= other_x.max() <= 3
    assert not torch.equal(n, other_n) and set(other_n.tolist()) <= set(range(5))
    assert factor == other_factor == 4
    assert torch.equal(drawn(*recipes)[1][0], other_x)
    assert not torch.equal(drawn(*recipes, seed=1)[1][0], other_x)


def test_given_numbers_change_places_and_their_zeros_and_the_set_of_signs_stay():
    (x,), (other,) = drawn(given([1.0, -2.0, 0.0, 3.0, -4.0, 5.0]))
    assert other[2] == 0
    assert sorted(other.sign().tolist()) == sorted(x.sign().tolist())
    assert other.sign().tolist() != x.sign().tolist()
    nearest = (other.abs()[:, None] / x.abs()[None] - 1).abs()
    assert (nearest.nan_to_num(nan=1.0, posinf=1.0).min(1).values[x != 0] <= 0.36).all()


SHAPES = [(2,), (3,), (7,), (4, 1), (2, 2), (2, 3, 3)]


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_no_mask_of_signs_and_no_arg_max_of_given_numbers_fits_the_other_point(shape, positive):
    """What a cache keyed by shape can hold. Of numbers of one sign there is no mask, and none
    leaves that sign."""
    for seed in range(6):
        x = randn(*shape, seed=seed)
        x = x.abs() if positive else x
        other = points(x, fixed(1))[0][0]
        assert torch.equal(other > 0, x > 0) == bool((x > 0).all() or (x < 0).all())
        assert all(
            not torch.equal(other.argmax(dim), x.argmax(dim))
            for dim in range(x.dim())
            if shape[dim] > 1
        )


def test_rows_of_a_batch_stay_together():
    """Boxes (x1 < x2, y1 < y2), far apart: a backward may rely on the order of the corners."""
    corners = torch.tensor([[1.0, 2.0, 3.0, 5.0]], dtype=torch.float64) * torch.tensor(
        [[1.0], [30.0], [1e3], [3e4], [1e6]], dtype=torch.float64
    )
    other = points(corners)[0][0]
    assert not torch.equal(other.argmax(0), corners.argmax(0))
    assert (other[:, :2] < other[:, 2:]).all()


def test_a_grid_beside_another_input_stays_in_order_and_an_input_alone_does_not():
    grid = torch.tensor([0.5, 1.0, 1.1, 2.0, 3.5], dtype=torch.float64)
    assert all((other.diff() > 0).all() for other, _ in points(grid, randn(5))[:1])
    assert all((other.diff() < 0).all() for other, _ in points(grid.flip(0), randn(5))[:1])
    assert not (points(grid)[0][0].diff() > 0).all()


def test_a_symmetric_positive_definite_matrix_stays_one():
    a = randn(4, 4)
    matrix = a @ a.T + 0.1 * torch.eye(4, dtype=torch.float64)
    matrix = (matrix + matrix.T) / 2
    hermitian = torch.complex(matrix, 0.05 * (a - a.T))
    for x in (matrix, hermitian, torch.stack([matrix, 2 * matrix])):
        for (other,) in points(x):
            assert looks_symmetric(x) and looks_symmetric(other)
            assert not torch.equal(other, x)
            assert bool((torch.linalg.eigvalsh(other) > 0).all())


def test_a_triangular_matrix_stays_triangular():
    x = randn(3, 3).tril()
    assert all(
        torch.equal(other, other.tril()) and not torch.equal(other, x) for (other,) in points(x)
    )


def test_a_domain_is_not_left():
    x = torch.tensor([0.99, -0.99, 0.5], dtype=torch.float64)
    for (other,) in points(Argument("x", x, True, domain=(-1.0, 1.0))):
        assert other.abs().max() <= 1
        assert not torch.equal(other, x)


def test_inputs_that_a_function_makes_are_made_with_another_seed():
    here = prepare(replace(case("subject.targets:plain"), inputs_from="subject.targets:made"))
    x, other = here.arguments[0].value, next(other_points(here))[0].value
    assert not torch.equal(other, x)
    assert other.shape == x.shape
