from __future__ import annotations

import pytest
import torch

from gradverify.model.case import TensorRecipe
from gradverify.subject.draw import draw, generator

EYE = torch.eye(4, dtype=torch.float64)


def made(kind, *shape, dtype="float64", name="x", **recipe):
    recipe = TensorRecipe(shape=shape, draw="kind", arguments=kind, **recipe)
    return draw(recipe, dtype, torch.device("cpu"), generator(0, "c", name), f"inputs.{name}")


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_spd_matrices_are_hermitian_and_positive_definite(dtype):
    a = made("spd", 5, 4, 4, dtype=dtype)
    assert torch.equal(a, a.mH)
    assert torch.linalg.eigvalsh(a).min() >= 0.5 - 1e-12
    assert not torch.equal(a[0], a[1])


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("shape", [(3, 4, 4), (6, 4), (4, 6)])
def test_orthogonal_matrices_have_orthonormal_columns_or_rows(dtype, shape):
    q = made("orthogonal", *shape, dtype=dtype)
    gram = q @ q.mH if shape[-1] > shape[-2] else q.mH @ q
    assert torch.allclose(gram, EYE.to(gram.dtype).expand_as(gram), atol=1e-12)


def test_lower_triangular_matrices_are_zero_above_and_away_from_zero_on_the_diagonal():
    a = made("lower_triangular", 3, 4, 4)
    assert torch.equal(a, a.tril()) and (a.tril(-1) != 0).sum() == 18
    assert a.diagonal(dim1=-2, dim2=-1).min() >= 0.5


def test_a_simplex_adds_up_to_one_and_unit_vectors_have_length_one():
    p, u, z = made("simplex", 5, 3), made("unit_vector", 5, 3), made("unit_vector", 5, 3, dtype="complex128")
    assert p.min() > 0 and torch.allclose(p.sum(-1), torch.ones(5, dtype=torch.float64))
    for rows in (u, z):
        assert torch.allclose(rows.abs().square().sum(-1), torch.ones(5, dtype=torch.float64))


def test_permutations_hold_every_index_once_as_integers():
    p = made("permutation", 6, 5)
    assert p.dtype == torch.int64 and torch.equal(p.sort(-1).values, torch.arange(5).expand(6, 5))
    assert len({tuple(row.tolist()) for row in p}) > 1
    assert made("permutation", 5, dtype="float32").dtype == torch.int64


def test_one_hot_rows_hold_a_single_one_in_the_checks_dtype():
    a = made("one_hot", 20, 4)
    assert a.dtype == torch.float64 and torch.equal(a.sum(-1), torch.ones(20, dtype=torch.float64)) and set(a.unique().tolist()) == {0.0, 1.0}
    assert len(a.argmax(-1).unique()) > 1


def test_masks_are_boolean_and_leave_something_in_every_row():
    mask = made("mask", 200, 3)
    assert mask.dtype == torch.bool and bool(mask.any(-1).all())
    assert 0.4 < mask.double().mean() < 0.75
