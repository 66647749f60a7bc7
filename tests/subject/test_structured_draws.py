from __future__ import annotations

import pytest
import torch

from gradverify.model.case import TensorRecipe
from gradverify.subject.draw import draw, generator
from gradverify.subject.failure import UserCodeError


def made(**recipe):
    return draw(TensorRecipe(**recipe), "float64", torch.device("cpu"), generator(0, "c", "x"), "inputs.x")


def test_a_symmetric_draw_is_symmetric():
    x = made(shape=(3, 4, 4), symmetric=True)
    assert torch.equal(x, x.mT) and x.std() > 0.3


def test_a_complex_symmetric_draw_is_hermitian():
    z = draw(TensorRecipe(shape=(4, 4), symmetric=True), "complex128", torch.device("cpu"), generator(0, "c", "z"), "inputs.z")
    assert torch.equal(z, z.mH) and not torch.equal(z, z.mT)


@pytest.mark.parametrize(("recipe", "said"), [
    (dict(draw="values", arguments=[[1.0, 2.0], [3.0, 4.0]], symmetric=True), "not symmetric"),
    (dict(shape=(2,), symmetric=True), "square"),
    (dict(shape=(50,), domain=(0.0, 10.0)), "lie in the domain")])
def test_what_does_not_fit_is_said(recipe, said):
    with pytest.raises(UserCodeError, match=said):
        made(**recipe)
