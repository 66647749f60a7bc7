from __future__ import annotations

import pytest
import torch

from gradverify.model.case import TensorRecipe
from gradverify.subject.draw import draw, generator
from gradverify.subject.failure import UserCodeError


def made(default="float64", name="x", **recipe):
    return draw(TensorRecipe(**recipe), default, torch.device("cpu"), generator(0, "c", name), f"inputs.{name}")


def smallest(x):
    flat = x.reshape(-1)
    gaps = (flat[:, None] - flat[None, :]).abs() + torch.eye(len(flat)) * 1e9
    return float(gaps.min())


CASES = [
    dict(shape=(20, 20)), dict(shape=(300,), avoid=(0.0, 0.5), margin=0.2), dict(shape=(11,), draw="uniform", arguments=(0.0, 0.5)),
    dict(shape=(10,), draw="uniform", arguments=(-1.0, 1.0), avoid=(0.0,), margin=0.5),
    dict(shape=(5,), draw="choice", arguments=[0.0, 1.0, 2.0, 3.0, 4.0]),
]


@pytest.mark.parametrize("recipe", CASES)
@pytest.mark.parametrize("default", ["float64", "float32"])
def test_all_elements_keep_their_distance_and_off_what_is_avoided(recipe, default):
    x = made(default, distinct=0.05, **recipe)
    assert smallest(x) >= 0.05 * 0.99
    assert x.std() > 0.1
    for value in recipe.get("avoid", ()):
        assert (x - value).abs().min() >= recipe["margin"] * (1 - 1e-6)
    if recipe.get("draw") == "uniform":
        assert recipe["arguments"][0] <= x.min() and x.max() <= recipe["arguments"][1] * (1 + 1e-6)


def test_integers_as_many_as_there_are_come_once_each():
    x = made(shape=(6,), draw="integers", arguments=(0, 6), distinct=1.0)
    assert sorted(x.tolist()) == [0, 1, 2, 3, 4, 5] and x.dtype == torch.int64
    assert smallest(made(shape=(3,), draw="integers", arguments=(0, 10), distinct=3.5).double()) >= 4


def test_complex_numbers_keep_their_distance_in_the_plane():
    assert smallest(made("complex128", shape=(100,), distinct=0.05)) >= 0.05 * (1 - 1e-9)


@pytest.mark.parametrize("recipe", [
    dict(shape=(5,), draw="choice", arguments=[1.0, 2.0]), dict(shape=(30,), draw="uniform", arguments=(0.0, 1.0), avoid=(0.5,), margin=0.4),
    dict(draw="values", arguments=[1.0, 1.0])])
def test_what_cannot_be_is_said(recipe):
    with pytest.raises(UserCodeError, match=r"inputs\.x") as caught:
        made(distinct=0.1, **recipe)
    assert caught.value.code == "GV001"
